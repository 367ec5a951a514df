"""Fetches a model by its name on the Hugging Face hub, with `huggingface_hub`, which the extra `hub` installs.

The client reads HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and HF_HOME, as other programs of Hugging Face do. It keeps the
files in its cache, where a second import finds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from export.archive import is_archive

# OWNER/MODEL, each of at most 96 characters.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# What the hub does not allow in a name.
_FORBIDDEN = re.compile(r"--|\.\.|\.git$|[-.](?:/|$)")
# Files that `model/` reads, except PICKLES. Large weights are in several files with an index.
FILES = (
    "config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json",
    "tokenizer.json", "source.spm", "target.spm", "sentencepiece.bpe.model", "sentencepiece.model",
    "model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors", "model.bin",
    "shared_vocabulary.json", "shared_vocabulary.txt", "*.npz", "*vocab.yml", "*decoder.yml", "model*.intgemm*.bin",
    "*vocab*.spm", "lex*.bin",
)  # fmt: skip
# Fetched only if the model has none of WEIGHTS.
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model.bin", "*.npz", "model*.intgemm*.bin")


class HubError(ValueError):
    """The hub has no such model, refuses it, or cannot be reached.

    The message says which of these it is, what helps, and that the name is no folder.
    """


@dataclass(frozen=True)
class FetchedModel:
    """A fetched model: its folder, and the commit that has these files."""

    folder: Path
    commit: str


def is_hub_name(text: str) -> bool:
    """Whether a text has the form of a model's name on the hub, such as Helsinki-NLP/opus-mt-en-de."""
    is_name = _NAME.fullmatch(text) is not None and _FORBIDDEN.search(text) is None
    return is_name and not is_archive(Path(text))


def fetch(name: str, revision: str | None = None) -> FetchedModel:
    """Fetch the files that the import reads. Raises HubError, and ModuleNotFoundError without the extra `hub`.

    name: see `is_hub_name`. revision: a branch, a tag or a commit; None for the main branch.
    """
    import httpx2
    from huggingface_hub import constants, errors

    no_folder = f"{name} is no folder here, and"  # the name may be meant as a path
    try:
        folder = _download(name, FILES, revision)
        if not any(found for pattern in WEIGHTS for found in folder.glob(pattern)):
            _download(name, PICKLES, folder.name)
    except errors.GatedRepoError as error:
        raise HubError(
            f"{no_folder} the hub's model is gated: accept its conditions on its page, and set HF_TOKEN to a token "
            "that may read it"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"{no_folder} the hub's model has no branch, tag or commit {revision or 'main'} (--revision)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"{no_folder} the hub has no such model; if it is private, set HF_TOKEN to a token that may read it"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        where = (
            "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
        )
        raise HubError(
            f"{no_folder} the cache does not have all its files ({where}): "
            "copy the model's folder from a machine that has it, and give the folder's path in place of the name"
        ) from error
    except errors.HfHubHTTPError as error:
        raise HubError(f"{no_folder} the hub answers {error.response.status_code}") from error
    except httpx2.TransportError as error:
        raise HubError(f"{no_folder} the connection to {constants.ENDPOINT} failed: {error}") from error
    return FetchedModel(folder, folder.name)


def _download(name: str, patterns: tuple[str, ...], revision: str | None) -> Path:
    """Download the files of the top folder that match a pattern. Returns a folder, which has the commit as its name."""
    from huggingface_hub import snapshot_download

    found = snapshot_download(
        name,
        revision=revision,
        allow_patterns=list(patterns),
        ignore_patterns=["*/*"],
        library_name="transduce",
    )
    return Path(found)
