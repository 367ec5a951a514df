"""Locates inline markup, escapes and character references in Markdown. Wraps the inline rules of markdown-it.

The parser's tokens have no positions. So each rule is wrapped by a function that records the range of the match. The
parser resolves emphasis in the tokens after all rules have run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from app.files.tagged_text import MarkKind
from app.files.unit import is_xml_text
from app.text.html_parts import begins_untouched
from app.text.html_scanner import scan_html

_RULES = (
    "newline", "escape", "backticks", "strikethrough", "emphasis", "footnote", "link", "image", "autolink",
    "html_inline", "entity",
)  # fmt: skip
# A footnote reference; at the start of a line a colon makes it a footnote definition.
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]++\]")
_FOOTNOTE_START = re.compile(r"\[\^[^\[\]\s]++\]:[ \t]*+")
# A line of other dialects that is a mark as a whole: `[!NOTE]`, `:::`, `:::tip`, `::: {.tip}` or `$$`.
_MARK_LINE = re.compile(
    r"\n?^[ \t]*+(?:\[![A-Za-z]++\]|:{3,}+[ \t]*+(?:[\w-]++|\{[^{}\n]*+\})?|\$\$)[ \t]*+(?:\n|\Z)",
    re.MULTILINE,
)
_VOID = frozenset({"br", "img", "hr", "wbr", "input"})
# References to these characters are markup. The parser reads a reference to no character as U+FFFD.
_KEPT_REFERENCES = frozenset(" \t\n\r\f\ufffd")


BlockRule = Callable[[StateBlock, int, int, bool], bool]


class InlineMark(NamedTuple):
    """Markup: content[start:end] of a block. name: a closing mark closes an open mark with the same name.

    named_end: for the closing mark of a link whose text is also the name of its definition (`[name]`): a closing mark
        with that name (`][name]`). It replaces this mark if the translation changes the text. Empty for other marks.
    is_untouched: whether it begins an HTML element whose content is not translated.
    """

    start: int
    end: int
    kind: MarkKind
    name: str = ""
    named_end: str = ""
    is_untouched: bool = False


class Spelling(NamedTuple):
    """An escape or a character reference: content[start:end] of a block. text: the characters that it stands for."""

    start: int
    end: int
    text: str


class InlineParser:
    """Parses CommonMark with tables, strikethrough and footnote references."""

    def __init__(self) -> None:
        self.markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.markdown.core.ruler.disable("inline")
        self.markdown.inline.ruler.before("link", "footnote", _footnote)
        references = {rule.name: rule.fn for rule in self.markdown.block.ruler.__rules__}["reference"]
        self.markdown.block.ruler.at("reference", _without_footnotes(references))
        self._content = ""
        self._marks: list[InlineMark | Spelling] = []
        self._delimiters: list[tuple[int, Token]] = []
        rules: dict[str, Callable[[StateInline, bool], bool]] = {
            rule.name: rule.fn for rule in self.markdown.inline.ruler.__rules__
        }
        for name in _RULES:
            self.markdown.inline.ruler.at(name, self._recorded(name, rules[name]))

    def pieces(self, content: str, environment: dict[str, Any]) -> Iterator[str | InlineMark | Spelling]:
        """Yield the pieces of a block in order: text, marks and spellings. Together they cover its content.

        environment: the document's, with its link definitions.
        """
        self._content, self._marks, self._delimiters = content, [], []
        self.markdown.inline.parse(content, self.markdown, environment, [])
        for position, token in self._delimiters:
            self._marks += _delimiter_marks(position, token)
        self._marks += (InlineMark(*line.span(), MarkKind.BREAK) for line in _MARK_LINE.finditer(content))
        marks = sorted(self._marks, key=lambda mark: (mark.start, mark.end))
        done = 0
        for mark in _with_untouched_elements(marks, len(content)):
            if mark.start < done < mark.end and isinstance(mark, InlineMark) and mark.kind is MarkKind.BREAK:
                mark = mark._replace(start=done)  # a hard break has the line break before this line
            if mark.start < done:
                continue
            if mark.start > done:
                yield content[done : mark.start]
            yield mark
            done = mark.end
        if done < len(content):
            yield content[done:]

    def _recorded(
        self, name: str, rule: Callable[[StateInline, bool], bool]
    ) -> Callable[[StateInline, bool], bool]:
        def recorded(state: StateInline, silent: bool) -> bool:
            start = state.pos
            # The text of an image is parsed separately and is kept unchanged.
            if silent or state.src != self._content:
                return rule(state, silent)
            is_label = name == "link" and state.src[start] == "["
            label_end = state.md.helpers.parseLinkLabel(state, start) if is_label else -1
            is_match = rule(state, silent)
            if is_match:
                self._record(name, state, start, label_end)
            return is_match

        return recorded

    def _record(self, name: str, state: StateInline, start: int, label_end: int) -> None:
        """Record the marks of a match of the rule `name`. label_end: the end of a link's label."""
        end = state.pos
        raw = state.src[start:end]
        if name in {"emphasis", "strikethrough"}:
            tokens = _last_tokens(state, end - start)
            self._delimiters += ((start + position, token) for position, token in tokens)
        elif name == "link":
            # In `[text]` and `[text][]`, the text is also the name of the link's definition, which keeps its name.
            is_name = state.src[label_end:end] in {"]", "][]"}
            named_end = f"][{' '.join(state.src[start + 1 : label_end].split())}]" if is_name else ""
            self._marks += (
                InlineMark(start, start + 1, MarkKind.OPEN, "link"),
                InlineMark(label_end, end, MarkKind.CLOSE, "link", named_end),
            )
        elif (name == "escape" and state.tokens[-1].content == raw) or not raw.strip("`"):
            pass  # a backslash before a letter is text, and so are backticks without a partner
        elif name == "newline":
            if state.tokens[-1].type == "hardbreak":
                end = start + 1
                while start > 0 and state.src[start - 1] == " ":
                    start -= 1
                self._marks.append(InlineMark(start, end, MarkKind.BREAK))
        elif (name == "escape" and raw[1] == "\n") or (name == "footnote" and raw[-1] != "]"):
            # The match of a backslash before a line break includes the next line's indentation.
            self._marks.append(InlineMark(start, end, MarkKind.BREAK))
        elif name == "html_inline":
            self._marks.append(_html_mark(raw, start))
        elif name in {"escape", "entity"} and _is_spelling(state.tokens[-1].content):
            self._marks.append(Spelling(start, end, state.tokens[-1].content))
        else:
            is_word = name in {"backticks", "autolink"}
            self._marks.append(InlineMark(start, end, MarkKind.PLACEHOLDER if is_word else MarkKind.POINT))


def _is_spelling(text: str) -> bool:
    return is_xml_text(text) and _KEPT_REFERENCES.isdisjoint(text)


def _html_mark(raw: str, start: int) -> InlineMark:
    """The mark of an HTML tag, comment or declaration that begins at `start`."""
    event = next(scan_html(raw))
    kind = MarkKind.POINT
    if event.name == "br":
        kind = MarkKind.BREAK
    elif event.kind in {"open", "close"} and event.name not in _VOID:
        kind = MarkKind(event.kind)
    return InlineMark(start, start + len(raw), kind, f"<{event.name}>", is_untouched=begins_untouched(event))


def _with_untouched_elements(
    marks: Sequence[InlineMark | Spelling], end: int
) -> Iterator[InlineMark | Spelling]:
    """Yield the marks. Each HTML element that is not translated is one mark.

    An element that is not closed is a mark up to `end`, which ends the sentence, so that no word follows it.
    """
    opened: InlineMark | None = None
    depth = 0
    for mark in marks:
        if opened is None and isinstance(mark, InlineMark) and mark.is_untouched:
            opened, depth = mark, 1
        elif opened is None:
            yield mark
        elif isinstance(mark, InlineMark) and mark.name == opened.name:
            depth += (mark.kind is MarkKind.OPEN) - (mark.kind is MarkKind.CLOSE)
            if depth == 0:
                yield InlineMark(opened.start, mark.end, MarkKind.PLACEHOLDER)
                opened = None
    if opened is not None:
        yield InlineMark(opened.start, end, MarkKind.BREAK)


def _footnote(state: StateInline, silent: bool) -> bool:
    """A rule for footnote references, which CommonMark treats as text.

    It does nothing in silent mode, in which the parser looks for the end of a link.
    """
    if silent:
        return False
    start = state.pos
    while start > 0 and state.src[start - 1] in " \t":
        start -= 1
    is_first = start == 0 or state.src[start - 1] == "\n"
    match = (is_first and _FOOTNOTE_START.match(state.src, state.pos)) or _FOOTNOTE.match(
        state.src, state.pos
    )
    if not match:
        return False
    state.push("footnote", "", 0).content = match.group()
    state.pos = match.end()
    return True


def _without_footnotes(rule: BlockRule) -> BlockRule:
    """The rule for link definitions, but not for footnotes: `[^1]: word` looks like a link definition."""

    def rule_for_links(state: StateBlock, first: int, end: int, silent: bool) -> bool:
        position = state.bMarks[first] + state.tShift[first]
        return not state.src.startswith("[^", position) and rule(state, first, end, silent)

    return rule_for_links


def _last_tokens(state: StateInline, num_characters: int) -> list[tuple[int, Token]]:
    """The tokens of a run of delimiters, with their offsets in it."""
    tokens: list[tuple[int, Token]] = []
    for token in reversed(state.tokens):
        if num_characters <= 0:
            break
        num_characters -= len(token.content)
        tokens.append((num_characters, token))
    return tokens


def _delimiter_marks(position: int, token: Token) -> list[InlineMark]:
    """The marks of a delimiter. A strong delimiter has two tokens; the mark comes from the inner one."""
    kind, _, side = token.type.rpartition("_")
    if kind not in {"em", "strong", "s"}:
        return []
    if side == "open":
        start = position - 1 if kind == "strong" else position
        return [InlineMark(start, position + len(token.markup) - (kind == "strong"), MarkKind.OPEN, kind)]
    return [InlineMark(position, position + len(token.markup), MarkKind.CLOSE, kind)]
