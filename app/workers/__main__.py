"""The command of the process that an engine's workers are copies of: `python -m app.workers CONTROL`.

It imports what every worker needs, which takes longest, is told by the engine through CONTROL what to load, and becomes
as many workers as it was given connections.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.workers.fork_server import ignore_signals

if TYPE_CHECKING:
    from app.runtime.interface import Runner

# Below the event loop's priority: in a flood every request is read, and refused or not, in time. With 0 they wait for
# seconds until they are read, with 10 what was accepted comes late while others are refused.
NICENESS = 3
# A process that is copied has one thread. NumPy's library of linear algebra would start more, which nothing here uses.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def prepare(given: bytes) -> Callable[[int], Runner]:
    """Load what the workers share; returns what gives each worker, by its number, its runner.

    given: a ModelSpec as JSON. Raises BundleError, SettingsError, as the function returned does.
    """
    import msgspec

    from app.observability.logging import configure_logging, start_log
    from app.runtime import native
    from app.runtime.memory import freeze_and_trim
    from app.workers.model_spec import ModelSpec

    os.nice(NICENESS)  # of this thread and those that it starts
    plan = msgspec.json.decode(given, type=ModelSpec)
    configure_logging(plan.log_level, starts_thread=False)
    try:
        shared = plan.load(starts_threads=False) if plan.is_native else None
    except Exception:
        start_log()  # there will be no worker to write what was logged
        raise
    freeze_and_trim()

    def runner_of(number: int) -> Runner:
        if number > 0:
            configure_logging("warning")
        else:
            start_log()
        if shared is None:  # ONNX Runtime's own threads, or a GPU: neither is there in a copy
            runner = plan.load()
            freeze_and_trim()
        else:
            runner = shared
            native.set_num_threads(plan.num_threads)
        gc.enable()
        return runner

    return runner_of


def main(arguments: list[str]) -> None:
    """Become the workers; each runs until the engine says stop or has gone."""
    gc.disable()
    ignore_signals()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    import app.runtime.ort_runner  # noqa: F401 - while nobody waits for it yet
    from app.workers.fork_server_main import load_and_fork

    with socket.socket(fileno=int(arguments[0])) as control:
        load_and_fork(control, prepare)


if __name__ == "__main__":
    main(sys.argv[1:])
