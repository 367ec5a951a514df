"""The encoded corpus of a run, stored beside its checkpoints for `--resume` and the run's other processes."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model.corpus import Corpus
from model.output_files import naming

# Increase it when reading or encoding changes, so that a corpus of older code is encoded again.
FORMAT = 4
ARRAYS = ("ids", "starts", "domains")


def file_facts(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Absolute path, size in bytes and modification time (ns) of each file, to detect a change. Raises OSError."""
    return [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def cached_corpus(folder: Path, key: Mapping[str, Any], encode: Callable[[], Corpus]) -> Corpus:
    """The corpus in `folder` if it was made with the same key, else a new one, which replaces it.

    key: everything that the corpus depends on, as JSON. A stored corpus is memory-mapped, so the processes of a run
    share it. Raises what `encode` raises.
    """
    wanted = {"format": FORMAT, **json.loads(json.dumps(key))}
    if found := _load(folder, wanted):
        return found
    corpus = encode()
    _save(folder, wanted, corpus)
    return corpus


def _load(folder: Path, key: Mapping[str, Any]) -> Corpus | None:
    try:
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        if facts["key"] != key:
            return None
        ids, starts, domains = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS)
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return Corpus(
        ids,
        starts,
        domains,
        tuple(facts["domain_names"]),
        Counter(facts["dropped"]),
        tuple(facts["lost_domains"]),
    )


def _save(folder: Path, key: Mapping[str, Any], corpus: Corpus) -> None:
    """Write under another name, then rename, so that an interrupted write leaves no corpus."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with naming(folder):
            for name in ARRAYS:
                np.save(temporary / f"{name}.npy", getattr(corpus, name))
            facts = {
                "key": key,
                "domain_names": corpus.domain_names,
                "dropped": corpus.dropped,
                "lost_domains": corpus.lost_domains,
            }
            (temporary / "facts.json").write_text(json.dumps(facts, indent=1), "utf-8")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
