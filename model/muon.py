"""Muon: each update of a matrix is made orthogonal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import overload

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_NEWTON_SCHULZ_STEPS = 5
# a, b and c of `orthogonalize`.
_COEFFICIENTS = (3.4445, -4.775, 2.0315)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) with Nesterov momentum 0.95 and no weight decay.

    `torch.optim.Muon` always multiplies in bfloat16. On a processor without instructions for bfloat16 that is some
    thirty times slower than fp32. This optimiser takes the precision, and updates matrices of one shape in one product.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, precision: torch.dtype) -> None:
        """matrices: parameters with two dimensions.
        lr: the learning rate. The root mean square of an update is about 0.2 lr, which is usual for Adam ("Muon is
        Scalable for LLM Training", Liu et al. 2025, section 2.2).
        precision: of the matrix products, torch.float32 or torch.bfloat16.
        """
        super().__init__(matrices, {"lr": lr})
        self._precision = precision

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every matrix that has a gradient. Returns the loss of the closure, which computes the gradients."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                with_gradient = [p for p in group["params"] if p.grad is not None]
                for matrices in _by_shape(with_gradient):
                    gradients = torch.stack([self._nesterov(matrix) for matrix in matrices])
                    updates = orthogonalize(gradients.to(self._precision))
                    scale = 0.2 * max(matrices[0].shape) ** 0.5
                    for matrix, update in zip(matrices, updates, strict=True):
                        matrix.add_(update, alpha=-group["lr"] * scale)
        return loss

    def _nesterov(self, matrix: nn.Parameter) -> Tensor:
        """Move the momentum towards the gradient. Return Nesterov's update, between gradient and momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum_buffer"]
        momentum.lerp_(matrix.grad, 1 - _MOMENTUM)
        return matrix.grad.lerp(momentum, _MOMENTUM)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return each matrix [n, rows, columns] with its singular values moved towards 1. Most end at 0.7 to 1.2.

    Five steps of the Newton-Schulz iteration of Jordan et al. 2024: X := aX + bXX'X + c(XX')^2X.
    """
    a, b, c = _COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def _by_shape(matrices: Iterable[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    groups: dict[torch.Size, list[nn.Parameter]] = {}
    for matrix in matrices:
        groups.setdefault(matrix.shape, []).append(matrix)
    return groups.values()
