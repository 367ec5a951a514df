"""Python code in a process of its own, for tests of what ends or limits a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from tests.house_rules.project import ROOT

# A process that takes so long hangs, on however busy a machine.
HANGING_S = 240


def run_python(code: str) -> tuple[int, bytes]:
    """Run the code with the installed library, never a sanitizer's build. Returns exit status and standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=HANGING_S
    )
    return done.returncode, done.stderr
