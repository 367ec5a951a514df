"""Muon for the layers' matrices, Adam for the rest."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from model.config import preset
from model.muon import Muon
from model.optimizers import Optimizers
from model.transformer import Transformer


def stepped(kind: str) -> tuple[Transformer, dict[str, torch.Tensor], Optimizers]:
    """A model after one update, its parameters before the update, and its optimizers."""
    torch.manual_seed(1)
    model = Transformer(preset("tiny", 40))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = Optimizers(model, kind)  # type: ignore[arg-type]
    ids = torch.randint(4, 40, (16, 24))
    model(ids, ids).square().mean().backward()
    optimizers.step(0.01)
    return model, before, optimizers


@pytest.mark.seconds
def test_muon_makes_updates_of_matrices_orthogonal() -> None:
    model, before, optimizers = stepped("muon")
    name = "encoder.0.feed_forward.w_1.weight"
    update = before[name] - dict(model.named_parameters())[name]
    values = torch.linalg.svdvals(update)
    # After five Newton-Schulz steps nearly all singular values are near one.
    assert values[0] < 3 * values.median()
    state = optimizers.state()
    assert f"{name}/momentum_buffer" in state
    assert f"{name}/exp_avg" not in state
    assert {"embedding.weight/exp_avg", "encoder.0.feed_forward.w_1.bias/exp_avg"} <= set(state)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_muon_moves_matrices_as_pytorchs_muon(precision: torch.dtype) -> None:
    torch.manual_seed(2)
    shapes = [(12, 40), (40, 12), (12, 40), (16, 16)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(matrix.detach().clone()) for matrix in ours]
    muon = Muon(ours, 0.1, precision)
    reference = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for our, their in zip(ours, theirs, strict=True):
            our.grad = torch.randn_like(our)
            their.grad = our.grad.clone()
        muon.step()
        reference.step()  # type: ignore[no-untyped-call]
    for our, their in zip(ours, theirs, strict=True):
        # PyTorch multiplies in bfloat16, so its updates differ from those of fp32 by some hundredths of their size.
        torch.testing.assert_close(our, their, rtol=0, atol=1e-6 if precision == torch.bfloat16 else 0.02)


def test_every_parameter_is_updated_and_gradients_are_dropped() -> None:
    for kind in ("adam", "muon"):
        model, before, _ = stepped(kind)
        for name, parameter in model.named_parameters():
            assert parameter.grad is None
            # The key's bias adds the same number to all scores of a query. Its gradient is zero except for rounding.
            assert "w_k.bias" in name or not torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_a_restored_state_is_on_the_device_of_its_parameter(kind: Literal["adam", "muon"]) -> None:
    model, _, optimizers = stepped(kind)
    saved = optimizers.state()
    elsewhere = Optimizers(model.to("meta"), kind)
    elsewhere.load_state(saved)
    assert set(elsewhere.state()) == set(saved)
    assert {value.device.type for value in elsewhere.state().values()} == {"meta"}


def test_adam_has_every_parameter() -> None:
    _, before, optimizers = stepped("adam")
    assert set(optimizers.state()) == {f"{n}/{k}" for n in before for k in ("step", "exp_avg", "exp_avg_sq")}
