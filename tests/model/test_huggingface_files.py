"""The limits of the sizes and ids of a config.json."""

from __future__ import annotations

import pytest

from model.huggingface_files import size_problems

LEAST = {
    "d_model": 4, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "encoder_ffn_dim": 1,
    "vocab_size": 1, "decoder_vocab_size": 1, "pad_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0,
    "max_position_embeddings": 1,
}  # fmt: skip
MOST = {
    "d_model": 100_000, "encoder_layers": 1000, "decoder_layers": 1000, "encoder_attention_heads": 1000,
    "encoder_ffn_dim": 1_000_000, "vocab_size": 10_000_000, "decoder_vocab_size": 10_000_000,
    "pad_token_id": 9_999_999, "eos_token_id": 9_999_999, "decoder_start_token_id": 9_999_999,
    "max_position_embeddings": 1_000_000,
}  # fmt: skip


def problems_of(sizes: dict[str, int]) -> list[str]:
    """The problems of a config.json with these sizes. The decoder has the encoder's heads and width."""
    decoder = {f"decoder_{name}": sizes[f"encoder_{name}"] for name in ("attention_heads", "ffn_dim")}
    return size_problems({**sizes, **decoder, "activation_function": "relu"})


@pytest.mark.parametrize(("limits", "beyond"), [(LEAST, -1), (MOST, 1)], ids=["least", "most"])
def test_each_size_and_id_may_have_its_limit_and_nothing_beyond(limits: dict[str, int], beyond: int) -> None:
    assert problems_of(limits) == []
    for name, limit in limits.items():
        problems = problems_of({**limits, name: limit + beyond})
        expected = f"{name} of config.json is {limit + beyond}; it must be from {LEAST[name]} to {MOST[name]}"
        assert problems[0] == expected
