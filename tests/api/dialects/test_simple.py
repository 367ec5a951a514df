"""The dialect at the root, against the echo server."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from app.files import SUFFIXES
from tests.api.dialects.conftest import KEY
from tests.api.server_process import HEADERS, ServerProcess

FORM = {"content-type": "application/x-www-form-urlencoded"}
GERMAN = "Der Fluss fließt langsam unter der alten Brücke hindurch."
BASE: dict[str, Any] = {"q": "Anna sees the river.", "source": "en", "target": "de"}


def translated(http: httpx.Client, **changes: Any) -> Any:
    answer = http.post("/translate", json={**BASE, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_one_text_and_several(http: httpx.Client) -> None:
    assert translated(http) == {"translatedText": BASE["q"]}
    texts = ["Anna sees 7 cats.", "", " \n", "No, 8."]
    assert translated(http, q=texts) == {"translatedText": texts}
    assert translated(http, q=["One."]) == {"translatedText": ["One."]}


def test_the_log_line_has_the_number_of_sentences(echo: ServerProcess, http: httpx.Client) -> None:
    body = {**BASE, "q": ["Anna sees. Anna sees the river.", "No."]}
    assert http.post("/translate", json=body, headers={"x-request-id": "counted"}).status_code == 200
    assert echo.wait_for_request("counted")["sentences"] == 3


def test_unknown_fields_are_ignored(http: httpx.Client) -> None:
    assert translated(http, secret=[1], priority="high", format="text") == {"translatedText": BASE["q"]}


def test_a_form_a_query_or_both_and_the_form_has_priority(http: httpx.Client) -> None:
    assert http.post("/translate", data=BASE).json() == {"translatedText": BASE["q"]}
    assert http.post("/translate", params=BASE).json() == {"translatedText": BASE["q"]}
    query = {"source": "zz", "target": "de"}
    answer = http.post("/translate", params=query, data={"q": "Ärger & 50 %", "source": "en"})
    assert answer.json() == {"translatedText": "Ärger & 50 %"}


def test_a_body_without_a_content_type_is_json_if_it_begins_with_a_brace(http: httpx.Client) -> None:
    for content in (json.dumps(BASE), "\r\n " + json.dumps(BASE), urlencode(BASE)):
        assert http.post("/translate", content=content.encode()).json() == {"translatedText": BASE["q"]}


def test_line_ends_of_a_form_are_newlines(http: httpx.Client) -> None:
    answer = http.post("/translate", content=b"q=One.%0D%0ATwo.%0DSix.&source=en&target=de", headers=FORM)
    assert answer.json() == {"translatedText": "One.\nTwo.\nSix."}


@pytest.mark.parametrize("code", ["EN", "En", "en"])
def test_codes_in_any_case(http: httpx.Client, code: str) -> None:
    assert translated(http, source=code, target="DE") == {"translatedText": BASE["q"]}


def test_a_text_in_the_target_language_is_returned_unchanged(http: httpx.Client) -> None:
    assert translated(http, q=GERMAN, source="de") == {"translatedText": GERMAN}


def test_the_language_is_detected_for_each_text(http: httpx.Client) -> None:
    texts = ["The weather was very good yesterday, and everybody enjoyed it.", GERMAN, "👍"]
    answer = translated(http, q=texts, source="auto")
    assert answer["translatedText"] == texts
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de", "en"]
    first, second, third = (each["confidence"] for each in answer["detectedLanguage"])
    assert min(first, second) > 90
    assert max(first, second) <= 100
    assert third == 0


def test_one_text_has_one_detected_language(http: httpx.Client) -> None:
    answer = translated(http, q="The weather was very good yesterday.", source="auto")
    assert answer["detectedLanguage"]["language"] == "en"


@pytest.mark.parametrize(("alternatives", "count"), [(2, 2), ("2", 2), (3, 3), ("0000000002", 2)])
def test_alternatives(http: httpx.Client, alternatives: object, count: int) -> None:
    answer = translated(http, alternatives=alternatives)
    assert len(set(answer["alternatives"]) - {answer["translatedText"]}) == count
    answer = translated(http, q=["Anna sees the river.", "👍"], alternatives=alternatives)
    assert [len(each) for each in answer["alternatives"]] == [count, 0]


def test_no_alternatives_by_default(http: httpx.Client) -> None:
    for number in (0, -1, "-1"):
        assert translated(http, alternatives=number).keys() == {"translatedText"}
    assert http.post("/translate", data={**BASE, "alternatives": "1"}).json()["alternatives"]


def test_detection(http: httpx.Client) -> None:
    found = http.post("/detect", data={"q": GERMAN}).json()
    assert found[0]["language"] == "de"
    assert len(found) == 5
    assert found[0]["confidence"] > 90
    assert sum(each["confidence"] for each in found) == pytest.approx(100, abs=1)
    french = http.post("/detect", data={"q": "Bonjour tout le monde, comment \u00e7a va?"}).json()
    assert french[0]["language"] == "fr"
    assert http.post("/detect", json={"q": ["Yes, yes.", GERMAN]}).json()[0]["language"] == "de"
    assert http.post("/detect", json={"q": "👍"}).json() == [{"confidence": 0.0, "language": "en"}]


@pytest.mark.parametrize("content", [b"", b"api_key=x", b"{}"])
def test_languages_with_any_body(http: httpx.Client, content: bytes) -> None:
    answer = http.request("GET", "/languages", content=content, headers=FORM)
    assert answer.json() == [
        {"code": "de", "name": "German", "targets": ["de"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]


def test_health_and_settings(http: httpx.Client, locked_http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    settings = http.get("/frontend/settings").json()
    assert settings == {
        "charLimit": 200,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": list(SUFFIXES),
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": "de", "name": "German"},
        },
    }
    without_files = locked_http.get("/frontend/settings").json()
    assert without_files["keyRequired"] is True
    assert (without_files["filesTranslation"], without_files["supportedFilesFormat"]) == (False, [])


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/translate"), ("POST", "/languages"), ("POST", "/health"), ("GET", "/detect")],
)
def test_a_wrong_method_is_refused(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()) == (405, {"error": "method not allowed"})


@pytest.mark.parametrize("path", ["/translate", "/detect", "/languages"])
def test_a_preflight_request_is_answered(http: httpx.Client, path: str) -> None:
    answer = http.options(path, headers={"origin": "http://a.test", "access-control-request-method": "POST"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_any_page_may_send_requests(http: httpx.Client) -> None:
    for answer in (
        http.options("/translate"),
        http.post("/translate", json=BASE),
        http.post("/translate", json={}),
        http.get("/languages"),
        http.get("/translate"),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in http.get("/v1/models").headers


MISSING = "Invalid request: missing {} parameter"
NO_NUMBER = "Invalid request: alternatives must be a whole number"
NO_TEXTS = "Invalid request: q must be a string or an array of strings"
TOO_MANY = "Invalid request: alternatives must be at most 3"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": None, "source": None}, MISSING.format("q")),
    ({"q": ""}, MISSING.format("q")),
    ({"q": []}, MISSING.format("q")),
    ({"source": None, "target": None}, MISSING.format("source")),
    ({"target": None}, MISSING.format("target")),
    ({"source": "zz"}, "zz is not supported"),
    ({"target": "fr"}, "fr is not supported"),
    ({"target": "auto"}, "auto is not supported"),
    ({"source": ["en"]}, "Invalid request: source must be a string"),
    ({"source": "x" * 1000}, "this language is not supported"),
    ({"source": "a text"}, "this language is not supported"),
    ({"q": "x" * 201}, "Invalid request: q has 201 characters, the limit is 200"),
    ({"q": ["x" * 151] * 2}, "Invalid request: q: 302 characters in all, the limit is 300"),
    ({"q": ["x"] * 21}, "Invalid request: q has 21 items, the limit is 20"),
    ({"q": 7}, NO_TEXTS),
    ({"q": {"a": "b"}}, NO_TEXTS),
    ({"q": ["a", 1]}, "Invalid request: q[1] must be a string"),
    ({"alternatives": 4}, TOO_MANY),
    ({"alternatives": "9" * 5000}, TOO_MANY),
    ({"alternatives": "many"}, NO_NUMBER),
    ({"alternatives": True}, NO_NUMBER),
    ({"alternatives": 1.5}, NO_NUMBER),
    ({"alternatives": [1]}, NO_NUMBER),
    ({"format": "xml"}, "Invalid request: format must be one of text, html"),
    ({"format": "pdf"}, "Invalid request: format must be one of text, html"),
    ({"format": {"a": 1}}, "Invalid request: format must be one of text, html"),
    ({"source": "de", "target": "en"}, "English (en) is not available as a target language from German (de)"),
    (
        {"q": GERMAN, "source": "auto", "target": "en"},
        "English (en) is not available as a target language from German (de)",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_what_is_refused(http: httpx.Client, changes: dict[str, Any], message: str) -> None:
    body = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    answer = http.post("/translate", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": message})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"q": NaN, "source": "en", "target": "de"}',
        b'{"q": "\\ud800", "source": "en", "target": "de"}',
        b'{"q": "\xff", "source": "en", "target": "de"}',
        b"[" * 100_000,
    ],
)
def test_invalid_json(http: httpx.Client, content: bytes) -> None:
    answer = http.post("/translate", content=content, headers=HEADERS)
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"q=%ff&source=en&target=de", "is not UTF-8"),
        (b"q=\xff", "is not UTF-8"),
        (b"q=" + b"%" * 10_001, "has more than 10000 percent signs without two hexadecimal digits"),
    ],
)
def test_invalid_forms(http: httpx.Client, content: bytes, problem: str) -> None:
    answer = http.post("/translate", content=content, headers=FORM)
    assert (answer.status_code, answer.json()) == (400, {"error": f"Invalid request: the form {problem}"})


def test_a_percent_sign_in_a_form_need_not_be_escaped(http: httpx.Client) -> None:
    answer = http.post("/translate", content=b"q=50% off&source=en&target=de", headers=FORM)
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "50% off"})


def test_an_invalid_query_string(http: httpx.Client) -> None:
    answer = http.post("/translate?q=%ff&source=en&target=de")
    message = "Invalid request: the query string is not UTF-8"
    assert (answer.status_code, answer.json()) == (400, {"error": message})


def test_other_media_and_large_bodies(http: httpx.Client) -> None:
    assert http.post("/translate", content=b"x", headers={"content-type": "text/xml"}).status_code == 415
    assert http.post("/detect", content=b"x", headers={"content-encoding": "gzip"}).status_code == 415
    fields = b"&".join([b"a=b"] * 1001)
    assert http.post("/translate", content=fields, headers=FORM).status_code == 413


@pytest.mark.parametrize("path", ["/translate", "/detect"])
@pytest.mark.parametrize("has_content_length", [True, False])
def test_a_body_of_20_mb_is_refused(http: httpx.Client, path: str, has_content_length: bool) -> None:
    body = b'{"q": "' + b"x" * 20_000_000 + b'"}'
    try:
        answer = http.post(path, content=body if has_content_length else iter([body]), headers=HEADERS)
    except (httpx.WriteError, httpx.ReadError):
        pass  # the server may close the connection before the body is sent
    else:
        assert (answer.status_code, list(answer.json())) == (413, ["error"])
    assert http.get("/health").status_code == 200


def test_only_languages_health_and_settings_need_no_key(locked_http: httpx.Client) -> None:
    needed = {"error": "Please contact the server operator to get an API key"}
    for path in ("/translate", "/detect", "/suggest"):
        answer = locked_http.post(path, json=BASE)
        assert (answer.status_code, answer.json()) == (400, needed)
        answer = locked_http.post(path, json={**BASE, "api_key": ["x"]})
        assert (answer.status_code, answer.json()) == (400, needed)
        answer = locked_http.post(path, data={**BASE, "api_key": "no"})
        assert (answer.status_code, answer.json()) == (403, {"error": "Invalid API key"})
    for answer in (
        locked_http.post("/translate", json={**BASE, "api_key": KEY}),
        locked_http.post("/translate", data={**BASE, "api_key": KEY}),
        locked_http.post("/translate", params={"api_key": KEY}, json=BASE),
    ):
        assert answer.json() == {"translatedText": BASE["q"]}
    for path in ("/languages", "/health", "/frontend/settings"):
        assert locked_http.get(path).status_code == 200


def test_suggestions_are_refused(http: httpx.Client) -> None:
    answer = http.post("/suggest", data={"q": "a", "s": "b", "source": "en", "target": "de"})
    assert (answer.status_code, answer.json()) == (403, {"error": "Suggestions are disabled on this server."})


def test_a_full_queue_is_refused_at_once(echo_command: list[str], hang_file: Path) -> None:
    settings: dict[str, object] = {"max_items": 1, "max_request_sentences": 1, "max_pending_sentences": 1}
    with (
        ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server,
        server.ready().client() as http,
        ThreadPoolExecutor(1) as pool,
    ):
        hang_file.touch()
        first = pool.submit(http.post, "/translate", json=BASE)
        server.wait_until("transduce_queue_depth", 1)
        answer = http.post("/translate", json={**BASE, "q": "No, 8 cats."})
        assert not first.done()
        hang_file.unlink()
        assert answer.status_code == 429
        assert answer.json()["error"].startswith("Slowdown: ")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["access-control-allow-origin"] == "*"
        assert first.result().json() == {"translatedText": BASE["q"]}


def test_errors_while_the_model_loads(echo_command: list[str], load_file: Path) -> None:
    command = [*echo_command, f"load_file={load_file}"]
    with ServerProcess(command) as server, server.listening().client() as http:
        for method, path in (("POST", "/translate"), ("GET", "/languages"), ("GET", "/health")):
            answer = http.request(method, path, json={})
            assert (answer.status_code, list(answer.json())) == (503, ["error"])


def test_a_deadline_gives_an_error(echo_command: list[str]) -> None:
    command = [*echo_command, "step_s=0.1"]
    with ServerProcess(command, {"compat_timeout_s": 0.1}) as server, server.ready().client() as http:
        answer = http.post("/translate", json=BASE)
        assert (answer.status_code, list(answer.json())) == (504, ["error"])
