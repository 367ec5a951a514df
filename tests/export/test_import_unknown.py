"""A server of an imported model loses no character that the vocabulary lacks.

The model is trained to exchange the two sides of a verb, with the unknown token on both sides, one or none. So the
unknown tokens of a translation are in another order than those of its source.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.bundle import load_bundle
from model.corpus import Pair
from tests.api.server_process import ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.export.marian_folder import IMPORT_OPTIONS, train, write_marian
from transduce.cli import main

pytestmark = [pytest.mark.training, pytest.mark.server]
NUM_STEPS = 250
NAMES = ("Anna", "the river", "a letter", "the old tree", "again")
# Any character that the vocabulary lacks is the unknown token in training.
UNKNOWN = "\u2603"


def exchanged_pairs() -> list[Pair]:
    """1,000 random sentences, with the sides of the verb exchanged in the target."""
    choices = random.Random(1)

    def side() -> str:
        return choices.choice(NAMES) + f" {UNKNOWN}" * (choices.random() < 0.7)

    sides = [(side(), side()) for _ in range(1000)]
    return [Pair(f"{one} sees {other} again.", f"{other} again sees {one}.", "home") for one, other in sides]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unknown")
    train(write_marian(folder / "theirs"), folder / "theirs", num_steps=NUM_STEPS, examples=exchanged_pairs())
    assert main(["import", str(folder / "theirs"), "--output", str(folder / "bundle"), *IMPORT_OPTIONS]) == 0
    return folder / "bundle"


@pytest.fixture(scope="module")
def client(bundle: Path) -> Iterator[httpx.Client]:
    settings = {"bundle": bundle, "precision": "fp32", "num_threads": 1}
    with ServerProcess(SERVE_BY_FORK, settings) as process, process.ready().client() as client:
        yield client


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\U0001f642", ""),
        ("", "\u96ea"),
        ("\U0001f642", "\u96ea\u4eba"),
        ("\u0416", "\u0416"),
        ("{name}", "{place}"),
        ("{name}", "\U0001f642"),
    ],
    ids=["emoji", "Chinese", "two scripts", "twice the same", "placeholders", "placeholder and emoji"],
)
def test_unknown_characters_are_placed_by_the_attention(
    client: httpx.Client, one: str, other: str, beam_size: int
) -> None:
    left, right = " ".join(filter(None, ("Anna", one))), " ".join(filter(None, ("the river", other)))
    body = {"source": "en", "target": "de", "text": f"{left} sees {right} again.", "beam_size": beam_size}
    (translation,) = client.post("/v1/translate", json=body).json()["translations"]
    assert translation["text"] == f"{right} again sees {left}."
    assert "fallbacks" not in translation["segments"][0], "the model writes all, so nothing is repaired"


def test_unknown_characters_that_the_model_leaves_out_are_inserted(client: httpx.Client) -> None:
    """In training, each side of the verb had at most one unknown token.

    Ten unknown characters are more than there are placeholder symbols.
    """
    unknown = [
        "\U0001f642",
        "\u0416",
        "\u96ea",
        "\u4eba",
        "\u05d0",
        "\u0915",
        "\u0e01",
        "\u30a2",
        "\u03a9",
        "\u263a",
    ]
    body = {"source": "en", "target": "de", "text": f"Anna {' again '.join(unknown)} sees the river again."}
    text = client.post("/v1/translate", json=body).json()["translations"][0]["text"]
    assert sorted(character for character in text if character in unknown) == sorted(unknown)
    assert "unk" not in text


def test_a_target_with_unknown_characters_has_the_models_score(client: httpx.Client) -> None:
    """The target is the model's own translation, so each of its tokens is probable, even an unknown character."""
    text, translation = (
        "Anna \U0001f642 sees the river \u0416 again.",
        "the river \u0416 again sees Anna \U0001f642.",
    )
    body = {
        "source": "en",
        "target": "de",
        "text": [text],
        "translation": [translation],
        "token_scores": True,
    }
    (score,) = client.post("/v1/score", json=body).json()["scores"]
    assert score["log_probability"] > -1
    assert [token["text"] for token in score["tokens"] if token["text"] in ("\U0001f642", "\u0416")] == [
        "\u0416",
        "\U0001f642",
    ]


def test_a_forced_beginning_with_an_unknown_character_is_continued(client: httpx.Client) -> None:
    body = {"source": "en", "target": "de", "text": "Anna \U0001f642 sees the river \u0416 again."}
    body["target_prefix"] = "the river \u0416"
    (translation,) = client.post("/v1/translate", json=body).json()["translations"]
    assert translation["text"] == "the river \u0416 again sees Anna \U0001f642."


def test_the_manifest_says_that_placeholders_are_not_distinct(bundle: Path) -> None:
    assert not load_bundle(bundle).manifest.has_distinct_placeholders
