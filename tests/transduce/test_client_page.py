"""Every example of docs/client.md runs against the bundled model and prints the output on the page."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator

import pytest

import transduce
from tests.api.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.server
PAGE = (ROOT / "docs" / "client.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings: dict[str, object] = {
        "bundle": ROOT / "bundles" / "en-de",
        "num_threads": 1,
        "device": "cpu",
        "precision": "int8",
    }
    with ServerProcess(["transduce", "serve"], settings) as process:
        yield process.ready().url


def test_every_example_has_an_output() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") >= 5


@pytest.mark.parametrize(("program", "output"), EXAMPLES)
def test_an_example(url: str, program: str, output: str) -> None:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(program.replace("http://127.0.0.1:8000", url), {"__name__": "example"})  # noqa: S102
    assert written.getvalue() == output


def test_the_result_has_the_requested_details(url: str) -> None:
    with transduce.Client(url) as client:
        result = client.translate(
            "Anna sees 3 rivers. It is late.",
            source="en",
            target="de",
            beam_size=4,
            num_hypotheses=2,
            alignment=True,
            attention=True,
            num_alternatives=2,
            loop_guard=True,
            glossary={"terms": {"Anna": "Anna"}},
        )
    (translation,) = result.translations
    first, second = translation.segments
    assert "Anna sees 3 rivers. It is late."[slice(*second.source)] == "It is late."
    assert translation.text[slice(*second.target)] == second.hypotheses[0].text
    assert first.has_looped is False
    assert [hit.term for hit in translation.glossary_hits] == ["Anna"]
    assert second.log_probability == pytest.approx(
        sum(token.log_probability for token in second.tokens), abs=1e-4
    )
    assert second.tokens[-1].text is None
    assert all(len(token.alternatives) == 2 for token in second.tokens)
    assert second.tokens[0].source == transduce.Span(20, 22)
    assert second.source_tokens[:2] == (transduce.Span(20, 20), transduce.Span(20, 22)), (
        "the language tag is first"
    )
    assert second.tokens[0].weights[1] == pytest.approx(second.tokens[0].attention, abs=1e-4)
    assert all(len(token.weights) == len(second.source_tokens) for token in second.tokens[:-1])


def test_a_stream_ends_with_the_result_of_translate(url: str) -> None:
    """Before the result there is one SegmentDone event a segment, and at least one Delta event."""
    text = "Where is the station? I am <b>hungry</b>.\n\nIt is late and the water is cold."
    with transduce.Client(url) as client:
        with client.stream(
            [text, "Good night!"], source="en", target="de", beam_size=1, format="html"
        ) as events:
            found = list(events)
        whole = client.translate([text, "Good night!"], source="en", target="de", beam_size=1, format="html")
    started, done = found[0], found[-1]
    assert isinstance(started, transduce.Started)
    assert isinstance(done, transduce.Done)
    assert done.result.texts == whole.texts
    assert (
        started.num_segments
        == sum(map(len, started.segments))
        == sum(isinstance(event, transduce.SegmentDone) for event in found)
    )
    assert any(isinstance(event, transduce.Delta) for event in found)


def test_errors_of_a_real_server(url: str) -> None:
    with transduce.Client(url) as client:
        with pytest.raises(transduce.RequestRefused) as raised:
            client.translate(["a", "<a>"], source="en", target="de", format="xml")
        assert (raised.value.status, raised.value.field) == (422, "text[1]")
        assert raised.value.request_id
        with (
            pytest.raises(transduce.RequestRefused, match="en to de"),
            client.stream("a", source="en", target="zz") as events,
        ):
            next(events)
        with pytest.raises(transduce.TimedOut) as late:
            client.translate("It is late. " * 400, source="en", target="de", timeout_ms=1)
        assert late.value.status == 504
