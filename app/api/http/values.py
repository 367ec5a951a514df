"""Values of a JSON body, checked by hand: each error names the field and the limit, never the value's text.

The checks run before anything is done in proportion to a number that the caller chose. Types are strict: a
boolean is no number, 4.0 is no whole number, null is no way to leave a field out.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from app.errors import InvalidRequest, PayloadTooLarge

MAX_LANGUAGE_CHARACTERS = 35
Body = Mapping[str, object]
# A name that an answer may repeat; whatever else stands in a name's place may be a text.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,40}")
# From 0 to 1, as difflib counts it: `taget` is 0.91 like `target`, `beams` 0.71 like `beam_size`.
_LIKENESS_OF_A_HINT = 0.7
_LIKENESS_OF_A_REFUSAL = 0.75
# Most unknown fields that are compared with the known ones: each takes some ten microseconds.
_MAX_COMPARED = 16


def checked_object(value: object, name: str, known: Sequence[str]) -> Body:
    """A JSON object with no other keys than `known`. `name`: "" for the body itself. Raises InvalidRequest."""
    if not isinstance(value, dict):
        what = name or "the body"
        raise InvalidRequest(f"{what} must be a JSON object", field=name or None)
    for key in value:
        if key not in known:
            raise unknown_field(key, known, name)
    return value


def check_misspelt(fields: Body, known: Sequence[str], name: str = "") -> None:
    """Raises InvalidRequest for a field that is nearly one of `known`, where that one is not given.

    For the bodies of other APIs, whose clients may send fields that are unknown here: these are passed over.
    """
    missing = [field for field in known if field not in fields]
    unknown = (key for key in fields if key not in known)
    for key in itertools.islice(unknown, _MAX_COMPARED):
        if _nearest(key, missing, _LIKENESS_OF_A_REFUSAL):
            raise unknown_field(key, missing, name)


def unknown_field(key: str, known: Sequence[str], name: str = "") -> InvalidRequest:
    """The error for a field of the object `name` ("": the body) that is none of `known`.

    It repeats only what is misspelt, and a plain word: anything else in a name's place may be a text.
    """
    prefix, where = (f"{name}.", f" of {name}") if name else ("", "")
    near = _nearest(key, known, _LIKENESS_OF_A_HINT)
    if near is None or not _PLAIN_NAME.fullmatch(key):
        return InvalidRequest(
            f"a field{where} is not known; there are {', '.join(known)}", field=name or None
        )
    message = f"{prefix}{key} is not known; did you mean {prefix}{near}?"
    return InvalidRequest(message, field=f"{prefix}{key}", is_misspelt=True)


def _nearest(key: str, known: Sequence[str], likeness: float) -> str | None:
    """The likest of `known`, in any case of letters; None where none is so much alike."""
    by_lower = {field.lower(): field for field in known}
    found = difflib.get_close_matches(key[:100].lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[found[0]] if found else None


def whole_number(value: object, name: str, low: int, high: int) -> int:
    """A whole number within low..high. Raises InvalidRequest."""
    if type(value) is not int:
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}", field=name)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be from {low} to {high}", field=name)
    return value


def number(value: object, name: str, low: float, high: float) -> float:
    """A number within low..high. Raises InvalidRequest."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be a number from {low:g} to {high:g}", field=name)
    return float(value)


def switch(value: object, name: str) -> bool:
    """true or false. Raises InvalidRequest."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", field=name)
    return value


def choice(value: object, name: str, names: Collection[str]) -> str:
    """One of the names. Raises InvalidRequest."""
    if not isinstance(value, str) or value not in names:
        raise InvalidRequest(f"{name} must be one of {', '.join(names)}", field=name)
    return value


def language(body: Body, name: str) -> str:
    """A language code; whether there is such a pair is the translator's to say. Raises InvalidRequest."""
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_LANGUAGE_CHARACTERS:
        raise InvalidRequest(f"{name} must be a language code, such as en", field=name)
    if name == "source" and value == "auto":
        raise InvalidRequest("the source language is not detected here: name it", field=name)
    return value


def texts(value: object, name: str, *, max_items: int, max_characters: int) -> tuple[str, ...]:
    """A string or an array of strings, as a tuple. Raises InvalidRequest, PayloadTooLarge."""
    if value == []:
        raise InvalidRequest(f"{name} is empty: it must hold at least one string", field=name)
    if not isinstance(value, str | list):
        raise InvalidRequest(f"{name} must be a string or an array of strings", field=name)
    items = value if isinstance(value, list) else [value]
    if len(items) > max_items:
        raise PayloadTooLarge(f"{name} has {len(items)} items, the limit is {max_items}", field=name)
    for index, item in enumerate(items):
        own = f"{name}[{index}]" if isinstance(value, list) else name
        if not isinstance(item, str):
            raise InvalidRequest(f"{own} must be a string", field=own)
        if len(item) > max_characters:
            raise PayloadTooLarge(
                f"{own} has {len(item)} characters, the limit is {max_characters}", field=own
            )
    return tuple(items)


def check_total(groups: Mapping[str, Sequence[str]], max_characters: int) -> None:
    """All texts of a request together. Raises PayloadTooLarge that names the longest group."""
    lengths = {name: sum(map(len, group)) for name, group in groups.items()}
    total = sum(lengths.values())
    if total > max_characters:
        longest = max(lengths, key=lambda name: lengths[name])
        named = " and ".join(name for name, length in lengths.items() if length)
        raise PayloadTooLarge(
            f"{named}: {total} characters in all, the limit is {max_characters}", field=longest
        )
