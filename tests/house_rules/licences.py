"""The licence of every package that is locked for an extra or for the build, and whether licences.toml allows it.

A package states its licence as an SPDX expression, or as a text and by classifiers. licences.toml says what texts and
classifiers mean. It also has the licences of packages that state none or several, or that are not installed here
because they are for another platform, for a GPU or for Ray.

    python -m tests.house_rules.licences
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from tests.house_rules.test_locks import OTHERS, RAY, SERVING, locked

RULES = Path(__file__).with_name("licences.toml")
CLASSIFIER = "License :: "


class Licences:
    """The rules of licences.toml, and the licences by these rules."""

    def __init__(self, rules: str) -> None:
        read = tomllib.loads(rules)
        self._allowed = frozenset(read["allowed"])
        self._spellings: dict[str, str] = read["spellings"]
        self.stated: dict[str, str] = read["stated"]

    def of(self, package: str) -> str | None:
        """A package's licence as an SPDX expression.

        None if the licence is not known, or if the package states several. License-Expression counts alone. An unknown
        text in the field License is ignored.
        """
        if package in self.stated:
            return self.stated[package]
        try:
            found = metadata(package)
        except PackageNotFoundError:
            return None
        classifiers = [
            each.rpartition(" :: ")[2]
            for each in found.get_all("Classifier") or []
            if each.startswith(CLASSIFIER)
        ]
        # The field License may also hold the text of the whole licence, which is ignored.
        texts = [each for each in found.get_all("License") or [] if self.expression(each)]
        expressions = set(map(self.expression, found.get_all("License-Expression") or [*texts, *classifiers]))
        return expressions.pop() if len(expressions) == 1 else None

    def expression(self, text: str) -> str | None:
        """The SPDX expression that a text means; None if it is not known."""
        try:
            return str(canonicalize_license_expression(self._spellings.get(text.strip(), text.strip())))
        except InvalidLicenseExpression:
            return None

    def is_allowed(self, expression: str) -> bool:
        """Whether a licence is allowed. With only OR, one allowed part is enough. With any AND, all must be allowed."""
        choices = re.split(r"\s+OR\s+", expression.replace("(", " ").replace(")", " "))
        if " AND " in expression and len(choices) > 1:
            choices = [" AND ".join(choices)]  # a mixture
        return any(
            all(part.strip() in self._allowed for part in re.split(r"\s+AND\s+", choice))
            for choice in choices
        )

    def problem(self, package: str) -> str | None:
        """Why a package may not be used, or None."""
        expression = self.of(package)
        if expression is None:
            return f"{package}: its licence is not known; state it in {RULES.name}"
        return None if self.is_allowed(expression) else f"{package}: {RULES.name} does not allow {expression}"


def packages() -> list[str]:
    """The names of the packages in the locks of all extras and of the build."""
    names = {
        canonicalize_name(each.name) for lock in (*SERVING, *OTHERS, RAY, "build") for each, _ in locked(lock)
    }
    return sorted(names)


def main() -> int:
    """Print each package with its licence, then the problems. Exit code 1 if there is one."""
    licences = Licences(RULES.read_text("utf-8"))
    for package in packages():
        print(f"{package:44} {licences.of(package) or '?'}")
    problems = [problem for package in packages() if (problem := licences.problem(package))]
    print("\n".join(problems) or f"{len(packages())} packages, all with an allowed licence")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
