"""`transduce evaluate` translates with the length penalty that it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from app.text.tokenizer import Tokenizer
from model.config import preset
from model.evaluate import Beam, translate
from model.search import beam_search
from model.transformer import Transformer
from tests.model.sentences import pairs, write_tsv
from transduce.cli import main


def recorded_alphas(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The alpha of each beam search from now on."""
    recorded: list[float] = []

    def record(*arguments: Any, alpha: float, **options: Any) -> Any:
        recorded.append(alpha)
        return beam_search(*arguments, alpha=alpha, **options)

    monkeypatch.setattr("model.evaluate.beam_search", record)
    return recorded


@pytest.mark.parametrize(("options", "alpha"), [((), 0.6), (("--alpha", "1.5"), 1.5)])
def test_the_alpha_of_the_command_is_that_of_the_beam(
    options: tuple[str, ...],
    alpha: float,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(1)
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()
    monkeypatch.setattr(
        "model.loading.load_with_tokenizers", lambda _checkpoint: (model, tokenizer, tokenizer)
    )
    monkeypatch.setattr("model.trainer.set_num_threads", lambda _number: None)
    recorded = recorded_alphas(monkeypatch)
    data = write_tsv(tmp_path / "dev.tsv", pairs()[:2])
    beam = ("--checkpoint", "c", "--data", str(data), "--beam-size", "2")
    assert main(["evaluate", *beam, *options]) == 0
    assert recorded == [alpha, alpha]


def test_a_beam_size_alone_has_the_default_alpha(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()
    recorded = recorded_alphas(monkeypatch)
    for beam in (2, Beam(2, 0.0)):
        translate(model, tokenizer, ["Anna"], beam_size=beam)
    assert recorded == [0.6, 0.0]


def test_a_negative_alpha_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "--checkpoint", "c", "--data", "x.tsv", "--alpha=-1"])
    assert "argument --alpha: '-1' is not a finite number from 0" in capsys.readouterr().err
