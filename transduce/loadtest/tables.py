"""Tables and cards of the reports."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def page_number(value: float | None, digits: int = 4) -> str:
    """A figure to so many significant digits, thousands apart; a dash where there is none."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def card(title: str, value: str, unit: str = "") -> str:
    """One figure of the first row."""
    return f"<div class=card><b>{escape(value)} <small>{escape(unit)}</small></b><span>{escape(title)}</span></div>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already. It scrolls by itself where the page is too narrow."""
    top = "".join(f"<th scope=col>{escape(cell)}</th>" if cell else "<td></td>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide tabindex=0><table><tr>{top}</tr>{body}</table></div>"


def section(title: str, body: str, note: str = "") -> str:
    """A box with a heading; an empty text where the body is empty."""
    if not body:
        return ""
    told = f"<p class=soft>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """A name and a text in each row, both HTML already."""
    body = "".join(
        f"<tr><th scope=row class=text>{name}</th><td class=text>{value}</td></tr>" for name, value in rows
    )
    return f"<table>{body}</table>"


def percent(share: float, digits: int = 0) -> str:
    """A share between 0 and 1."""
    return f"{share * 100:.{digits}f} %"


def mark(is_good: bool, good: str = "yes", bad: str = "no") -> str:
    """A word in green or red."""
    return f"<span class={'good' if is_good else 'bad'}>{escape(good if is_good else bad)}</span>"
