"""Folders of M2M-100 and NLLB that are damaged, or that contradict themselves, are refused with all problems."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from model.imported import UnusableModel
from model.m2m import read_m2m
from model.m2m_vocabulary import NUM_MADE_UP
from tests.export.m2m_folder import KINDS, NLLB_LANGUAGES, change, write_nllb
from transduce.cli import main

pytestmark = pytest.mark.training


@pytest.fixture(scope="module", params=KINDS)
def untrained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrained") / str(request.param)
    KINDS[request.param].write(folder)
    return folder


@pytest.fixture
def broken(untrained: Path, tmp_path: Path) -> Path:
    """A copy of the folder to damage."""
    shutil.copytree(untrained, tmp_path / untrained.name)
    return tmp_path / untrained.name


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(UnusableModel) as found:
        read_m2m(folder)
    return found.value.problems


def test_all_missing_files_are_listed(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == [
        "config.json is missing", "model.safetensors or pytorch_model.bin is missing",
        "sentencepiece.bpe.model is missing", "vocab.json or tokenizer.json is missing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scale_embedding", False, "scale_embedding of config.json is False"),
        ("tie_word_embeddings", False, "tie_word_embeddings of config.json is False"),
        ("activation_function", "tanh", "must be one of relu, swish, silu, gelu"),
        ("activation_function", ["relu"], "must be one of relu, swish, silu, gelu"),
        ("encoder_layers", None, "encoder_layers of config.json is missing or no whole number"),
        ("decoder_ffn_dim", 4, "encoder_ffn_dim and decoder_ffn_dim of config.json differ"),
        ("decoder_start_token_id", 0, "decoder_start_token_id of config.json is 0; only eos_token_id, 2"),
        ("decoder_start_token_id", 0, "of generation_config.json it is 2"),
        ("pad_token_id", 0, "pad_token_id of config.json is 0"),
        ("vocab_size", 150, "vocab_size of config.json is 150"),
        ("vocab_size", None, "vocab_size of config.json is missing or no whole number"),
        ("d_model", 32, "the weight model.shared.weight has the shape"),
        ("decoder_layers", 3, "the weight model.decoder.layers.2.self_attn.q_proj.weight is missing"),
    ],
)
def test_a_contradictory_config_is_refused(broken: Path, field: str, value: object, message: str) -> None:
    change(broken / "config.json", lambda config: config.update({field: value}))
    assert message in "; ".join(problems_of(broken))


def test_a_config_that_is_nested_too_deeply_is_refused(broken: Path) -> None:
    (broken / "config.json").write_text("[" * 100_000, "utf-8")
    assert "config.json is not JSON: " in "; ".join(problems_of(broken))


def test_a_truncated_config_is_named(
    broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (broken / "config.json").read_text("utf-8")
    (broken / "config.json").write_text(content[:-20], "utf-8")
    assert main(["import", str(broken), "--output", str(tmp_path / "out"), "--licence", "MIT"]) == 1
    expected = f"transduce import: {broken} cannot be imported: config.json is not JSON: "
    assert capsys.readouterr().err.startswith(expected)


def test_all_contradictions_are_listed_together(broken: Path) -> None:
    change(broken / "config.json", lambda config: config.update(scale_embedding=False, d_model="64"))
    change(broken / "tokenizer_config.json", lambda settings: settings.update(language_codes="other"))
    assert problems_of(broken) == [
        "language_codes of tokenizer_config.json is 'other'; it must be one of m2m100, wmt21",
        "scale_embedding of config.json is False; only True can be imported",
        "d_model of config.json is missing or no whole number",
    ]


def test_a_mixture_of_experts_is_named_as_such(
    broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(broken / "config.json", lambda config: config.update(model_type="nllb-moe"))
    assert main(["import", str(broken), "--output", str(tmp_path / "out"), "--licence", "MIT"]) == 1
    assert capsys.readouterr().err == (
        f"transduce import: {broken} cannot be imported: model_type of config.json is 'nllb-moe': mixtures of "
        "experts are not served; the dense models of NLLB-200 are\n"
    )


@pytest.mark.parametrize("name", ["model.safetensors", "sentencepiece.bpe.model", "vocabulary"])
def test_a_truncated_or_missing_file_is_refused(broken: Path, name: str) -> None:
    file = broken / name
    if name == "vocabulary":
        file = broken / ("vocab.json" if broken.name == "m2m" else "tokenizer.json")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    problems_of(broken)
    file.unlink()
    assert file.name in problems_of(broken)[0]


@pytest.mark.parametrize(("field", "value"), [("language_codes", ["m2m100"]), ("num_madeup_words", "8")])
def test_settings_of_another_type_are_refused(broken: Path, field: str, value: object) -> None:
    change(broken / "tokenizer_config.json", lambda settings: settings.update({field: value}))
    assert f"{field} of tokenizer_config.json is {value!r}" in "; ".join(problems_of(broken))


def test_other_tokenizers_are_refused(broken: Path) -> None:
    change(broken / "tokenizer_config.json", lambda found: found.update(tokenizer_class="SMALL100Tokenizer"))
    assert "tokenizer_class of tokenizer_config.json is 'SMALL100Tokenizer'" in problems_of(broken)[0]


def test_a_vocabulary_of_another_model_is_refused(broken: Path) -> None:
    """Without one piece, the languages of M2M-100 get other ids. Two swapped pieces of NLLB get each other's row."""

    def shorten(vocabulary: dict[str, int]) -> None:
        del vocabulary[
            next(piece for piece, identity in vocabulary.items() if identity == len(vocabulary) - 1)
        ]

    def swap(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        one, other = [*vocabulary][10:12]
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]

    if broken.name == "m2m":
        change(broken / "vocab.json", shorten)
        assert "8 rows without a piece, vocab_size of config.json is" in problems_of(broken)[0]
    else:
        change(broken / "tokenizer.json", swap)
        assert (
            "2 pieces of sentencepiece.bpe.model have another id in tokenizer.json" in problems_of(broken)[0]
        )


@pytest.mark.parametrize("identity", [float("inf"), 166.7, True, "10", None])
@pytest.mark.parametrize("place", ["vocabulary", "added"])
def test_an_id_that_is_no_whole_number_is_refused(tmp_path: Path, identity: object, place: str) -> None:
    write_nllb(tmp_path)

    def edit(tokenizer: dict[str, Any]) -> None:
        if place == "added":
            tokenizer["added_tokens"][-1]["id"] = identity
        else:
            tokenizer["model"]["vocab"]["a"] = identity

    change(tmp_path / "tokenizer.json", edit)
    piece = "<mask>" if place == "added" else "a"
    assert problems_of(tmp_path) == [
        f"the id of {piece!r} in tokenizer.json is {identity!r}; it must be a whole number"
    ]


@pytest.mark.parametrize("identity", [-1, 10])
def test_an_id_that_is_negative_or_stands_twice_is_refused(tmp_path: Path, identity: int) -> None:
    write_nllb(tmp_path)
    change(tmp_path / "tokenizer.json", lambda tokenizer: tokenizer["added_tokens"][-1].update(id=identity))
    assert problems_of(tmp_path) == ["tokenizer.json has an id twice, or a negative one"]


def test_an_id_that_equals_the_vocab_size_is_refused(tmp_path: Path) -> None:
    write_nllb(tmp_path)
    size = json.loads((tmp_path / "config.json").read_text("utf-8"))["vocab_size"]
    change(tmp_path / "tokenizer.json", lambda tokenizer: tokenizer["added_tokens"][-1].update(id=size))
    assert problems_of(tmp_path) == [
        f"tokenizer.json has ids up to {size}, vocab_size of config.json is {size}"
    ]


def test_a_model_of_one_language_is_refused(tmp_path: Path) -> None:
    write_nllb(tmp_path)

    def keep_one(tokenizer: dict[str, Any]) -> None:
        tokenizer["added_tokens"] = [
            token for token in tokenizer["added_tokens"] if token["content"] not in NLLB_LANGUAGES[1:]
        ]

    change(tmp_path / "tokenizer.json", keep_one)
    assert "tokenizer.json has fewer than two languages" in problems_of(tmp_path)


def test_a_vocab_size_that_the_weights_do_not_have_takes_no_memory(broken: Path) -> None:
    """In M2M-100, num_madeup_words agrees with the claimed vocab_size."""
    more = 1_000_000
    change(broken / "config.json", lambda config: config.update(vocab_size=config["vocab_size"] + more))
    settings = {"num_madeup_words": NUM_MADE_UP + more}
    change(broken / "tokenizer_config.json", lambda found: found.update(settings))
    tracemalloc.start()
    try:
        (problem,) = problems_of(broken)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem.startswith("the weight model.shared.weight has the shape")
    assert peak_bytes < 10 * more


def test_two_codes_of_one_language_are_refused(tmp_path: Path) -> None:
    write_nllb(tmp_path)
    assert {"ace_Arab", "zho_Hant"} <= {*NLLB_LANGUAGES}
    text = (tmp_path / "tokenizer.json").read_text("utf-8").replace("ace_Arab", "lvs_Latn")
    (tmp_path / "tokenizer.json").write_text(text.replace("zho_Hant", "lav_Latn"), "utf-8")
    assert problems_of(tmp_path) == ["tokenizer.json has the language lv twice"]


@pytest.mark.parametrize("languages", ["en", "en,,en", "de,en,de"])
def test_fewer_than_two_languages_and_equal_ones_are_a_usage_error(
    languages: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--output", str(tmp_path / "out"), "--licence", "MIT", "--languages", languages)
    with pytest.raises(SystemExit):
        main(["import", str(tmp_path), *options])
    message = f"argument --languages: '{languages}' are not two or more different languages, such as en,de,fr"
    assert message in capsys.readouterr().err
