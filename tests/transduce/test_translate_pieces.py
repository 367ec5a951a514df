"""Texts that are sent in parts: too many sentences for a request, and the prefix of the first part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.files.test_formats import with_swapped_case
from tests.transduce.conftest import Answer, ScriptedServer
from transduce.cli import main
from transduce.translate_pieces import cut_in_two

MAX_SENTENCES = 4
LONG = "".join(f"No {number}! " for number in range(30))


class SentenceServer(ScriptedServer):
    """Swaps the case of each text, but refuses a request with more than MAX_SENTENCES sentences.

    accepted: the texts of the other requests, in order.
    """

    accepted: list[str]

    def default_answer(self) -> Answer:
        texts = self.requests[-1]["text"]
        if sum(text.count("!") for text in texts) > MAX_SENTENCES:
            message = "too many sentences"
            return Answer(
                413, json.dumps({"error": {"code": "payload_too_large", "message": message}}).encode()
            )
        self.accepted += texts
        translations = [{"text": with_swapped_case(text)} for text in texts]
        return Answer(200, json.dumps({"translations": translations}).encode())


@pytest.fixture
def limited(server: ScriptedServer) -> SentenceServer:
    server.__class__ = SentenceServer
    assert isinstance(server, SentenceServer)
    server.accepted = []
    return server


def run(server: ScriptedServer, path: Path, *options: str) -> int:
    return main(["translate", "--url", server.url, "--source", "en", "--target", "de", *options, str(path)])


def prefixes(server: ScriptedServer) -> list[str]:
    return [prefix for request in server.requests for prefix in request["target_prefix"]]


def test_a_line_with_too_many_sentences_is_cut(
    limited: SentenceServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"Hello!\n{LONG}\nBye!\n")
    assert run(limited, path) == 0
    assert capsysbinary.readouterr().out.decode() == f"hELLO!\n{LONG.swapcase()}\nbYE!\n"
    assert "".join(limited.accepted) == f"Hello!{LONG.strip()}Bye!"
    assert all(part.strip().endswith("!") for part in limited.accepted), "cut inside a sentence"
    # Parts are made by halving, so each part of LONG has at least half of MAX_SENTENCES sentences.
    assert len(limited.accepted) <= 2 + 30 / (MAX_SENTENCES / 2), "cut smaller than necessary"


def test_the_parts_of_a_line_share_one_json_array(
    limited: SentenceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"Hello!\n{'Yes! ' * 7}\n")
    assert run(limited, path, "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["text"] for each in first] == ["hELLO!"]
    assert [each["text"] for each in second] == ["yES! yES! yES! ", "yES! yES! yES! yES!"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", f"Hello!\n{LONG}\n"),
        ("a.json", json.dumps({"a": LONG, "b": "Bye!"})),
        (
            "a.po",
            f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{LONG}"\nmsgstr ""\n',
        ),
        ("a.md", f"Hello!\n\n{LONG}*Yes!* {LONG}\n"),
    ],
)
def test_a_text_of_a_file_with_too_many_sentences_is_cut(
    limited: SentenceServer, tmp_path: Path, name: str, content: str
) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_text(content)
    assert run(limited, path, "-o", str(out)) == 0
    assert out.read_text().count("nO ") == content.count("No ")
    assert all(text.count("<g ") == text.count("</g>") for text in limited.accepted)


def test_a_text_that_is_refused_at_any_size_ends_the_command(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("word " * 900)
    server.answers = [Answer(413, b'{"error": "too many terms"}')] * 100
    assert run(server, path) == 1
    assert capsys.readouterr().err == "transduce translate: the server answered 413: too many terms\n"
    assert len(server.requests) <= 14


def test_a_text_that_is_too_slow_is_not_cut(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One. Two.\n")
    server.answers = [Answer(504)] * 2
    assert run(server, path) == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.json"])
@pytest.mark.parametrize("has_output", [False, True])
def test_only_the_first_part_has_the_prefix(
    server: ScriptedServer, tmp_path: Path, name: str, has_output: bool
) -> None:
    long, path = "Some words. " * 1_000, tmp_path / name
    contents = {"a.txt": f"One.\n{long}\n", "a.md": f"One.\n\n{long}\n", "a.json": json.dumps(["One.", long])}
    path.write_text(contents[name])
    options = ["-o", str(tmp_path / "out")] if has_output else []
    assert run(server, path, "--target-prefix", "Heute", *options) == 0
    assert prefixes(server) == ["Heute", "Heute", "", ""]


def test_only_the_first_part_of_a_refused_text_has_the_prefix(
    limited: SentenceServer, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"{LONG}\n")
    assert run(limited, path, "--target-prefix", "Heute") == 0
    texts = [text for request in limited.requests for text in request["text"]]
    assert prefixes(limited) == ["Heute" if text.startswith("No 0!") else "" for text in texts]
    assert {*prefixes(limited)} == {"Heute", ""}


@given(st.text(alphabet="ab .!?\u3002", min_size=1, max_size=60), st.booleans())
def test_two_halves_join_to_the_text(text: str, is_text: bool) -> None:
    halves = cut_in_two(text, is_text=is_text)
    assert "".join(halves) == text
    assert all(halves)
    if is_text:
        assert len(halves) == min(len(text), 2)
        assert len(halves[0]) <= (len(text) + 1) // 2


def test_markup_in_one_element_is_not_cut() -> None:
    text = "<g id='1'>One. Two. Three.</g>"
    assert cut_in_two(text, is_text=False) == (text,)
