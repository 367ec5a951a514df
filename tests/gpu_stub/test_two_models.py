"""Two models share one GPU. Loads, steps and frees of one do not break the captures of the other."""

from __future__ import annotations

import pytest

from tests.gpu_stub.trace import Trace
from tests.gpu_stub.two_models import NUM_LOADS


@pytest.mark.seconds
def test_one_model_is_loaded_and_freed_while_another_captures_graphs(two_models: Trace) -> None:
    """The fixture fails if a load or a step fails. `serve` captures a graph for each of 30 shapes."""
    kinds = two_models.kinds()
    assert kinds["graph"] == 2 * NUM_LOADS * 30
    assert kinds["prohibited"] == 0


def test_the_kernels_are_loaded_once_for_all_models(two_models: Trace) -> None:
    assert two_models.kinds()["module"] == 1
