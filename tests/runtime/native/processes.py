"""Runs Python code in a new process, for tests that end or limit a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from app.runtime import native
from tests.house_rules.project import ROOT

# Seconds after which a process counts as hanging. An emulated processor (.ci/check-aarch64) needs more.
TIMEOUT_S = 2400 if "EMULATED_PYTHON" in os.environ else 240


def run_python(code: str) -> tuple[int, bytes]:
    """Run the code in a new process, with an installed library. Returns the exit status and standard error.

    The library is that of the test's target. If NATIVE_LIBRARY names another build (`make check-native`), the process
    does not load that build: it has the installed library of the fastest target.
    """
    code = f"from app.runtime import native\nnative.select_target({native.used_target()!r})\n{textwrap.dedent(code)}"
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=TIMEOUT_S
    )
    return done.returncode, done.stderr
