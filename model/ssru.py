"""The Simpler Simple Recurrent Unit (SSRU): a recurrence in the place of the decoder's self-attention.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section 3.1. A
decoded row keeps d_model numbers a layer, whatever its length; the keys and values of self-attention grow with it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SSRU(nn.Module):
    """f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * W x_t, o_t = relu(c_t), with c_{-1} = 0."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Linear(d_model, d_model, bias=False)
        self.w_f = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """All positions at once: x (batch, length, d_model) -> o of the same shape. Position t sees x up to t."""
        f, z = self.w_f(x), self.w(x)
        with torch.autocast(x.device.type, enabled=False):  # in fp32, because bf16 rounds a gate near 1 to 1
            c = scan(f.float().sigmoid(), z.float())
        return F.relu(c).to(z.dtype)


def scan(f: Tensor, z: Tensor) -> Tensor:
    """c_t = f_t * c_{t-1} + (1 - f_t) * z_t along axis 1, all (batch, length, width).

    A loop over time with one operation a step. The backward pass of `unbind` joins all gradients at once. The
    backward pass of an index, `z[:, t]`, fills a tensor of the full size at each step. A scan in log2(length) passes
    takes longer (benchmarks/results/ssru_scan.json).
    """
    state = torch.zeros_like(z[:, 0])
    c = []
    for f_t, z_t in zip(f.unbind(1), z.unbind(1), strict=True):
        state = torch.lerp(z_t, state, f_t)
        c.append(state)
    return torch.stack(c, dim=1)
