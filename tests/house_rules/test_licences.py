"""Every package locked for an extra or the build has an allowed licence. licences.toml names no other package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house_rules.licences import RULES, Licences, packages

LICENCES = Licences(RULES.read_text("utf-8"))


def test_every_locked_package_has_an_allowed_licence() -> None:
    assert len(packages()) > 150
    assert [problem for package in packages() if (problem := LICENCES.problem(package))] == []


def test_licences_are_stated_for_locked_packages_only() -> None:
    assert LICENCES.stated.keys() <= set(packages())


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("MIT AND (Apache-2.0 OR GPL-3.0-only)", False),  # refused, although one could choose Apache-2.0
    ],
)
def test_one_choice_of_or_and_every_part_of_and_must_be_allowed(expression: str, is_allowed: bool) -> None:
    assert LICENCES.is_allowed(expression) == is_allowed


def test_a_package_without_a_known_licence_is_refused() -> None:
    rules = Licences('allowed = ["MIT"]\n[spellings]\n[stated]\nother = "GPL-3.0-only"')
    assert (
        rules.problem("no-such-package")
        == "no-such-package: its licence is not known; state it in licences.toml"
    )
    assert rules.problem("other") == "other: licences.toml does not allow GPL-3.0-only"
    assert rules.problem("pytest") is None
    assert rules.expression("Some words about a licence") is None


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        ("License: MIT", "MIT"),
        ("License: Copyright (c) 2001\n  All rights reserved.\nClassifier: License :: MIT License", "MIT"),
        ("License: MIT\nClassifier: License :: MIT License", "MIT"),
        ("License: MIT\nClassifier: License :: The GPL", None),
        ("License: MIT\nClassifier: License :: ISC License", None),
        ("Classifier: License :: MIT License\nClassifier: License :: ISC License", None),
        ("License-Expression: MIT OR ISC\nClassifier: License :: ISC License", "MIT OR ISC"),
        ("License: UNKNOWN", None),
    ],
)
def test_a_licence_is_known_if_all_statements_of_a_package_agree(
    stated: str, expression: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_package-1.dist-info").mkdir()
    head = "Metadata-Version: 2.4\nName: some-package\nVersion: 1\n"
    (tmp_path / "some_package-1.dist-info" / "METADATA").write_text(f"{head}{stated}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    spellings = '"MIT License" = "MIT"\n"ISC License" = "ISC"'
    rules = Licences(f'allowed = ["MIT"]\n[spellings]\n{spellings}\n[stated]')
    assert rules.of("some-package") == expression
