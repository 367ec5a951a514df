"""The model of "Attention Is All You Need" equals PyTorch's layers and arithmetic by hand.

Neither padding nor later tokens change an output. The numbers of equations and sections are those of the paper.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from model.config import ConfigError, ModelConfig, preset
from model.transformer import (
    MultiHeadAttention,
    Transformer,
    causal_mask,
    empty_model,
    num_parameters,
    padding_mask,
    scaled_dot_product_attention,
    sinusoidal_positions,
)

VOCAB_SIZE = 50


def model_of(**changes: Any) -> Transformer:
    """A tiny model with random weights, norms and biases, in evaluation mode."""
    torch.manual_seed(7)
    model = Transformer(preset("tiny", VOCAB_SIZE, **changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.copy_(
                    torch.randn_like(parameter) * 0.3 + (1.0 if name.endswith("norm.weight") else 0.0)
                )
    return model


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))
    theirs.out_proj.weight.copy_(ours.w_o.weight)
    theirs.out_proj.bias.copy_(ours.w_o.bias)


def copy_layer(ours: Any, theirs: Any) -> None:
    """Copy the weights of an encoder or decoder layer, including the norms."""
    copy_attention(ours.self_attention, theirs.self_attn)
    if hasattr(ours, "cross_attention"):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for number, residual in enumerate(ours.residuals, 1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_model_equals_the_stacks_of_pytorch(norm: str, activation: str) -> None:
    model = model_of(norm=norm, activation=activation)
    config = model.config
    options: dict[str, Any] = {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm == "pre",
        "layer_norm_eps": 1e-5,
    }
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), config.num_encoder_layers, enable_nested_tensor=False
    ).eval()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), config.num_decoder_layers).eval()
    if norm == "pre":
        encoder.norm, decoder.norm = model.encoder_norm, model.decoder_norm
    with torch.no_grad():
        for ours, theirs in zip(
            [*model.encoder, *model.decoder], [*encoder.layers, *decoder.layers], strict=True
        ):
            copy_layer(ours, theirs)
        source = torch.randint(4, VOCAB_SIZE, (3, 9))
        source[1, 6:] = 0
        target = torch.randint(4, VOCAB_SIZE, (3, 7))
        memory = model.encode(source, padding_mask(source))
        theirs_memory = encoder(model.embedding(source), src_key_padding_mask=source == 0)
        real = source != 0
        torch.testing.assert_close(memory[real], theirs_memory[real], atol=1e-5, rtol=1e-5)
        decoded = model.decode(target, memory, padding_mask(source))
        theirs_decoded = decoder(
            model.embedding(target), memory, tgt_mask=~causal_mask(7), memory_key_padding_mask=source == 0
        )
        torch.testing.assert_close(decoded, theirs_decoded, atol=1e-5, rtol=1e-5)


def test_explicit_attention_equals_fused_attention_and_its_weights_sum_to_1() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(32, 4)
    queries, memory = torch.randn(2, 5, 32), torch.randn(2, 6, 32)
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    mask[1, :, :, 4:] = False
    explicit, weights = attention.attend_explicitly(queries, memory, mask)
    torch.testing.assert_close(attention(queries, memory, mask), explicit, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    assert bool((weights[1, :, :, 4:] == 0).all())


def test_attention_is_equation_1_by_hand() -> None:
    q = torch.tensor([[[[1.0, 0.0]]]])
    k = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    v = torch.tensor([[[[10.0, 0.0], [0.0, 10.0]]]])
    result, weights = scaled_dot_product_attention(q, k, v)
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    torch.testing.assert_close(weights[0, 0, 0], torch.tensor([first, 1 - first]))
    torch.testing.assert_close(result[0, 0, 0], torch.tensor([10 * first, 10 * (1 - first)]))


def test_causal_true_in_the_fused_kernel_equals_the_causal_mask() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(32, 4)
    x = torch.randn(2, 6, 32)
    torch.testing.assert_close(
        attention(x, x, causal=True), attention.attend_explicitly(x, x, causal_mask(6))[0]
    )


def parameters_by_hand(vocab_size: int, d_model: int, d_ff: int, num_layers: int) -> int:
    """The number of parameters of the shared embedding and of `num_layers` layers of each stack.

    Attention has 4 (d^2 + d), feed-forward 2 d d_ff + d_ff + d, a norm 2 d. An encoder layer has 2 norms, a decoder
    layer has 3.
    """
    attention = 4 * (d_model**2 + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    encoder_layer = attention + feed_forward + 2 * 2 * d_model
    decoder_layer = 2 * attention + feed_forward + 3 * 2 * d_model
    return vocab_size * d_model + num_layers * (encoder_layer + decoder_layer)


@pytest.mark.parametrize(
    ("name", "sizes", "millions"), [("base", (512, 2048), 63), ("big", (1024, 4096), 214)]
)
def test_parameter_counts(name: str, sizes: tuple[int, int], millions: int) -> None:
    with torch.device("meta"):
        count = num_parameters(Transformer(preset(name, 37_000)))
    assert count == parameters_by_hand(37_000, *sizes, 6)
    assert round(count / 1e6) == millions


def test_encoder_and_decoder_depth_are_independent() -> None:
    model = Transformer(preset("tiny", VOCAB_SIZE, num_encoder_layers=5, num_decoder_layers=1))
    assert (len(model.encoder), len(model.decoder)) == (5, 1)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_future_token_never_changes_a_past_output(norm: str) -> None:
    model = model_of(norm=norm)
    source, target = torch.randint(4, VOCAB_SIZE, (1, 6)), torch.randint(4, VOCAB_SIZE, (1, 8))
    with torch.no_grad():
        before = model(source, target)
        for position in range(1, 8):
            changed = target.clone()
            changed[0, position:] = torch.randint(4, VOCAB_SIZE, (8 - position,))
            torch.testing.assert_close(
                model(source, changed)[:, :position], before[:, :position], atol=1e-6, rtol=0
            )


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_padding_never_changes_a_real_output(positions: str) -> None:
    model = model_of(positions=positions)
    source, target = torch.randint(4, VOCAB_SIZE, (2, 6)), torch.randint(4, VOCAB_SIZE, (2, 5))
    wider = torch.cat([source, torch.zeros(2, 4, dtype=torch.long)], dim=1)
    longer = torch.cat([target, torch.zeros(2, 3, dtype=torch.long)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(wider, longer)[:, :5], model(source, target), atol=1e-5, rtol=1e-5)


def test_positions_are_the_formula_of_section_3_5() -> None:
    table = sinusoidal_positions(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10000 ** (2 * i / 16)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_the_embedding_is_shared_and_scaled() -> None:
    model = model_of(dropout=0.0)
    names = [name for name, _ in model.named_parameters() if "embedding" in name]
    assert names == ["embedding.weight"]
    embedded = model.embedding(torch.tensor([[9]]))[0, 0]
    expected = model.embedding.weight[9] * math.sqrt(64) + sinusoidal_positions(1, 64)[0]
    torch.testing.assert_close(embedded, expected)
    x = torch.randn(64)
    torch.testing.assert_close(model.embedding.project(x), model.embedding.weight @ x)


def test_a_source_longer_than_max_length_is_an_error() -> None:
    model = model_of(max_length=8)
    with pytest.raises(ValueError, match="9 subwords, where positions end at 8"):
        model.encode(torch.full((1, 9), 5))


def test_an_empty_model_has_positions_and_no_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers for tensors without memory would import PyTorch's compiler."""
    expected = model_of().embedding.positions
    for name in ("normal_", "xavier_uniform_"):
        monkeypatch.setattr(nn.init, name, lambda *_, **__: pytest.fail("random numbers"))
    model = empty_model(preset("tiny", VOCAB_SIZE))
    assert all(parameter.is_meta for parameter in model.parameters())
    torch.testing.assert_close(model.embedding.positions, expected, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 65}, "not a multiple"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"num_heads": 1, "d_model": 65}, "d_model 65 is odd"),
        ({"max_length": 1}, "max_length 1 leaves no room"),
        ({"dropout": 1.0}, "dropout 1.0"),
        ({"norm": "middle"}, "norm is 'middle'"),
        ({"width": 3}, "unknown model fields: width"),
    ],
)
def test_a_config_that_makes_no_model_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("tiny", VOCAB_SIZE, **changes)


def test_config_survives_json() -> None:
    config = preset("small", 8000, norm="pre", dropout=0.2)
    assert ModelConfig.from_json(config.to_json()) == config
