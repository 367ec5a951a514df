"""The benchmarks' sentences and their load generators."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections import Counter

import pytest

from app.text.segmentation import sentence_spans
from benchmarks.batch_consistency import AnswerLog, compare
from benchmarks.carried_sentences import SENTENCES as CARRIED
from benchmarks.load import (
    LoadError,
    Request,
    TimedAnswer,
    closed_loop,
    make_request,
    random_arrivals,
    rate_of,
)
from benchmarks.serving import SENTENCES, read_sentences

NUM_SENTENCES = 500
# Numbers of words (least, most) of a sentence -> share of the sentences.
LENGTHS = {(2, 7): 0.30, (8, 18): 0.45, (19, 35): 0.20, (36, 60): 0.05}
ANSWER = b'{"translations": [{"text": "Ja.", "segments": [{"score": -0.5}]}], "usage": {"target_tokens": 3}}'


def rows() -> list[list[str]]:
    content = SENTENCES.read_bytes().decode("utf-8")
    assert content.endswith("\n")
    assert "\r" not in content
    return [line.split("\t") for line in content[:-1].split("\n")]


def test_the_sentences_are_500_in_two_columns() -> None:
    assert [len(row) for row in rows()] == [2] * NUM_SENTENCES
    assert read_sentences() == [sentence for _, sentence in rows()]


def test_the_texts_are_distinct_and_each_is_one_sentence() -> None:
    sentences = read_sentences()
    assert len({sentence.casefold() for sentence in sentences}) == NUM_SENTENCES
    for sentence in sentences:
        assert sentence == unicodedata.normalize("NFC", sentence.strip())
        (span,) = sentence_spans(sentence, "en")
        assert not any(character.isalnum() for character in sentence[: span.start] + sentence[span.end :])


def test_the_sentences_have_the_intended_lengths() -> None:
    words = [len(sentence.split()) for sentence in read_sentences()]
    shares = {
        (low, high): sum(low <= number <= high for number in words) / len(words) for low, high in LENGTHS
    }
    assert shares == pytest.approx(LENGTHS, abs=0.02)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_every_domain_has_at_least_30_sentences() -> None:
    counts = Counter(domain for domain, _ in rows())
    assert len(counts) == 12
    assert min(counts.values()) >= 30


def test_some_sentences_have_difficult_characters() -> None:
    sentences = read_sentences()
    for is_hard, least in (
        (lambda character: not character.isascii(), 30),
        (str.isdigit, 60),
        (lambda character: character in '"()', 30),
        (lambda character: unicodedata.category(character) == "So", 8),
    ):
        assert sum(any(is_hard(character) for character in sentence) for sentence in sentences) >= least


def test_there_are_more_than_60_sentences_with_strange_characters() -> None:
    sentences = [sentence for kind in CARRIED.values() for sentence in kind]
    assert len(set(sentences)) == len(sentences) > 60
    assert not any(sentence.isascii() and sentence.isprintable() for sentence in sentences)


class Answering:
    """An HTTP server that sends ANSWER after a pause, and counts open requests."""

    def __init__(self, *, pause_s: float = 0.0, status: str = "200 OK") -> None:
        self.pause_s = pause_s
        self.status = status
        self.num_open = 0
        self.max_open = 0
        self.tasks: list[asyncio.Task[None] | None] = []

    async def __aenter__(self) -> Answering:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await asyncio.gather(*(task for task in self.tasks if task))
        await self.server.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                self.num_open += 1
                self.max_open = max(self.max_open, self.num_open)
                await asyncio.sleep(self.pause_s)
                self.num_open -= 1
                head = f"HTTP/1.1 {self.status}\r\ncontent-length: {len(ANSWER)}\r\n".encode()
                writer.write(head + b"server-timing: queue;dur=0.50, decode;dur=2.00\r\n\r\n" + ANSWER)
        except asyncio.IncompleteReadError:  # the client has disconnected
            writer.close()
            await writer.wait_closed()


def requests(count: int) -> list[Request]:
    return [make_request(n, f"Number {n}.", pair=("en", "de"), beam_size=1) for n in range(count)]


def test_in_a_closed_loop_each_client_waits_for_its_answer() -> None:
    async def run() -> tuple[list[TimedAnswer], Answering]:
        async with Answering(pause_s=0.002) as server:
            found = await closed_loop(server.port, requests(10), num_clients=3, num_answers=25, limit_s=20.0)
            return found, server

    answers, server = asyncio.run(run())
    assert server.max_open == 3
    assert len(answers) == 25
    assert set(Counter(answer.request.number for answer in answers).values()) <= {2, 3}
    assert [answer.ended_at for answer in answers] == sorted(answer.ended_at for answer in answers)
    assert answers[0].phases_ms == {"queue": 0.5, "decode": 2.0}
    assert answers[0].comparison_key == ("Ja.", 3, (-0.5,))


def test_a_closed_loop_ends_at_its_time_limit() -> None:
    async def run(limit_s: float) -> list[TimedAnswer]:
        async with Answering(pause_s=limit_s / 5) as server:
            return await closed_loop(server.port, requests(2), num_clients=1, num_answers=10, limit_s=limit_s)

    # The shortest limit within which this machine answers at all must end the loop before all ten answers.
    assert 0 < next(filter(None, (len(asyncio.run(run(limit_s))) for limit_s in (0.1, 1.0, 10.0)))) < 10


def test_arrivals_do_not_wait_for_answers() -> None:
    """60 requests in 60 ms, each answered after 300 ms: over half are open at once. Busy machines get longer pauses."""

    async def run(pause_s: float) -> tuple[list[TimedAnswer], Answering]:
        async with Answering(pause_s=pause_s) as server:
            return await random_arrivals(server.port, requests(60), rate=1000.0, seed=1), server

    for pause_s in (0.3, 3.0, 10.0):
        started_at = time.perf_counter()
        answers, server = asyncio.run(run(pause_s))
        if server.max_open > 30:
            break
    assert sorted(answer.request.number for answer in answers) == list(range(60))
    assert server.max_open > 30
    due = sorted(answer.due_at for answer in answers)
    assert due[-1] - started_at >= 0.06
    assert all(answer.latency_ms >= 290 for answer in answers)


def test_the_latency_of_a_late_request_counts_from_its_due_time() -> None:
    """60 requests are due within 60 microseconds, faster than any client can send."""

    async def run() -> list[TimedAnswer]:
        async with Answering() as server:
            return await random_arrivals(server.port, requests(60), rate=1e6, seed=1)

    answers = asyncio.run(run())
    due = [answer.due_at for answer in answers]
    assert 0 < max(due) - min(due) <= 60e-6
    assert max(answer.sent_at for answer in answers) - max(due) > 60e-6
    for answer in answers:
        assert answer.latency_ms == (answer.ended_at - answer.due_at) * 1e3


def test_a_status_other_than_200_is_an_error() -> None:
    async def run() -> None:
        async with Answering(status="429 Too Many Requests") as server:
            await closed_loop(server.port, requests(1), num_clients=1, num_answers=1, limit_s=20.0)

    with pytest.RaisesGroup(pytest.RaisesExc(LoadError, match="429")):
        asyncio.run(run())


def test_the_rate_does_not_include_the_warm_up() -> None:
    assert rate_of([0.0, 5.0, 5.5, 6.0], num_warm_up=2) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="too few"):
        rate_of([1.0, 2.0], num_warm_up=2)


def answered(number: int, text: str, score: float) -> TimedAnswer:
    body = ANSWER.replace(b"Ja.", text.encode()).replace(b"-0.5", str(score).encode())
    return TimedAnswer(requests(number + 1)[number], 0.0, 0.0, 1.0, b"", body)


def test_batched_answers_are_compared_with_the_first_answer_alone() -> None:
    log = AnswerLog()
    log.add_alone([answered(0, "Ja.", -0.5), answered(1, "Nein.", -1.0), answered(0, "Doch.", -0.5)])
    log.add_batched("others", [answered(1, "Nein.", -1.5), answered(0, "Ja.", -0.5), answered(2, "Wo?", -1)])
    found = compare(log)
    assert found["alone again"]["num_different"] == 1
    assert found["others"] == {
        "num_compared": 2,
        "num_different": 0,
        "num_other_scores": 1,
        "largest_score_gap": 0.5,
    }
