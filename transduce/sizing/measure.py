"""Measures the costs of a running server: closed loops of more and more clients, with its counters before and after."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from transduce.errors import CommandError
from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import Progress, run
from transduce.loadtest.sample import OK, Sample, most_frequent_error
from transduce.loadtest.server_side import ROW_STEPS, STEPS, get, read_samples
from transduce.loadtest.workload import Workload
from transduce.sizing.costs import MAX_ENCODE_TOKENS, Costs, Level

# Closed-loop clients of each measurement. The last ones fill the rows of two workers with beams of 4.
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
# Levels whose rows differ by a smaller factor become one, because the slope between them would be chance.
MIN_RATIO = 1.3
# Seconds to wait for /v1/models and /metrics.
TIMEOUT_S = 10.0
BUSY_S, ENCODE_S = "transduce_worker_busy_seconds_total", "transduce_encode_seconds_sum"
ENCODED = "transduce_encoded_tokens_total"
SENTENCES = "transduce_sentences_total"
NUM_KEPT_ROWS = 16  # the default of TRANSDUCE_NUM_KEPT_ROWS, which no metric has
# The engine's part of a request, in the header Server-Timing.
ENGINE_PHASES = ("queue", "encode", "decode")


class Samples:
    """The samples of one scrape, by name with labels."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values

    @classmethod
    def scrape(cls, target: Target) -> Samples:
        """Read /metrics. Raises CommandError."""
        found = cls(read_samples(_get(target, "/metrics").text))
        if STEPS not in found.values:
            raise CommandError(f"{target.url}/metrics has no {STEPS}: is it a Transduce server?")
        return found

    def since(self, earlier: Samples) -> Callable[[str], float]:
        """A function that returns how much a sample has grown."""
        return lambda name: self.values.get(name, 0.0) - earlier.values.get(name, 0.0)


@dataclass(frozen=True)
class Pass:
    """One closed loop.

    result: the tester's. grown: takes the name of a counter of the server, and returns how much it has grown. samples:
    the requests that had ended at the tester's last report of its progress.
    """

    num_clients: int
    result: RunResult
    grown: Callable[[str], float]
    samples: Sequence[Sample]

    @property
    def level(self) -> Level:
        """The costs at this load. Raises CommandError if the server has used its cache or decoded nothing."""
        steps, encoded = self.grown(STEPS), self.grown(ENCODED)
        is_cached = bool(self.result.cached_share)
        if is_cached or not steps or not encoded:
            done = "answered from its cache" if is_cached else "decoded nothing"
            raise CommandError(f"the server has {done}: start it with TRANSDUCE_SENTENCE_CACHE_BYTES=0")
        return Level(
            num_clients=self.num_clients,
            rows=sum(map(self.grown, ROW_STEPS)) / steps,
            step_s=(self.grown(BUSY_S) - self.grown(ENCODE_S)) / steps,
            encode_s=self.grown(ENCODE_S) / encoded,
            rate=self.result.achieved_rate,
        )


def measure(
    target: Target,
    workload: Workload,
    *,
    seconds: float,
    on_level: Callable[[Level], None] = lambda _level: None,
) -> Costs:
    """The costs of the server at `target`. No other client may use it meanwhile.

    workload: requests of one sentence each. seconds: of each closed loop. on_level: called after each of them.
    Raises CommandError if a request fails, if the server is not a Transduce server or has no model for the languages,
    if its answers have no Server-Timing, or if it answers from its cache or decodes nothing.
    """
    Samples.scrape(target)  # refuses a server of another kind before its models are read
    model = _model(target)
    passes = []
    for number, num_clients in enumerate(CLIENTS):
        one = _pass(target, workload, num_clients, seconds, seed=number + 1)
        on_level(one.level)
        passes.append(one)
    return _costs(passes, Samples.scrape(target), workload, model)


def _pass(target: Target, workload: Workload, num_clients: int, seconds: float, *, seed: int) -> Pass:
    before = Samples.scrape(target)
    plan = RunPlan(target, workload, ClosedLoop(num_clients, seconds), warm_up_s=0.0, seed=seed)
    samples: list[Sample] = []

    def keep(progress: Progress) -> None:
        samples[:] = progress.samples

    result = run(plan, keep)
    if set(result.outcomes) != {OK}:
        error = most_frequent_error(result.outcomes, result.error_examples)
        raise CommandError(f"requests failed while the server was measured; the most frequent error: {error}")
    return Pass(num_clients, result, Samples.scrape(target).since(before), samples)


def _costs(passes: list[Pass], samples: Samples, workload: Workload, model: Mapping[str, Any]) -> Costs:
    alone, grown = passes[0].result, passes[0].grown
    if alone.latency is None or not grown(SENTENCES):
        raise CommandError("a single client got no answer")
    # The server may have other models, whose workers do not answer these requests.
    first_label = f'transduce_worker_rows_limit{{model="{model["name"]}",'
    limits = [value for name, value in samples.values.items() if name.startswith(first_label)]
    if not alone.phases_ms.keys() >= set(ENGINE_PHASES):
        raise CommandError("the answers have no Server-Timing of the engine: does a proxy remove it?")
    if not limits:
        raise CommandError("the server has no metrics of its workers: measure one that is ready")
    engine_ms = sum(alone.phases_ms[name]["mean"] for name in ENGINE_PHASES)
    words = [len(text.split()) for spec in workload.requests for text in spec.texts]
    per_sentence, per_word = line_of_subwords(passes[0].samples)
    characters = [len(text) for spec in workload.requests for text in spec.texts]
    beam_size = int(model["defaults"]["beam_size"])
    outside_s = max(0.0, alone.latency.mean_ms - engine_ms) / 1e3
    max_rate = max(one.level.rate for one in passes)
    return Costs(
        name=f"{model['name']} {model['version']}",
        levels=merged([one.level for one in passes]),
        num_workers=len(limits),
        max_rows=int(limits[0]),
        num_kept_rows=min(NUM_KEPT_ROWS, int(limits[0]) - beam_size),
        beam_size=beam_size,
        # Utilisation law: an event loop that answers `max_rate` requests a second spends at most 1 / max_rate on each.
        request_s=min(outside_s, 1 / max_rate) if max_rate else outside_s,
        steps_per_subword=grown(STEPS) / grown(ENCODED),
        subwords_per_sentence=per_sentence,
        subwords_per_word=per_word,
        characters_per_word=sum(characters) / sum(words),
        max_source_length=int(model.get("max_source_length", MAX_ENCODE_TOKENS)),
    )


def line_of_subwords(samples: Sequence[Sample]) -> tuple[float, float]:
    """Intercept and slope of the line that gives a source sentence's subwords from its words, by least squares.

    samples: requests of one sentence. If all have similar lengths, so that this line does not rise, the intercept is 0
    and the slope is the mean number of subwords of a word. Raises CommandError without an answer.
    """
    answered = [(each.num_words, each.response.num_source_tokens) for each in samples if each.response]
    if not answered:
        raise CommandError("the measurement is too short: no answer arrived in time")
    words, subwords = zip(*answered, strict=True)
    if len(set(words)) > 1:
        line = statistics.linear_regression(words, subwords)
        if line.slope > 0:
            return line.intercept, line.slope
    return 0.0, sum(subwords) / sum(words)


def merged(levels: Sequence[Level]) -> tuple[Level, ...]:
    """The levels by rising rows.

    Levels with similar rows, such as those of a full server, become one, with their means and their largest
    `num_clients`.
    """
    groups: list[list[Level]] = []
    for level in sorted(levels, key=lambda level: level.rows):
        if groups and level.rows < MIN_RATIO * groups[-1][0].rows:
            groups[-1].append(level)
        else:
            groups.append([level])
    return tuple(
        Level(
            num_clients=max(level.num_clients for level in group),
            rows=statistics.fmean(level.rows for level in group),
            step_s=statistics.fmean(level.step_s for level in group),
            encode_s=statistics.fmean(level.encode_s for level in group),
            rate=statistics.fmean(level.rate for level in group),
        )
        for group in groups
    )


def _get(target: Target, path: str) -> httpx.Response:
    """A successful response. Raises CommandError."""
    url = target.url + path
    try:
        answer = get(target, path, TIMEOUT_S)
    except httpx.HTTPError as error:
        raise CommandError(f"{url} cannot be read: {error}") from error
    if answer.status_code != httpx.codes.OK:
        hint = " (set TRANSDUCE_API_KEY)" if answer.status_code in {401, 403} else ""
        raise CommandError(f"{url} answers {answer.status_code}{hint}")
    return answer


def _model(target: Target) -> dict[str, Any]:
    """The server's model of the pair, as /v1/models lists it. Raises CommandError."""
    answer = _get(target, "/v1/models")
    try:
        models: list[dict[str, Any]] = answer.json()["models"]
    except (ValueError, KeyError) as error:
        raise CommandError(f"{target.url}/v1/models cannot be read: {error}") from error
    pair = {"source": target.source, "target": target.target}
    found = next((model for model in models if pair in model["language_pairs"]), None)
    if found is None:
        raise CommandError(f"the server has no model for {target.source}-{target.target}")
    return found
