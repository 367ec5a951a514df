"""Label-smoothed cross-entropy, joined with the output projection so that no full logits are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Rows whose logits are turned into gradients together on a CPU. 64 x 8,000 logits in fp32 are 2 MB. If larger, they do
# not stay in the L2 cache. If smaller, each row takes more calls of PyTorch.
ROWS_AT_A_TIME = 64
# The same on a GPU, where each call launches kernels. 8,192 x 8,000 logits in fp32 are 262 MB.
ROWS_AT_A_TIME_ON_A_GPU = 8192


class ProjectedCrossEntropy(torch.autograd.Function):
    """Sum over rows of (1 - e) * -log p(y) + e / V * sum_v -log p(v), p = softmax(x W^T) (section 5.4).

    Forward computes the gradients too. It turns the logits into their gradient in place, a number of rows at a time.
    On a CPU it makes no other array of their size.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """x (rows, d_model), weight (vocab_size, d_model), labels (rows,) -> the sum, and the plain sum -log p(y)."""
        rows, matrix = x.detach(), weight.detach().to(x.dtype)
        logits = rows @ matrix.t()
        smoothed = torch.zeros((), dtype=torch.float64, device=x.device)
        plain = torch.zeros((), dtype=torch.float64, device=x.device)
        num_rows = ROWS_AT_A_TIME if x.device.type == "cpu" else ROWS_AT_A_TIME_ON_A_GPU
        for start in range(0, x.size(0), num_rows):
            some = logits[start : start + num_rows]
            label = labels[start : start + num_rows, None]
            log_p = some.float().log_softmax(-1)
            label_loss = -log_p.gather(1, label).sum().double()
            plain += label_loss
            smoothed += (1 - smoothing) * label_loss - smoothing * log_p.mean(-1).sum().double()
            gradient = log_p.exp_().sub_(smoothing / weight.size(0))
            gradient.scatter_add_(1, label, torch.full_like(label, smoothing - 1, dtype=gradient.dtype))
            some.copy_(gradient)
        ctx.save_for_backward(logits @ matrix, (logits.t() @ rows).to(weight.dtype))
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the gradients that forward has computed."""
        grad_x, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_x * scale.to(grad_x.dtype), grad_weight * scale.to(grad_weight.dtype), None, None


def label_smoothed_loss(
    x: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Summed loss to minimise, and the summed -log p(y) without smoothing, both in nats and on the device of x.

    x (rows, d_model): decoder outputs; weight (vocab_size, d_model): the table that gives the logits;
    labels (rows,): the subwords to be predicted. The matrix products run in the dtype of x.
    """
    loss, plain = ProjectedCrossEntropy.apply(x, weight, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss, plain
