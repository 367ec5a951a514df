"""Each package locked for an extra or the build has an allowed licence, and licences.toml states no other package's."""

from __future__ import annotations

import pytest

from tests.house_rules.licences import RULES, Licences, packages

LICENCES = Licences(RULES.read_text("utf-8"))


def test_every_locked_package_has_an_allowed_licence() -> None:
    assert len(packages()) > 150
    assert [problem for package in packages() if (problem := LICENCES.problem(package))] == []


def test_a_stated_licence_is_that_of_a_locked_package() -> None:
    assert LICENCES.stated.keys() <= set(packages())


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("MIT AND (Apache-2.0 OR GPL-3.0-only)", False),  # refused, although one could choose
    ],
)
def test_what_is_allowed(expression: str, is_allowed: bool) -> None:
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
