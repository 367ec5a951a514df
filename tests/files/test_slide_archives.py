"""Which entries of a PowerPoint presentation are read, in which order, and which archives are refused."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileError, FileFormat, FileLimits
from app.files.reading import read_file
from tests.files.presentations import (
    OFFICE,
    SAMPLE_ENTRIES,
    entry,
    packed,
    paragraph,
    pptx,
    relationships,
    run,
    shape,
    slide,
    slide_list,
)
from tests.files.samples import docx
from tests.files.test_formats import changed

STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships"


def words(text: str) -> str:
    """A slide with this text."""
    return slide(paragraph(run(text)))


def texts(entries: Mapping[str, str | bytes], limits: FileLimits | None = None) -> list[str]:
    return [unit.text for unit in read_file(packed(entries), FileFormat.PPTX, limits).units]


def without(*names: str) -> dict[str, str | bytes]:
    """The entries of the sample without some."""
    return {name: content for name, content in SAMPLE_ENTRIES.items() if name not in names}


def test_slides_are_in_the_order_of_the_show() -> None:
    """An unlisted slide is the last."""
    entries = {
        "_rels/.rels": relationships("officeDocument ppt/presentation.xml"),
        "ppt/presentation.xml": slide_list("rId4", "rId2", "rId3"),
        "ppt/_rels/presentation.xml.rels": relationships(
            "slide slides/slide1.xml",
            "slide slides/slide2.xml",
            "slide slides/slide3.xml",
            "slide slides/slide10.xml",
        ),
        **{f"ppt/slides/slide{each}.xml": words(f"Slide {each}") for each in (1, 2, 3, 10)},
        "ppt/slides/slide4.xml": words("Of no presentation"),
    }
    assert texts(entries) == ["Slide 10", "Slide 2", "Slide 3", "Slide 1"]


@pytest.mark.parametrize("base", [OFFICE, STRICT])
def test_the_presentation_may_have_any_name(base: str) -> None:
    entries = {
        "_rels/.rels": relationships("officeDocument /show/main.xml", base=base),
        "show/main.xml": slide_list("rId1"),
        "show/_rels/main.xml.rels": relationships("slide /s/one.xml", "slide ./missing.xml", base=base),
        "s/one.xml": words("Slide one"),
    }
    assert texts(entries) == ["Slide one"]
    entries["show/_rels/main.xml.rels"] = entries["show/_rels/main.xml.rels"].replace("/one", "/&#111;ne")
    assert texts(entries) == ["Slide one"]


def test_without_a_relationship_the_presentation_has_its_usual_name() -> None:
    entries = without("_rels/.rels")
    assert texts(entries) == texts(SAMPLE_ENTRIES)


def test_the_text_of_a_layout_that_several_slides_use_is_translated_once() -> None:
    assert texts(SAMPLE_ENTRIES).count("For our staff only") == 1
    assert "For our guests only" not in texts(SAMPLE_ENTRIES)


@pytest.mark.parametrize(
    "placeholder", ['<p:ph type="title"/>', "<p:ph/>", '<p:ph type="ftr" sz="quarter" idx="11"/>']
)
def test_the_prompts_of_a_layout_stay(placeholder: str) -> None:
    layout = entry(
        "p:sldLayout", shape(paragraph(run("Click here")), placeholder) + shape(paragraph(run("Shown")))
    )
    entries = {**SAMPLE_ENTRIES, "ppt/slideLayouts/slideLayout1.xml": layout}
    assert "Shown" in texts(entries)
    assert "Click here" not in texts(entries)


def test_the_footer_of_a_slide_is_translated() -> None:
    footer = shape(paragraph(run("The footer")), '<p:ph type="ftr" sz="quarter" idx="11"/>')
    assert texts({**SAMPLE_ENTRIES, "ppt/slides/slide1.xml": entry("p:sld", footer)})[0] == "The footer"


def test_text_that_is_drawn_on_a_chart_is_translated() -> None:
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    shapes = (
        f'<c:userShapes xmlns:c="{drawing}/chart" xmlns:a="{drawing}/main"><cdr:txBody>{paragraph("Here")}'
    )
    entries = {
        **SAMPLE_ENTRIES,
        "ppt/charts/_rels/chart1.xml.rels": relationships("chartUserShapes ../drawings/drawing1.xml"),
        "ppt/drawings/drawing1.xml": shapes + "</cdr:txBody></c:userShapes>",
    }
    assert texts(entries)[3:5] == ["Title of the chart", "Here"]


def test_the_title_of_a_chart_of_a_newer_kind_is_translated() -> None:
    drawing = "http://schemas.openxmlformats.org/drawingml/2006/main"
    space = f'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex" xmlns:a="{drawing}"'
    chart = f"<cx:chartSpace {space}><cx:title><cx:rich>{paragraph('A funnel')}</cx:rich></cx:title></cx:chartSpace>"
    kind = "http://schemas.microsoft.com/office/2014/relationships/chartEx"
    entries = {
        **SAMPLE_ENTRIES,
        "ppt/slides/_rels/slide2.xml.rels": relationships(f"{kind} ../charts/chartEx1.xml"),
        "ppt/charts/chartEx1.xml": chart,
    }
    assert "A funnel" in texts(entries)


def test_names_of_series_comments_and_alternative_texts_stay() -> None:
    with ZipFile(BytesIO(changed(pptx(), FileFormat.PPTX))) as archive:
        assert "<c:v>Sales</c:v>" in archive.read("ppt/charts/chart1.xml").decode()
        assert 'phldrT="[Text]"' in archive.read("ppt/diagrams/data1.xml").decode()
        assert 'descr="A text that stays"' in archive.read("ppt/slides/slide1.xml").decode()
        assert 'show="0"' in archive.read("ppt/slides/slide2.xml").decode()
        assert (
            archive.read("ppt/comments/comment1.xml").decode() == SAMPLE_ENTRIES["ppt/comments/comment1.xml"]
        )


def test_entries_that_name_each_other_are_read_once() -> None:
    entries = {
        **SAMPLE_ENTRIES,
        "ppt/slides/_rels/slide2.xml.rels": relationships(
            "chart slide2.xml",
            "chart ../charts/chart1.xml",
            "slideLayout slide1.xml",
            "slideMaster slide1.xml",
        ),
    }
    assert sorted(texts(entries)) == sorted(texts(SAMPLE_ENTRIES))


STRICT_WORDS = words("One").replace(
    "http://schemas.openxmlformats.org/drawingml/2006", "http://purl.oclc.org/ooxml/drawingml"
)


def test_a_slide_of_strict_office_is_read() -> None:
    assert "One" in texts({**SAMPLE_ENTRIES, "ppt/slides/slide2.xml": STRICT_WORDS})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ppt/presentation.xml", "<w:document/>"),
        ("ppt/slides/slide1.xml", "<Types/>"),
        ("ppt/slides/slide1.xml", words("One").replace("p:", "ns0:").replace(":p=", ":ns0=")),
        ("ppt/slides/slide2.xml", words("One").replace("a:", "ns0:").replace(":a=", ":ns0=")),
        ("ppt/slides/slide2.xml", STRICT_WORDS.replace("a:", "ns0:").replace(":a=", ":ns0=")),
        (
            "ppt/charts/chart1.xml",
            words("One").replace("<a:", "<").replace("</a:", "</").replace("xmlns:a", "xmlns"),
        ),
    ],
)
def test_elements_with_other_prefixes_are_refused(name: str, content: str) -> None:
    """The paragraphs of such an entry would stay untranslated."""
    with pytest.raises(
        FileError, match=rf"^{name}: its root element is not p:presentation or .* with PowerPoint"
    ):
        texts({**SAMPLE_ENTRIES, name: content})


def test_another_prefix_of_elements_without_text_is_accepted() -> None:
    drawing = "http://schemas.openxmlformats.org/drawingml/2006/main"
    extension = f'<p:ext uri="x"><x:fill xmlns:x="{drawing}"/></p:ext>'
    content = words("One").replace("</p:cSld>", f"</p:cSld>{extension}")
    assert texts({**SAMPLE_ENTRIES, "ppt/slides/slide2.xml": content})[-3:][0] == "One"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(99), "encrypted with a password, or an old .ppt; save it as .pptx"),
        (b"Plain words.", "the file is not a PowerPoint presentation, because it is not a ZIP archive"),
        (pptx()[:-40], "the file is damaged"),
        (docx(), "not a PowerPoint presentation: it has no ppt/presentation.xml"),
        (packed({"_rels/.rels": relationships("officeDocument a.xml")}), "it lacks the body that _rels/.rels names"),
        (packed({"_rels/.rels": relationships("officeDocument xl/workbook.xml"), "xl/workbook.xml": "<workbook/>"}),
         "xl/workbook.xml: its root element is not p:presentation"),
        (pptx("<!DOCTYPE a><p:sld/>"), "ppt/slides/slide1.xml: XML with a document type is not supported"),
        (pptx("<p:sld><a:p>"), "ppt/slides/slide1.xml, line 1: malformed XML"),
    ],
)  # fmt: skip
def test_what_is_no_presentation_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read_file(data, FileFormat.PPTX)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["ppt/slides/slide2.xml", "ppt/media/image1.png"])
def test_an_entry_with_a_wrong_checksum_is_an_error(name: str) -> None:
    data = pptx()
    with ZipFile(BytesIO(data)) as archive:
        right = archive.getinfo(name).CRC.to_bytes(4, "little")
    damaged = data.replace(right, bytes([right[0] ^ 1]) + right[1:])
    with pytest.raises(FileError, match="the file is damaged"):
        read_file(damaged, FileFormat.PPTX)


def test_the_limits_hold_for_all_entries_together() -> None:
    """The relationships count, too."""
    entries = without(
        "ppt/media/image1.png", "ppt/comments/comment1.xml", "ppt/slideLayouts/slideLayout2.xml"
    )
    units = read_file(packed(entries), FileFormat.PPTX).units
    xml = [str(content) for name, content in entries.items() if name != "[Content_Types].xml"]
    used = {
        "max_units": len(units),
        "max_characters": sum(len(unit.text) for unit in units),
        "max_parts": len(entries),
        "max_part_bytes": sum(map(len, xml)),
        "max_elements": sum(
            content.count("<") - content.count("</") - content.count("<?") for content in xml
        ),
    }
    for name, value in used.items():
        assert len(texts(entries, FileLimits(**{name: value}))) == len(units)
        with pytest.raises(FileError, match=rf"limit of {value - 1}\b"):
            texts(entries, FileLimits(**{name: value - 1}))
