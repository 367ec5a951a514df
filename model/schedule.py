"""The learning rate of section 5.3, and its fall at the end of a run."""

from __future__ import annotations


def learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation (3), times a factor; step counts from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def cooldown(step: int, *, max_steps: int, cooldown_steps: int) -> float:
    """A factor of the learning rate, 0-1. It is 1 at first and falls linearly over the last `cooldown_steps` updates.

    step counts from 1. The paper has no cooldown. After a constant or slow schedule, a cooldown gives most of the gain
    of a longer run (Hägele et al. 2024). cooldown_steps 0 turns it off.
    """
    return min(1.0, (max_steps - step + 1) / (cooldown_steps + 1)) if cooldown_steps else 1.0


def cooldown_by_time(elapsed_s: float, *, max_time_s: float, cooldown_s: float) -> float:
    """As `cooldown`, over the last cooldown_s seconds before max_time_s. cooldown_s 0 turns it off."""
    return min(1.0, max(0.0, max_time_s - elapsed_s) / cooldown_s) if cooldown_s else 1.0
