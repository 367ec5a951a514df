"""Building blocks of the HTML reports: cards, tables and sections."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def page_number(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits and thousands separators; a dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def card(title: str, value: str, unit: str = "") -> str:
    """A card with one figure."""
    return f"<div class=card><b>{escape(value)} <small>{escape(unit)}</small></b><span>{escape(title)}</span></div>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls horizontally on narrow screens. `rows` hold HTML."""
    top = "".join(f"<th scope=col>{escape(cell)}</th>" if cell else "<td></td>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide tabindex=0><table><tr>{top}</tr>{body}</table></div>"


def section(title: str, body: str, note: str = "") -> str:
    """A section with a heading; an empty string if the body is empty."""
    if not body:
        return ""
    note_html = f"<p class=soft>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{note_html}{body}</section>"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """A table with a name and a value in each row, both HTML."""
    body = "".join(
        f"<tr><th scope=row class=text>{name}</th><td class=text>{value}</td></tr>" for name, value in rows
    )
    return f"<table>{body}</table>"


def percent(share: float, digits: int = 0) -> str:
    """A share (0 to 1) as a percentage."""
    return f"{share * 100:.{digits}f} %"


def mark(is_good: bool, good: str = "yes", bad: str = "no") -> str:
    """A word in green or red."""
    return f"<span class={'good' if is_good else 'bad'}>{escape(good if is_good else bad)}</span>"
