"""The fused loss, the fast dropout, and the learning rate with its cooldowns. The loss equals PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from model.dropout import Dropout
from model.loss import ROWS_AT_A_TIME, label_smoothed_loss
from model.schedule import cooldown, cooldown_by_time, learning_rate


@pytest.mark.seconds
@pytest.mark.parametrize("rows", [5, ROWS_AT_A_TIME + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_pytorchs(rows: int, smoothing: float) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 16, requires_grad=True), torch.randn(40, 16, requires_grad=True)
    labels = torch.randint(0, 40, (rows,))
    loss, plain = label_smoothed_loss(x, weight, labels, smoothing)
    (loss / rows).backward()  # type: ignore[no-untyped-call]
    ours = (x.grad, weight.grad)
    x.grad = weight.grad = None
    logits = x @ weight.t()
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    (expected / rows).backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert plain.item() == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), rel=1e-5)
    torch.testing.assert_close(ours[0], x.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours[1], weight.grad, atol=1e-5, rtol=1e-4)


def test_dropout_keeps_the_mean_and_drops_the_given_share() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.1).train()
    dropped = dropout(torch.ones(1000, 1001))
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(26 / 256, abs=0.002)  # 0.1, rounded to a multiple of 1/256
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.002)
    assert not torch.equal(dropped[0] == 0, dropped[1] == 0)


def test_a_rate_near_one_keeps_a_few_elements() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.999).train()(torch.ones(1000, 1000))
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.1)


def test_dropout_is_off_in_evaluation_and_passes_gradients() -> None:
    x = torch.ones(64, 64, requires_grad=True)
    dropout = Dropout(0.5)
    assert dropout.eval()(x) is x
    y = dropout.train()(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, y.detach())


def test_the_cooldown_ends_above_zero_and_begins_at_one() -> None:
    factors = [cooldown(step, max_steps=10, cooldown_steps=4) for step in range(1, 11)]
    assert factors == pytest.approx([1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert cooldown(10, max_steps=10, cooldown_steps=0) == 1.0


def test_the_cooldown_by_time_falls_over_the_last_seconds() -> None:
    factors = [cooldown_by_time(now, max_time_s=100, cooldown_s=40) for now in (0, 60, 70, 90, 100, 101)]
    assert factors == pytest.approx([1, 1, 0.75, 0.25, 0, 0])
    assert cooldown_by_time(99, max_time_s=100, cooldown_s=0) == 1.0


def test_the_learning_rate_is_equation_3() -> None:
    assert learning_rate(1, d_model=512, warmup_steps=4000) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert learning_rate(4000, d_model=512, warmup_steps=4000) == pytest.approx((512 * 4000) ** -0.5)
    assert learning_rate(16000, d_model=512, warmup_steps=4000) == pytest.approx((512 * 16000) ** -0.5)
