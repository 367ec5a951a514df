"""Writes the files of a Firefox model in Marian's binary formats, and computes its logits with NumPy alone.

The weights are random. The network is Marian's: post-norm, with SSRUs in the decoder, as in Firefox's models.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml
from numpy.typing import NDArray

from tests.model.sentences import pairs

Array = NDArray[Any]
D_MODEL, D_FF, NUM_HEADS, ENCODER_LAYERS, DECODER_LAYERS = 32, 48, 2, 2, 2
OPTIONS: dict[str, Any] = {
    "type": "transformer", "tied-embeddings-all": True, "tied-embeddings": False, "tied-embeddings-src": False,
    "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "dec-cell-base-depth": 2, "dim-rnn": 1024,
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d", "transformer-ffn-depth": 2, "transformer-decoder-ffn-depth": 0,
    "transformer-dim-ffn": D_FF, "transformer-decoder-dim-ffn": 0, "transformer-ffn-activation": "relu",
    "transformer-heads": NUM_HEADS, "transformer-tied-layers": [], "transformer-train-position-embeddings": False,
    "dim-emb": D_MODEL, "enc-depth": ENCODER_LAYERS, "dec-depth": DECODER_LAYERS, "dim-vocabs": [],
    "version": "v1.9.56",
}  # fmt: skip
INT8, FLOAT32, INTGEMM8, INTGEMM16 = 0x0101, 0x0404, 0x4101, 0x4102
SHORTLIST_MAGIC = 0xF11A48D5013417F5


@cache
def vocabulary_model(sentences: tuple[str, ...], vocab_size: int, *, byte_fallback: bool = False) -> bytes:
    """A SentencePiece model with Marian's special ids."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=written, vocab_size=vocab_size, hard_vocab_limit=False,
        byte_fallback=byte_fallback, bos_id=-1, pad_id=-1, eos_id=0, unk_id=1, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


class FirefoxModel:
    """Random weights by Marian's names. A matrix has the shape (inputs, outputs).

    num_source, num_target: the sizes of the vocabularies.
    """

    def __init__(
        self, *, has_target_vocabulary: bool = False, bits: int = 8, byte_fallback: bool = False
    ) -> None:
        """has_target_vocabulary: whether sources and targets have vocabularies and embeddings of their own.

        bits: the bits of a stored weight, 8, 16 or 32.
        byte_fallback: whether the SentencePiece model of a single vocabulary has all bytes, as in newer Firefox models.
        """
        source, target = (tuple(getattr(pair, side) for pair in pairs()) for side in ("source", "target"))
        models = [vocabulary_model(source, 90), vocabulary_model(target, 100)]
        self.models = (
            models
            if has_target_vocabulary
            else [vocabulary_model(source + target, 110 + 256 * byte_fallback, byte_fallback=byte_fallback)]
        )
        self.num_source, self.num_target = (
            sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
            for model in (self.models[0], self.models[-1])
        )
        self.options = OPTIONS | {
            "tied-embeddings-all": not has_target_vocabulary,
            "tied-embeddings": has_target_vocabulary,
        }
        self.kind = {8: INTGEMM8, 16: INTGEMM16, 32: FLOAT32}[bits]
        self._random = np.random.default_rng(6)
        self.arrays = self._all_arrays(has_target_vocabulary=has_target_vocabulary)

    def _matrix(self, rows: int, columns: int) -> Array:
        """Random values that the type of the file can represent."""
        values = self._random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        scale = scale_of(values, self.kind)
        return values if scale is None else (np.rint(values * scale) / scale).astype(np.float32)

    def _vector(self, mean: float = 0.0, width: int = D_MODEL) -> Array:
        return self._random.normal(mean, 0.2, (1, width)).astype(np.float32)

    def _norm(self, name: str) -> dict[str, Array]:
        return {f"{name}_ln_scale": self._vector(1.0), f"{name}_ln_bias": self._vector()}

    def _all_arrays(self, *, has_target_vocabulary: bool) -> dict[str, Array]:
        tables = {"encoder_Wemb": self.num_source, "decoder_Wemb": self.num_target}
        found = {
            name: self._matrix(size, D_MODEL)
            for name, size in (tables if has_target_vocabulary else {"Wemb": self.num_target}).items()
        }
        found["decoder_ff_logit_out_b"] = self._vector(width=self.num_target)
        for stack, depth in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
            for layer in range(1, depth + 1):
                name = f"{stack}_l{layer}"
                attention = "self" if stack == "encoder" else "context"
                for letter in "qkvo":
                    # With the factor, attention matters so much that translations differ.
                    found[f"{name}_{attention}_W{letter}"] = 3 * self._matrix(D_MODEL, D_MODEL)
                    found[f"{name}_{attention}_b{letter}"] = self._vector()
                found |= self._norm(f"{name}_{attention}_Wo")
                if stack == "decoder":
                    rnn = f"{name}_rnn"
                    found |= {f"{rnn}_{kind}": self._matrix(D_MODEL, D_MODEL) for kind in ("W", "Wf")}
                    found[f"{rnn}_bf"] = self._vector()
                    found |= self._norm(f"{rnn}_ffn")
                found[f"{name}_ffn_W1"], found[f"{name}_ffn_b1"] = (
                    self._matrix(D_MODEL, D_FF),
                    self._vector(width=D_FF),
                )
                found[f"{name}_ffn_W2"], found[f"{name}_ffn_b2"] = self._matrix(D_FF, D_MODEL), self._vector()
                found |= self._norm(f"{name}_ffn_ffn")
        return found

    def write(self, folder: Path) -> None:
        """Write the model, its vocabularies and its shortlist."""
        folder.mkdir(parents=True, exist_ok=True)
        names = ["vocab.ende.spm"] if len(self.models) == 1 else ["srcvocab.ende.spm", "trgvocab.ende.spm"]
        for name, model in zip(names, self.models, strict=True):
            (folder / name).write_bytes(model)
        content = binary_model(self.arrays, self.options, self.kind)
        (folder / "model.ende.intgemm.alphas.bin").write_bytes(content)
        (folder / "lex.50.50.ende.s2t.bin").write_bytes(binary_shortlist(self.likely(), num_first=7))

    def likely(self) -> list[list[int]]:
        """The target ids of each source id in the shortlist."""
        return [
            sorted({(7 * each + step) % self.num_target for step in (3, 11, 29)})
            for each in range(self.num_source)
        ]

    # --- the network

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """The logits (len(target) + 1, num_target) of one sentence. Decoding starts with a row of zeros."""
        has_target_vocabulary = "Wemb" not in self.arrays
        source_table, table = (
            self.arrays[f"{stack}_Wemb" if has_target_vocabulary else "Wemb"]
            for stack in ("encoder", "decoder")
        )
        memory = self._stack("encoder", embedded(source_table[[*source]]), None)
        shifted = np.concatenate([np.zeros((1, D_MODEL), np.float32), table[[*target]]])
        outputs = self._stack("decoder", embedded(shifted), memory)
        return np.asarray(outputs @ table.T + self.arrays["decoder_ff_logit_out_b"][0])

    def _stack(self, stack: str, x: Array, memory: Array | None) -> Array:
        for layer in range(1, (ENCODER_LAYERS if memory is None else DECODER_LAYERS) + 1):
            name = f"{stack}_l{layer}"
            if memory is None:
                x = self._residual(
                    f"{name}_self_Wo", x, lambda y, name=name: self._attention(f"{name}_self", y, y)
                )
            else:
                rnn = f"{name}_rnn"
                x = self._residual(f"{rnn}_ffn", x, lambda y, rnn=rnn: self._ssru(rnn, y))
                x = self._residual(
                    f"{name}_context_Wo",
                    x,
                    lambda y, name=name: self._attention(f"{name}_context", y, memory),
                )
            x = self._residual(
                f"{name}_ffn_ffn", x, lambda y, name=name: self._feed_forward(f"{name}_ffn", y)
            )
        return x

    def _residual(self, name: str, x: Array, sublayer: Any) -> Array:
        total = x + sublayer(x)
        centred = total - total.mean(-1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return np.asarray(normal * self.arrays[f"{name}_ln_scale"] + self.arrays[f"{name}_ln_bias"])

    def _affine(self, name: str, letter: str, x: Array) -> Array:
        return np.asarray(x @ self.arrays[f"{name}_W{letter}"] + self.arrays[f"{name}_b{letter}"])

    def _attention(self, name: str, x: Array, memory: Array) -> Array:
        q, k, v = (
            self._affine(name, letter, side) for letter, side in (("q", x), ("k", memory), ("v", memory))
        )
        q, k, v = (side.reshape(len(side), NUM_HEADS, -1).swapaxes(0, 1) for side in (q, k, v))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(D_MODEL / NUM_HEADS)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        return self._affine(name, "o", mixed.swapaxes(0, 1).reshape(len(x), D_MODEL))

    def _ssru(self, name: str, x: Array) -> Array:
        """c = sigmoid(f) c' + (1 - sigmoid(f)) x W with f = x Wf + bf, output relu(c). c' is c of the step before."""
        gates, inputs = 1 / (1 + np.exp(-self._affine(name, "f", x))), x @ self.arrays[f"{name}_W"]
        state, outputs = np.zeros(D_MODEL), []
        for gate, value in zip(gates, inputs, strict=True):
            state = gate * state + (1 - gate) * value
            outputs.append(np.maximum(state, 0))
        return np.array(outputs)

    def _feed_forward(self, name: str, x: Array) -> Array:
        return self._affine(name, "2", np.maximum(self._affine(name, "1", x), 0))


def embedded(rows: Array) -> Array:
    """Scaled embeddings plus positions: sines in the first half, cosines in the second, frequencies 1 to 1/10000."""
    half = D_MODEL // 2
    angles = np.arange(len(rows))[:, None] * np.exp(np.arange(half) * (-math.log(10000) / (half - 1)))
    return np.asarray(rows * math.sqrt(D_MODEL) + np.concatenate([np.sin(angles), np.cos(angles)], axis=1))


# --- the files


def scale_of(values: Array, kind: int) -> np.float32 | None:
    """The factor of quantised weights; None for float32."""
    if kind == FLOAT32:
        return None
    return np.float32(1024 if kind == INTGEMM16 else 127 / np.abs(values).max())


def is_quantised(name: str) -> bool:
    """Whether Marian quantises an array of this name."""
    return "Wemb" in name or name[-2:] == "_W" or name[-3:-1] == "_W"


def binary_model(arrays: Mapping[str, Array], options: Mapping[str, Any], kind: int) -> bytes:
    """A file as `marian-conv` writes it, with an activation scale as Firefox's models have.

    kind: the number of the type of quantised matrices.
    """
    text = yaml.safe_dump(dict(options)).encode() + b"\0"
    entries: list[tuple[str, int, tuple[int, ...], bytes]] = [("special:model.yml", INT8, (len(text),), text)]
    for name, values in arrays.items():
        scale = scale_of(values, kind) if is_quantised(name) else None
        if scale is None:
            entries.append((name, FLOAT32, values.shape, values.astype("<f4").tobytes()))
            continue
        stored = values if "Wemb" in name else values.T
        integers = np.rint(stored * scale).astype("<i1" if kind == INTGEMM8 else "<i2")
        content = integers.tobytes() + struct.pack("<f", scale)
        entries.append((name, kind, values.shape, content + b"\0" * (-len(content) % 256)))
    entries.append(("encoder_l1_self_Wq_QuantMultA", INTGEMM8, (1, 1), b"\x7f" + struct.pack("<f", 4.0)))
    return binary_file(entries)


def binary_file(entries: Sequence[tuple[str, int, tuple[int, ...], bytes]]) -> bytes:
    """A file of arrays. entries: name, number of the type, shape and bytes of each."""
    head = struct.pack("<QQ", 1, len(entries))
    for name, kind, shape, content in entries:
        head += struct.pack("<4Q", len(name) + 1, kind, len(shape), len(content))
    head += b"".join(name.encode() + b"\0" for name, *_ in entries)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in entries)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + b"\0" * padding + b"".join(content for *_, content in entries)


def binary_shortlist(likely: Sequence[Sequence[int]], *, num_first: int) -> bytes:
    """A file as `marian-conv --shortlist --dump` writes it, with the checksum 0.

    num_first: the first num_first target ids are in the shortlist of every source.
    """
    ids = [each for one in likely for each in one]
    offsets = np.cumsum([0, *map(len, likely)])
    head = struct.pack("<6Q", SHORTLIST_MAGIC, 0, num_first, 3, len(offsets), len(ids))
    return head + offsets.astype("<u8").tobytes() + np.array(ids, "<u4").tobytes()
