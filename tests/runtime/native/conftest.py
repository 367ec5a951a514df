"""Runs the tests of the native kernels for each target. Skips them if no target is built, or this CPU can run none.

NATIVE_LIBRARY names another build of the kernels to test instead (`make check-native`). The marker `threads` selects
the tests that `make check-native` repeats with ThreadSanitizer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from app.runtime import native
from tests.kinds import target_params

if library := os.environ.get("NATIVE_LIBRARY"):
    pytest.MonkeyPatch().setattr(native, "library_path", partial(Path, library))


# Files about threads. Their tests without a parameter `num_threads` are marked too.
THREADED = {"test_library", "test_out_of_memory", "test_shares", "test_stop_condition"}


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the marker
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    functions = [item for item in items if isinstance(item, pytest.Function) and is_native(item)]
    fewest: dict[tuple[Path, str], int] = {}  # each function's least number of threads above one
    for item in functions:
        if (number := num_threads_of(item)) > 1:
            function = (item.path, item.originalname)
            fewest[function] = min(number, fewest.get(function, number))
    for item in functions:
        number = num_threads_of(item)
        if number == fewest.get((item.path, item.originalname)) or (
            not number and item.path.stem in THREADED
        ):
            item.add_marker("threads")


def is_native(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent


def num_threads_of(item: pytest.Function) -> int:
    """The value of the test's parameter `num_threads`, or 0 without this parameter."""
    number = item.callspec.params.get("num_threads", 0) if hasattr(item, "callspec") else 0
    assert isinstance(number, int)
    return number


# NATIVE_LIBRARY names a library of one target.
TARGETS = native.usable_targets()[:1] if library else native.usable_targets()


@pytest.fixture(autouse=True, scope="module", params=target_params(TARGETS) or ["none"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The tests of a module run once for each target, which is then the only usable one."""
    if not TARGETS:
        pytest.skip("the native kernels are not built, or this CPU cannot run them")
    found: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "usable_targets", lambda: (found,))
        native.select_target(None)
        yield found
    native.select_target(None)


@pytest.fixture(autouse=True)
def _one_thread(target: str) -> Iterator[None]:
    """Start every test with one thread."""
    native.set_num_threads(1)
    yield
    native.set_num_threads(1)
