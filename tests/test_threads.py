"""Tests run in parallel, so each of them begins with one thread of PyTorch."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("number", range(2))
def test_a_number_of_threads_is_for_one_test(number: int) -> None:
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2)
