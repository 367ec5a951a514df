"""Files over HTTP: the routes at the root and at /v2 on a server process, and the unmodified client of /v2."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest

from app.files import SUFFIXES, FileFormat
from app.files.reading import read_file
from tests.api.dialects.conftest import KEY
from tests.api.processes import wait_until
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess
from tests.files.samples import SAMPLES, docx

OTHER_KEY = "another-key"
SETTINGS: dict[str, object] = {
    "max_file_bytes": 100_000,
    "max_files": 4,
    "max_kept_file_bytes": 100_000,
    "file_ttl_s": 600,
}
# It has a translation into French, and a text without one.
TRANSLATED_XLIFF = (
    b'<xliff version="1.2"><file target-language="fr"><body><trans-unit id="1"><source>a</source><target>b</target>'
    b'</trans-unit><trans-unit id="2"><source>a</source></trans-unit></body></file></xliff>'
)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture(scope="module")
def file_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """The echo server, which accepts files."""
    with ServerProcess(echo_command, SETTINGS) as process:
        yield process.ready()


@pytest.fixture
def http(file_server: ServerProcess) -> Iterator[httpx.Client]:
    with file_server.client() as client:
        yield client


@pytest.fixture(scope="module")
def guarded(echo_command: list[str]) -> Iterator[ServerProcess]:
    """The echo server, which accepts files with one of two API keys."""
    keys = f"{digest(KEY)},{digest(OTHER_KEY)}"
    with ServerProcess(echo_command, {**SETTINGS, "max_files": 50, "api_keys": keys}) as process:
        yield process.ready()


def post(http: httpx.Client, name: str, content: bytes, **fields: str | list[str]) -> httpx.Response:
    form = {"source": "en", "target": "de", **fields}
    return http.post("/translate_file", files={"file": (name, content)}, data=form)


@pytest.mark.parametrize("file_format", FileFormat)
def test_a_file_at_the_root(guarded: ServerProcess, file_format: FileFormat) -> None:
    data = SAMPLES[file_format]
    with guarded.client(headers={"authorization": f"Bearer {OTHER_KEY}"}) as http:
        answer = post(http, f"a file.{file_format}", data)
        assert answer.status_code == 200, answer.text
        url = answer.json()["translatedFileUrl"]
        assert url.startswith(f"{guarded.url}/download_file/")
        assert url.endswith(f".{file_format}")
        found = http.get(url)
    assert found.status_code == 200, found.text
    assert found.headers["content-disposition"] == f'attachment; filename="translated.{file_format}"'
    assert found.headers["content-type"] == "application/octet-stream"
    before, after = read_file(data, file_format), read_file(found.content, file_format)
    if file_format is FileFormat.XLIFF:  # an entry with a translation has no text to translate
        assert len(after.units) < len(before.units)
    else:
        assert len(after.units) == len(before.units)


def test_a_file_that_the_model_repeats_is_the_same_file(http: httpx.Client) -> None:
    words = b"Anna sees the river today.\r\n\r\n  Anna sees the river today.\r\n"
    found = http.get(post(http, "a.txt", words).json()["translatedFileUrl"])
    assert found.content == words


def test_the_settings_list_the_file_formats(http: httpx.Client, locked: ServerProcess) -> None:
    settings = http.get("/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert settings["supportedFilesFormat"] == list(SUFFIXES)
    with locked.client() as without:
        assert without.get("/frontend/settings").json()["filesTranslation"] is False
        headers = {"authorization": f"Bearer {KEY}"}
        assert (
            without.post("/v2/document", files={"file": ("a.txt", b"a")}, headers=headers).status_code == 404
        )
        assert without.post("/translate_file", files={"file": ("a.txt", b"a")}).json() == {
            "error": "this server has no such route"
        }


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "message"),
    [
        ("a.exe", b"a", {}, 400, "this format is not supported; supported are .txt, .srt, .vtt, .html, "),
        ("a.docx", b"", {}, 400, "file: the file is empty"),
        ("a.json", b"{", {}, 400, "file: line 1, column 2"),
        ("a.xlf", b"<xliff version='3.0'/>", {}, 400, "file: line 1: XLIFF version 3.0 is not supported"),
        ("a.xlf", TRANSLATED_XLIFF, {}, 400, 'file: line 1: the file has translations into the target-language "fr"'),
        ("a.txt", b"\xff", {}, 400, "file: line 1 is not UTF-8"),
        ("a.txt", b"a", {"target": ""}, 400, "missing target parameter"),
        ("a.txt", b"a", {"source": ["en", "de"]}, 400, "source must be a string"),
        ("a.txt", b"a", {"source": "zz"}, 400, "zz is not supported"),
        ("a.txt", b"a", {"target": "auto"}, 400, "auto is not supported"),
        ("a.txt", b"yes", {"source": "de", "target": "en"}, 400, "not available"),
        ("a.txt", b"x" * 200_000, {}, 413, "larger than 100000 bytes"),
        ("a.docx", docx("<!DOCTYPE a><a/>"), {}, 400, "document type"),
    ],
)  # fmt: skip
def test_what_is_refused(
    guarded: ServerProcess, name: str, content: bytes, fields: dict[str, Any], status: int, message: str
) -> None:
    with guarded.client(headers={"authorization": f"Bearer {OTHER_KEY}"}) as http:
        answer = post(http, name, content, **fields)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]


def test_bodies_that_are_no_upload(guarded: ServerProcess) -> None:
    with guarded.client(headers={"authorization": f"Bearer {OTHER_KEY}"}) as http:
        for path in ("/translate_file", "/v2/document"):
            assert http.post(path, json={"file": "a"}).status_code == 415
            form = {"content-type": "multipart/form-data; boundary=x"}
            refused = http.post(path, content=b"nothing of it", headers=form)
            assert refused.status_code == 400
            assert "the body is not a form of one file" in refused.text
            assert http.post(path, files={"other": ("a.txt", b"a")}).status_code == 400
            assert http.post(path, data={"file": "a"}, files={"x": ("", b"")}).status_code == 400

        def chunks() -> Iterator[bytes]:
            yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
            for _ in range(300):
                yield b"a" * 1000

        assert http.post("/translate_file", content=chunks(), headers=form).status_code == 413


def post_with_field(
    http: httpx.Client, path: str, name: str, value: bytes, headers: dict[str, str]
) -> httpx.Response:
    """Upload a file with a further field. The boundary is that of the content type in `headers`."""
    fields = {"source": "en", "target": "de", "source_lang": "en", "target_lang": "de", name: value}
    return http.post(path, data=fields, files={"file": ("a.txt", b"a")}, headers=headers)


@pytest.mark.parametrize(("path", "name"), [("/translate_file", "api_key"), ("/v2/document", "glossary_id")])
@pytest.mark.parametrize(
    ("charset", "value"),
    [("utf-7", b"+2AA-"), ("unicode_escape", rb"\ud800"), ("undefined", b"a"), ("punycode", b"9" * 9999)],
)
def test_charsets_that_are_refused(
    guarded: ServerProcess, path: str, name: str, charset: str, value: bytes
) -> None:
    """The first two decode to a lone surrogate, the third fails, and the fourth takes quadratic time."""
    headers = {
        "authorization": f"Bearer {OTHER_KEY}",
        "content-type": f"multipart/form-data; boundary=x; charset={charset}",
    }
    with guarded.client() as http:
        answer = post_with_field(http, path, name, value, headers)
    assert answer.status_code == 415, answer.text
    assert "the charset must be one of utf-8, us-ascii, iso-8859-1" in answer.text


@pytest.mark.parametrize("charset", ["UTF-8", '"utf-8"', "ISO-8859-1", "US-ASCII"])
def test_charsets_that_clients_declare(guarded: ServerProcess, charset: str) -> None:
    headers = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    with guarded.client() as http:
        answer = post_with_field(http, "/translate_file", "api_key", OTHER_KEY.encode(), headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
@pytest.mark.parametrize(
    ("names", "has_known_suffix"),
    [
        ("filename=\"=?utf-8?B?YsOkci50eHQ=?=\"; filename*=utf-8''b%C3%A4r.txt", True),  # .NET's client
        ("filename*=utf-8''b%C3%A4r.txt", True),
        ("filename*=ISO-8859-1'de'b%E4r.txt; filename=a.exe", True),
        ("filename=a.txt; filename*=utf-8''", True),  # the empty name is none
        (f"filename={'a' * 300}.txt", True),  # the end of a long name is kept
        ('filename="=?UTF-8?B?YsOkci50eHQ=?="', True),
        ('filename="=?iso-8859-1?Q?b=E4r?= =?iso-8859-1?Q?.txt?="', True),
        ("filename=a.txt; filename*=utf-8''b%C3%A4r.exe", False),
        ("filename=a.exe; filename*=utf-8''%FF.txt", False),
        ("filename=a.exe; filename*=utf-7''a.txt", False),
        ("filename=\"a; filename*=utf-8''a.txt; .exe\"", False),
        ('filename="=?utf-7?Q?a.txt?="', False),
        ('filename="=?utf-8?B?a?="', False),
    ],
)
def test_names_that_are_not_ascii(
    guarded: ServerProcess, path: str, names: str, has_known_suffix: bool
) -> None:
    fields = {"source": "en", "target": "de", "source_lang": "en", "target_lang": "de"}
    parts = [f"name={name}\r\n\r\n{value}" for name, value in fields.items()]
    parts.append(f"name=file; {names}\r\n\r\na")
    body = "".join(f"--x\r\nContent-Disposition: form-data; {part}\r\n" for part in parts) + "--x--\r\n"
    headers = {
        "authorization": f"Bearer {OTHER_KEY}",
        "content-type": "multipart/form-data; boundary=x",
    }
    with guarded.client() as http:
        answer = http.post(path, content=body.encode(), headers=headers)
    if has_known_suffix:
        assert answer.status_code == 200, answer.text
    else:
        assert answer.status_code == 400
        assert "this format is not supported" in answer.text


def test_a_key_in_the_form_counts_before_a_header(guarded: ServerProcess) -> None:
    """The header may be the login of a proxy, or a proxy's own token."""
    with guarded.client() as http:
        for header in ("Basic dXNlcjpwYXNz", "Bearer a-token-of-the-proxy"):
            http.headers["authorization"] = header
            answer = post(http, "a.txt", b"a", api_key=OTHER_KEY)
            assert answer.status_code == 200, answer.text
            form = {"q": "Anna.", "source": "en", "target": "de", "api_key": OTHER_KEY}
            assert http.post("/translate", data=form).status_code == 200
            assert http.post("/detect", data=form).status_code == 200
            assert http.get("/languages").status_code == 200
        assert post(http, "a.txt", b"a").status_code == 403
        assert post(http, "a.txt", b"a", api_key="").status_code == 403
        http.headers["authorization"] = f"Bearer {OTHER_KEY}"
        assert post(http, "a.txt", b"a", api_key="").status_code == 200


def test_a_file_is_served_only_with_the_key_of_its_upload(guarded: ServerProcess) -> None:
    mine, theirs = {"authorization": f"Bearer {KEY}"}, {"authorization": f"Bearer {OTHER_KEY}"}
    with guarded.client() as http:
        assert post(http, "a.txt", b"a").status_code == 400
        assert post(http, "a.txt", b"a", api_key="wrong").status_code == 403
        url = post(http, "a.txt", b"a", api_key=KEY).json()["translatedFileUrl"]
        assert http.get(url).status_code == 400
        assert http.get(url, headers=theirs).status_code == 404
        assert http.get(url[:-10] + "0" * 6 + ".txt", headers=mine).status_code == 404
        assert http.get(url, headers=mine).content == b"a"
        languages = {"source_lang": "EN", "target_lang": "DE"}
        handle = http.post(
            "/v2/document", files={"file": ("a.txt", b"a")}, data=languages, headers=mine
        ).json()
        path = f"/v2/document/{handle['document_id']}"
        key = {"document_key": handle["document_key"]}
        assert http.post(path, json=key, headers=mine).status_code == 200
        for each in (path, f"{path}/result"):
            missing = http.post(each, json={}, headers=mine)
            assert (missing.status_code, missing.json()["message"]) == (400, "document_key is required")
        for wrong, headers in ((key, theirs), ({"document_key": "0"}, mine)):
            assert http.post(path, json=wrong, headers=headers).status_code == 404
            assert http.post(f"{path}/result", json=wrong, headers=headers).status_code == 404


def test_the_number_and_the_bytes_of_files_are_limited(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, SETTINGS) as process, process.ready().client() as http:
        numbers = b"1 " * 20_000
        assert [post(http, "a.txt", numbers).status_code for _ in range(3)] == [200, 200, 429], (
            "the third file exceeds max_kept_file_bytes"
        )
        assert [post(http, "a.txt", b"a").status_code for _ in range(2)] == [200, 200], (
            "the refused file does not count towards max_files"
        )
        refused = post(http, "a.txt", b"a")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_an_expired_document_frees_its_space(
    echo_command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    settings = {**SETTINGS, "file_ttl_s": 0.5, "max_files": 1}
    with ServerProcess(echo_command, settings) as process, process.ready().client() as http:
        url = post(http, "a.txt", b"a").json()["translatedFileUrl"]
        wait_until(lambda: not list(tmp_path.glob("transduce-files-*/*")))
        assert http.get(url).status_code == 404
        assert post(http, "a.txt", b"a").status_code == 200


def test_no_file_is_left_after_the_server_ends(
    echo_command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ServerProcess(echo_command, SETTINGS) as process, process.ready().client() as http:
        assert post(http, "a.txt", b"a").status_code == 200
        (folder,) = tmp_path.glob("transduce-files-*")
        assert folder.stat().st_mode & 0o077 == 0
        assert len(list(folder.iterdir())) == 1
        process.signal()
        process.ended()
    assert list(tmp_path.glob("transduce-files-*")) == []


class FastClock:
    """The clock of the DeepL client. The client polls a document every 0.05 s instead of 5 s."""

    time = staticmethod(time.time)

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds / 100)


@pytest.fixture
def client(guarded: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[deepl.DeepLClient]:
    monkeypatch.setattr(deepl.translator, "time", FastClock)
    client = deepl.DeepLClient(OTHER_KEY, server_url=guarded.url, send_platform_info=False)
    yield client
    client.close()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("file_format", [FileFormat.DOCX, FileFormat.PPTX, FileFormat.ODT, FileFormat.HTML])
def test_the_unmodified_client_translates_a_document(
    client: deepl.DeepLClient, tmp_path: Path, file_format: FileFormat
) -> None:
    path, out = tmp_path / f"a.{file_format}", tmp_path / "out"
    path.write_bytes(SAMPLES[file_format])
    status = client.translate_document_from_filepath(path, out, target_lang="DE", source_lang="EN")
    assert status.done
    units = read_file(SAMPLES[file_format], file_format).units
    assert status.billed_characters == sum(len(unit.text) for unit in units)
    assert len(read_file(out.read_bytes(), file_format).units) == len(units)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("a.exe", "DE", "format is not supported"),
        ("a.json", "DE", "line 1, column 2"),
        ("a.txt", "FR", "target_lang is not supported"),
    ],
)
def test_the_unmodified_client_raises_errors(
    client: deepl.DeepLClient, tmp_path: Path, name: str, target: str, message: str
) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(b"{")
    with pytest.raises(deepl.DeepLException, match=message):
        client.translate_document_from_filepath(path, out, target_lang=target)


def test_one_source_language_is_detected_for_a_whole_file(client: deepl.DeepLClient, tmp_path: Path) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_bytes(b"Das ist ein langer deutscher Satz, der schon da ist.\n")
    client.translate_document_from_filepath(path, out, target_lang="DE")
    assert out.read_bytes() == path.read_bytes()


def test_a_failed_document_has_its_reason(echo_command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"Anna sees the river today. " * 30)
    settings = {**SETTINGS, "file_timeout_s": 3}
    with ServerProcess([*echo_command, "step_s=1"], settings) as process, process.ready().client() as http:
        languages = {"source_lang": "EN", "target_lang": "DE"}
        handle = http.post(
            "/v2/document", files={"file": ("a.txt", path.read_bytes())}, data=languages
        ).json()
        key = {"document_key": handle["document_key"]}
        status = f"/v2/document/{handle['document_id']}"
        until = time.monotonic() + HANG_TIMEOUT_S
        while (state := http.post(status, json=key).json())["status"] != "error":
            assert state["status"] in {"queued", "translating"}
            result = http.post(f"{status}/result", json=key)
            assert result.status_code == 503 or http.post(status, json=key).json()["status"] == "error"
            assert time.monotonic() < until
            time.sleep(0.1)
        assert state["error_message"]
        assert http.post(f"{status}/result", json=key).status_code == 404


def test_the_page_recognises_refused_languages(http: httpx.Client) -> None:
    """The advice on the page depends on the wording of the messages from the server."""
    script = (ROOT / "app" / "web" / "files.js").read_text("utf-8")
    (expression,) = re.findall(r"if \(/(.+)/\.test\(error\.message\)\)", script)
    refused = [{"source": "zz"}, {"source": "x" * 100}, {"source": "de", "target": "en"}]
    messages = [post(http, "a.txt", b"yes", **fields).json()["error"] for fields in refused]
    assert [message for message in messages if not re.search(expression, message)] == []
    assert not re.search(expression, post(http, "a.exe", b"yes").json()["error"])
