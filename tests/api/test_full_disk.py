"""A server that cannot write files. RLIMIT_FSIZE stands in for a full disk, so the error is EFBIG, not ENOSPC."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.processes import wait_until
from tests.api.server_process import ServerProcess
from tests.api.test_file_workers import state, status

MESSAGE = "files cannot be stored now (EFBIG)"
FILE_SIZE_LIMIT = 32_768
# An upload above 1 MiB is written to disk, so the upload of UPLOADED fails. The upload of WRITTEN stays in memory. Its
# translation is larger than FILE_SIZE_LIMIT, so the translation cannot be written.
WRITTEN, UPLOADED = b"1 " * 20_000, b"1 " * 600_000


def upload(http: httpx.Client, path: str, content: bytes) -> httpx.Response:
    form = {"source": "en", "target": "de", "source_lang": "en", "target_lang": "de"}
    return http.post(path, data=form, files={"file": ("a.txt", content)})


def final_state(http: httpx.Client, handle: dict[str, str]) -> dict[str, Any]:
    wait_until(lambda: status(http, handle) in {"done", "error"})
    return state(http, handle)


def test_a_full_disk_is_named_and_is_no_failure_of_the_engine(
    echo_command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with (
        ServerProcess(echo_command, {"max_file_bytes": 2_000_000}) as server,
        server.ready().client() as http,
    ):
        unlimited = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT, unlimited[1]))
        for path, content in (
            ("/translate_file", WRITTEN),
            ("/translate_file", UPLOADED),
            ("/v2/document", UPLOADED),
        ):
            answer = upload(http, path, content)
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "10"), answer.text
            assert MESSAGE in answer.text
            assert server.wait_for("file_store_failed")["problem"] == "EFBIG"
        failed = final_state(http, upload(http, "/v2/document", WRITTEN).json())
        assert (failed["status"], failed["error_message"]) == ("error", MESSAGE)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        assert server.metric('transduce_rejected_total{reason="not_ready"}') == 4
        assert server.metric('transduce_rejected_total{reason="engine"}') == 0
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, unlimited)
        assert upload(http, "/translate_file", WRITTEN).status_code == 200
        assert final_state(http, upload(http, "/v2/document", UPLOADED).json())["status"] == "done"
