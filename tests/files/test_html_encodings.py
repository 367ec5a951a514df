"""The encoding of an HTML file is the one that a browser reads it in."""

from __future__ import annotations

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file

UTF8 = '<meta charset="utf-8">'


def text_of(page: bytes) -> str:
    """The only text of a page. Checks that the page is written unchanged."""
    file = read_file(page, FileFormat.HTML)
    assert file.write([unit.text for unit in file.units]) == page
    (unit,) = file.units
    return unit.text


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (f'<!-- old: <meta charset="iso-8859-1"> -->{UTF8}', "utf-8"),
        (f'<meta name="description" content="how to set charset=latin1">{UTF8}', "utf-8"),
        (f'<meta data-charset="latin1">{UTF8}', "utf-8"),
        (f"<meta content='text/html; charset=latin1'>{UTF8}", "utf-8"),
        (f"{UTF8}<meta charset=latin1>", "utf-8"),
        ("<meta charset=' '><meta charset=latin1>", "latin-1"),
        (f"<link charset=latin1>{UTF8}", "utf-8"),
        (f"</meta charset=latin1>{UTF8}", "utf-8"),
        (f"<!-- <meta charset=latin1> {'x' * 1024} -->", "utf-8"),
        (" " * 1010 + "<meta charset=latin1>", "utf-8"),
        ("<META CHARSET = ' Latin1 ' />", "latin-1"),
        ("<meta name=a charset=latin1>", "latin-1"),
        ("<meta http-equiv=Content-Type content='text/html; Charset = latin1; x'>", "latin-1"),
        ("<meta content=text/html;charset=latin1 http-equiv=content-type>", "latin-1"),
        ("<meta http-equiv=content-type content='text/html; charset=\"latin1\"'>", "latin-1"),
        (f"<meta http-equiv=content-type content='charset=\"latin1'>{UTF8}", "utf-8"),
        ("<meta charset=latin1 http-equiv=content-type content='text/html; charset=utf-8'>", "latin-1"),
        ("<meta http-equiv=content-type content='text/html'><meta charset=latin1>", "latin-1"),
        (f"<meta http-equiv=refresh content='0; url=?charset=latin1'>{UTF8}", "utf-8"),
        ('<?xml version="1.0" encoding="iso-8859-1"?>', "latin-1"),
        ("<?xml version='1.0' encoding\n=\t'latin1' standalone='no'?>", "latin-1"),
        (f'<?xml version="1.0" encoding="iso-8859-1"?>{UTF8}', "utf-8"),
        ('<?xml version="1.0" encoding="utf-16"?>', "utf-8"),
        ('<?xml version="1.0"?><!-- encoding="latin1" -->', "utf-8"),
        ('<?xml version="1.0" encoding="iso 8859-1"?>', "utf-8"),
        (' <?xml version="1.0" encoding="latin1"?>', "utf-8"),
        ('<!-- <?xml version="1.0" encoding="latin1"?> -->', "utf-8"),
    ],
)
def test_a_meta_element_else_the_xml_declaration_declares_the_encoding(head: str, encoding: str) -> None:
    assert text_of(head.encode() + b"<p>" + "caf\u00e9".encode(encoding)) == "caf\u00e9"


@pytest.mark.parametrize(
    ("names", "encoding", "text"),
    [
        ("gb2312 GBK gb_2312-80 x-gbk csgb2312 chinese", "gb18030", "\u9555\u57ce \u20ac \U00020000"),
        ("shift_jis x-sjis windows-31j ms_kanji", "cp932", "\u2460 \u9ad9\u6a4b \uff5e"),
        ("euc-kr ks_c_5601-1987 ksc5601 korean windows-949", "cp949", "\ub620\ubc29 \ud6a8"),
        ("big5 x-x-big5 cn-big5", "big5hkscs", "\u55ba\u5605 \u570b"),
        ("iso-8859-9 latin5 iso88599", "cp1254", "\u015fehir \u20ac \u201cev\u201d"),
        ("tis-620 iso-8859-11 windows-874", "cp874", "\u0e1a\u0e49\u0e32\u0e19 \u2026"),
        ("x-cp1251 windows-1251", "cp1251", "\u0434\u043e\u043c"),
        ("x-euc-jp euc-jp", "euc_jp", "\u5bb6"),
        ("iso-8859-8-i logical iso-8859-8", "iso8859_8", "\u05d1\u05d9\u05ea"),
        ("x-mac-roman macintosh", "mac_roman", "caf\u00e9"),
        ("utf-16 utf-16le UTF-16BE unicode x-unicode20utf8", "utf-8", "caf\u00e9"),
    ],
)  # fmt: skip
def test_a_name_means_the_encoding_that_it_has_in_browsers(names: str, encoding: str, text: str) -> None:
    for name in names.split():
        assert text_of(f"<meta charset={name}><p>".encode() + text.encode(encoding)) == text


@pytest.mark.parametrize("number", [874, *range(1250, 1259)])
def test_bytes_without_a_character_in_a_windows_encoding_are_control_characters(number: int) -> None:
    start = f"<meta charset=windows-{number}><p>".encode()
    free = [byte for byte in range(0x80, 0xA0) if not bytes([byte]).decode(f"cp{number}", "ignore")]
    assert text_of(start + b"a" + bytes(free) + b"b") == f"a{''.join(map(chr, free))}b"


def test_a_byte_without_a_character_is_an_error_that_names_the_encoding() -> None:
    with pytest.raises(FileError, match=r"line 2 is not CP874 \(byte 27 of the file\)"):
        read_file(b"<meta charset=tis-620><p>\n\xdb", FileFormat.HTML)


def test_big5_is_read_without_the_characters_of_hong_kong_if_they_would_change_its_bytes() -> None:
    """Big5-HKSCS, the larger encoding, has two codes for the second character, and would write the other code."""
    page = b"<meta charset=big5><p>\xa4\xa4\xa2\xa1"
    assert page.decode("big5hkscs").encode("big5hkscs") != page
    assert text_of(page) == "\u4e2d\u256e"


def test_big5_is_read_if_big5_hkscs_lacks_a_character() -> None:
    page = b"<meta charset=big5><p>\xc6\xcf"
    with pytest.raises(UnicodeDecodeError):
        page.decode("big5hkscs")
    assert text_of(page) == page.decode("big5").removeprefix("<meta charset=big5><p>")


def test_if_no_encoding_of_a_name_fits_the_error_names_the_first() -> None:
    with pytest.raises(FileError, match=r"line 1 is not BIG5HKSCS \(byte 23 of the file\)"):
        read_file(b"<meta charset=big5><p>\xff", FileFormat.HTML)


def test_a_file_that_does_not_survive_decoding_is_refused() -> None:
    page = b"<meta charset=shift_jis><p>a\x87\x90"
    with pytest.raises(FileError, match="does not survive decoding from cp932"):
        read_file(page, FileFormat.HTML)


def test_the_error_of_a_page_without_an_encoding_says_how_to_declare_it() -> None:
    with pytest.raises(FileError) as caught:
        read_file("<p>caf\u00e9".encode("latin-1"), FileFormat.HTML)
    assert str(caught.value) == (
        "line 1 is not UTF-8 (byte 7 of the file); "
        "declare the page's encoding with <meta charset> in the first 1,024 bytes, or save the page as UTF-8"
    )


@pytest.mark.parametrize(
    ("page", "file_format"),
    [
        (b"<meta charset=utf-8><p>caf\xe9", FileFormat.HTML),
        (b"\xef\xbb\xbf<p>caf\xe9", FileFormat.HTML),
        (b"caf\xe9", FileFormat.TXT),
    ],
)
def test_a_file_that_is_utf_8_by_its_declaration_mark_or_format_gets_no_hint_to_declare_it(
    page: bytes, file_format: FileFormat
) -> None:
    with pytest.raises(FileError, match=r"is not UTF-8 \(byte \d+ of the file\)$"):
        read_file(page, file_format)
