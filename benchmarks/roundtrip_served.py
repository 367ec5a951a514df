"""Count what the 243 structured texts lose through a served bundle.

Sends one text after another to POST /v1/translate of a real server, with greedy search and with beam size 4. The exit
code is 1 if something is lost.

    python -m benchmarks.roundtrip_served --bundle bundles/en-de --output benchmarks/results/roundtrip_served.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.text.parsed_text import TextFormat
from benchmarks.machine import ROOT, describe_run
from benchmarks.roundtrip import Loss, Text, count, read_texts
from benchmarks.server_process import HOST, ServeOptions, ServerProcess

RESULT = Path(__file__).with_name("results") / "roundtrip_served.json"
BUNDLE = ROOT / "bundles" / "en-de"
TIMEOUT_S = 60.0
BEAM_SIZES = (1, 4)


@dataclass
class BeamResult:
    """The result of one beam size. loss: over all texts. The other fields count segments."""

    loss: Loss
    num_segments: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)


def measure(client: httpx.Client, texts: Sequence[Text], *, beam_size: int) -> BeamResult:
    """Translate every text. Raises httpx.HTTPStatusError."""
    found = BeamResult(Loss())

    def translate(text: str, text_format: TextFormat) -> str:
        body = {
            "text": text,
            "source": "en",
            "target": "de",
            "format": text_format.value,
            "beam_size": beam_size,
        }
        answer = client.post("/v1/translate", json=body).raise_for_status().json()
        (translation,) = answer["translations"]
        for segment in translation["segments"]:
            found.num_segments += 1
            found.fallbacks.update(segment.get("fallbacks", []))
            found.finish_reasons[segment["finish_reason"]] += 1
        return str(translation["text"])

    found.loss = count(texts, translate, "en", "de")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, write JSON. Exit code 1 if something is lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=BUNDLE)
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.roundtrip_served", arguments, python=None)
    texts = read_texts()
    found: dict[str, Any] = {}
    with (
        ServerProcess(ServeOptions(sys.executable, args.bundle)) as server,
        httpx.Client(base_url=f"http://{HOST}:{server.port}", timeout=TIMEOUT_S, trust_env=False) as client,
    ):
        (model,) = client.get("/v1/models").raise_for_status().json()["models"]
        for beam_size in BEAM_SIZES:
            measured = measure(client, texts, beam_size=beam_size)
            print(f"beam {beam_size}: {measured}")
            found[f"beam {beam_size}"] = {**vars(measured), "loss": asdict(measured.loss)}
    result = {
        **run,
        "model": {name: model[name] for name in ("name", "version", "precision")},
        "num_texts": len(texts),
        "searches": found,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 1 if any(each["loss"]["texts"] for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
