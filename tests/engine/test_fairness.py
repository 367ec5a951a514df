"""The order of the queue, and the bound on the waiting time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from app.decoding.options import DecodingOptions
from app.engine.fair_queue import FairQueue
from app.engine.limits import EngineLimits
from app.engine.messages import Join, Prioritize
from app.engine.sequence import RequestKey, Sequence, Status
from app.runtime.interface import Limits
from tests.engine.core_driver import CoreDriver
from tests.engine.fake_runner import BOS, EOS, FakeRunner
from tests.engine.test_row_allocator import make_sequence

NARROW = DecodingOptions(beam_size=1, max_target_length=6)


def make_waiting(caller: str, request_id: str) -> Sequence:
    sequence = make_sequence(1)
    sequence.caller, sequence.request = caller, RequestKey(request_id, sequence.deadline)
    return sequence


def drain(queue: FairQueue) -> list[Sequence]:
    order = []
    while queue:
        turn = queue.peek()
        order.append(queue.pop())
        assert turn is not None
        assert turn[1] is order[-1]
    assert queue.peek() is None
    return order


def test_callers_then_requests_take_turns_and_a_request_keeps_its_order() -> None:
    queue = FairQueue()
    sequences = {
        name: make_waiting(name[0], name[:2])
        for name in ["a1.1", "a1.2", "a1.3", "a2.1", "a2.2", "b1.1", "b1.2", "c1.1"]
    }
    for sequence in sequences.values():
        queue.push(sequence)
    names = {sequence: name for name, sequence in sequences.items()}
    assert [names[sequence] for sequence in drain(queue)] == [
        *("a1.1", "b1.1", "c1.1"),
        *("a2.1", "b1.2"),
        *("a1.2", "a2.2", "a1.3"),
    ]


def test_a_removed_sentence_is_not_served_nor_counted() -> None:
    queue = FairQueue()
    first, second, third = (make_waiting("a", "r") for _ in range(3))
    for sequence in (first, second, third):
        queue.push(sequence)
    queue.remove(second)
    queue.remove(second)  # a second removal has no effect
    assert len(queue) == 2
    assert drain(queue) == [first, third]


def test_prioritizing_moves_one_sentence_of_a_request_to_the_front() -> None:
    queue = FairQueue()
    sequences = {
        name: make_waiting(name[0], name[:2]) for name in ["a1.1", "a2.1", "b1.1", "a3.1", "a3.2", "c1.1"]
    }
    for sequence in sequences.values():
        queue.push(sequence)
    queue.prioritize(sequences["a3.1"])
    queue.remove(sequences["c1.1"])
    queue.prioritize(sequences["c1.1"])  # without effect, because the sentence is not queued
    names = {sequence: name for name, sequence in sequences.items()}
    assert [names[sequence] for sequence in drain(queue)] == ["a3.1", "b1.1", "a1.1", "a2.1", "a3.2"]


def test_prioritized_requests_of_a_caller_do_not_delay_another_caller() -> None:
    queue = FairQueue()
    single = make_waiting("quiet", "single")
    crowd = [make_waiting("loud", f"r{number}") for number in range(20)]
    for sequence in (*crowd, single):
        queue.push(sequence)
    again = [make_waiting("loud", f"again{number}") for number in range(3)]
    taken = []
    for sequence in again:
        queue.push(sequence)
        queue.prioritize(sequence)
        taken.append(queue.pop())
    assert taken == again
    assert single in [queue.pop(), queue.pop()]


def test_requests_that_share_an_id_take_turns() -> None:
    """A client may give many requests one id. Their deadlines tell these requests apart.

    Two more requests join the request of eight sentences: one waits for the seventh sentence, the other for the eighth.
    """
    driver = CoreDriver(FakeRunner(Limits(1, 16, 8, 64, BOS, EOS)))
    long = [driver.submit([10 + number, EOS], NARROW, deadline=1e8) for number in range(8)]
    short = driver.submit([9, EOS], NARROW, deadline=2e8)
    joined = long[-2:]
    for sequence, deadline in zip(joined, (3e8, 4e8), strict=True):
        driver.core.inbox.put(Join(sequence, "caller", "request", deadline))
    driver.run()
    assert driver.ended[:5] == [long[0], short, *joined, long[1]]
    assert {sequence.request_id for sequence in driver.ended} == {"request"}


@pytest.mark.parametrize("seed", range(100))
def test_the_number_of_sentences_taken_before_a_sentence_is_bounded(seed: int) -> None:
    """Before the i-th sentence of a request, FairQueue returns at most i * r * c - 1 others.

    r: the number of requests of the caller, this request included. c: the number of callers. New sentences arrive at
    every turn.
    """
    rng = random.Random(seed)
    num_callers, num_requests, place = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 5)
    queue = FairQueue()

    def arrive(count: int) -> None:
        for _ in range(count):
            caller = rng.randrange(num_callers)
            queue.push(make_waiting(str(caller), f"{caller}.{rng.randrange(num_requests)}"))

    arrive(rng.randrange(40))
    own = [make_waiting("0", "mine") for _ in range(place)]
    for sequence in own:
        queue.push(sequence)
    taken_before = 0
    while queue.pop() is not own[-1]:
        taken_before += 1
        arrive(rng.randrange(3))
    assert taken_before <= place * (num_requests + 1) * num_callers - 1


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_request_of_128_sentences_does_not_block_a_single_sentence(beam_size: int) -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    options = DecodingOptions(beam_size=beam_size, max_target_length=6)
    many = [driver.submit([5, EOS], options, request_id="many", caller="same") for _ in range(128)]
    for _ in range(3):
        driver.step()
    single = driver.submit([6, EOS], options, request_id="single", caller="same")
    steps = 0
    while single.status is Status.WAITING:
        driver.step()
        steps += 1
    assert steps <= 6 + 1  # the first rows that become free are reserved for the single sentence
    assert Counter(one.status for one in many)[Status.WAITING] >= 128 - 2 * 24 // beam_size


def test_a_callers_flood_does_not_delay_another_caller() -> None:
    """One caller has 32 requests in the queue. The single sentence of another caller starts within seven steps."""
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    for request in range(32):
        for _ in range(8):
            driver.submit([5, EOS], NARROW, request_id=f"flood {request}", caller="loud")
    driver.step()
    single = driver.submit([6, EOS], NARROW, request_id="single", caller="quiet")
    for _ in range(6 + 1):
        driver.step()
    assert single.status is Status.RUNNING


def test_a_retry_is_served_before_requests_that_wait() -> None:
    """`Prioritize` moves the retry to the front of the queue."""
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    crowd = [driver.submit([5, EOS], NARROW, request_id=str(number)) for number in range(128)]
    driver.step()
    again = driver.submit([6, EOS], NARROW, request_id="again")
    driver.core.inbox.put(Prioritize(again))
    for _ in range(6 + 1):
        driver.step()
    assert again.status is Status.RUNNING
    assert Counter(one.status for one in crowd)[Status.WAITING] > 64


@pytest.mark.parametrize("seed", range(12))
def test_the_wait_in_steps_is_bounded(seed: int) -> None:
    """The wait is at most (W // floor(R / B) + 1) * (T + 1) + W + 1 steps, where W = i * r * c - 1.

    R: the number of rows. B: the widest beam. T: the longest target. i: the place of this sentence in its request. c:
    the number of callers that wait. r: the number of requests of this caller, here 1. W: the maximum number of
    sentences that are taken before this sentence. Sentences keep arriving meanwhile.
    """
    rng = random.Random(seed)
    num_rows, widest, longest = 10, 4, 6
    limits = Limits(num_rows, 8, longest + 1, vocab_size=12, bos_id=BOS, eos_id=EOS)
    runner = FakeRunner(limits, eos_bonus=-30.0)
    driver = CoreDriver(runner, EngineLimits(max_encode_tokens=8))
    num_callers, num_requests, place = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)

    def arrive() -> None:
        caller = rng.randrange(num_callers)
        options = DecodingOptions(beam_size=rng.randint(1, widest), max_target_length=longest)
        source = [*[5] * rng.randrange(8), EOS]
        driver.submit(
            source, options, request_id=f"{caller}.{rng.randrange(num_requests)}", caller=str(caller)
        )

    for _ in range(60):
        arrive()
    driver.step()
    options = DecodingOptions(beam_size=widest, max_target_length=longest)
    own = [driver.submit([6] * 7 + [EOS], options, request_id="mine", caller="mine") for _ in range(place)]
    steps = 0
    while own[-1].status is Status.WAITING:
        arrive()
        arrive()
        driver.step()
        steps += 1
    ahead = place * (num_callers + 1) - 1
    assert steps <= (ahead // (num_rows // widest) + 1) * (longest + 1) + ahead + 1
