"""`transduce evaluate` translates with the length penalty of its `--alpha`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from app.text.tokenizer import Tokenizer
from model.config import preset
from model.evaluate import encode_texts, greedy_batch, translate, translate_encoded
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


@pytest.mark.parametrize(
    ("options", "alphas"), [((2,), [0.6, 0.6]), ((2, "--alpha", 1.5), [1.5, 1.5]), ((1, "--alpha", 1.5), [])]
)
def test_the_beam_search_uses_the_alpha_of_the_command(
    options: tuple[object, ...],
    alphas: list[float],
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(1)
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()
    monkeypatch.setattr(
        "model.loading.load_with_tokenizers", lambda _checkpoint: (model, tokenizer, tokenizer)
    )
    monkeypatch.setattr("model.trainer.set_num_threads", lambda _number: None)
    recorded = recorded_alphas(monkeypatch)
    data = write_tsv(tmp_path / "dev.tsv", pairs()[:2])
    beam = ("--checkpoint", "c", "--data", data, "--json", "--beam-size", *options)
    assert main(["evaluate", *map(str, beam)]) == 0
    assert recorded == alphas
    row = json.loads(capsys.readouterr().out)
    assert [row["alpha"]] == alphas[:1] if alphas else "alpha" not in row


def test_a_beam_size_alone_has_the_default_alpha(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()
    recorded = recorded_alphas(monkeypatch)
    translate(model, tokenizer, ["Anna"], beam_size=2)
    translate_encoded(model, encode_texts(model, tokenizer, ["Anna"]), tokenizer, beam_size=2, alpha=0.0)
    assert recorded == [0.6, 0.0]


def test_a_negative_alpha_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "--checkpoint", "c", "--data", "x.tsv", "--alpha=-1"])
    assert "argument --alpha: '-1' is not a finite number of at least 0" in capsys.readouterr().err


def test_a_text_may_have_as_many_subwords_as_the_model_has_positions(tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode("Anna sees the river.")
    num_ids = len(encoded.ids)
    enough, less = (
        Transformer(preset("tiny", tokenizer.vocab_size, max_length=length))
        for length in (num_ids, num_ids - 1)
    )
    assert encode_texts(enough, tokenizer, ["Anna sees the river."]) == [encoded]
    with pytest.raises(
        ValueError, match=f"has {num_ids} subwords, and the model takes at most {num_ids - 1}"
    ):
        encode_texts(less, tokenizer, ["Anna sees the river."])


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_translation_has_one_subword_less_than_the_model_has_positions(
    beam_size: int, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start token takes the first position."""
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()
    subword = tokenizer.encode("a").ids[-2]
    logits = 100 * torch.eye(tokenizer.vocab_size)[subword]
    monkeypatch.setattr(model.embedding, "project", lambda decoded: logits.expand(len(decoded), -1))
    assert translate(model, tokenizer, ["Anna"], beam_size=beam_size) == [" ".join(["a"] * 31)]


def test_a_greedy_translation_that_does_not_end_has_the_maximum_number_of_subwords(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=32)).eval()

    def project(decoded: torch.Tensor) -> torch.Tensor:
        """Logits by which subword 7 always follows."""
        return torch.eye(tokenizer.vocab_size)[7].expand(len(decoded), -1)

    monkeypatch.setattr(model.embedding, "project", project)
    assert greedy_batch(model, [[5, 2], [6, 5, 2]], max_target_length=3) == [[7, 7, 7]] * 2
