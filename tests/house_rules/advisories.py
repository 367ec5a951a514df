"""Reads the report of pip-audit: known vulnerabilities, and packages that the advisory database does not know.

Exit code 1: there is a vulnerability. Exit code 2: no checked package has a vulnerability, but pip-audit has skipped
packages, or has checked none. pip-audit skips packages without an error if a mirror of the registry has no advisories.

    python -m tests.house_rules.advisories build/advisories.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def read_report(report: dict[str, Any]) -> tuple[list[str], int]:
    """The lines to print and the exit code."""
    packages = report["dependencies"]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    found = [
        f"{each['name']} {each['version']}: {vulnerability['id']}"
        for each in packages
        for vulnerability in each.get("vulns", [])
    ]
    lines = [
        *found,
        f"{len(packages) - len(skipped)} of {len(packages)} packages checked, {len(found)} vulnerabilities",
    ]
    if skipped or not packages:
        lines.append(
            f"NOT CHECKED, because the advisory database does not know them: {', '.join(skipped) or 'all'}"
        )
    return lines, 1 if found else 2 if skipped or not packages else 0


def main() -> int:
    """Print what a report says."""
    lines, code = read_report(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
