"""A catalogue may have white space between any two of its keywords and strings, as in gettext."""

from __future__ import annotations

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file


@pytest.mark.parametrize(
    "message",
    [
        'msgid "The split" " string"\nmsgstr {}\n',
        'msgid "The split"" string"\nmsgstr {}\n',
        'msgid "The"\n" split" " string"\nmsgstr {}\n',
        'msgid\n"The split string"\nmsgstr\n{}\n',
        'msgid"The split string"msgstr{}',
        'msgid "The split"\n\n  " string"\n\nmsgstr {}\n',
        'msgctxt "a" msgid "The split string" msgstr {}\r\n',
        'msgid "a"\nmsgstr "b"\n\ndomain "c" "d"\nmsgid "The split string"\nmsgstr {}\n',
        'domain "c"\nmsgid "The split string" # a note\nmsgstr {}# another "note"\n',
    ],
)
@pytest.mark.parametrize("empty", ['""', '"" ""', '""\n  """"'])
def test_the_translation_replaces_the_empty_strings(message: str, empty: str) -> None:
    file = read_file(message.format(empty).encode(), FileFormat.PO)
    assert [unit.text for unit in file.units] == ["The split string"]
    assert file.write(["Der Text"]).decode() == message.format('"Der Text"')


def test_the_number_of_a_form_may_have_white_space() -> None:
    data = 'msgid "a day"\nmsgid_plural "days"\nmsgstr [ 0 ] "" msgstr[ 1 ]""\n'
    written = read_file(data.encode(), FileFormat.PO).write(["ein Tag", "Tage"]).decode()
    assert written == 'msgid "a day"\nmsgid_plural "days"\nmsgstr [ 0 ] "ein Tag" msgstr[ 1 ]"Tage"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a"\nmsgstr "b" c\n', "line 2: expected a keyword and a string in quotes"),
        ('msgid "a"\n\nmsgstr\n', "line 3: expected a keyword and a string in quotes"),
        ('msgid "a\nb"\nmsgstr "c"\n', "line 1: expected a keyword and a string in quotes"),
        ('msgid[0] "a"\nmsgstr "c"\n', "line 1: expected a keyword and a string in quotes"),
        ('msgid "a"\n# a note\n"b"\nmsgstr "c"\n', "line 3: a string without a keyword"),
        ('msgid "a"\ndomain "x"\nmsgid "b"\nmsgstr "c"\n', "line 1: a msgid without its msgstr"),
        ('msgid "a"\nmsgstr "b"\ndomain "x"\nmsgstr "c"\n', "line 4: a msgstr without its msgid"),
    ],
)
def test_a_syntax_error_has_its_line(text: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_file(text.encode(), FileFormat.PO)
