"""Serves the web page at `/` and its files.

The server reads each file once, at its start. A response has an ETag, and a Content-Security-Policy that lets the
browser load nothing from other servers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).resolve().parent.parent / "web"
ASSETS = "/assets/"
SETTINGS_PATH = f"{ASSETS}server.json"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Forbids content of other hosts, inline scripts and styles, HTML from strings of a script, and the page in a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    # The browser keeps a file and revalidates it before each use, so it never mixes files of two versions.
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class PageSettings:
    """The settings of the server that the page reads before its first request.

    file_suffixes: the suffixes of the files that the server translates; empty if it translates none. max_file_bytes:
    the maximum size of an upload, including its form. max_characters: the maximum code points of one text.
    """

    needs_key: bool
    has_docs: bool
    file_suffixes: tuple[str, ...]
    max_file_bytes: int
    max_characters: int
    max_beam_size: int


class PageFile(NamedTuple):
    """A file's response. tag: its ETag."""

    content: bytes
    media_type: str
    tag: str


def page_paths() -> frozenset[str]:
    """Every path of the page. These paths need no key, because the user enters the key on the page."""
    return frozenset({SETTINGS_PATH, *(_path_of(file) for file in _files())})


def add_page(router: APIRouter, settings: PageSettings) -> None:
    """Add the page. Raises OSError if its files are missing."""
    for file in _files():
        _add_file(router, _path_of(file), _page_file(file.read_bytes(), _TYPES[file.suffix]))
    _add_file(router, SETTINGS_PATH, _page_file(orjson.dumps(settings), "application/json"))


def _files() -> list[Path]:
    return sorted(file for file in FOLDER.iterdir() if file.suffix in _TYPES)


def _path_of(file: Path) -> str:
    return "/" if file.name == "index.html" else ASSETS + file.name


def _page_file(content: bytes, media_type: str) -> PageFile:
    return PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _add_file(router: APIRouter, path: str, file: PageFile) -> None:
    headers = {**HEADERS, "etag": file.tag}

    @router.get(path, include_in_schema=False)
    async def send(request: Request) -> Response:
        cached_tags = request.headers.get("if-none-match", "")
        if file.tag in (tag.strip().removeprefix("W/") for tag in cached_tags.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)
