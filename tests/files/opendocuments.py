"""OpenDocument texts and presentations, built from their entries as LibreOffice writes them."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

_SPACE = "urn:oasis:names:tc:opendocument:xmlns"
_NAMES = " ".join(
    f'xmlns:{prefix}="{_SPACE}:{name}:1.0"'
    for prefix, name in {
        "office": "office", "style": "style", "text": "text", "table": "table", "draw": "drawing",
        "fo": "xsl-fo-compatible", "svg": "svg-compatible", "presentation": "presentation", "loext": "loext",
    }.items()
) + ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:officeooo="http://openoffice.org/2009/office"'  # fmt: skip
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
TEXT, PRESENTATION = (f"application/vnd.oasis.opendocument.{kind}" for kind in ("text", "presentation"))


def style(name: str, properties: str, parent: str = "") -> str:
    """An automatic style of text. properties: the attributes of its text properties."""
    return (
        f'<style:style style:name="{name}" style:family="text"{parent}>'
        f"<style:text-properties {properties}/></style:style>"
    )


# T1 is bold, T2 and T3 change nothing that shows, T4 is underlined.
STYLES = (
    style("T1", 'fo:font-weight="bold" officeooo:rsid="001a2b3c" style:font-weight-asian="bold"')
    + style("T2", 'officeooo:rsid="000f9a01"')
    + style("T3", 'fo:language="en" fo:country="GB" style:language-asian="zh" officeooo:rsid="000f9a02"')
    + style("T4", 'style:text-underline-style="solid" style:text-underline-width="auto"')
)


def span(words: str, name: str) -> str:
    return f'<text:span text:style-name="{name}">{words}</text:span>'


def paragraph(content: str) -> str:
    return f'<text:p text:style-name="P1">{content}</text:p>'


def content(body: str, kind: str = "text", styles: str = STYLES) -> str:
    """The entry with the content. kind: text or presentation."""
    return (
        f'{_HEAD}<office:document-content {_NAMES} office:version="1.3"><office:scripts/>'
        f"<office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )


def master_styles(pages: str) -> str:
    """The entry with the styles. pages: its master pages."""
    return (
        f'{_HEAD}<office:document-styles {_NAMES} office:version="1.3"><office:styles>'
        '<style:style style:name="Standard" style:family="paragraph"/></office:styles>'
        f"<office:automatic-styles>{STYLES}</office:automatic-styles>"
        f"<office:master-styles>{pages}</office:master-styles></office:document-styles>"
    )


def manifest(inner: str = "") -> str:
    """The list of entries. inner: in the element of the content."""
    return (
        f'{_HEAD}<manifest:manifest xmlns:manifest="{_SPACE}:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="content.xml">{inner}</manifest:file-entry></manifest:manifest>'
    )


def odf(body: str, styles: str | None = None, kind: str = TEXT, listed: str | None = None) -> bytes:
    """An archive as LibreOffice writes it. body: content.xml. styles: styles.xml. listed: the list of entries."""
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as new:
        new.writestr(ZipInfo("mimetype", (2001, 2, 3, 4, 5, 6)), kind, ZIP_STORED)
        new.writestr(ZipInfo("Pictures/image1.png", (2001, 2, 3, 4, 5, 6)), b"\x89PNG" * 9, ZIP_STORED)
        new.writestr("Configurations2/", b"")
        new.writestr("content.xml", body)
        if styles is not None:
            new.writestr("styles.xml", styles)
        new.writestr("META-INF/manifest.xml", listed or manifest())
    return made.getvalue()


NOTE = (
    '<text:note text:id="ftn1" text:note-class="footnote"><text:note-citation>1</text:note-citation>'
    "<text:note-body><text:p>A footnote.</text:p></text:note-body></text:note>"
)
COMMENT = (
    '<office:annotation office:name="__Annotation__1"><text:p>A comment</text:p></office:annotation>',
    '<office:annotation-end office:name="__Annotation__1"/>',
)
PAGE = '<text:page-number text:select-page="current">7</text:page-number>'
_DELETED = (
    '<text:tracked-changes><text:changed-region text:id="ct1"><text:deletion><text:p>Deleted text</text:p>'
    "</text:deletion></text:changed-region></text:tracked-changes>"
)
_LINK = '<text:a xlink:type="simple" xlink:href="https://example.org/" text:style-name="Internet_20_link">{}</text:a>'
_SENTENCE = (
    span("Note: ", "T1")
    + f"salt &amp; pepper{NOTE} are on the "
    + _LINK.format(span("old table", "T1"))
    + f" of page {PAGE}."
    + "<text:line-break/>New line."
)
_BOX = (
    '<draw:frame text:anchor-type="paragraph"><draw:text-box><text:p>Inside a box</text:p></draw:text-box>'
    "<svg:title>A title that stays</svg:title></draw:frame>"
)
_INDEX = (
    "<text:table-of-content><text:table-of-content-source><text:index-title-template>Contents"
    "</text:index-title-template></text:table-of-content-source><text:index-body>"
    f"{paragraph('A title here<text:tab/>1')}</text:index-body></text:table-of-content>"
)
_CELL = f"<table:table-cell>{paragraph('In a cell')}</table:table-cell>"
_TABLE = f"<table:table><table:table-row>{_CELL}</table:table-row></table:table>"
CONTENT = content(
    _DELETED
    + f'<text:h text:outline-level="1">{span("A ti", "T2")}tle {span("here", "T3")}</text:h>\n'
    + paragraph(_SENTENCE)
    + paragraph("42")
    + _TABLE
    + paragraph(_BOX + "Beside the box")
    + _INDEX
)
ODT = odf(
    CONTENT,
    master_styles(
        '<style:master-page style:name="Standard"><style:header><text:p>The header</text:p></style:header>'
        f"<style:footer><text:p>{PAGE}</text:p></style:footer></style:master-page>"
    ),
)


def frame(content: str, attributes: str = "") -> str:
    """A frame of a slide. attributes: further ones."""
    return f"<draw:frame{attributes}><draw:text-box>{content}</draw:text-box></draw:frame>"


_LIST = (
    f"<text:list><text:list-item><text:p>{_SENTENCE.replace(NOTE, '')}</text:p></text:list-item></text:list>"
)
_PROMPT = ' presentation:class="title" presentation:placeholder="true"'
ODP = odf(
    content(
        '<presentation:footer-decl presentation:name="ftr1">The old bakery</presentation:footer-decl>'
        '<draw:page draw:name="page1">'
        + frame(f"<text:p>{span('A title here', 'T2')}</text:p>", ' presentation:class="title"')
        + frame(_LIST)
        + frame("", _PROMPT)
        + f"<draw:custom-shape><text:p>{span('In a shape', 'T1')}</text:p></draw:custom-shape>"
        + f"<presentation:notes>{frame('<text:p>Welcome the guests.</text:p>')}</presentation:notes></draw:page>",
        "presentation",
    ),
    master_styles(
        '<style:master-page style:name="Default">'
        + frame("<text:p>Click to edit the title</text:p>", ' presentation:class="title"')
        + frame("<text:p>For our staff only</text:p>")
        + frame("<text:p><presentation:footer/></text:p>", ' presentation:class="footer"')
        + "</style:master-page>"
    ),
    PRESENTATION,
)  # fmt: skip
