"""The bundled model gives a sentence the same answer, bit for bit, alone and in a batch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.bundle import Bundle, load_bundle
from app.graphs import Precision
from app.runtime.interface import Runner
from app.runtime.ort_runner import load_runner
from benchmarks.same_answer import (
    BUNDLE,
    NUM_ROWS,
    BeamRequest,
    Comparison,
    Decoding,
    Difference,
    Hypotheses,
    decode_alone,
    decode_batched,
    explain,
    main,
)
from benchmarks.tagged_tokenizer import TaggedTokenizer

SENTENCES = (
    "Yes.",
    "The bakery on the corner opens before sunrise.",
    "Which of these two roads leads to the lake?",
    "He forgot his umbrella again.",
    "My neighbour grows tomatoes, beans and a kind of pumpkin that nobody here had seen before.",
    "Please turn off the lights when you leave the office.",
    "After the storm, the fishermen repaired their nets on the beach and waited for the wind to turn.",
    "The invoice of 12 March adds up to 348.50 euros.",
    "Nobody knew why the clock had stopped.",
    "We could take the early ferry, unless you would rather sleep in and drive around the bay.",
    "“It is too late,” she whispered, “the gate is closed.”",
    "Save the file under another name before you restart the program.",
)


@pytest.fixture(scope="module")
def requests() -> list[BeamRequest]:
    """Requests with beam sizes from 1 to 8, some sizes twice."""
    tokenizer = TaggedTokenizer(load_bundle(BUNDLE))
    return [
        BeamRequest(tuple(tokenizer.encode(text).ids), 1 + 5 * number % 8)
        for number, text in enumerate(SENTENCES)
    ]


@pytest.fixture(scope="module")
def runner() -> Runner:
    return load_runner(load_bundle(BUNDLE), precision="int8", device="cpu", num_rows=NUM_ROWS, num_threads=1)


@pytest.fixture(scope="module")
def alone(runner: Runner, requests: list[BeamRequest]) -> list[Hypotheses]:
    async def decode() -> list[Hypotheses]:
        async with Decoding(runner) as decoding:
            return await decode_alone(decoding, requests)

    return asyncio.run(decode())


@pytest.mark.seconds
@pytest.mark.parametrize("seed", [1, 2])
def test_int8_gives_the_same_hypotheses_and_scores_alone_and_in_a_batch(
    seed: int, runner: Runner, requests: list[BeamRequest], alone: list[Hypotheses]
) -> None:
    """In the batch, the sentences have another order, and run beside other beam sizes and cancelled sentences."""

    async def decode() -> tuple[list[Hypotheses], int]:
        async with Decoding(runner) as decoding:
            found = await decode_batched(decoding, requests, rate=2000.0, seed=seed)
            return found, decoding.most_running

    batched, most_running = asyncio.run(decode())
    assert most_running > max(one.beam_size for one in requests)
    assert batched == alone
    assert len({found[0].ids for found in alone}) == len(SENTENCES)


def test_a_cancelled_sentence_is_counted(runner: Runner, requests: list[BeamRequest]) -> None:
    async def decode() -> int:
        async with Decoding(runner) as decoding:
            await decoding.submit_and_cancel(requests[0], delay_s=0.0)
            return decoding.num_cancelled

    assert asyncio.run(decode()) == 1


def test_only_differences_in_fp32_are_explained(runner: Runner) -> None:
    """So int8 needs neither PyTorch nor the bundle's weights."""
    found = Comparison(
        precision="int8",
        num_sentences=1,
        num_same_ids=0,
        num_same=0,
        score_gap=0.0,
        num_cancelled=0,
        most_running=1,
        alone_s=1.0,
        batched_s=1.0,
        differences=(Difference(0, 4, score_gap=0.5),),
    )
    nothing = Bundle(Path("none"), load_bundle(BUNDLE).manifest, ())
    assert explain(nothing, runner, [], found) is found


def test_data_without_a_fitting_sentence_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(SystemExit):
        main(
            [
                "--data",
                str(tmp_path / "empty.tsv"),
                "--precisions",
                "int8",
                "--json",
                str(tmp_path / "a.json"),
            ]
        )
    assert "the data has no sentence that fits the model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("precision", "num_same", "differences", "has_passed"),
    [
        ("int8", 9, (), True),
        ("int8", 8, (), False),
        ("fp32", 8, (), True),
        ("fp32", 8, (Difference(3, 4, score_gap=2e-6),), True),
        ("fp32", 8, (Difference(3, 4, score_gap=2e-3),), False),
        ("fp32", 8, (Difference(3, 4, score_gap=2e-3, margin=2e-6),), True),
        ("fp32", 8, (Difference(3, 4, score_gap=2e-3, margin=2e-4), Difference(4, 4, 0.0)), False),
    ],
)
def test_int8_passes_if_all_is_equal_and_fp32_if_each_difference_is_a_tie(
    precision: Precision, num_same: int, differences: tuple[Difference, ...], has_passed: bool
) -> None:
    """num_same: how many of the 9 sentences are equal bit for bit. A score_gap or margin below 1e-5 is a tie."""
    found = Comparison(
        precision=precision,
        num_sentences=9,
        num_same_ids=9 - len(differences),
        num_same=num_same,
        score_gap=0.0,
        num_cancelled=0,
        most_running=0,
        alone_s=0.0,
        batched_s=0.0,
        differences=differences,
    )
    assert found.has_passed is has_passed
