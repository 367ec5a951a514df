"""The whole API as a page for people, made of its description and of an example for each route.

Each route has a form that sends a request to this server. Style and script stand in the page: nothing is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
from collections.abc import Iterable
from typing import Any

import orjson

from app.api.docs_examples import EXAMPLES, Example
from app.api.page import FOLDER

Json = dict[str, Any]
_STYLE = (FOLDER / "docs" / "docs.css").read_text("utf-8")
_SCRIPT = (FOLDER / "docs" / "docs.js").read_text("utf-8")


def _source(text: str) -> str:
    """What a policy calls a style or script that stands in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# The one style and the one script that the page may have are these, and it may ask this server only.
POLICY = "; ".join(
    [
        "default-src 'none'",
        f"style-src {_source(_STYLE)}",
        f"script-src {_source(_SCRIPT)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)


def docs_page(document: Json, routes: Iterable[tuple[str, str]]) -> str:
    """The routes as one HTML page. document: describes some of them. routes: method and path of all."""
    described = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    operations = [
        (method.lower(), path, described.get((method, path), {}))
        for method, path in sorted(routes, key=lambda route: (route not in described, route[1], route[0]))
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
            '<p>The native API for programs: <a href="openapi.json">openapi.json</a>.</p>',
            f'<nav aria-label="Routes"><ul>{links}</ul></nav>',
            *(_section(*each) for each in operations),
            f"</main><script>{_SCRIPT}</script></body></html>",
        ]
    )


def _section(method: str, path: str, operation: Json) -> str:
    """One route: what it is for, its fields, what it answers, and a form to try it."""
    example = EXAMPLES.get((method.upper(), path), Example(""))
    parts = [
        f'<section id="{_anchor(method, path)}" aria-label="{method.upper()} {html.escape(path)}">',
        f"<h2>{_route(method, path)}</h2><p>{html.escape(operation.get('summary') or example.summary)}</p>",
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
    answers = [
        (code, answer.get("description", "")) for code, answer in operation.get("responses", {}).items()
    ]
    if answers:
        parts.append(_table(("status", "when"), answers))
    return "".join([*parts, _form(method, path, example), "</section>"])


def _form(method: str, path: str, example: Example) -> str:
    """What sends a request; the script shows the answer in it."""
    address = html.escape(path.removeprefix("/") + example.query)
    parts = [
        f'<details><summary>Try it</summary><form data-method="{method.upper()}">',
        f'<label>Path <input name="path" value="{address}" spellcheck="false"></label>',
    ]
    if example.body is not None:
        text = html.escape(orjson.dumps(example.body, option=orjson.OPT_INDENT_2).decode())
        name = "Fields" if example.takes_file else "Body"
        rows = text.count("\n") + 1
        parts.append(
            f'<label>{name} <textarea name="body" rows="{rows}" spellcheck="false">{text}</textarea></label>'
        )
    if example.takes_file:
        parts.append('<label>File <input type="file" name="file"></label>')
    parts.append(
        '<button type="submit">Send</button><p class="status" role="status"></p><pre class="answer" tabindex="0" '
        'aria-label="Answer" hidden></pre><a class="save" hidden></a></form></details>'
    )
    return "".join(parts)


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
