"""The target language that an XLIFF file names: it is set, kept, replaced, or a reason to refuse the file."""

from __future__ import annotations

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file
from tests.files.xliff_files import V1, V2, reversed_file

OPEN = '<trans-unit id="1"><source>The house</source></trans-unit>'
DONE = '<trans-unit id="2"><source>The tree</source><target>x</target></trans-unit>'
OPEN_2 = '<unit id="1"><segment><source>The house</source></segment></unit>'
DONE_2 = '<unit id="2"><segment><source>The tree</source><target>x</target></segment></unit>'


def with_language(data: str, value: str) -> str:
    """A file that names a target language, which its template does not name."""
    return data.replace('source-language="en"', f'source-language="en" target-language="{value}"').replace(
        'srcLang="en"', f'srcLang="en" trgLang="{value}"'
    )


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("data", [V1.format(OPEN), V2.format(OPEN_2)], ids=["1.2", "2.0"])
def test_a_missing_language_is_set(data: str, done: bool) -> None:
    if done:
        data = data.replace(OPEN, OPEN + DONE).replace(OPEN_2, OPEN_2 + DONE_2)
    written = reversed_file(data, "de")
    assert written.count('target-language="de"') + written.count('trgLang="de"') == 1
    assert reversed_file(with_language(data, " "), "de").count('="de"') == 1
    assert '="de"' not in reversed_file(data)


@pytest.mark.parametrize("data", [V1.format(OPEN + DONE), V2.format(OPEN_2 + DONE_2)], ids=["1.2", "2.0"])
@pytest.mark.parametrize("language", ["de", "de-AT", "DE_at"])
def test_a_language_of_another_region_stays(data: str, language: str) -> None:
    for target in ("de", "de-DE", "DE"):
        assert f'="{language}"' in reversed_file(with_language(data, language), target)


@pytest.mark.parametrize("data", [V1.format(OPEN), V2.format(OPEN_2)], ids=["1.2", "2.0"])
def test_another_language_without_a_translation_is_replaced(data: str) -> None:
    written = reversed_file(with_language(data, "en"), "zh_Hans")
    assert written.count('target-language="zh-Hans"') + written.count('trgLang="zh-Hans"') == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (V1.format(OPEN + DONE), 'line 3: the file has translations into the target-language "fr"'),
        (V2.format(DONE_2 + OPEN_2), 'line 2: the file has translations into the trgLang "fr"'),
    ],
    ids=["1.2", "2.0"],
)
def test_translations_into_two_languages_are_refused(data: str, message: str) -> None:
    data = with_language(data, "fr")
    with pytest.raises(FileError) as raised:
        read_file(data.encode(), FileFormat.XLIFF, target="de")
    assert message in str(raised.value)
    assert 'it cannot be translated into "de"' in str(raised.value)
    assert '="fr"' in reversed_file(data, "fr-CA")


def test_a_finished_file_in_another_language_is_read() -> None:
    data = with_language(V1.format(DONE), "fr").encode()
    assert read_file(data, FileFormat.XLIFF, target="de").write([]) == data
