"""Muon for the layers' matrices, Adam for the rest."""

from __future__ import annotations

import torch

from model.config import preset
from model.optimizers import Optimizers
from model.transformer import Transformer


def stepped(kind: str) -> tuple[Transformer, dict[str, torch.Tensor], Optimizers]:
    torch.manual_seed(1)
    model = Transformer(preset("tiny", 40))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = Optimizers(model, kind)  # type: ignore[arg-type]
    ids = torch.randint(4, 40, (16, 24))
    model(ids, ids).square().mean().backward()
    optimizers.step(0.01)
    return model, before, optimizers


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


def test_every_parameter_is_updated_and_gradients_are_dropped() -> None:
    for kind in ("adam", "muon"):
        model, before, _ = stepped(kind)
        for name, parameter in model.named_parameters():
            assert parameter.grad is None
            # The key's bias adds the same number to all scores of a query. Its gradient is zero except for rounding.
            assert "w_k.bias" in name or not torch.equal(parameter, before[name]), name


def test_adam_has_every_parameter_by_default() -> None:
    _, before, optimizers = stepped("adam")
    assert set(optimizers.state()) == {f"{n}/{k}" for n in before for k in ("step", "exp_avg", "exp_avg_sq")}
