"""Run plans: schedules, workloads, objectives and dialects."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tomllib
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.loadtest.arrivals import KINDS, ArrivalKind, Arrivals, ClosedLoop, Phase
from transduce.loadtest.connection import head
from transduce.loadtest.dialects import DIALECTS, BadAnswerError, RequestSpec, StreamError, error_message
from transduce.loadtest.grammar import GRAMMAR
from transduce.loadtest.plan import Target
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import (
    MIXES,
    SHORT_WORDS,
    Workload,
    built_in,
    from_texts,
    own_sentences,
    read_lines,
    read_pairs,
    with_distinct_opening,
)


@given(
    kind=st.sampled_from(KINDS),
    rate=st.floats(0.5, 300.0),
    duration_s=st.floats(1.0, 20.0),
    seed=st.integers(0, 1000),
)
@example(kind="bursty", rate=110.0, duration_s=6.265625, seed=432)
@settings(deadline=None)
def test_the_offered_rate_is_exact(kind: ArrivalKind, rate: float, duration_s: float, seed: int) -> None:
    arrivals = Arrivals((Phase(rate, duration_s), Phase(2 * rate, duration_s)), kind)
    times = arrivals.times_s(seed)
    assert times == sorted(times) == arrivals.times_s(seed)
    assert times[0] >= 0
    assert times[-1] < 2 * duration_s
    first = sum(moment < duration_s for moment in times)
    assert first == max(1, round(rate * duration_s))
    assert len(times) - first == max(1, round(2 * rate * duration_s))


def spread(kind: ArrivalKind, burstiness: float = 0.2) -> float:
    """Coefficient of variation of the gaps of 20,000 requests."""
    times = Arrivals((Phase(200.0, 100.0),), kind, burstiness).times_s(3)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return statistics.stdev(gaps) / statistics.mean(gaps)


def test_gaps_have_the_variation_of_their_kind() -> None:
    assert spread("constant") == pytest.approx(0.0, abs=1e-6)
    assert spread("poisson") == pytest.approx(1.0, abs=0.03)
    assert spread("bursty", 0.2) == pytest.approx(0.2**-0.5, abs=0.1)
    assert spread("bursty", 1.0) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("burstiness", [0.00099, 1001.0, math.inf])
def test_a_burstiness_out_of_range_is_refused(burstiness: float) -> None:
    """With a smaller burstiness, all gaps would be 0. With an infinite burstiness, a draw would not end."""
    with pytest.raises(ValueError, match=r"burstiness must be 0\.001 to 1000"):
        Arrivals((Phase(1.0, 1.0),), "bursty", burstiness)


def test_the_smallest_burstiness_gives_uneven_gaps() -> None:
    for seed in range(20):
        times = Arrivals((Phase(10.0, 30.0),), "bursty", 1e-3).times_s(seed)
        gaps = [second - first for first, second in pairwise(times)]
        assert statistics.pstdev(gaps) > 5 * statistics.fmean(gaps)


@pytest.mark.parametrize("burstiness", [1e-3, 1e3])
def test_the_smallest_and_the_largest_burstiness_give_all_requests_a_time(burstiness: float) -> None:
    arrivals = Arrivals((Phase(1.0, 1.0), Phase(1.0, 1.0)), "bursty", burstiness)
    for seed in range(20):
        first, second = arrivals.times_s(seed)
        assert 0 <= first < 1 <= second < 2


def test_another_seed_gives_other_times_and_texts() -> None:
    arrivals = Arrivals.at(10.0, 10.0)
    assert arrivals.times_s(1) != arrivals.times_s(2)
    workload = built_in("news", is_distinct=False)
    orders = [[workload.sequence(seed)(index).number for index in range(50)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Arrivals(()),
        lambda: Arrivals((Phase(0.0, 1.0),)),
        lambda: Arrivals((Phase(1.0, 0.0),)),
        lambda: Arrivals((Phase(1.0, 1.0),), "bursty", 0.0),
        lambda: ClosedLoop(0, 1.0),
        lambda: Target("127.0.0.1:8000"),
        lambda: Target("ftp://127.0.0.1"),
        lambda: Target("http://127.0.0.1:99999"),
        lambda: Workload("empty", ()),
        lambda: Workload("share", (RequestSpec(("a",)),), disconnect_share=1.5),
        lambda: from_texts(["a", "b"], references=["c"]),
        lambda: dataclasses.replace(from_texts(["a"], references=["b"]), make_distinct=with_distinct_opening),
    ],
)
def test_invalid_values_are_rejected(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"."):
        make()


def test_each_round_has_every_request_once_in_another_order() -> None:
    workload = built_in("short", is_distinct=False)
    num = len(workload.requests)
    sequence = workload.sequence(4)
    turns = [[sequence(turn * num + place).number for place in range(num)] for turn in range(2)]
    assert sorted(turns[0]) == sorted(turns[1]) == list(range(num))
    assert turns[0] != turns[1]


def texts_of(workload: Workload, seed: int, num_requests: int) -> list[str]:
    sequence = workload.sequence(seed)
    return [text for index in range(num_requests) for text in sequence(index).spec.texts]


@pytest.mark.parametrize("name", MIXES)
def test_distinct_texts_are_distinct_and_hold_no_digit(name: str) -> None:
    texts = texts_of(built_in(name), 1, 600)
    assert len(set(texts)) == len(texts)
    assert not any(character.isdigit() for text in texts for character in text)


def test_a_long_run_never_repeats_a_text() -> None:
    short, array = texts_of(built_in("short"), 5, 20_000), texts_of(built_in("arrays"), 5, 600)
    for texts in (short, array):
        assert len(set(texts)) == len(texts) >= 19_200


def test_another_seed_sends_other_texts_and_the_same_seed_the_same() -> None:
    workload = built_in("news")
    first, again, other = (set(texts_of(workload, seed, 2000)) for seed in (1, 1, 2))
    assert first == again
    assert len(first & other) <= 2


def test_distinct_texts_have_the_length_of_the_originals() -> None:
    for name in ("news", "short", "bimodal"):
        plain, distinct = (
            [len(text.split()) for text in texts_of(built_in(name, is_distinct=is_distinct), 1, 500)]
            for is_distinct in (False, True)
        )
        differences = [new - max(old, 4) for old, new in zip(plain, distinct, strict=True)]
        assert max(map(abs, differences)) <= 1
        assert abs(statistics.mean(differences)) < 0.2


def test_lines_of_a_file_are_made_distinct_by_an_opening() -> None:
    workload = dataclasses.replace(
        from_texts(["It rains.", "It snows."]), make_distinct=with_distinct_opening
    )
    texts = texts_of(workload, 1, 5000)
    assert len(set(texts)) == len(texts)
    assert {text[-9:] for text in texts} == {"It rains.", "It snows."}
    assert not any(character.isdigit() for text in texts for character in text)


def test_texts_are_distinct_if_requests_have_different_numbers_of_texts() -> None:
    requests = (RequestSpec(("It rains.",)), RequestSpec(("It rains.",) * 3))
    texts = texts_of(Workload("mixed", requests, make_distinct=with_distinct_opening), 1, 100)
    assert len(set(texts)) == len(texts)


def test_the_parts_of_the_grammar_are_single_distinct_words() -> None:
    slots = tomllib.loads(GRAMMAR.read_text("utf-8"))["slots"]
    for name, words in slots.items():
        found = words.split()
        assert len(set(found)) == len(found), name
        assert all(word.isalpha() for word in found), name


def test_the_mixes_match_their_descriptions() -> None:
    words = {
        name: [len(text.split()) for spec in built_in(name).requests for text in spec.texts] for name in MIXES
    }
    assert max(words["short"]) <= SHORT_WORDS
    assert 15 < statistics.mean(words["news"]) < 25
    long = [number for number in words["bimodal"] if number > SHORT_WORDS]
    assert len(long) / len(words["bimodal"]) == pytest.approx(0.2, abs=0.05)
    assert min(long) > 60
    assert {len(spec.texts) for spec in built_in("arrays").requests} == {32}
    assert {spec.options["beam_size"] for spec in built_in("beams").requests} == {1, 2, 4, 8}
    assert len(own_sentences()) > 150


def test_the_seed_determines_the_disconnects() -> None:
    workload = Workload("one", (RequestSpec(("a",)),), disconnect_share=0.3, disconnect_within_s=0.4)
    sequence, again = workload.sequence(1), workload.sequence(1)
    drawn = [sequence(index).disconnect_after_s for index in range(2000)]
    assert drawn == [again(index).disconnect_after_s for index in range(2000)]
    given_up = [after for after in drawn if after is not None]
    assert len(given_up) / 2000 == pytest.approx(0.3, abs=0.04)
    assert 0 <= min(given_up) < max(given_up) <= 0.4
    other = workload.sequence(2)
    assert drawn != [other(index).disconnect_after_s for index in range(2000)]


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_text("One.\n\n  Two. \r\n", "utf-8")
    assert read_lines(path) == ["One.", "Two."]
    path.write_text("\n \n", "utf-8")
    with pytest.raises(ValueError, match="no text"):
        read_lines(path)


def test_a_byte_order_mark_is_no_text_and_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    marked, odd = tmp_path / "marked", tmp_path / "odd"
    marked.write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\n")
    odd.write_bytes(b"\xef\xbb\xbfOne.\r\nTw\xff.\n")
    assert read_lines(marked) == ["One.", "Two."]
    assert read_pairs(marked, marked) == [("One.", "One."), ("Two.", "Two.")]
    with pytest.raises(ValueError, match=f"^line 2 of {odd} is not UTF-8$"):
        read_lines(odd)
    with pytest.raises(ValueError, match=f"^line 2 of {odd} is not UTF-8$"):
        read_pairs(marked, odd)


@pytest.mark.parametrize(
    "text",
    ["p99=500ms", "p99.9=12s", "first.p95=200ms", "p50=0.5ms", "p99.99999=1234.5678ms", "p99=2000000s"],
)
def test_objectives_are_parsed_and_formatted(text: str) -> None:
    assert str(Slo.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("p99", "p100=1s", "p0=1s", "99=1s", "p99=1", "p99=0ms", "p99=-1s", "p99=1s x"),
        pytest.param(f"p99={10**400}s", id="infinite"),
    ],
)
def test_invalid_objectives_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="objective"):
        Slo.parse(text)


def test_an_objective_is_met_at_exactly_its_share() -> None:
    slo = Slo.parse("p99.9=1s")
    assert slo.judge(999, 1000).is_met
    assert not slo.judge(998, 1000).is_met
    assert not slo.judge(0, 0).is_met


def test_each_dialect_has_its_fields_and_headers() -> None:
    spec = RequestSpec(("Hello.",), options={"beam_size": 2})
    bodies = {name: orjson.loads(each.body(spec, "en", "de", "k")) for name, each in DIALECTS.items()}
    assert bodies["native"] == bodies["stream"] == {
        "text": "Hello.", "source": "en", "target": "de", "beam_size": 2
    }  # fmt: skip
    assert bodies["root"]["q"] == "Hello."
    assert bodies["root"]["api_key"] == "k"
    assert bodies["v2"]["text"] == ["Hello."]
    assert bodies["v2"]["target_lang"] == "DE"
    sent = head(Target("http://[::1]:80/below/", DIALECTS["stream"], api_key="k"), 5).decode()
    assert sent.startswith("POST /below/v1/translate/stream HTTP/1.1\r\nHost: [::1]\r\n")
    assert "Authorization: Bearer k\r\n" in sent
    assert sent.endswith("\r\n\r\n")


def test_letters_beyond_ascii_in_a_url_are_encoded() -> None:
    sent = head(Target("http://bücher.example/翻訳/a%20b"), 5).decode("ascii")
    assert sent.startswith(
        "POST /%E7%BF%BB%E8%A8%B3/a%20b/v1/translate HTTP/1.1\r\nHost: xn--bcher-kva.example\r\n"
    )


def test_a_message_of_the_server_cannot_steer_the_terminal() -> None:
    assert (
        error_message(b'{"error": {"message": "\\u001b[31mred\\u009b2J\\n and  so on"}}')
        == "[31mred2J and so on"
    )


USAGE = {"source_tokens": 3, "target_tokens": 4, "sentences": 1}
NATIVE_RESULT = {"translations": [{"text": "Ja."}], "usage": USAGE}


def body_with(name: str, result: bytes) -> bytes:
    """The body of a dialect's response that has this result. In `stream`, the result is the last event."""
    return b"event: done\ndata: %b\n\n" % result if name == "stream" else result


def test_the_response_of_each_dialect_is_read() -> None:
    native = orjson.dumps(NATIVE_RESULT)
    parsed = DIALECTS["native"].read(native)
    assert (parsed.texts, parsed.num_source_tokens, parsed.num_target_tokens, parsed.num_sentences) == (
        ("Ja.",),
        3,
        4,
        1,
    )
    first_events = b'event: delta\ndata: {"text":"Ja"}\n\n: keep-alive\n\n'
    assert DIALECTS["stream"].read(first_events + body_with("stream", native)) == parsed
    assert DIALECTS["root"].read(b'{"translatedText": "Ja."}').texts == ("Ja.",)
    assert DIALECTS["root"].read(b'{"translatedText": ["Ja.", "Nein."]}').texts == ("Ja.", "Nein.")
    assert DIALECTS["v2"].read(b'{"translations": [{"text": "Ja."}]}').texts == ("Ja.",)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    "result",
    [
        *(b"", b"[]", b"{}", b"\xff", b'{"translatedText": 1}', b'{"translatedText": [1]}'),
        *(b'{"translations": 1}', b'{"translations": [1]}', b'{"translations": [{"text": 1}]}'),
    ],
)
def test_status_200_with_an_invalid_body_is_an_error(name: str, result: bytes) -> None:
    with pytest.raises(BadAnswerError, match="the response"):
        DIALECTS[name].read(body_with(name, result))


@pytest.mark.parametrize("name", ["native", "stream"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"translations": 1}, "no translations"),
        ({"translations": [1]}, "no translations"),
        ({"translations": [{"text": 1}]}, "no texts"),
        ({"usage": None}, "no usage"),
        ({"usage": [1]}, "no usage"),
        *(({"usage": {**USAGE, count: "1"}}, "not numeric") for count in USAGE),
    ],
)
def test_every_part_of_a_native_result_is_checked(name: str, fault: dict[str, object], message: str) -> None:
    with pytest.raises(BadAnswerError, match=message):
        DIALECTS[name].read(body_with(name, orjson.dumps({**NATIVE_RESULT, **fault})))


def test_only_a_single_text_may_be_sent_without_an_array() -> None:
    assert RequestSpec(("Yes.",)).value == "Yes."
    assert RequestSpec(("Yes.",), is_array=True).value == ["Yes."]
    assert RequestSpec(("Yes.", "No.")).value == ["Yes.", "No."]


def test_a_stream_that_ends_in_an_error_is_an_error() -> None:
    with pytest.raises(StreamError):
        DIALECTS["stream"].read(b"event: start\ndata: {}\n\nevent: error\ndata: {}\n\n")
    with pytest.raises(BadAnswerError):
        DIALECTS["stream"].read(b"event: start\ndata: {}\n\nevent: delta\ndata: {}\n\n")


def test_texts_and_references_are_read_line_by_line(tmp_path: Path) -> None:
    texts, references = tmp_path / "texts", tmp_path / "references"
    texts.write_text("one\n\ntwo\n\n", "utf-8")
    references.write_text("eins\n \nzwei\n", "utf-8")
    assert read_pairs(texts, references) == [("one", "eins"), ("two", "zwei")]
    references.write_text("eins\nzwei\ndrei\n", "utf-8")
    with pytest.raises(ValueError, match=r"line 2 is blank in .*texts only"):
        read_pairs(texts, references)
    references.write_text("eins\nzwei\n", "utf-8")
    with pytest.raises(ValueError, match="3 lines of texts but 2 of references"):
        read_pairs(texts, references)
