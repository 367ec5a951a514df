"""Measures the overhead of a request of ten words: all time outside the neural network.

The client (`benchmarks.http.wire`) measures a request's time, from before the write until after the last byte of the
answer. So the time includes the transfers over the loopback. An echo server, which returns the text, gives an upper
bound for them.

The engine's time of a request is from its admission by the engine thread to the end of its search. The server reports
it in the response. The time around the engine is the rest: HTTP, JSON, text processing, waiting, and two handovers
between threads.

The neural network's time is the time inside ONNX Runtime's calls, encoder and decoder. It is measured for the same
sentences with the same beam size, on the same core, in a process without a server (`benchmarks.engine.ours`). It
includes choosing the hypotheses of a plain beam, because the decoder's operator does this. All other time is
overhead: the time around the engine, scheduling, the part of the search that runs in Python, and the time by which the
engine is slower inside a server than in that process.

The server decodes some sentences again, for example if a number changed in the translation (`app.translator.retry`).
The process without a server does not. So such sentences are left out, and the result has their number.
"""

from __future__ import annotations

import os
import re
import statistics
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from app.bundle import load_bundle
from benchmarks.engine.jobs import Job
from benchmarks.engine.worker import Worker
from benchmarks.http.context import Context, Cores, cached_share, print_progress, running_servers
from benchmarks.http.models import base_bundle
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.subjects import echo, ours
from benchmarks.http.traffic import CLOSED_LOOP_TIMEOUT_S, plan_of, samples_of, ten_words
from benchmarks.http.wire import exchange
from benchmarks.tagged_tokenizer import TaggedTokenizer
from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.dialects import DIALECTS, Dialect, ParsedResponse
from transduce.loadtest.sample import read_server_timing
from transduce.loadtest.workload import Workload, from_texts

# A target of random weights does not end by itself. A trained model returns about this many subwords for ten words.
BASE_TARGET_LENGTH = 16
NUM_ROWS = 64
NUM_ROUNDS = 15
SETTINGS = {"golden_min_share": "0"}
DECODED = re.compile(r'^transduce_engine_sentences_total\{outcome="finished"\} (\S+)$', re.MULTILINE)
STEPS = re.compile(r"^transduce_decode_steps_total (\S+)$", re.MULTILINE)


def requests(texts: list[str], beam_size: int, target_length: int | None) -> Workload:
    """A workload with one request for each text."""
    options: dict[str, Any] = {"beam_size": beam_size}
    if target_length is not None:
        options["max_target_length"] = target_length
    plain = from_texts(texts, name="ten words")
    return replace(plain, requests=tuple(replace(spec, options=options) for spec in plain.requests))


def metric_of(pattern: re.Pattern[str], server: ProcessTree) -> float:
    """The value of a metric of the server. Raises ValueError if it is missing."""
    found = pattern.search(server.get("/metrics").decode())
    if found is None:
        raise ValueError(f"the server's metrics lack {pattern.pattern}")
    return float(found.group(1))


def decoded_once(server: ProcessTree, texts: list[str], beam_size: int, longest: int | None) -> list[str]:
    """The texts that the server decodes exactly once."""
    load = ClosedLoop(1, CLOSED_LOOP_TIMEOUT_S, num_requests=1)
    kept = []
    for text in texts:
        before = metric_of(DECODED, server)
        samples_of(plan_of(server, DIALECTS["native"], requests([text], beam_size, longest), load))
        if metric_of(DECODED, server) - before == 1:
            kept.append(text)
    return kept


def bodies_of(dialect: Dialect, workload: Workload) -> list[bytes]:
    """The JSON bodies of the requests, in order."""
    return [dialect.body(spec, "en", "de", None) for spec in workload.requests]


@dataclass(frozen=True)
class Split:
    """Mean milliseconds per request in one round.

    total_ms: the request over HTTP. in_engine_ms: the part of total_ms between admission and the end of the search.
    engine_ms: the same sentence in the engine without a server. network_ms: the part of engine_ms inside ONNX Runtime.
    """

    total_ms: float
    in_engine_ms: float
    engine_ms: float
    network_ms: float


def measure_overhead(context: Context, cores: Cores) -> dict[str, Any]:
    """Measure the overhead with the bundled model and with a model of the base size."""
    base = base_bundle(context.bundle, context.folder)
    return {
        "is_pinned": cores.are_separate,
        "echo": _echo_ms(context, cores),
        "models": [
            _measure_model(context, cores, "bundled", context.bundle.path, None),
            _measure_model(context, cores, "base size", base, BASE_TARGET_LENGTH),
        ],
    }


def _measure_model(
    context: Context, cores: Cores, name: str, path: Path, target_length: int | None
) -> dict[str, Any]:
    """Measure one model. Rounds of requests alternate with decoding the same ids in the engine without a server."""
    bundle = load_bundle(path)
    beam_size = bundle.manifest.decoding.beam_size
    texts = ten_words()[: context.effort.num_ten_words]
    tokenizer = TaggedTokenizer(bundle)
    longest = (target_length or bundle.manifest.max_target_length - 1) + 1
    subject = ours(path, context.python, SETTINGS)
    splits: list[Split] = []
    phases: list[dict[str, float]] = []
    answers: list[ParsedResponse] = []
    with running_servers([subject], cores) as servers, _start_engine(path, cores) as engine:
        ((_, server),) = servers
        once = decoded_once(server, texts, beam_size, target_length)
        num_left_out, texts = len(texts) - len(once), once
        job = Job([[list(tokenizer.encode(text).ids)] for text in texts], beam_size, longest, is_forced=False)
        dialect, workload = DIALECTS["native"], requests(texts, beam_size, target_length)
        bodies = bodies_of(dialect, workload)
        exchange(server.port, dialect.path, bodies)  # a server's first requests warm it up
        steps_before = metric_of(STEPS, server)
        for _ in range(NUM_ROUNDS):
            latest = exchange(server.port, dialect.path, bodies)
            if not all(each.status == HTTPStatus.OK for each in latest):
                raise ValueError("a request of ten words was not answered")
            done = engine.translate(job)
            inside_s = done.spent.encoder_s + done.spent.decoder_s
            phases_of_round = [read_server_timing(each.headers["server-timing"]) for each in latest]
            splits.append(
                Split(
                    total_ms=statistics.mean(each.seconds for each in latest) * 1e3,
                    in_engine_ms=statistics.mean(each["encode"] + each["decode"] for each in phases_of_round),
                    engine_ms=done.times_s[0] * 1e3 / len(texts),
                    network_ms=inside_s * 1e3 / len(texts),
                )
            )
            phases += phases_of_round
            answers += [dialect.read(each.body) for each in latest]
        server_steps = metric_of(STEPS, server) - steps_before
        not_decoded_share = cached_share(server)
    total_ms = statistics.median(split.total_ms for split in splits)
    overhead_ms = statistics.median(split.total_ms - split.network_ms for split in splits)
    around_ms = statistics.median(split.total_ms - split.in_engine_ms for split in splits)
    print_progress(f"ten words, {name}: {[asdict(split) for split in splits]}")
    return {
        "model": name,
        "beam_size": beam_size,
        "num_requests": len(answers),
        "num_sentences_left_out": num_left_out,
        "target_tokens_mean": statistics.mean(each.num_target_tokens for each in answers),
        "steps_mean": done.spent.num_steps / len(texts),
        "server_steps_mean": server_steps / len(answers),
        "total_ms": total_ms,
        "network_ms": statistics.median(split.network_ms for split in splits),
        "in_engine_ms": statistics.median(split.in_engine_ms for split in splits),
        "engine_ms": statistics.median(split.engine_ms for split in splits),
        "phases_ms": {
            phase: statistics.median(each.get(phase, 0.0) for each in phases) for phase in phases[0]
        },
        "overhead_ms": overhead_ms,
        "overhead_share": overhead_ms / total_ms,
        "around_engine_ms": around_ms,
        "around_engine_share": around_ms / total_ms,
        "rounds": [asdict(split) for split in splits],
        "not_decoded_share": not_decoded_share,
    }


def _start_engine(bundle: Path, cores: Cores) -> Worker:
    """Start an engine without a server, on the server's cores."""
    own_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores.server)
    try:
        return Worker(
            "ours",
            {
                "bundle": str(bundle),
                "precision": "int8",
                "num_rows": NUM_ROWS,
                "num_threads": len(cores.server),
            },
        )
    finally:
        os.sched_setaffinity(0, own_cores)


def _echo_ms(context: Context, cores: Cores) -> float:
    """Mean milliseconds of the same requests to the echo server."""
    subject = echo()
    bodies = bodies_of(subject.dialect, from_texts(ten_words()[: context.effort.num_ten_words]))
    with running_servers([subject], cores) as servers:
        ((_, server),) = servers
        exchange(server.port, subject.dialect.path, bodies)
        found = [
            each for _ in range(NUM_ROUNDS) for each in exchange(server.port, subject.dialect.path, bodies)
        ]
        return statistics.mean(each.seconds for each in found) * 1e3
