"""Every log line is one JSON object, whatever its content."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from app.observability.logging import MAX_FIELD_CHARACTERS, configure_logging, frames_of, log_event


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log at level `info`. Restores the root logger afterwards."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    stream = io.StringIO()
    configure_logging("info", stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_with_its_fields(stream: io.StringIO) -> None:
    log_event(logging.getLogger("app.x"), logging.INFO, "happened", fields={"count": 3, "nothing": None})
    (line,) = lines(stream)
    assert (line["level"], line["logger"], line["event"], line["count"]) == ("info", "app.x", "happened", 3)
    assert "nothing" not in line
    assert str(line["time"]).endswith("+00:00")


@pytest.mark.parametrize("nasty", ['\n{"level":"ERROR"}', "\x1b[31m", "\u2028", "\u202e", '"', "\ud800"])
def test_no_value_can_forge_a_line(stream: io.StringIO, nasty: str) -> None:
    log_event(logging.getLogger("app.x"), logging.INFO, "happened", fields={"value": nasty})
    logging.getLogger("foreign").warning("foreign %s", nasty)
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()
    assert len(lines(stream)) == 2
    assert lines(stream)[0]["value"] == nasty


def test_long_fields_are_cut(stream: io.StringIO) -> None:
    log_event(logging.getLogger("app.x"), logging.INFO, "happened", fields={"value": "x" * 10_000})
    assert lines(stream)[0]["value"] == "x" * MAX_FIELD_CHARACTERS + "..."


def test_a_field_of_the_largest_length_is_not_cut(stream: io.StringIO) -> None:
    longest = "x" * MAX_FIELD_CHARACTERS
    log_event(logging.getLogger("app.x"), logging.INFO, "happened", fields={"value": longest})
    assert lines(stream)[0]["value"] == longest


def test_an_exception_is_logged_without_its_message(stream: io.StringIO) -> None:
    log_event(logging.getLogger("app.x"), logging.ERROR, "failed", error=ValueError("user text"))
    assert lines(stream)[0]["exception"] == ["ValueError"]
    assert "user text" not in stream.getvalue()


def test_a_context_that_is_hidden_is_no_cause() -> None:
    error, context = ValueError(), KeyError()
    error.__context__ = context
    assert frames_of(error) == ["ValueError", "KeyError"]
    error.__suppress_context__ = True  # as `raise ... from None` does
    assert frames_of(error) == ["ValueError"]


def test_a_long_chain_of_causes_is_cut() -> None:
    error = ValueError()
    for _ in range(100):
        cause, error = error, ValueError()
        error.__cause__ = cause
    assert frames_of(error) == ["ValueError"] * 60


def test_asyncios_lines_have_no_messages_of_exceptions(stream: io.StringIO) -> None:
    loop = asyncio.new_event_loop()
    error = ValueError("secret text")
    loop.call_exception_handler(
        {"message": "Task exception was never retrieved", "exception": error, "future": repr(error)}
    )
    loop.close()
    (line,) = lines(stream)
    assert line["event"] == "Task exception was never retrieved"
    assert line["exception"] == ["ValueError"]
    assert "secret" not in stream.getvalue()


@pytest.mark.parametrize(
    ("arguments", "event"),
    [
        (("Failed, code %s: %s", 401, "secret"), "Failed, code 401: ..."),
        (("Error %s, retrying in %.2fs", ValueError("secret"), 0.5), "Error ValueError, retrying in 0.50s"),
        (("Retrying (%r) after '%r'", {"secret": 1}, ["secret"]), "Retrying ('...') after ''...''"),
        (("%(name)s failed", {"name": "secret"}), "%(name)s failed"),
        (("%d bytes", "secret"), "%d bytes"),
        (("Exporter already shut down, 100%",), "Exporter already shut down, 100%"),
    ],
)
@pytest.mark.parametrize("name", ["opentelemetry.util.re", "urllib3.connectionpool"])
def test_lines_about_traces_have_no_values_of_settings(
    stream: io.StringIO, name: str, arguments: tuple[Any, ...], event: str
) -> None:
    logging.getLogger(name).error(*arguments)
    assert [line["event"] for line in lines(stream)] == [event]


def test_lines_about_traces_name_the_cause(stream: io.StringIO) -> None:
    try:
        try:
            raise ConnectionRefusedError("secret")
        except OSError:
            raise ValueError("secret")  # noqa: B904 - as requests does
    except ValueError as error:
        logging.getLogger("opentelemetry.x").warning("Transient error %s", error)
    assert lines(stream)[0]["event"] == "Transient error ValueError from ConnectionRefusedError"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_lacks_is_a_string(stream: io.StringIO, value: float) -> None:
    log_event(logging.getLogger("app.test"), logging.INFO, "event", fields={"value": value})
    assert lines(stream)[0]["value"] == str(value)


def test_other_loggers_and_warnings_use_the_formatter(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").error("foreign")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
    assert [line["logger"] for line in lines(stream)] == ["uvicorn.error", "py.warnings"]


def test_a_library_writes_no_lines_of_its_own() -> None:
    root, library = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = root.handlers[:], root.level, logging.raiseExceptions
    own, written = io.StringIO(), io.StringIO()
    library.addHandler(logging.StreamHandler(own))
    configure_logging("info", written)
    library.error("foreign")
    logging.captureWarnings(False)
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])
    assert own.getvalue() == ""
    assert [line["event"] for line in lines(written)] == ["foreign"]


def test_lower_levels_are_not_logged(stream: io.StringIO) -> None:
    log_event(logging.getLogger("app.x"), logging.DEBUG, "hidden")
    assert stream.getvalue() == ""


def test_the_level_holds_for_asyncio_too() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions
    written = io.StringIO()
    configure_logging("error", written)
    logging.getLogger("asyncio").warning("hidden")
    logging.getLogger("asyncio").error("shown")
    configure_logging("info", io.StringIO())  # sets the level of asyncio's logger back
    logging.captureWarnings(False)
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])
    assert [line["event"] for line in lines(written)] == ["shown"]


def test_a_stream_that_cannot_be_written_raises_no_error(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.close()
    log_event(logging.getLogger("app.x"), logging.INFO, "happened")
    assert capsys.readouterr().err == ""
