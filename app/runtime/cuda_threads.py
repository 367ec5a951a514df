"""Lets threads with different models use one GPU while one of them captures a CUDA graph.

CUDA restricts all threads during a capture, by two rules:

- A thread must not make a potentially unsafe call, such as cudaMalloc, while another thread has a capture of the mode
  Global. ONNX Runtime's captures have this mode. Such a call fails with error 900 (cudaErrorStreamCaptureUnsupported),
  and the capture becomes invalid. The rule holds for threads whose own mode is Global, the default. It does not hold
  for threads of the mode ThreadLocal (cudaThreadExchangeStreamCaptureMode in the CUDA Runtime API's manual). So each
  thread that calls CUDA takes the mode ThreadLocal first: `ignore_other_captures`.
- No thread of any mode may wait for the whole device during a capture (CUDA Programming Guide, "Prohibited and
  Unhandled Operations"). ONNX Runtime waits for the device when it makes a session. cuBLAS and cuDNN do so when a
  session is freed (cublasDestroy, cudnnDestroy). So the lock `WHOLE_DEVICE` is held while a session is made or freed,
  and during a capture.

ONNX Runtime's own threads make no calls of CUDA: the sessions have none (`num_threads=1`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal

# Held by a thread while it captures a graph, and while it makes or frees a session. A capture takes the time of a few
# steps. Making a session takes up to a second, in which a step of a shape that is not captured yet waits.
WHOLE_DEVICE = threading.RLock()

# Seconds for which a thread that frees a runner or session waits for the thread that holds WHOLE_DEVICE. If smaller,
# the freeing may make a capture invalid. If larger, both threads stand still for longer when the waiting thread holds a
# lock that the other thread needs.
MAX_WAIT_S = 5.0

_thread = threading.local()


def ignore_other_captures(library: Any) -> None:
    """Set the calling thread's mode to ThreadLocal, once.

    library: CUDA's runtime library. A failure is ignored: then the next call of CUDA fails, too.
    """
    if not hasattr(_thread, "has_mode"):
        library.cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(THREAD_LOCAL)))
        _thread.has_mode = True


def free_attributes(owner: object) -> None:
    """Drop what an object refers to, while no other thread captures or makes a session. For its `__del__`.

    The last reference to the owner may go in any thread, and with any lock held.
    """
    has_device = WHOLE_DEVICE.acquire(timeout=MAX_WAIT_S)
    try:
        vars(owner).clear()
    finally:
        if has_device:
            WHOLE_DEVICE.release()
