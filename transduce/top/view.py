"""Draws a frame with rich, in columns without lines, so that it is readable as plain text too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transduce.top.frame import Frame

BAR_WIDTH = 20
# Minimum width, in characters, in which the figures have room beside the bars.
MIN_WIDTH_OF_BARS = 50
# The width of the column of labels: that of "workers busy".
LABEL_WIDTH = 12
COLOURS = {"idle": "dim", "busy": "green", "stalled": "bold red"}
# The share of a limit from which a bar is red.
NEARLY_FULL = 0.9


def view(frame: Frame, url: str, width: int) -> RenderableType:
    """The whole view of a server. width: in characters; a narrow view has no bars."""
    parts = (
        _facts(frame, has_bars=width >= MIN_WIDTH_OF_BARS),
        _outcomes(frame),
        "",
        _workers(frame),
        "",
        _models(frame),
    )
    return Group(_title(frame, url), "", *parts)


def away(reason: str, url: str) -> RenderableType:
    """What is shown while the server gives no metrics."""
    return Group(Text(url, style="bold"), "", Text(f"away: {reason}", style="bold red"))


def _title(frame: Frame, url: str) -> Text:
    state = ("ready", "bold green") if frame.ready else (f"not ready: {frame.why_not_ready}", "bold red")
    built = f"transduce {frame.version}, {frame.kernels} kernels" if frame.version else "no model yet"
    seconds = "" if math.isnan(frame.interval_s) else f"  last {frame.interval_s:.1f} s"
    return Text.assemble((url, "bold"), "  ", state, f"  {built}{seconds}")


def _facts(frame: Frame, *, has_bars: bool) -> Table:
    done = f", done in {_number(frame.drain_s, 1)} s" if math.isfinite(frame.drain_s) else ""
    states = frame.connections
    open_now = states.get("active", math.nan) + states.get("idle", math.nan)
    facts: list[tuple[str, str | Text, str]] = [
        (
            "requests",
            f"{_number(frame.requests_per_s, 1)}/s",
            f"{_number(frame.num_inflight)} in progress",
        ),
        ("sentences", f"{_number(frame.sentences_per_s, 1)}/s", ""),
        ("latency", f"p50 {_number(frame.p50_ms)} ms", f"p99 {_number(frame.p99_ms)} ms"),
        ("workers busy", _bar(frame.utilisation, 1.0), f"{_number(100 * frame.utilisation)} %"),
        ("rows", _bar(frame.rows, frame.max_rows), _of(frame.rows, frame.max_rows)),
        (
            "queue",
            _bar(frame.queue_sentences, frame.max_queue_sentences),
            f"{_of(frame.queue_sentences, frame.max_queue_sentences)} sentences{done}",
        ),
        (
            "",
            _bar(frame.queue_tokens, frame.max_queue_tokens),
            f"{_of(frame.queue_tokens, frame.max_queue_tokens)} subwords",
        ),
        (
            "connections",
            _bar(open_now, frame.max_connections),
            f"{_of(open_now, frame.max_connections)}, {_number(states.get('active', math.nan))} active",
        ),
        (
            "memory",
            _bar(frame.memory_bytes, frame.max_memory_bytes),
            f"{_of(frame.memory_bytes / 1e6, frame.max_memory_bytes / 1e6)} MB",
        ),
        ("event loop", f"p99 {_number(frame.lag_p99_ms)} ms late", ""),
    ]
    table = _grid()
    if has_bars:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, shown, figure in facts:
        figures = (value for value in (shown, figure) if value and isinstance(value, str))
        table.add_row(label, *((shown, figure) if has_bars else (", ".join(figures),)))
    return table


def _outcomes(frame: Frame) -> Table:
    """The answers and refusals. In the table of `_facts`, a long list would leave the other columns no width."""
    table = _grid()
    table.add_column(overflow="fold")
    table.add_row("answers", _rates(frame.statuses))
    table.add_row("refused", _rates(frame.rejected))
    return table


def _grid() -> Table:
    """A grid that begins with a column of labels."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, width=LABEL_WIDTH)
    return table


def _rates(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {rate:.1f}/s" for name, rate in rates.items() if rate) or "-"


def _workers(frame: Frame) -> Table:
    return _table(
        ("worker", "model", "state", "rows", "step"),
        (
            (
                worker.number,
                worker.model,
                Text(worker.state, style=COLOURS[worker.state]),
                _of(worker.rows, worker.max_rows),
                f"{worker.step_age_s:.2f} s" if worker.step_age_s else "-",
            )
            for worker in frame.workers
        ),
    )


def _models(frame: Frame) -> Table:
    return _table(
        ("model", "version", "precision", "requests/s", "sentences/s"),
        (
            (
                model.name,
                model.version,
                model.precision,
                _number(model.requests_per_s, 1),
                _number(model.sentences_per_s, 1),
            )
            for model in frame.models
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _bar(value: float, limit: float) -> Text:
    """A bar of BAR_WIDTH characters; empty without a value or a limit."""
    if not (math.isfinite(value) and math.isfinite(limit) and limit > 0):
        return Text("")
    share = min(1.0, value / limit)
    full = round(share * BAR_WIDTH)
    return Text("#" * full + "." * (BAR_WIDTH - full), style="red" if share >= NEARLY_FULL else "green")


def _of(value: float, limit: float) -> str:
    return f"{_number(value)} of {_number(limit)}" if math.isfinite(limit) else _number(value)


def _number(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
