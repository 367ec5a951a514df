"""PowerPoint presentations, built from their entries as PowerPoint writes them."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
_NAMES = (
    f'xmlns:a="{_DRAWING}/main" xmlns:r="{OFFICE}" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
)
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
_TREE = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
END = '<a:endParaRPr lang="en-US" dirty="0"/>'
LINKED = '<a:rPr lang="en-US" dirty="0"><a:hlinkClick r:id="rId2"/></a:rPr>'


def run(words: str, properties: str = '<a:rPr lang="en-US" dirty="0"/>') -> str:
    return f"<a:r>{properties}<a:t>{words}</a:t></a:r>"


def number(kind: str = "slidenum", value: str = "7") -> str:
    """A field whose value PowerPoint computes."""
    return (
        f'<a:fld id="{{B6F15528-21DE-4FAA-801E-634DDDAF4B2B}}" type="{kind}">'
        f'<a:rPr lang="en-US"/><a:t>{value}</a:t></a:fld>'
    )


def paragraph(*content: str) -> str:
    """A paragraph. content: its runs; text becomes a run."""
    return f"<a:p>{''.join(part if part.startswith('<') else run(part) for part in content)}</a:p>"


def shape(paragraphs: str, placeholder: str = "", number: int = 2) -> str:
    """A text box. placeholder: the XML of its placeholder; empty for none."""
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="Title {number}" descr="A text that stays"/><p:cNvSpPr/>'
        f"<p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:spPr/>"
        f'<p:txBody><a:bodyPr><a:normAutofit fontScale="90000"/></a:bodyPr><a:lstStyle/>{paragraphs}</p:txBody></p:sp>'
    )


def entry(kind: str, shapes: str, attributes: str = "") -> str:
    """The XML of a slide or of another entry with shapes. kind: its root, such as p:sld."""
    tree = f"<p:cSld><p:spTree>{_TREE}{shapes}</p:spTree></p:cSld><p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr>"
    return f"{_HEAD}<{kind} {_NAMES}{attributes}>{tree}</{kind}>"


def slide(paragraphs: str) -> str:
    """A slide of one text box."""
    return entry("p:sld", shape(paragraphs))


def relationships(*pairs: str, base: str = OFFICE) -> str:
    """The relationships of an entry. pairs: kind and target of each; the ids are rId1, rId2 and so on."""
    each = (
        f'<Relationship Id="rId{at}" Type="{kind if ":" in kind else base + "/" + kind}" Target="{target}"/>'
        for at, (kind, target) in enumerate((pair.split(" ") for pair in pairs), start=1)
    )
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'{_HEAD}<Relationships xmlns="{space}">{"".join(each)}</Relationships>'


def slide_list(*ids: str) -> str:
    """The presentation's own entry. ids: those of the relationships of its slides, in their order."""
    listed = "".join(f'<p:sldId id="{256 + at}" r:id="{each}"/>' for at, each in enumerate(ids))
    levels = '<p:defaultTextStyle><a:defPPr><a:defRPr lang="en-US"/></a:defPPr></p:defaultTextStyle>'
    return (
        f'{_HEAD}<p:presentation {_NAMES} saveSubsetFonts="1"><p:sldIdLst>{listed}</p:sldIdLst>'
        f'<p:sldSz cx="12192000" cy="6858000"/><p:notesSz cx="6858000" cy="9144000"/>{levels}</p:presentation>'
    )


def packed(entries: Mapping[str, str | bytes]) -> bytes:
    """An archive of these entries. A picture is stored, all else is deflated."""
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as new:
        for name, content in entries.items():
            if name.endswith(".png"):
                new.writestr(ZipInfo(name, (2001, 2, 3, 4, 5, 6)), content, ZIP_STORED)
            else:
                new.writestr(name, content)
    return made.getvalue()


def pptx(first: str | None = None, **others: str | bytes) -> bytes:
    """A presentation of one slide, or the sample of two slides. first: the XML of the first slide.

    others: further entries by name, with `__` for a slash.
    """
    entries = dict(SAMPLE_ENTRIES)
    if first is not None:
        named = "ppt/presentation.xml ppt/_rels/presentation.xml.rels _rels/.rels [Content_Types].xml"
        entries = {name: entries[name] for name in named.split()} | {"ppt/slides/slide1.xml": first}
    return packed({**entries, **{name.replace("__", "/"): content for name, content in others.items()}})


BOLD = '<a:rPr lang="en-US" b="1" dirty="0"/>'
_TABLE = (
    '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="5" name="Table 4"/><p:cNvGraphicFramePr/><p:nvPr/>'
    '</p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="9" cy="9"/></p:xfrm>'
    f'<a:graphic><a:graphicData uri="{_DRAWING}/table"><a:tbl><a:tblPr/>'
    '<a:tblGrid><a:gridCol w="9"/></a:tblGrid><a:tr h="9"><a:tc><a:txBody><a:bodyPr/><a:lstStyle/>'
    f"{paragraph('In a cell')}</a:txBody><a:tcPr/></a:tc></a:tr></a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
)
_SPLIT = run("A ti", '<a:rPr lang="en-US" dirty="0" err="1"/>') + run("tle here", '<a:rPr lang="en-GB"/>')
_SENTENCE = (
    '<a:pPr lvl="1"/>'
    + run("Note: ", BOLD)
    + run("salt &amp; pepper on the ")
    + run("old ", LINKED)
    + run("table", LINKED.replace("<a:rPr", '<a:rPr b="1"'))
    + run(" of ")
    + number()
    + run(".")
    + '<a:br><a:rPr lang="en-US"/></a:br>'
    + run("New line.")
)
SLIDE = entry(
    "p:sld",
    shape(paragraph(_SPLIT) + f"<a:p>{END}</a:p>", '<p:ph type="ctrTitle"/>')
    + f"<p:grpSp>{_TREE}{shape(paragraph(_SENTENCE, END), number=4)}</p:grpSp>"
    + _TABLE
    + shape(paragraph(number()), '<p:ph type="sldNum" sz="quarter" idx="12"/>', number=6),
)
_CHART = (
    f'{_HEAD}<c:chartSpace xmlns:c="{_DRAWING}/chart" xmlns:a="{_DRAWING}/main" xmlns:r="{OFFICE}"><c:chart>'
    f"<c:title><c:tx><c:rich><a:bodyPr/><a:lstStyle/>{paragraph('Title of the chart')}</c:rich></c:tx></c:title>"
    "<c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:f>Sheet1!$B$1</c:f><c:strCache><c:ptCount val='1'/>"
    "<c:pt idx='0'><c:v>Sales</c:v></c:pt></c:strCache></c:strRef></c:tx></c:ser></c:barChart></c:plotArea>"
    f"</c:chart><c:txPr><a:bodyPr/><a:lstStyle/><a:p><a:pPr><a:defRPr/></a:pPr>{END}</a:p></c:txPr></c:chartSpace>"
)
_DATA = (
    f'{_HEAD}<dgm:dataModel xmlns:dgm="{_DRAWING}/diagram" xmlns:a="{_DRAWING}/main"><dgm:ptLst>'
    '<dgm:pt modelId="{1}"><dgm:prSet phldrT="[Text]"/><dgm:spPr/>'
    f"<dgm:t><a:bodyPr/><a:lstStyle/>{paragraph('A step')}</dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>"
)
_STEP = run("A step", '<a:rPr lang="en-US" sz="6500" kern="1200"/>')
_DRAWN = (
    f'{_HEAD}<dsp:drawing xmlns:dsp="http://schemas.microsoft.com/office/drawing/2008/diagram" '
    f'xmlns:a="{_DRAWING}/main"><dsp:spTree><dsp:sp modelId="{{2}}"><dsp:txBody><a:bodyPr/><a:lstStyle/>'
    f"{paragraph(_STEP)}</dsp:txBody></dsp:sp></dsp:spTree></dsp:drawing>"
)
_DIAGRAM = "http://schemas.microsoft.com/office/2007/relationships/diagramDrawing"
_LAYOUT = entry(
    "p:sldLayout",
    shape(paragraph("Click to edit the title"), '<p:ph type="title"/>')
    + shape(paragraph("For our staff only")),
)
_MASTER = entry(
    "p:sldMaster",
    shape(paragraph("Click to edit the master"), '<p:ph type="body" idx="1"/>')
    + shape(paragraph("The old bakery")),
)
SAMPLE_ENTRIES: dict[str, str | bytes] = {
    "[Content_Types].xml": "<Types/>",
    "_rels/.rels": relationships("extended-properties docProps/app.xml", "officeDocument ppt/presentation.xml"),
    "ppt/presentation.xml": slide_list("rId1", "rId2"),
    "ppt/_rels/presentation.xml.rels": relationships(
        "slide slides/slide1.xml", "slide slides/slide2.xml", "slideMaster slideMasters/slideMaster1.xml"
    ),
    "ppt/slides/slide1.xml": SLIDE,
    "ppt/slides/slide2.xml": entry("p:sld", shape(paragraph("A hidden slide")), ' show="0"'),
    "ppt/slides/_rels/slide1.xml.rels": relationships(
        "slideLayout ../slideLayouts/slideLayout1.xml",
        "notesSlide ../notesSlides/notesSlide1.xml",
        "chart ../charts/chart1.xml",
        f"{_DIAGRAM} ../diagrams/drawing1.xml",
        "diagramData ../diagrams/data1.xml",
        "comments ../comments/comment1.xml",
    ),
    "ppt/slides/_rels/slide2.xml.rels": relationships("slideLayout ../slideLayouts/slideLayout1.xml"),
    "ppt/slideLayouts/slideLayout1.xml": _LAYOUT,
    "ppt/slideLayouts/slideLayout2.xml": _LAYOUT.replace("staff", "guests"),
    "ppt/slideLayouts/_rels/slideLayout1.xml.rels": relationships("slideMaster ../slideMasters/slideMaster1.xml"),
    "ppt/slideMasters/slideMaster1.xml": _MASTER,
    "ppt/slideMasters/_rels/slideMaster1.xml.rels": relationships(
        "slideLayout ../slideLayouts/slideLayout1.xml", "slideLayout ../slideLayouts/slideLayout2.xml"
    ),
    "ppt/notesSlides/notesSlide1.xml": entry(
        "p:notes", shape(paragraph("Welcome the guests."), '<p:ph type="body" idx="1"/>')
    ),
    "ppt/charts/chart1.xml": _CHART,
    "ppt/diagrams/data1.xml": _DATA,
    "ppt/diagrams/drawing1.xml": _DRAWN,
    "ppt/comments/comment1.xml": f"<p:cmLst {_NAMES}><p:cm><p:text>A comment</p:text></p:cm></p:cmLst>",
    "ppt/media/image1.png": b"\x89PNG" * 9,
}  # fmt: skip
