"""Installs LibreTranslate in a separate environment, with the bundle's weights as its package.

A package is a folder with `metadata.json`, a SentencePiece model, and a CTranslate2 model with the same pieces as its
vocabulary.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import sentencepiece

from app.bundle import Bundle
from benchmarks.engine.search import BACKENDS, Choice
from benchmarks.machine import ROOT
from benchmarks.server_process import Command

# LibreTranslate's licence is the AGPL. It is installed only for the measurement, and is no dependency of Transduce.
REQUIREMENT = "libretranslate==1.9.6"
ENVIRONMENT = ROOT / ".venv-libretranslate"
SERVER = Path(__file__).with_name("libretranslate_server.py")
INSTALL_LIMIT_S = 900
LANGUAGES = {"en": "English", "de": "German"}


class UnavailableError(Exception):
    """LibreTranslate cannot be measured."""


def ensure_environment(folder: Path = ENVIRONMENT) -> Path:
    """The path of LibreTranslate's Python. Installs REQUIREMENT if it is missing. Raises UnavailableError."""
    python = folder / "bin" / "python"
    if _version(python) != REQUIREMENT.partition("==")[2]:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT],
        ):
            _run(command)
    return python


def _version(python: Path) -> str:
    """The version of LibreTranslate that this Python has; empty if it has none, or does not run."""
    code = "from importlib import metadata; print(metadata.version('libretranslate'))"
    try:
        done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{type(error).__name__} while installing {REQUIREMENT}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise UnavailableError(f"{REQUIREMENT} could not be installed: {last}")


def write_packages(bundle: Bundle, converted: Path, folder: Path) -> None:
    """Write LibreTranslate's packages into `folder`. Raises UnavailableError.

    converted: the weights in CTranslate2's format.

    LibreTranslate downloads packages if it has fewer than two. So a second package for the opposite direction holds the
    same weights. It is never requested and never loaded.
    """
    pair = bundle.manifest.language_pairs[0]
    for source, target in ((pair.source, pair.target), (pair.target, pair.source)):
        package = folder / f"{source}_{target}"
        shutil.copytree(converted, package / "model")
        _name_pieces(package / "model", bundle.file("source.spm"))
        shutil.copyfile(bundle.file("source.spm"), package / "sentencepiece.model")
        metadata = {
            "package_version": "1.0",
            "argos_version": "1.5",
            "from_code": source,
            "from_name": LANGUAGES.get(source, source),
            "to_code": target,
            "to_name": LANGUAGES.get(target, target),
        }
        (package / "metadata.json").write_text(json.dumps(metadata), "utf-8")


def _name_pieces(model: Path, tokenizer: Path) -> None:
    """Rename the model's tokens from ids to SentencePiece pieces, and let CTranslate2 add the source's end token."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    pieces = [processor.id_to_piece(identity) for identity in range(processor.vocab_size())]
    vocabularies = list(model.glob("*vocabulary.json"))
    if not vocabularies:
        raise UnavailableError("CTranslate2 wrote no vocabulary file in JSON")
    for path in vocabularies:
        path.write_text(json.dumps(pieces, ensure_ascii=False), "utf-8")
    path = model / "config.json"
    config: dict[str, Any] = json.loads(path.read_text("utf-8"))
    config |= {
        "bos_token": pieces[processor.bos_id()],
        "decoder_start_token": pieces[processor.bos_id()],
        "eos_token": pieces[processor.eos_id()],
        "unk_token": pieces[processor.unk_id()],
        "add_source_eos": True,
    }
    path.write_text(json.dumps(config), "utf-8")


def command_of(
    python: Path, packages: Path, home: Path, *, choice: Choice, beam_size: int, tag: str | None
) -> Command:
    """The command of LibreTranslate's server.

    home: the folder that it may write to. choice: CTranslate2's settings. tag: the first subword of each source.
    """
    return Command(
        lambda port: [
            str(python),
            str(SERVER),
            "--port",
            str(port),
            "--disable-web-ui",
            "--disable-files-translation",
        ],
        {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "ARGOS_PACKAGES_DIR": str(packages),
            "ARGOS_COMPUTE_TYPE": "int8",
            "ARGOS_INTER_THREADS": str(choice.settings.inter_threads),
            "ARGOS_INTRA_THREADS": str(choice.settings.intra_threads),
            "ARGOS_BEAM_SIZE": str(beam_size),
            "SOURCE_TAG": tag or "",
            **BACKENDS[choice.backend],
        },
        ready_path="/languages",
    )
