"""The precision of training fits the processor."""

from __future__ import annotations

import pytest
import torch

from model.precision import resolve_precision

CPU = torch.device("cpu")


def test_a_chosen_precision_stays() -> None:
    assert resolve_precision("bf16", CPU) == "bf16"
    assert resolve_precision("fp32", CPU) == "fp32"


@pytest.mark.parametrize(
    ("instructions", "precision"),
    [
        ({"avx2": True, "avx512_bf16": False}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"bf16": True}, "bf16"),
    ],
)
def test_auto_is_bf16_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, instructions: dict[str, bool], precision: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    assert resolve_precision("auto", CPU) == precision
