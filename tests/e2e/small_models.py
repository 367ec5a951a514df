"""Three small models, and functions for the tests of servers with several models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx

from app.known_models import read_model
from app.settings import Settings

TEXT = "The old station is near the bridge."
# The language pair of each model, by its name.
MODELS = {"first": ("en", "de"), "second": ("fr", "en"), "third": ("it", "en")}
SETTINGS: dict[str, object] = {
    "num_threads": 1,
    "num_lanes": 1,
    "device": "cpu",
    "precision": "int8",
    "kernels": "standard",
    "sentence_cache_bytes": 0,
}


def budget(bundles: Path, num_models: int, settings: Mapping[str, object] = SETTINGS) -> int:
    """A memory budget, in bytes, for `num_models` models and half of another one."""
    checked = Settings(**settings)  # type: ignore[arg-type]  # pydantic checks them
    return int(read_model(bundles / "m-first", checked).num_bytes * (num_models + 0.5))


def post(client: httpx.Client, name: str, **fields: object) -> httpx.Response:
    source, target = MODELS[name]
    return client.post("/v1/translate", json={"text": TEXT, "source": source, "target": target, **fields})


def loaded(client: httpx.Client) -> list[str]:
    return [model["name"] for model in client.get("/v1/models").json()["models"] if model["loaded"]]
