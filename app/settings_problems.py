"""Describes what is wrong with the environment's settings, one line for each problem."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

from pydantic import ValidationError


def unknown_variables(
    environment: Mapping[str, str], prefix: str, settings: Collection[str], others: Collection[str]
) -> list[str]:
    """One line for each variable with the prefix that is not a setting. It suggests a setting with a similar name.

    settings, others: names without the prefix, in capitals. others: variables of other programs.
    """
    problems = []
    for variable in sorted(environment):
        name = variable.upper().removeprefix(prefix)
        if name != variable.upper() and name not in others and name not in settings:
            near = difflib.get_close_matches(name, settings, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            problems.append(f"{variable} is not a setting{hint}")
    return problems


def check_holds_key(keys: frozenset[str]) -> frozenset[str]:
    """The API keys of a variable that is set. Raises ValueError if the variable holds no key, such as `","`."""
    if not keys:
        raise ValueError("it is set but holds no key; without a key the server would be open to everyone")
    return keys


def check_is_url(url: str) -> str:
    """The URL of a setting. Raises ValueError if it does not begin with a scheme of HTTP and a host."""
    if not re.match(r"https?://[^\s/]+", url):
        raise ValueError("the URL must begin with http:// or https:// and a host")
    return url


def problem_lines(error: ValidationError, prefix: str) -> list[str]:
    """The lines of Pydantic's errors, each with the variable's name and without the refused value.

    A validator that compares several settings raises one error with a line for each problem. Each of these lines
    already names its settings.
    """
    lines: list[str] = []
    for finding in error.errors(include_input=False, include_url=False):
        message = finding["msg"].removeprefix("Value error, ")
        if finding["loc"]:
            message = f"{prefix}{str(finding['loc'][0]).upper()}: {message}"
        lines += message.splitlines()
    return lines
