"""The other APIs whose clients are understood."""

from __future__ import annotations

from fastapi import APIRouter

from app.api import simple
from app.api.auth import ApiKeys
from app.api.dialect import Dialects
from app.api.plain_translation import PlainTranslator

DIALECTS = Dialects((simple.DIALECT,))


def add_dialects(router: APIRouter, plain: PlainTranslator, keys: ApiKeys) -> None:
    """Add the routes of all of them."""
    simple.add_simple_routes(router, plain, keys)
