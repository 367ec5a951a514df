"""Fuzz one target for some seconds with inputs that atheris chooses by the code that they reach.

The inputs that reach new code are kept in a folder, with which the next run begins. If an input fails, the command
saves it in tests/fuzz/crashes/TARGET, where `make test` checks it, and its exit code is not 0.

    python -m tests.fuzz markup --seconds 180
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

from tests.house_rules.project import ROOT

CRASHES = Path(__file__).with_name("crashes")
CORPUS = ROOT / "build" / "fuzz"


def main() -> None:
    """Read the command line and fuzz. Ends the process."""
    # Only modules that are imported here report which code an input reaches.
    with atheris.instrument_imports(include=["app"]):
        from tests.fuzz.targets import MAX_BYTES, TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=180, help="default: 180")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="the folder of all targets' inputs")
    parser.add_argument("--crashes", type=Path, default=CRASHES, help="the folder of all targets' failures")
    args = parser.parse_args()
    target = TARGETS[args.target]
    corpus, crashes = args.corpus / args.target, args.crashes / args.target
    for folder in (corpus, crashes):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    tokens = corpus.with_suffix(".tokens")
    tokens.write_text("".join(f'"{escaped(token)}"\n' for token in target.tokens), "ascii")
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={args.seconds}",
            f"-max_len={MAX_BYTES}",
            f"-dict={tokens}",
            f"-artifact_prefix={crashes}/",
            "-timeout=60",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            str(corpus),
        ],
        target.check_in_time,
    )
    atheris.Fuzz()


def escaped(token: str) -> str:
    """A token in the notation of libFuzzer's dictionaries."""
    return "".join(f"\\x{byte:02x}" for byte in token.encode())


if __name__ == "__main__":
    main()
