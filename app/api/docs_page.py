"""Renders the OpenAPI document as an HTML page. For each route the page has a form that sends a request to this server.

Style and script are inline. The browser loads no other file.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import orjson

from app.api.page import FOLDER

Json = dict[str, Any]
_STYLE = (FOLDER / "docs" / "docs.css").read_text("utf-8")
_SCRIPT = (FOLDER / "docs" / "docs.js").read_text("utf-8")
_UPLOAD = "multipart/form-data"


def _source(text: str) -> str:
    """The source expression with which a Content-Security-Policy allows the inline style or script `text`: its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Allows the inline style and the inline script of this module, and requests to this server only.
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


def docs_page(document: Json) -> str:
    """The document's routes as one HTML page."""
    routes = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = html.escape(document["info"]["title"])
    links = "".join(
        f'<li><a href="#{_anchor(method, path)}">{_route(method, path)}</a></li>'
        for method, path, _ in routes
    )
    schemas = document["components"]["schemas"]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: API</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{title}: API</h1>",
            '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
            f'<nav aria-label="Routes"><ul>{links}</ul></nav>',
            *(_section(*each, schemas) for each in routes),
            f"</main><script>{_SCRIPT}</script></body></html>",
        ]
    )


def _section(method: str, path: str, operation: Json, schemas: Json) -> str:
    """One route: its purpose, fields and answers, and a form to try it."""
    body = operation.get("requestBody", {}).get("content", {})
    parts = [
        f'<section id="{_anchor(method, path)}" aria-label="{method.upper()} {html.escape(path)}">',
        f"<h2>{_route(method, path)}</h2><p>{html.escape(operation['summary'])}</p>",
    ]
    if body:
        content = next(iter(body.values()))
        parts += [
            f'<p class="soft">Body: <code>{html.escape(" or ".join(body))}</code></p>',
            _table(("field", "type", "default", "meaning"), _fields(content["schema"], schemas)),
        ]
    answers = [(code, answer["description"]) for code, answer in operation["responses"].items()]
    parts.append(_table(("status", "when"), answers))
    return "".join([*parts, _form(method, path, operation), "</section>"])


def _fields(schema: Json, schemas: Json) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each field of a body."""
    body = _resolved(schema, schemas)
    required = body.get("required", [])
    for name, field in body["properties"].items():
        default = _default_of(field, is_required=name in required)
        yield name, kind_of(field, schemas), default, field.get("description", "")


def _form(method: str, path: str, operation: Json) -> str:
    """The form that sends a request. The script shows the response in it."""
    query = {
        each["name"]: each["example"] for each in operation.get("parameters", []) if each["in"] == "query"
    }
    address = html.escape(path.removeprefix("/") + (f"?{urlencode(query)}" if query else ""))
    parts = [
        f'<details><summary>Try it</summary><form data-method="{method.upper()}">',
        f'<label>Path <input name="path" value="{address}" spellcheck="false"></label>',
    ]
    for media, content in itertools.islice(operation.get("requestBody", {}).get("content", {}).items(), 1):
        text = html.escape(orjson.dumps(content["example"], option=orjson.OPT_INDENT_2).decode())
        name = "Fields" if media == _UPLOAD else "Body"
        rows = text.count("\n") + 1
        parts.append(
            f'<label>{name} <textarea name="body" rows="{rows}" spellcheck="false">{text}</textarea></label>'
        )
        if media == _UPLOAD:
            parts.append('<label>File <input type="file" name="file"></label>')
    parts.append(
        '<button type="submit">Send</button><p class="status" role="status"></p><pre class="answer" tabindex="0" '
        'aria-label="Answer" hidden></pre><a class="save" hidden></a></form></details>'
    )
    return "".join(parts)


def kind_of(schema: Json, schemas: Json) -> str:
    """A schema's type, choices and bounds as a phrase, such as `number, 0 to 10`.

    An item's phrase of more than one word is in parentheses: `array of at most 9 of (string, at most 5 characters)`.
    """
    schema = _resolved(schema, schemas)
    if "enum" in schema:
        return " or ".join(f'"{each}"' for each in schema["enum"])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(kind_of(each, schemas) for each in schema[several])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        item = kind_of(schema.get("items", {}), schemas)
        length = _range(schema.get("minItems"), schema.get("maxItems"))
        return " of ".join(filter(None, ["array", length, f"({item})" if " " in item else item]))
    if kind == "object" and "properties" in schema:
        return f"object of {', '.join(schema['properties'])}"
    if "maxLength" in schema:
        return f"{kind}, at most {schema['maxLength']} characters"
    bounds = _range(schema.get("minimum"), schema.get("maximum"))
    return f"{kind}, {bounds}" if bounds else kind


def _range(low: float | None, high: float | None) -> str:
    """The numbers from `low` to `high` as a phrase. None: without this bound."""
    if low is None:
        return "" if high is None else f"at most {high}"
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def _resolved(schema: Json, schemas: Json) -> Json:
    """The schema, or the one to which it refers."""
    if "$ref" not in schema:
        return schema
    schema_of_reference: Json = schemas[schema["$ref"].rpartition("/")[2]]
    return schema_of_reference


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
    """An HTML table. The cells of its first column are `<code>`."""
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
