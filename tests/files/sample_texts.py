"""The texts to translate of the sample of each format."""

from __future__ import annotations

from app.files import FileFormat

TEXTS_OF = {
    FileFormat.TXT: ["First line.", "Indented, with a tab", "last \u00e9\u2028 line"],
    FileFormat.SRT: [
        'The <g id="1">old</g> house\nis empty.',
        '<x id="0"/><br id="1"/>Who is there?\n<br id="3"/>Nobody &amp; nothing.',
        '<x id="0"/>Stop',
    ],
    FileFormat.VTT: [
        '<g id="0">Salt &amp; pepper,\nplease.</g>',
        'One <x id="1"/><g id="2">two</g> three &lt;four&gt;',
    ],
    FileFormat.HTML: [
        "A \u00e9t\u00e9",
        "One <b>bold</b>  word &amp; a&nbsp;space.",
        "Next",
        "Unclosed <!-- note --> end",
        "Item",
    ],
    FileFormat.MARKDOWN: [
        'The <g id="1">first</g> title',
        (
            'A paragraph of <g id="1">two\n  lines</g> with <x id="5" translate="no"/>, '
            'a <g id="7">link <g id="9">inside</g></g>, '
            '<x id="14"/>\nand an *escape*, a <g id="16">tag</g> and an end.<br id="20"/>Hard break.'
        ),
        "Quoted text\nover two lines",
        "1 item",
        "nested item",
        "Name",
        'What <g id="1">it</g> is',
        "one | two",
        "three",
        '<x id="0" translate="no"/> only',
        "Setext title",
        "Block of HTML",
        '[ ] a task <g id="1">gone</g> <g id="5">ref</g>',
    ],
    FileFormat.PO: [
        "Open %s now",
        "%(n)d file",
        "%(n)d files",
        "%(n)d files",
        'A first line.\nA "quoted" word and a \\ and a\ttab.\n',
    ],
    FileFormat.JSON: [
        "A value",
        "caf\u00e9",
        'a/b "q"',
        "<b>Bold</b> &amp; text",
        "Hello, {{name}}!",
        "again",
    ],
    FileFormat.XLIFF: [
        'Salt &amp; <g id="1">red</g> pepper<x id="5"/>.',
        "The <b>old</b> house",
        "One cat.",
        "Two cats.",
    ],
    FileFormat.DOCX: [
        "A title here",
        (
            '<g id="0">Note: </g>salt &amp; pepper<x id="4"/> are on the <g id="6"><g id="7">old table</g></g>'
            '<x id="11"/>.<br id="13"/>New line.'
        ),
        "In a cell",
        'See <g id="1">page two</g> today.',
        '<x id="0"/>Beside the box',
        "Inside a box",
        "A footnote.",
        "The header",
    ],
    FileFormat.PPTX: [
        "A title here",
        (
            '<g id="0">Note: </g>salt &amp; pepper on the <g id="4"><g id="5">old </g>table</g> of '
            '<x id="11" translate="no"/>.<br id="13"/>New line.'
        ),
        "In a cell",
        "Title of the chart",
        "A step",
        "A step",
        "Welcome the guests.",
        "A hidden slide",
        "For our staff only",
        "The old bakery",
    ],
    FileFormat.ODT: [
        "A title here",
        (
            '<g id="0">Note: </g>salt &amp; pepper<x id="4"/> are on the <g id="6">old table</g> of page '
            '<x id="10" translate="no"/>.<br id="12"/>New line.'
        ),
        "A footnote.",
        "In a cell",
        '<x id="0"/>Beside the box',
        "Inside a box",
        'A title here<br id="1"/>1',
        "The header",
    ],
    FileFormat.ODP: [
        "The old bakery",
        "A title here",
        (
            '<g id="0">Note: </g>salt &amp; pepper are on the <g id="4">old table</g> of page '
            '<x id="8" translate="no"/>.<br id="10"/>New line.'
        ),
        "In a shape",
        "Welcome the guests.",
        "For our staff only",
    ],
}
