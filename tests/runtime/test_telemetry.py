"""ONNX Runtime's telemetry is off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.house_rules.project import ROOT


def test_onnxruntime_sends_no_telemetry(tmp_path: Path) -> None:
    """No telemetry file is in the user's cache folder, and no thread sends one."""
    program = (
        "import os, app.runtime.session, onnxruntime\n"
        "onnxruntime.SessionOptions()\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **folders, "OPENBLAS_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["1"]
    assert list(tmp_path.iterdir()) == []
