"""The native API as a page for people, made of its description: no script, nothing to load."""

from __future__ import annotations

import html
from typing import Any

Json = dict[str, Any]
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}code{background:#eee;padding:0 .2em}td,th{text-align:left;vertical-align:top;"
    "padding:.2rem 1rem .2rem 0}"
)


def docs_page(document: Json) -> str:
    """The document's routes as one HTML page, without a script or anything to load."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>API</title><style>{_STYLE}</style>'
    ]
    parts.append(f"<h1>{html.escape(document['info']['title'])}</h1>")
    parts.append('<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>')
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(operation.get('summary', ''))}</p>")
            if "requestBody" in operation:
                body = operation["requestBody"]["content"]["application/json"]["schema"]
                rows = {name: field["description"] for name, field in body["properties"].items()}
                parts.append(_table("field", rows))
            parts.append(
                _table("status", {code: row["description"] for code, row in operation["responses"].items()})
            )
    return "".join(parts)


def _table(head: str, rows: dict[str, str]) -> str:
    cells = "".join(
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(meaning)}</td></tr>"
        for name, meaning in rows.items()
    )
    return f"<table><tr><th>{head}</th><th></th></tr>{cells}</table>"
