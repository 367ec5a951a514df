"""The other APIs whose clients are understood."""

from __future__ import annotations

from fastapi import APIRouter

from app.api import inference, simple, v2, v2_glossaries
from app.api.auth import ApiKeys
from app.api.dialect import Dialects
from app.api.plain_translation import PlainTranslator
from app.stores.usage import UsageCounter

DIALECTS = Dialects((simple.DIALECT, v2.DIALECT, inference.DIALECT))


def add_dialects(router: APIRouter, plain: PlainTranslator, keys: ApiKeys, usage: UsageCounter) -> None:
    """Add the routes of all of them."""
    simple.add_simple_routes(router, plain, keys)
    v2.add_v2_routes(router, plain, usage)
    inference.add_inference_routes(router, plain)
    v2_glossaries.add_v2_glossary_routes(router, plain)
