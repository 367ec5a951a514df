"""The encoding of a catalogue is the one that its header declares."""

from __future__ import annotations

import contextlib

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file
from tests.text.growth import check_near_linear

ENTRY = 'msgid "\u00e9t\u00e9"\nmsgstr ""\n'
HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n'


@pytest.mark.parametrize(
    ("header", "in_utf8"),
    [
        ('"Content-type: text/plain; charset=ISO-8859-1\\n"', '"Content-type: text/plain; charset=UTF-8\\n"'),
        ('"Content-Type: text/plain; Charset=ISO-8859-1\\n"', '"Content-Type: text/plain; Charset=UTF-8\\n"'),
        (
            '"Content-Type: text/plain; "\n"charset=ISO-8859-1\\n"\n"X: y\\n"',
            '"Content-Type: text/plain; "\n"charset=UTF-8\\n"\n"X: y\\n"',
        ),
        ('"X: y; char"\r\n  "set=ISO-88"\r\n"59-1"\r\n"\\n"', '"X: y; char"\r\n  "set=UTF-8"\r\n"\\n"'),
    ],
)
@pytest.mark.parametrize(
    "before", ["", "# charset=UTF-8\n#, fuzzy\n", '\nmsgid "charset=UTF-8"\nmsgstr "b"\n']
)
def test_the_header_declares_the_encoding(before: str, header: str, in_utf8: str) -> None:
    data = f'{before}msgid ""\nmsgstr ""\n{header}\n\n{ENTRY}'
    file = read_file(data.encode("latin-1"), FileFormat.PO)
    assert [unit.text for unit in file.units][-1:] == ["\u00e9t\u00e9"]
    written = data.removesuffix('""\n')
    assert file.write(["\u00fc"]) == (written + '"\u00fc"\n').encode("latin-1")
    assert file.write(["\u20ac"]) == (written.replace(header, in_utf8) + '"\u20ac"\n').encode()


@pytest.mark.parametrize(
    "before",
    [
        "# Content-Type: text/plain; charset=ISO-8859-1\n",
        '#~ msgid ""\n#~ msgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n',
        'msgid ""\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\nmsgstr "b"\n\n',
    ],
)
@pytest.mark.parametrize("header", ["", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'])
def test_nothing_else_declares_the_encoding(before: str, header: str) -> None:
    file = read_file((before + header + ENTRY).encode(), FileFormat.PO)
    assert [unit.text for unit in file.units] == ["\u00e9t\u00e9"]


def test_a_template_becomes_utf_8_once_its_texts_need_it() -> None:
    header = '# \u00e9\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'
    entry = 'msgid "summer"\nmsgstr ""\n'
    data = header + entry
    assert read_file(data.encode(), FileFormat.PO).write(["summer"]) == data.encode()
    written = data.replace("CHARSET", "UTF-8").removesuffix('""\n') + '"\u00e9t\u00e9"\n'
    assert read_file(data.encode(), FileFormat.PO).write(["\u00e9t\u00e9"]) == written.encode()
    in_ascii = data.replace("\u00e9", "e")
    written = in_ascii.removesuffix('""\n') + '"Sommer"\n'
    assert read_file(in_ascii.encode(), FileFormat.PO).write(["Sommer"]) == written.encode()


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[0] ""\n', r"line 4: a second msgstr\[0\] for the same"),
        ('msgid "a"\nmsgstr ""\nmsgstr ""\n', "line 3: a second msgstr for the same"),
        ('msgid "a"\nmsgstr[0] ""\nmsgstr[00000] ""\n', r"line 3: a second msgstr\[0\] for the same"),
        ('msgstr[0] ""\n', "line 1: a msgstr without its msgid"),
    ],
)  # fmt: skip
def test_a_repeated_msgstr_is_an_error(strings: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_file(strings.encode(), FileFormat.PO)


@pytest.mark.parametrize(
    ("encoding", "escaped"),
    [
        ("UTF-8", r"Gr\303\274n"),
        ("UTF-8", r"Gr\xC3\xbcn"),
        ("UTF-8", r"Gr\xc3\274\156"),
        ("CHARSET", r"Gr\303\274n"),
        ("ISO-8859-1", r"Gr\374n"),
        ("ISO-8859-1", r"G\162\xFCn"),
        ("GBK", r"Gr\250\271n"),
    ],
)
def test_an_escape_is_a_byte_in_the_declared_encoding(encoding: str, escaped: str) -> None:
    data = HEADER.format(encoding) + f'\nmsgid "{escaped}"\nmsgstr ""\n'
    assert [unit.text for unit in read_file(data.encode(), FileFormat.PO).units] == ["Gr\u00fcn"]


def test_escapes_of_bytes_end_at_other_escapes() -> None:
    data = r'msgid "a\\303\"\303\274\tx\501\z"' + '\nmsgstr ""\n'
    assert [unit.text for unit in read_file(data.encode(), FileFormat.PO).units] == ['a\\303"\u00fc\txAz']


@pytest.mark.parametrize(
    ("encoding", "strings", "text"),
    [
        ("UTF-8", r'"The caf\303" "\251 is open"', "The caf\u00e9 is open"),
        # What `msgcat --escape` writes: the second byte of a character may be a letter or an escaped backslash.
        ("Shift_JIS", r'"\203A\203\\\225\\\216\246"', "\u30a2\u30bd\u8868\u793a"),
        ("Big5", r'"\\303\245\\n"', "\\303\u529fn"),
        ("GBK", r'"\202\\\302\302\326\320\316\304"', "\u4fd3\u4fa3\u4e2d\u6587"),
        ("GBK", r'"\202" "\\\302" "\302"', "\u4fd3\u4fa3"),
        # An escape ends with its line.
        ("UTF-8", r'"a\11" "1\x9" "1b"', "a\t1\t1b"),
    ],
)
def test_a_character_may_have_bytes_in_several_escapes_and_lines(
    encoding: str, strings: str, text: str
) -> None:
    msgid = strings.replace('" "', '"\n"')
    data = f'{HEADER.format(encoding)}\nmsgid {msgid}\nmsgstr ""\n'
    assert [unit.text for unit in read_file(data.encode(), FileFormat.PO).units] == [text]


@pytest.mark.parametrize(
    ("encoding", "escaped"), [("UTF-8", r"\374"), ("UTF-8", r"\303n"), ("ASCII", r"\xFC")]
)
def test_escaped_bytes_that_the_encoding_lacks_are_an_error(encoding: str, escaped: str) -> None:
    data = HEADER.format(encoding) + f'\nmsgid "a"\n"{escaped}"\nmsgstr ""\n'
    with pytest.raises(FileError, match=f"line 4: the escaped bytes of this string are not {encoding}"):
        read_file(data.encode(), FileFormat.PO)


def test_an_entry_that_is_kept_may_have_any_escapes() -> None:
    kept = HEADER.format("UTF-8") + '\nmsgctxt "\\351"\nmsgid "caf\\351"\nmsgstr "Caf\\351"\n'
    file = read_file(f'{kept}\nmsgid "summer"\nmsgstr ""\n'.encode(), FileFormat.PO)
    assert [unit.text for unit in file.units] == ["summer"]
    assert file.write(["Sommer"]) == f'{kept}\nmsgid "summer"\nmsgstr "Sommer"\n'.encode()


def test_a_character_that_no_encoding_has_is_an_error_with_the_encoding_of_the_file() -> None:
    file = read_file('\ufeffmsgid "summer"\nmsgstr ""\n'.encode("utf-16-le"), FileFormat.PO)
    with pytest.raises(FileError, match="the file's encoding utf-16-le lacks"):
        file.write(["\ud800"])


@pytest.mark.parametrize(
    "part", ["msgid\n", '\nmsgid ""', '""\n', '\n"charset="', '"charset', " ", "\n", 'charset=a"\n"']
)
def test_a_header_is_searched_in_linear_time(part: str) -> None:
    def read(size: int) -> None:
        for start in ("", 'msgid ""\nmsgstr ""\n', 'msgid ""\nmsgstr "c'):
            with contextlib.suppress(FileError):
                read_file((start + part * (size // len(part))).encode(), FileFormat.PO)

    check_near_linear(read, 100_000)
