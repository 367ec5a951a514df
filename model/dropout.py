"""Dropout that is fast on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout (section 5.4) at a rate rounded to 1/256. One 64-bit random number decides eight elements.

    PyTorch's kernel draws one number for each element, which on a CPU takes a ninth of a training step. Other devices
    use PyTorch's kernel. Kept elements are divided by 1 minus the rounded rate, so the expectation is exact. A rate
    above 255/256 becomes 255/256, so that some elements are kept.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.threshold = min(round(rate * 256), 255)

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout in training, keep x unchanged otherwise. Any shape -> the same shape."""
        if not self.training or self.threshold == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.threshold / 256)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        decisions = words.view(torch.uint8)[: x.numel()].view(x.shape)
        return x * (decisions >= self.threshold).to(x.dtype).mul_(256 / (256 - self.threshold))
