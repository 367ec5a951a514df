"""In Marian's own files, damaged options, arrays and vocabularies are refused, and so are those of another network.

The error names what it refuses.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.imported import MAX_SHOWN, PAD, UnusableModel, shown
from model.marian import read_marian
from tests.export.marian_folder import change_npz

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("transformer-decoder-autoreg", "average-attention", "'self-attention' or 'rnn'"),
        ("transformer-train-positions", True, "False"),
        ("transformer-ffn-depth", 3, "2"),
        ("right-left", True, "False"),
        ("ulr", True, "False"),
        ("transformer-pool", True, "False"),
        ("transformer-rnn-projection", True, "False"),
        ("transformer-disable-position-embeddings", True, "False"),
        ("transformer-attention-mask", "alibi", "'default'"),
        ("enc-depth", None, "a whole number"),
        ("dec-depth", "x", "a whole number"),
        ("dim-emb", True, "a whole number"),
        ("transformer-decoder-dim-ffn", [1], "a whole number"),
        ("transformer-ffn-activation", "gelu", "'swish' or 'relu'"),
    ],
)
def test_another_network_and_a_damaged_option_are_refused(
    npz: Path, option: str, value: object, needed: str
) -> None:
    change_npz(npz, {option: value})
    message = f"{option} of special:model.yml is {value!r}; it must be {needed}"
    with pytest.raises(UnusableModel, match=re.escape(message) + "$"):
        read_marian(npz)


def test_a_preprocess_option_that_is_no_text_is_refused(npz: Path) -> None:
    change_npz(npz, {"transformer-preprocess": 1})
    with pytest.raises(UnusableModel, match=r"special:model\.yml has transformer-preprocess 1, "):
        read_marian(npz)


def test_options_that_are_nested_too_deeply_are_refused(npz: Path) -> None:
    arrays = dict(np.load(npz / "opus.npz")) | {"special:model.yml": np.frombuffer(b"[" * 10_000, np.int8)}
    np.savez(npz / "opus.npz", **arrays)
    with pytest.raises(UnusableModel, match=r"special:model\.yml is not YAML"):
        read_marian(npz)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("a", id="scalar"),
        pytest.param("- a\n- 1", id="list"),
        pytest.param("a: b", id="no number"),
        pytest.param("a: [1]", id="nested"),
        pytest.param("a: 1\n---\nb: 2", id="two documents"),
        pytest.param("a: 1\n- b", id="not YAML"),
        pytest.param("[" * 1_000_000, id="brackets"),
        pytest.param("a: " + "{a: " * 500_000, id="braces"),
    ],
)
def test_a_vocabulary_that_is_no_table_of_numbers_is_refused(npz: Path, content: str) -> None:
    (vocabulary,) = npz.glob("*vocab.yml")
    vocabulary.write_text(content, "utf-8")
    with pytest.raises(UnusableModel, match=r"vocab\.yml does not give each piece a number"):
        read_marian(npz)


def test_a_vocabulary_with_a_padding_is_refused(npz: Path) -> None:
    (vocabulary,) = npz.glob("*vocab.yml")
    vocabulary.write_text(f'{vocabulary.read_text("utf-8")}\n"{PAD}": 9999\n', "utf-8")
    with pytest.raises(UnusableModel, match=f"has {PAD}, which Marian's vocabularies do not have"):
        read_marian(npz)


def test_a_vocabulary_may_be_there_twice_if_both_are_equal(npz: Path) -> None:
    (vocabulary,) = npz.glob("*vocab.yml")
    expected, second = read_marian(npz), npz / "second.vocab.yml"
    second.write_bytes(vocabulary.read_bytes())
    assert read_marian(npz).source_spm == expected.source_spm
    second.write_text("a: 1\n", "utf-8")
    with pytest.raises(UnusableModel, match="2 files are called"):
        read_marian(npz)


def test_a_message_shows_all_of_ten_names_and_cuts_off_more() -> None:
    names = [str(number) for number in range(MAX_SHOWN)]
    assert shown(names) == ", ".join(names)
    assert shown([*names, "more"]) == f"{', '.join(names)}, ..."


def test_options_that_change_nothing_are_accepted(npz: Path) -> None:
    """Marian uses layer-normalization in recurrent decoders only."""
    unused: dict[str, Any] = {
        "layer-normalization": True, "right-left": False, "transformer-pool": False,
        "transformer-rnn-projection": False, "transformer-disable-position-embeddings": False,
        "transformer-attention-mask": "default", "transformer-decoder-dim-ffn": 0,
    }  # fmt: skip
    change_npz(npz, unused)
    read_marian(npz)


def test_a_scale_of_activations_is_accepted_and_not_read(npz: Path) -> None:
    change_npz(npz, {}, {"none_QuantMultA": np.ones(1, np.float32)})
    read_marian(npz)


def test_any_other_array_that_nothing_reads_is_refused(npz: Path) -> None:
    change_npz(npz, {}, {"decoder_l1_rnn_Wo": np.ones((2, 2), np.float32)})
    message = r"opus\.npz has arrays that this network does not have: decoder_l1_rnn_Wo$"
    with pytest.raises(UnusableModel, match=message):
        read_marian(npz)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("Wemb", np.ones(4, np.float32), r"the array Wemb has the shape \(4,\); it must have two dimensions"),
        ("encoder_l1_self_Wq", np.ones((2, 2, 2), np.float32), "it must have two dimensions"),
        (
            "encoder_l1_self_bq",
            np.zeros(2, "f4,f4"),
            "encoder_l1_self_bq has the type .+; it must have numbers",
        ),
    ],
)
def test_an_array_of_another_shape_or_type_is_refused(
    npz: Path, name: str, values: object, message: str
) -> None:
    change_npz(npz, {}, {name: values})
    with pytest.raises(UnusableModel, match=message):
        read_marian(npz)
