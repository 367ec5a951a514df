"""The project's files for the house rules."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "model", "export", "transduce")


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is, or would be, committed, relative to ROOT. Without git: every file that is no output."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        names = [Path(name) for name in listed.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if not is_output(path.relative_to(ROOT))]
    return tuple(sorted({name for name in names if (ROOT / name).is_file()}))


def is_output(path: Path) -> bool:
    """Whether a file belongs to git, a build, a cache, an environment or a training run. path: relative to ROOT."""
    return any(
        part.startswith(
            (".venv", ".mypy", ".ruff", ".pytest", ".hypothesis", ".import_linter", ".schemathesis")
        )
        or part.endswith(".egg-info")
        or part in {".git", "__pycache__", "build", "dist", "runs", "data"}
        for part in path.parts
    )


def python_files(*packages: str) -> Iterator[Path]:
    """The Python files in the named top-level folders; without names, all Python files."""
    for path in project_files():
        if path.suffix == ".py" and (not packages or path.parts[0] in packages):
            yield path
