"""The SSRU equals its formula and sees no later position. A checkpoint keeps the kind of decoder."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.attention_figures import attention_picture
from model.attention_maps import AttentionMaps, attention_weights
from model.checkpoint import CheckpointError, Saved, load_model, save
from model.config import ConfigError, ModelConfig, preset
from model.ssru import SSRU
from model.train_cli import _model as start_model
from model.train_cli import add_train_arguments
from model.transformer import Transformer
from tests.model.cross_attention import forward_cross_weights

VOCAB_SIZE = 50


def model_of(norm: str = "post") -> Transformer:
    torch.manual_seed(7)
    return Transformer(preset("tiny", VOCAB_SIZE, norm=norm, decoder="ssru", dropout=0.0)).eval()


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(4, VOCAB_SIZE, (batch, length))


def test_the_ssru_equals_the_formula_step_by_step() -> None:
    """Kim et al. 2019, section 3.1, in numpy and float64."""
    torch.manual_seed(1)
    block = SSRU(8).double()
    torch.nn.init.normal_(block.w_f.bias)
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    w, w_f, b_f = (
        parameter.detach().numpy() for parameter in (block.w.weight, block.w_f.weight, block.w_f.bias)
    )
    c = np.zeros((3, 8))
    expected = []
    for x_t in x.numpy().transpose(1, 0, 2):
        f_t = 1 / (1 + np.exp(-(x_t @ w_f.T + b_f)))
        c = f_t * c + (1 - f_t) * (x_t @ w.T)
        expected.append(np.maximum(c, 0))
    np.testing.assert_allclose(block(x).detach().numpy(), np.stack(expected, axis=1), atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_prefix_decodes_as_in_the_whole_target(norm: str) -> None:
    model, source, target = model_of(norm), ids(2, 5), ids(2, 7)
    with torch.no_grad():
        whole = model(source, target)
        for length in range(1, 8):
            torch.testing.assert_close(model(source, target[:, :length])[:, -1], whole[:, length - 1])


def test_the_last_position_depends_on_the_first() -> None:
    model, source, target = model_of(), ids(1, 5), ids(1, 7)
    changed = target.clone()
    changed[0, 0] = (changed[0, 0] + 1) % VOCAB_SIZE
    with torch.no_grad():
        assert not torch.allclose(model(source, target)[0, -1], model(source, changed)[0, -1])


def test_every_parameter_gets_a_gradient() -> None:
    model = model_of().train()
    model(ids(2, 5), ids(2, 7)).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters() if p.requires_grad)


def test_gates_near_1_keep_their_precision_in_bf16() -> None:
    """The gate is sigmoid(8), 0.99966. bf16 would round it to 1, and then the state would never change."""
    block = SSRU(4)
    with torch.no_grad():
        block.w.weight.copy_(torch.eye(4))
        block.w_f.weight.zero_()
        block.w_f.bias.fill_(8.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = block(torch.ones(1, 200, 4))
    assert found.dtype == torch.bfloat16
    expected = 1 - (1 / (1 + math.exp(-8))) ** 200
    assert found[0, -1, 0].item() == pytest.approx(expected, rel=0.01)


def test_a_checkpoint_keeps_the_kind_of_decoder(tmp_path: Path, tokenizer_path: Path) -> None:
    model = model_of()
    path = tmp_path / "checkpoint"
    save(path, Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}), tokenizer_path)
    loaded = load_model(path)
    assert loaded.config.decoder == "ssru"
    source, target = ids(1, 5), ids(1, 7)
    torch.testing.assert_close(loaded(source, target), model(source, target))


def test_a_config_without_the_field_decoder_has_self_attention() -> None:
    fields = preset("tiny", VOCAB_SIZE).to_json()
    del fields["decoder"]
    assert ModelConfig.from_json(fields).decoder == "attention"


def test_an_unknown_kind_of_decoder_is_an_error() -> None:
    with pytest.raises(ConfigError, match="decoder is 'lstm': one of attention, ssru is needed"):
        preset("tiny", VOCAB_SIZE, decoder="lstm")


def test_maps_have_no_self_attention_of_the_decoder() -> None:
    model, source, target = model_of(), ids(1, 5)[0].tolist(), ids(1, 7)[0].tolist()
    encoder, decoder, cross = attention_weights(model, source, target)
    assert decoder is None
    assert cross.shape == (2, 2, 7, 5)
    np.testing.assert_allclose(cross, forward_cross_weights(model, source, target).numpy(), atol=1e-6)
    maps = AttentionMaps(("a",) * 5, ("b",) * 7, ("c",) * 7, encoder, decoder, cross)
    with pytest.raises(ValueError, match="--part decoder: a decoder of SSRUs has no self-attention"):
        attention_picture(maps, "decoder")


def test_a_start_from_weights_of_another_decoder_is_an_error(tmp_path: Path, tokenizer_path: Path) -> None:
    model = model_of()
    path = tmp_path / "checkpoint"
    save(path, Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}), tokenizer_path)
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    for kind, message in (("attention", "decoder is attention, the weights of .* have ssru"), ("ssru", "")):
        args = parser.parse_args(["--start-from", str(path), "--decoder", kind])
        if message:
            with pytest.raises(CheckpointError, match=message):
                start_model(args, VOCAB_SIZE)
        else:
            assert start_model(args, VOCAB_SIZE).config.decoder == "ssru"
