"""A failed allocation is an error of its call, on any thread. The next call works."""

from __future__ import annotations

import pytest

from tests.runtime.native.processes import run_python

# The limit leaves less address space than the smallest region that the kernels map, and enough for the rest of a call.
PRELUDE = """
import resource
import numpy as np
from pathlib import Path
from app.runtime import native

def limit_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**21, resource.RLIM_INFINITY))

def allow_memory():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
ON_A_WORKER = """
from tests.runtime.native.test_feed_forward import Block

block = Block(64, 4096)
operator, rows = block.operator(), block.rows(1000)
expected = operator.run(rows)  # this thread has its scratch memory from here on
native.set_num_threads(2, spin_us=10**6)
message = ""
limit_memory()
while not message:  # a run in which the worker takes no chunk succeeds
    try:
        operator.run(rows)
    except Exception as error:
        message = str(error)
allow_memory()
assert "FeedForward: out of memory" in message, message
for name, values in operator.run(rows).items():
    assert np.array_equal(values, expected[name]), name
"""
ON_THE_CALLER = """
from tests.runtime.native.test_feed_forward import Block

block = Block(64, 4096)
operator, rows = block.operator(), block.rows(40)
expected = operator.run(rows)
other = Block(64, 65536).operator()
limit_memory()
try:
    other.run(rows)
    message = ""
except Exception as error:
    message = str(error)
allow_memory()
assert "FeedForward: out of memory" in message, message
for name, values in operator.run(rows).items():
    assert np.array_equal(values, expected[name]), name
"""
OF_A_COPY = """
values = np.zeros((2, 2, 2**23), np.uint8)
values[:, 1] = 1
moves = np.array([[0, 1], [1, 0], [0, 0], [2**23, 2**23]])
native.set_num_threads({num_threads})
limit_memory()
try:
    native.copy_rows(values, moves)
    message = ""
except MemoryError as error:
    message = str(error)
allow_memory()
assert message == "no memory for a copy of rows", message
values[:, 0], values[:, 1] = 0, 1
native.copy_rows(values, moves)
assert (values[:, 0] == 1).all() and (values[:, 1] == 0).all()
"""


@pytest.mark.seconds
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ON_A_WORKER, id="on a worker"),
        pytest.param(ON_THE_CALLER, id="on the caller"),
        pytest.param(OF_A_COPY.format(num_threads=1), id="of a copy"),
        pytest.param(OF_A_COPY.format(num_threads=2), id="of a copy by two threads"),
    ],
)
def test_a_failed_allocation_is_an_error_and_the_next_call_works(code: str) -> None:
    """The code runs in a new process with limited memory."""
    assert run_python(PRELUDE + code) == (0, b"")
