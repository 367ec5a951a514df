"""`transduce translate FILE -o OUT` over a real socket: formats, journal, request options of each kind of text."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import sys
from pathlib import Path
from typing import IO
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.files import SUFFIXES, FileFormat, Unit, UnitFormat, reading
from app.files.parts import cut
from app.files.reading import read_file
from tests.files.samples import SAMPLES, docx
from tests.files.test_formats import with_swapped_case as swap_case
from tests.transduce.conftest import Answer, ScriptedServer
from transduce.cli import main
from transduce.journal import Journal
from transduce.translate_file import FORMATS, pieces_of
from transduce.translate_lines import MAX_ITEM_CHARACTERS

LANGUAGES = ["--source", "en", "--target", "de"]


class SwapServer(ScriptedServer):
    """Answers each text with its case swapped; the tags stay unchanged."""

    def default_answer(self) -> Answer:
        translations = [{"text": swap_case(text)} for text in self.requests[-1]["text"]]
        return Answer(200, json.dumps({"translations": translations}).encode())


@pytest.fixture
def swapping(server: ScriptedServer) -> ScriptedServer:
    server.__class__ = SwapServer
    return server


def run(server: ScriptedServer, *arguments: object) -> int:
    return main(["translate", "--url", server.url, *LANGUAGES, *map(str, arguments)])


def test_the_command_has_every_file_format() -> None:
    assert set(FORMATS) == {str(each) for each in FileFormat}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_each_format(swapping: ScriptedServer, tmp_path: Path, name: str) -> None:
    data = SAMPLES[FileFormat(name)]
    path, out = tmp_path / f"file.{name}", tmp_path / "out"
    path.write_bytes(data)
    assert run(swapping, path, "-o", out) == 0
    file = read_file(data, FileFormat(name), target="de")
    assert out.read_bytes() == file.write([swap_case(unit.text) for unit in file.units])
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, "out"]
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_text_as_long_as_the_limit_is_translated(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "long.txt", tmp_path / "out"
    path.write_text("x" * MAX_ITEM_CHARACTERS)
    assert run(server, path, "-o", out) == 0
    assert out.read_text() == "X" * MAX_ITEM_CHARACTERS
    assert capsys.readouterr().err == ""


def test_a_refused_request_ends_the_command(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes(b"One.\n\nTwo.\n")
    server.answers = [Answer(422)]
    assert run(server, path, "--batch-size", 1) == 1
    assert len(server.requests) == 1


def test_the_request_options_of_each_kind_of_text(swapping: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes(b"One.\n\nTwo\nthree.\n\nFour *five*.\n\n<p>Six\n")
    assert run(swapping, path, "--beam-size", 2, "--source", "auto") == 0
    languages = {"source": "auto", "target": "de", "beam_size": 2}
    assert swapping.requests == [
        {"text": ["One."], **languages},
        {"text": ["Two\nthree."], "splitting": "no_newlines", **languages},
        {
            "text": ['Four <g id="1">five</g>.'],
            "format": "xml",
            "non_splitting_tags": ["g", "x"],
            "splitting_tags": ["br"],
            **languages,
        },
        {"text": ["Six"], "format": "html", **languages},
    ]


@pytest.mark.parametrize(
    ("name", "data", "has_no_text"),
    [
        ("page.html", b"<html translate=no><p>One.</p></html>", True),
        ("page.html", b"<p>12</p>", True),
        ("page.html", b"<p translate=no>One.<p>Two.", False),
        ("strings.json", b'{"one": 1}', True),
    ],
)
def test_a_file_without_text_is_written_with_a_warning(
    swapping: ScriptedServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    data: bytes,
    has_no_text: bool,
) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(data)
    assert run(swapping, path, "-o", out) == 0
    warning = "transduce translate: no text to translate was found\n"
    assert capsys.readouterr().err == (warning if has_no_text else "")
    assert (out.read_bytes() == data) == has_no_text
    assert bool(swapping.requests) != has_no_text


def test_stdin_and_stdout(
    swapping: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "Yes"}')))
    assert run(swapping, "--format", "json") == 0
    assert capsysbinary.readouterr().out == b'{"a": "yES"}'


def test_an_interrupted_run_is_resumed(
    swapping: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, journal = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "b.txt.journal"
    path.write_text("".join(f"line {number}\n" for number in "abcdef"))
    good = json.dumps({"translations": [{"text": "x"}, {"text": "y"}]}).encode()
    swapping.answers = [Answer(200, good), Answer(200, good), Answer(422)]
    arguments = (path, "-o", out, "--batch-size", 2)
    assert run(swapping, *arguments) == 1
    assert "run the same command again to resume" in capsys.readouterr().err
    assert not out.exists()
    assert len(journal.read_text().splitlines()) == 5
    with journal.open("a") as file:
        file.write('{"n": 4, "te')
    swapping.requests.clear()
    assert run(swapping, *arguments) == 0
    assert [request["text"] for request in swapping.requests] == [["line e", "line f"]]
    assert out.read_text() == "x\ny\nx\ny\nLINE E\nLINE F\n"
    assert not journal.exists()


@pytest.mark.parametrize("change", ["file", "options", "version", "texts"])
def test_a_journal_with_another_first_line_is_ignored(
    swapping: ScriptedServer, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, journal = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "b.txt.journal"
    path.write_text("one\ntwo\n")
    swapping.answers = [Answer(200, b'{"translations": [{"text": "wrong"}]}'), Answer(422)]
    with monkeypatch.context() as patched:
        if change == "texts":  # as if another version divided the file differently
            patched.setattr(
                reading, "read_file", lambda _, form, **_languages: read_file(b"zero\none\ntwo\n", form)
            )
        assert run(swapping, path, "-o", out, "--batch-size", 1) == 1
    options = ["--beam-size", "2"] if change == "options" else []
    if change == "file":
        path.write_text("One\ntwo\n")
    elif change == "version":
        journal.write_text('{"file": "", "journal": 0}\n' + journal.read_text())
    assert run(swapping, path, "-o", out, *options) == 0
    assert "wrong" not in out.read_text()
    assert out.read_text().casefold() == path.read_text().casefold()


@pytest.mark.parametrize(
    ("models", "changed", "chosen", "is_resumed"),
    [
        (["first 1 en>de"], ["first 2 en>de"], [], False),
        (["first 1 en>de"], ["other 1 en>de"], [], False),
        (["first 1 en>de", "second 1 en>de"], ["first 1 en>de", "second 2 en>de"], [], True),
        (["first 1 en>de", "second 1 en>de"], ["first 1 en>de", "second 2 en>de"], ["second"], False),
        (["first 1 en>de", "second 1 en>de"], ["first 2 en>de", "second 1 en>de"], ["second"], True),
        (["first 1 en>fr", "second 1 fr>de"], ["first 1 en>fr", "second 2 fr>de"], [], False),
    ],
)
def test_a_journal_is_resumed_only_if_the_translating_models_are_the_same(
    swapping: ScriptedServer,
    tmp_path: Path,
    models: list[str],
    changed: list[str],
    chosen: list[str],
    is_resumed: bool,
) -> None:
    """models, changed: the models served in the first and in the second run, each as name, version and pair.

    chosen: the values of --model.
    """
    path, out = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("one\ntwo\n")
    arguments = [path, "-o", out, *(f"--model={name}" for name in chosen)]
    swapping.models = [(name, version, pair) for name, version, pair in map(str.split, models)]
    swapping.answers = [Answer(200, b'{"translations": [{"text": "kept"}]}'), Answer(422)]
    assert run(swapping, *arguments, "--batch-size", 1) == 1
    swapping.models = [(name, version, pair) for name, version, pair in map(str.split, changed)]
    assert run(swapping, *arguments) == 0
    assert out.read_text() == ("kept\nTWO\n" if is_resumed else "ONE\nTWO\n")


def test_a_file_of_the_user_in_the_place_of_the_journal_is_kept(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, diary = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "b.txt.journal"
    path.write_text("one\n")
    diary.write_text("my diary\n")
    assert run(server, path, "-o", out) == 1
    assert f"{diary} is not a journal of `transduce translate`; move it away\n" in capsys.readouterr().err
    assert diary.read_text() == "my diary\n"
    assert server.requests == []


def test_a_malformed_file_is_rejected(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "b"
    path.write_text('{"a": "b"\n}}')
    assert run(server, path, "-o", out) == 1
    expected = "transduce translate: the file cannot be read as json: line 2, column 2: "
    assert capsys.readouterr().err.startswith(expected)
    assert run(server, path, "--json") == 2
    assert "--json needs plain text" in capsys.readouterr().err
    assert server.requests == []
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_translation_without_its_tags_writes_no_file(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.md", tmp_path / "b.md"
    path.write_bytes(b"Some *words*.\n")
    server.answers = [Answer(200, b'{"translations": [{"text": "no tags"}]}')]
    assert run(server, path, "-o", out) == 1
    assert "cannot be inserted into the file: the translation lacks a tag" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["a.md"], (
        "with the journal kept, the next run would reuse the unusable translation"
    )


def test_long_texts_are_cut_outside_elements(
    swapping: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "Short words **bold words here** and more. " * 400
    path, out = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(f"{words}\n\n*{'in it ' * 1000}x*\n")
    assert run(swapping, path, "-o", out) == 0
    texts = [text for request in swapping.requests for text in request["text"]]
    assert len(texts) >= 4
    assert max(map(len, texts)) <= MAX_ITEM_CHARACTERS
    assert all(text.count("<g ") == text.count("</g>") for text in texts)
    assert out.read_text().startswith(words.swapcase().rstrip())
    assert "are left untranslated" in capsys.readouterr().err
    assert f"*{'in it ' * 1000}x*" in out.read_text()


@given(
    st.lists(st.sampled_from(["word. ", "<g id='1'>", "</g>", "<x id='1'/>", "x" * 3000, " "]), max_size=30)
)
def test_pieces_of_markup_join_to_the_markup(parts: list[str]) -> None:
    unit = Unit("".join(parts), UnitFormat.XML)
    pieces = list(pieces_of(unit))
    assert "".join(pieces) == unit.text
    # A piece above the limit cannot be cut anywhere.
    too_long = [piece for piece in pieces if len(piece) > MAX_ITEM_CHARACTERS]
    assert all(list(cut(piece, 1, is_text=False)) == [piece] for piece in too_long)


def test_the_translated_docx_can_be_read_again(swapping: ScriptedServer, tmp_path: Path) -> None:
    path, out = tmp_path / "a.docx", tmp_path / "b.docx"
    path.write_bytes(docx())
    assert run(swapping, path, "-o", out) == 0
    units = read_file(out.read_bytes(), FileFormat.DOCX).units
    assert units[0].text == "a TITLE HERE"


def test_an_incomplete_journal_line_is_overwritten(tmp_path: Path) -> None:
    with Journal(tmp_path / "out", b"data", {}) as journal:
        journal.add({0: "x" * 500})
    journal.path.write_bytes(journal.path.read_bytes()[:-5])
    with Journal(tmp_path / "out", b"data", {}) as again:
        assert again.done == {}
        again.add({1: "y"})
    with Journal(tmp_path / "out", b"data", {}) as third:
        assert third.done == {1: "y"}
        assert len(third.path.read_bytes().splitlines()) == 2
        assert third.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("options", [(), ("--beam-size", 2)], ids=["same options", "other options"])
def test_a_second_run_with_the_same_output_is_refused(
    swapping: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[object, ...]
) -> None:
    path, out = tmp_path / "a.md", tmp_path / "b.md"
    path.write_bytes(b"One.\n")
    with Journal(out, b"data", {}) as journal:
        journal.add({0: "x"})
        content = journal.path.read_bytes()
        assert run(swapping, path, "-o", out, *options) == 1
        assert f"another run is writing {journal.path}" in capsys.readouterr().err
        assert journal.path.read_bytes() == content
    assert swapping.requests == []
    assert run(swapping, path, "-o", out, *options) == 0
    assert out.read_bytes() == b"oNE.\n"
    assert not journal.path.exists()


def test_a_journal_that_the_other_run_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, is_first = fcntl.flock, True
    journal = Journal(tmp_path / "out", b"data", {})

    def flock_late(file: IO[bytes], operation: int) -> None:
        """Before the first lock, remove the journal that this run has opened, as the other run does at its end."""
        nonlocal is_first
        if is_first:
            journal.remove()
        is_first = False
        flock(file, operation)

    monkeypatch.setattr("fcntl.flock", flock_late)
    with journal:
        journal.add({0: "x"})
    with Journal(tmp_path / "out", b"data", {}) as again:
        assert again.done == {0: "x"}


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK])
def test_a_journal_works_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, "no locks")))
    with Journal(tmp_path / "out", b"data", {}) as journal:
        journal.add({0: "x"})
    with Journal(tmp_path / "out", b"data", {}) as again:
        assert again.done == {0: "x"}


@given(st.dictionaries(st.integers(0, 99), st.text(max_size=20)), st.integers(0, 400))
def test_a_journal_truncated_anywhere_is_read(
    tmp_path_factory: pytest.TempPathFactory, done: dict[int, str], num_lost_bytes: int
) -> None:
    output = tmp_path_factory.mktemp("journal") / "out"
    with Journal(output, b"data", {"a": 1}) as journal:
        journal.add(done)
    content = journal.path.read_bytes()
    left = content[: max(0, len(content) - num_lost_bytes)]
    journal.path.write_bytes(left)
    num_whole = max(0, left.count(b"\n") - 1)  # the first line is no entry
    expected = dict(list(done.items())[:num_whole])
    with Journal(output, b"data", {"a": 1}) as again:
        assert again.done == expected
        again.add({100: "x"})
    with Journal(output, b"data", {"a": 1}) as third:
        assert third.done == {**expected, 100: "x"}


def test_an_unsupported_suffix_is_rejected_with_the_supported_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.xlsx"
    path.write_bytes(b"PK\x03\x04")
    assert main(["translate", str(path), "--source", "en", "--target", "de"]) == 2
    errors = capsys.readouterr().err
    expected = f"files with the suffix .xlsx cannot be translated; supported are {', '.join(SUFFIXES)}"
    assert expected in errors
    assert "--format" in errors
