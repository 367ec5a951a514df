"""The optimisers of a run behind one interface: Adam as in the paper, or Muon for matrices and Adam for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from model.muon import Muon


class Optimizers:
    """Adam of section 5.3 for every parameter. With "muon", Muon updates the matrices inside the layers instead.

    Muon (Jordan et al. 2024; Liu et al. 2025, "Muon is Scalable for LLM Training") makes each update of a matrix
    orthogonal. Its step is scaled to the size of Adam's, so one learning rate serves both. Embeddings, biases and
    norms stay with Adam. Weights stay fp32; autocast makes bfloat16 copies for the model's products.
    """

    def __init__(
        self,
        model: nn.Module,
        kind: Literal["adam", "muon"],
        precision: Literal["bf16", "fp32"] = "fp32",
    ) -> None:
        """kind: the optimiser of the layers' matrices. precision: of Muon's matrix products."""
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        matrices = [p for name, p in model.named_parameters() if kind == "muon" and _is_layer_matrix(name, p)]
        with_muon = {id(parameter) for parameter in matrices}
        others = [p for p in model.parameters() if id(p) not in with_muon]
        self._all: list[torch.optim.Optimizer] = [
            torch.optim.Adam(others, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
        ]
        if matrices:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            self._all.append(Muon(matrices, lr=0.0, precision=dtype))

    def step(self, learning_rate: float) -> None:
        """Update every parameter by its gradient, then drop the gradients."""
        for optimizer in self._all:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Moments and step counts, by `PARAMETER/KEY`."""
        return {
            f"{self._names[id(parameter)]}/{key}": value
            for optimizer in self._all
            for parameter, values in optimizer.state.items()
            for key, value in values.items()
        }

    def can_load(self, saved: Mapping[str, Tensor]) -> bool:
        """Whether all values in `saved` come from the kind of optimiser that updates the same parameter here."""
        key_of_the_other = {torch.optim.Adam: "momentum_buffer", Muon: "exp_avg"}
        return not any(
            f"{self._names[id(parameter)]}/{key_of_the_other[type(optimizer)]}" in saved
            for optimizer in self._all
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the result of `state`. A parameter without saved values starts with new ones."""
        for optimizer in self._all:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    prefix = f"{self._names[id(parameter)]}/"
                    values = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
                    # A fused Adam on a GPU needs its step count there, too.
                    optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in values.items()}


def _is_layer_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.dim() == 2 and not name.startswith("embedding.")
