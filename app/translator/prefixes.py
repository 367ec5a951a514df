"""Writes a target prefix as the model writes a translation: verbatim spans stand for the contents of placeholders."""

from __future__ import annotations

import re
from html import unescape
from unicodedata import category

from app.errors import InvalidRequest
from app.text.control_characters import control_character_problem
from app.text.model_input import model_input
from app.text.scripts import in_unspaced
from app.text.tokenizer import Encoded
from app.translator.jobs import SegmentJob

_TAG = re.compile(r"<[^<>]*>")


def as_model_text(prefix: str, job: SegmentJob, encoded: Encoded) -> str:
    """Return the prefix with each verbatim span of the source in place of the span's contents, at most once.

    The contents of a span are what the translation has in its place, without markup: a variable, a URL, a term. Two
    spans side by side would be one to the tokenizer, so a space separates them. Protected spans that are tags are left
    out (`app.text.enclosing_spans`), because they get their place as tags. Wide spaces and hyphens beyond ASCII become
    plain ones if they are exactly those that the translation gets from the source (`app.text.model_input`).
    encoded: the part's source. Raises InvalidRequest for a control character that no span has.
    """
    text = _with_spans(prefix, job, encoded)
    problem = control_character_problem(text, allowed="".join(encoded.verbatim_spans))
    if problem is not None:
        raise InvalidRequest(f"target_prefix {problem}", field="target_prefix")
    plain = model_input(text).source
    return plain if job.segment.with_written_characters(plain) == text else text


def has_placeholder(prefix: str, job: SegmentJob, encoded: Encoded) -> bool:
    """Whether the prefix has the contents of one of the source's placeholders. encoded: the part's source."""
    return _with_spans(prefix, job, encoded) != prefix


def _with_spans(prefix: str, job: SegmentJob, encoded: Encoded) -> str:
    remaining: dict[str, list[str]] = {}
    for tag in job.parsed_text.enclosing_spans(job.segment):
        remaining.setdefault(_unescaped(job, tag), []).append("")
    for span in reversed(encoded.verbatim_spans):
        remaining.setdefault(_content(job, span), []).append(span)
    if all(content in ("", *spans) for content, spans in remaining.items()):
        return prefix
    longest_first = "|".join(map(re.escape, sorted(filter(None, remaining), key=len, reverse=True)))
    parts: list[str] = []
    end = 0
    for found in re.finditer(longest_first, prefix):
        if remaining[found[0]] and _is_whole(prefix, *found.span()):
            between, span = prefix[end : found.start()], remaining[found[0]].pop()
            parts += (" " if parts and parts[-1] and span and not between else between, span)
            end = found.end()
    return "".join((*parts, prefix[end:]))


def _content(job: SegmentJob, span: str) -> str:
    """Return what the translation has in the place of a verbatim span, without markup."""
    return _unescaped(job, job.parsed_text.preview(job.segment, span))


def _unescaped(job: SegmentJob, written: str) -> str:
    """Return a part of the document without markup."""
    return unescape(_TAG.sub("", written)).strip() if job.parsed_text.document.is_markup else written


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is not a part of a word. A letter may follow a variable such as `%s`."""
    return not _is_in_word(text[start]) or not any(
        _is_in_word(text[edge - 1 : edge]) and _is_in_word(text[edge : edge + 1]) for edge in (start, end)
    )


def _is_in_word(character: str) -> bool:
    """Whether a character is a letter, digit or mark that belongs to the word beside it.

    Not so in scripts without spaces between words, nor in Korean, where particles follow a term without a space.
    """
    is_mark = character != "" and category(character) in ("Mn", "Mc")
    return (is_mark or character.isalnum()) and not in_unspaced(character)
