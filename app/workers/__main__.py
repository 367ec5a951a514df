"""The command of the fork server, `python -m app.workers CONTROL`. CONTROL is the descriptor of a socket.

The fork server first imports the modules that every worker needs, while the server imports its own. Then it waits for
the spec of a model. Until the spec arrives, the server can make it fork copies of itself. `app.workers.fork_server`
says what it does with the spec.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from app.workers.fork_server import ignore_signals

if TYPE_CHECKING:
    from app.runtime.interface import Runner
    from app.workers.model_spec import ModelSpec

T = TypeVar("T")
# Added to the nice value of the workers, so that the server's event loop has priority. With 0, requests under overload
# wait for seconds before the event loop reads them. With 10, accepted requests are late while the event loop refuses
# others.
NICENESS = 3
# Added to the nice value of a thread that loads a model beside requests, so that other models have priority. If larger,
# loads take longer while other models are busy. If smaller, requests for other models wait longer during loads.
LOAD_NICENESS = 10
# Variables that keep NumPy's BLAS from starting threads. The fork server must have one thread, since a forked process
# has only the thread that forked.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def prepare(spec_json: bytes) -> Callable[[int], Runner]:
    """Load a model of native operators, which the workers share.

    Returns the function that makes a worker's runner, given the worker's number. If the model has other operators, that
    function loads it. The fork server calls `prepare`, and each worker calls the returned function. spec_json: a
    ModelSpec as JSON. Both functions raise BundleError and SettingsError.
    """
    import msgspec

    from app.observability.logging import configure_logging, start_log
    from app.runtime import native
    from app.runtime.memory import freeze_and_trim
    from app.workers.model_spec import ModelSpec

    os.nice(NICENESS)  # of this thread and of those that it starts
    spec = msgspec.json.decode(spec_json, type=ModelSpec)
    configure_logging(spec.log_level, starts_thread=False)
    try:
        shared = load_shared(spec) if spec.is_native else None
    except Exception:
        start_log()  # no worker starts, so this process must write its log lines itself
        raise
    freeze_and_trim()

    def runner_of(number: int) -> Runner:
        if number > 0:
            # All workers log the same lines, so only the first logs those below `warning`.
            configure_logging("error" if spec.log_level == "error" else "warning")
        else:
            start_log()
        if shared is None:  # ONNX Runtime's own threads and a GPU's context do not survive a fork
            runner = spec.load()
            freeze_and_trim()
        else:
            runner = shared
            native.set_num_threads(spec.num_threads)
        gc.enable()
        return runner

    return runner_of


def load_shared(spec: ModelSpec) -> Runner:
    """Load the model that all workers share. Raises BundleError and SettingsError."""
    if spec.loads_at_low_priority:
        return in_slow_thread(lambda: spec.load(starts_threads=False))
    return spec.load(starts_threads=False)


def in_slow_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which a thread of a low priority runs. The thread ends before this function."""

    def run() -> T:
        os.nice(LOAD_NICENESS)  # of this thread only
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def main(arguments: list[str]) -> None:
    """Load what the workers share, and fork the workers. Each worker runs until the server stops it or ends."""
    gc.disable()
    ignore_signals()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    # Imported before the server says which model to load.
    import app.observability.logging  # noqa: F401
    import app.runtime.ort_runner  # noqa: F401
    import app.workers.model_spec  # noqa: F401
    from app.workers.fork_server_main import load_and_fork

    with socket.socket(fileno=int(arguments[0])) as control:
        load_and_fork(control, prepare)


if __name__ == "__main__":
    main(sys.argv[1:])
