"""The native API as a page for people, made of its description: no script, nothing to load."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#171c1a, #e9edeb); --soft: light-dark(#54605b, #a3aeaa);
  --line: light-dark(#d8ddda, #313835); --accent: light-dark(#0d6b62, #6cc9bc);
  --surface: light-dark(#fff, #1a1e1d); background: light-dark(#f4f5f4, #121514); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
body { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.05rem; margin: 0; }
a { color: var(--accent); } code { font: 0.9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
nav ul { columns: 18rem; padding: 0; list-style: none; }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 14px; padding: 1.1rem 1.3rem;
  margin: 1.1rem 0; }
.method { color: var(--accent); font-weight: 700; } .soft, th { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 0.9375rem; }
td, th { text-align: left; vertical-align: top; padding: 0.35rem 1rem 0.35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 500; font-size: 0.8125rem; } tr:last-child td { border-bottom: 0; }
td:first-child { white-space: nowrap; }
"""
# The one style that the page may have is this one.
POLICY = "; ".join(
    [
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)


def docs_page(document: Json) -> str:
    """The document's routes as one HTML page, without a script or anything to load."""
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = html.escape(document["info"]["title"])
    links = "".join(
        f'<li><a href="#{_anchor(method, path)}">{_route(method, path)}</a></li>'
        for method, path, _ in operations
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: API</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{title}: API</h1>",
            '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
            f'<nav aria-label="Routes"><ul>{links}</ul></nav>',
            *(_section(*each) for each in operations),
            "</main></body></html>",
        ]
    )


def _section(method: str, path: str, operation: Json) -> str:
    """One route: what it is for, its fields, and what it answers."""
    parts = [
        f'<section id="{_anchor(method, path)}" aria-label="{method.upper()} {html.escape(path)}">',
        f"<h2>{_route(method, path)}</h2><p>{html.escape(operation.get('summary', ''))}</p>",
    ]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        if fields := schema.get("properties"):
            parts.append(f'<p class="soft">Body: <code>{html.escape(media_type)}</code></p>')
            required = schema.get("required", [])
            rows = [
                (
                    name,
                    kind_of(field),
                    _default_of(field, is_required=name in required),
                    field.get("description", ""),
                )
                for name, field in fields.items()
            ]
            parts.append(_table(("field", "type", "default", "meaning"), rows))
    answers = [(code, answer.get("description", "")) for code, answer in operation["responses"].items()]
    parts.append(_table(("status", "when"), answers))
    return "".join([*parts, "</section>"])


def kind_of(schema: Json) -> str:
    """A schema's type, choices and bounds in a few words."""
    if "enum" in schema:
        return " or ".join(f'"{each}"' for each in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(kind_of(each) for each in schema["oneOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {kind_of(schema.get('items', {}))}"
    if kind == "object" and "properties" in schema:
        return f"object of {', '.join(schema['properties'])}"
    name = " or ".join(kind) if isinstance(kind, list) else kind
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{name}, {low} to {high}"
    return f"{name}, {low} or more" if low is not None else name


def _default_of(schema: Json, *, is_required: bool) -> str:
    if is_required:
        return "required"
    default = schema.get("default", "")
    return str(default).lower() if isinstance(default, bool) else str(default)


def _anchor(method: str, path: str) -> str:
    return html.escape(f"{method}{path.replace('/', '-')}")


def _route(method: str, path: str) -> str:
    return f'<span class="method">{method.upper()}</span> <code>{html.escape(path)}</code>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """The first column is code."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
    lines = []
    for row in rows:
        cells = (
            f"<td>{template.format(html.escape(cell))}</td>"
            for template, cell in zip(
                itertools.chain(["<code>{}</code>"], itertools.repeat("{}")), row, strict=False
            )
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
