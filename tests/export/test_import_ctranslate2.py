"""CTranslate2 models and Argos packages become bundles. A bundle translates as CTranslate2 does."""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.bundle import Bundle, load_bundle
from app.decoding.options import DecodingOptions, LengthPenalty
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
from export.golden import translate_ids
from model import ctranslate2_files
from model.ctranslate2_binary import floats, read_variables
from model.ctranslate2_files import read_ctranslate2
from model.imported import UnusableModel
from tests.api.server_process import ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.export.argos_package import MAX_TOKENS, SENTENCES, write_argos
from tests.export.pieces import pieces_of
from tests.export.tiny import KERNELS
from transduce.cli import main

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("argos") / "translate-en_de"


@pytest.fixture(scope="module")
def translator(folder: Path) -> Any:
    return write_argos(folder)


@pytest.fixture(scope="module")
def bundle(folder: Path, translator: object, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    archive = shutil.make_archive(str(folder), "zip", folder.parent, folder.name)
    package = Path(archive).rename(folder.with_suffix(".argosmodel"))
    output = tmp_path_factory.mktemp("bundles") / "en-de"
    assert (
        main(["import", str(package), "--output", str(output), "--licence", "MIT", "--precisions", "fp32"])
        == 0
    )
    return load_bundle(output)


def test_a_package_names_its_languages_and_its_search_options(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert [(pair.source, pair.target) for pair in manifest.language_pairs] == [("en", "de")]
    assert (manifest.name, manifest.ends_source) == ("translate-en_de", False)
    assert (manifest.decoding.length_penalty, manifest.decoding.alpha) == (LengthPenalty.POWER, 0.2)


def test_sources_have_no_end_token(folder: Path, bundle: Bundle) -> None:
    tokenizer = Tokenizer(bundle.file("source.spm"), ends_source=False)
    text = SENTENCES[0]
    assert tokenizer.eos_id not in tokenizer.encode(text).ids
    assert Tokenizer(bundle.file("source.spm")).encode(text).ids == (
        *tokenizer.encode(text).ids,
        tokenizer.eos_id,
    )


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_equal_those_of_ctranslate2(
    translator: Any, bundle: Bundle, kernels: Kernels, beam_size: int
) -> None:
    tokenizer = Tokenizer(bundle.file("source.spm"), ends_source=False)
    sources = [tokenizer.encode(text).ids for text in SENTENCES]
    alpha = bundle.manifest.decoding.alpha
    options = DecodingOptions(
        beam_size=beam_size,
        alpha=alpha,
        length_penalty=bundle.manifest.decoding.length_penalty,
        max_target_length=MAX_TOKENS,
    )
    runner = load_runner(bundle, precision="fp32", device="cpu", kernels=kernels, num_rows=64, num_threads=1)
    found = translate_ids(runner, sources, options)
    pieces = [pieces_of(tokenizer, source) for source in sources]
    results = translator.translate_batch(
        pieces, beam_size=beam_size, length_penalty=alpha, max_decoding_length=MAX_TOKENS
    )
    reference = [result.hypotheses[0] for result in results]
    ended = {text: ids for text, ids in zip(SENTENCES, reference, strict=True) if len(ids) < MAX_TOKENS - 1}
    ours = {
        text: pieces_of(tokenizer, ids) for text, ids in zip(SENTENCES, found, strict=True) if text in ended
    }
    assert ours == ended
    assert len({tuple(ids) for ids in ended.values()}) > len(SENTENCES) / 4, (
        "the translations are too similar"
    )


@pytest.mark.server
def test_a_server_translates_aligns_and_scores(bundle: Bundle) -> None:
    """Alignment and scoring work with sources that have no end token."""
    settings = {"bundle": bundle.path, "precision": "fp32", "num_threads": 1}
    body = {"text": "Anna sees the river today.", "source": "en", "target": "de"}
    with ServerProcess(SERVE_BY_FORK, settings) as process, process.ready().client() as client:
        answer = client.post(
            "/v1/translate", json={**body, "token_scores": True, "alignment": True, "attention": True}
        )
        assert answer.status_code == 200, answer.text
        (segment,) = answer.json()["translations"][0]["segments"]
        spans = [(token["start"], token["end"]) for token in segment["source_tokens"]]
        assert spans[-1] == (25, 26), "the last subword must be the full stop, because there is no end token"
        scored = client.post(
            "/v1/score",
            json={**body, "translation": "Anna sieht heute den Fluss.", "alignment": True, "attention": True},
        )
        assert scored.status_code == 200, scored.text


def test_int8_weights_are_close_to_those_of_float32(tmp_path: Path) -> None:
    """Each row is rounded to multiples of 1/127 of its largest absolute value."""
    for quantization in ("float32", "int8"):
        write_argos(tmp_path / quantization, quantization=quantization, num_steps=1)
    reference, found = (read_ctranslate2(tmp_path / name).state for name in ("float32", "int8"))
    assert reference.keys() == found.keys()
    for name, tensor in reference.items():
        step = tensor.abs().amax(dim=-1, keepdim=True) / 127 if tensor.dim() > 1 else 0.0
        assert bool(((found[name] - tensor).abs() <= 0.51 * step + 1e-6).all()), name


@pytest.mark.parametrize(("shape", "size"), [((2, 4), 3), ((2, 4), 4), ((2, 4), 0), ((), 2)])
def test_a_scale_of_another_size_is_refused(shape: tuple[int, ...], size: int) -> None:
    variables: dict[str, NDArray[Any]] = {"x": np.ones(shape, np.int8), "x_scale": np.ones(size, np.float32)}
    with pytest.raises(ValueError, match=f"model.bin: x_scale has {size} numbers, and x has "):
        floats(variables, "x")


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("size", [1, 2])
def test_an_impossible_scale_is_refused(number: float, size: int) -> None:
    scale = np.ones(size, np.float32)
    scale[-1] = number
    variables: dict[str, NDArray[Any]] = {"x": np.ones((2, 4), np.int8), "x_scale": scale}
    with pytest.raises(ValueError, match=r"model\.bin: x_scale has numbers that are not above 0 and finite"):
        floats(variables, "x")


def test_variables_that_are_stored_once_become_separate_tensors(tmp_path: Path) -> None:
    """An untrained model has equal biases and norms. Safetensors refuses tensors with the same memory."""
    write_argos(tmp_path / "untrained", num_steps=0)
    with (tmp_path / "untrained" / "model" / "model.bin").open("rb") as file:
        variables = read_variables(file)
    assert len({id(values) for values in variables.values()}) < len(variables)
    state = read_ctranslate2(tmp_path / "untrained").state
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


def variables_file(name: str, shape: tuple[int, ...], type_number: int, content: bytes) -> bytes:
    """A model.bin with one variable."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    head = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 7, 1)
    dims = struct.pack("<B", len(shape)) + b"".join(struct.pack("<I", size) for size in shape)
    return (
        head
        + text(name)
        + dims
        + struct.pack("<BI", type_number, len(content))
        + content
        + struct.pack("<I", 0)
    )


def read_file(content: bytes) -> np.ndarray[Any, Any]:
    return read_variables(io.BytesIO(content))["x"]


def test_both_16_bit_formats_are_read() -> None:
    values = np.array([1.5, -2.0, 0.125], np.float32)
    half = read_file(variables_file("x", (3,), 4, values.astype("<f2").tobytes()))
    brain = (values.view("<u4") >> 16).astype("<u2").tobytes()
    assert half.tolist() == read_file(variables_file("x", (3,), 5, brain)).tolist() == values.tolist()


@pytest.fixture
def broken(folder: Path, translator: object, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "broken")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.bin is cut off"),
        (struct.pack("<I", 5), "has the format 5; only 6"),
        (struct.pack("<IH", 6, 12) + b"WhisperSpec\0" + struct.pack("<I", 3), "holds a WhisperSpec"),
        (variables_file("x", (10**9, 10), 0, b"1234"), "the size of x does not match its shape"),
        (variables_file("x", (1,), 0, b"12345678"), "the size of x does not match its shape"),
        (variables_file("x", (1,), 9, b"1234"), "x has the unknown type 9"),
        (variables_file("x", (1,), 0, b"1234")[:-6], "model.bin is cut off"),
    ],
)
def test_a_damaged_binary_is_refused(broken: Path, content: bytes, message: str) -> None:
    (broken / "model" / "model.bin").write_bytes(content)
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("model/config.json", {"add_source_bos": True}, "add_source_bos of config.json is true"),
        ("model/config.json", {"decoder_start_token": "<x>"}, "the vocabulary has no <x>"),
        ("model/config.json", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon of config.json is 1e-06"),
    ],
)
def test_a_contradictory_config_is_refused(
    broken: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    path = broken / name
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("activation", (0, 2), "decoder/activation of model.bin is 2, encoder/activation is 0"),
        ("num_heads", (2, 4), "decoder/num_heads of model.bin is 4, encoder/num_heads is 2"),
        ("num_heads", (None, 4), "decoder/num_heads of model.bin is 4, encoder/num_heads is 8"),
        ("pre_norm", (1, 0), "decoder/pre_norm of model.bin is 0, encoder/pre_norm is 1"),
    ],
)
def test_an_encoder_and_a_decoder_of_different_kinds_are_refused(
    broken: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: tuple[int | None, int | None],
    message: str,
) -> None:
    def changed(file: io.BufferedReader) -> dict[str, Any]:
        variables = read_variables(file)
        for stack, value in zip(("encoder", "decoder"), values, strict=True):
            variables.pop(f"{stack}/{name}", None)
            if value is not None:
                variables[f"{stack}/{name}"] = np.array(value, np.int8)
        return variables

    monkeypatch.setattr(ctranslate2_files, "read_variables", changed)
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("encoder/embeddings_0/weight", ()), ("encoder/activation", (2,)), ("decoder/projection/bias", (5,))],
)
def test_a_variable_of_the_wrong_shape_is_refused(
    broken: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...]
) -> None:
    def changed(file: io.BufferedReader) -> dict[str, Any]:
        return {**read_variables(file), name: np.zeros(shape, np.float32)}

    monkeypatch.setattr(ctranslate2_files, "read_variables", changed)
    with pytest.raises(UnusableModel, match=r"a variable of model\.bin has the wrong shape"):
        read_ctranslate2(broken)


@pytest.mark.parametrize(
    "name",
    [
        "encoder/layer_0/ffn/linear_0_noact/weight",  # a gated feed-forward network
        "decoder/layer_1/self_attention/queries_scale",
        "decoder/scale_outputs",
        "encoder/multi_query_attention",
    ],
)
def test_a_variable_that_nothing_reads_is_refused(
    broken: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def changed(file: io.BufferedReader) -> dict[str, Any]:
        return {**read_variables(file), name: np.ones((), np.float32)}

    monkeypatch.setattr(ctranslate2_files, "read_variables", changed)
    message = rf"model\.bin has variables that this network does not have: {name}$"
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)


def test_attributes_that_change_nothing_are_accepted(
    folder: Path, translator: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions of CTranslate2 write multi_query for each attention."""

    def changed(file: io.BufferedReader) -> dict[str, Any]:
        return {**read_variables(file), "decoder/layer_0/attention/multi_query": np.zeros((), np.int8)}

    monkeypatch.setattr(ctranslate2_files, "read_variables", changed)
    read_ctranslate2(folder)


def test_missing_files_are_named(broken: Path) -> None:
    (broken / "sentencepiece.model").unlink()
    with pytest.raises(UnusableModel, match=r"sentencepiece\.model or source\.spm is missing"):
        read_ctranslate2(broken)
    (broken / "model" / "shared_vocabulary.json").unlink()
    with pytest.raises(UnusableModel, match=r"shared_vocabulary\.json or shared_vocabulary\.txt is missing"):
        read_ctranslate2(broken)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_vocabulary_may_have_one_piece_a_line(broken: Path, end: str) -> None:
    path, expected = broken / "model" / "shared_vocabulary.json", read_ctranslate2(broken)
    pieces = json.loads(path.read_text("utf-8"))
    path.unlink()
    path.with_suffix(".txt").write_text("\n".join(pieces) + end, "utf-8")
    assert read_ctranslate2(broken).source_spm == expected.source_spm


def test_a_vocabulary_with_a_piece_twice_is_refused(broken: Path) -> None:
    path = broken / "model" / "shared_vocabulary.json"
    pieces = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps([*pieces[:-1], pieces[-2]]), "utf-8")
    with pytest.raises(UnusableModel, match=r"shared_vocabulary\.json has a piece twice"):
        read_ctranslate2(broken)


@pytest.mark.parametrize("language", ["__de__", "__ceb__", "deu_Latn"])
def test_m2m_100_and_nllb_are_named(broken: Path, language: str) -> None:
    """Their SentencePiece model has another name, which must not be the only problem in the message."""
    (broken / "sentencepiece.model").unlink()
    config, vocabulary = broken / "model" / "config.json", broken / "model" / "shared_vocabulary.json"
    pieces = json.loads(vocabulary.read_text("utf-8"))
    vocabulary.write_text(json.dumps([*pieces[:-1], language]), "utf-8")
    with pytest.raises(UnusableModel, match=r"sentencepiece\.model or source\.spm is missing"):
        read_ctranslate2(broken)
    start = {"decoder_start_token": "</s>"}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | start), "utf-8")
    message = "the model is M2M-100 or NLLB, which can be imported only in the format of Hugging Face"
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)


@pytest.mark.parametrize(
    ("name", "value", "needed"), [("target_prefix", ">>deu<<", ""), ("type", "sbd", "translate")]
)
def test_metadata_that_a_bundle_cannot_express_is_refused(
    broken: Path, name: str, value: str, needed: str
) -> None:
    """With target_prefix, Argos Translate begins each target with this text. needed: the only accepted value."""
    path = broken / "metadata.json"
    metadata = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(metadata | {name: needed}), "utf-8")
    assert read_ctranslate2(broken).languages == ("en", "de")
    path.write_text(json.dumps(metadata | {name: value}), "utf-8")
    message = f"{name} of metadata.json is {value!r}; only {needed!r} can be imported"
    with pytest.raises(UnusableModel, match=message):
        read_ctranslate2(broken)
