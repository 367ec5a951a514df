"""Every setting of the server: environment variables and command-line overrides, checked together, then frozen.

Only `app.main` reads them; the rooms below get what they need as plain values. docs/configuration.md is
checked against this file by a test.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.errors import SettingsError

PREFIX = "TRANSDUCE_"
# Of the command-line client, which may run in the same environment.
CLIENT_VARIABLES = frozenset({"URL", "API_KEY"})
# As a browser sends it: in lower case, without a path.
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.\-]*://[a-z0-9.\-_\[\]:]+")
_HASH = re.compile(r"[0-9a-f]{64}")


class Settings(BaseSettings):
    """What an operator may choose. An empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 lets the system choose")
    probe_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="TCP port of its own for /livez, /readyz and /metrics; 0 lets the system choose; unset: none",
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="open connections; one more takes the place of an idle one, else is answered 503",
    )
    max_connections_per_address: int = Field(
        0, ge=0, description="open connections of one address; 0: nine tenths of all"
    )
    keep_alive_s: float = Field(75.0, gt=0, description="seconds that an idle connection stays open")
    read_timeout_s: float = Field(
        10.0, gt=0, description="seconds in which a request has to arrive whole, header and body"
    )
    max_header_bytes: int = Field(16_384, ge=1024, description="bytes of a request's line and headers")
    max_body_bytes: int = Field(1_000_000, ge=1024, description="bytes of a request's body")
    drain_delay_s: float = Field(
        0.0, ge=0, description="seconds after SIGTERM in which work is still accepted while /readyz says 503"
    )
    drain_timeout_s: float = Field(
        25.0, ge=0, description="seconds after that in which running work may end before it is answered 503"
    )

    bundle: Path | None = Field(
        None, description="folder of the bundle; unset: the only one in `bundles`, see below"
    )
    precision: Literal["auto", "int8", "fp16", "fp32"] = Field(
        "auto", description="variant of the bundle; auto: fp16 on a GPU, else int8, else fp32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where the model runs; auto: the GPU where there is one"
    )
    kernels: Literal["auto", "native", "standard"] = Field(
        "auto",
        description="operators on a CPU; auto: the native ones where they can run, else ONNX Runtime's",
    )
    num_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads of the engine, shared by its workers that are busy; 0: one a usable core",
    )
    num_lanes: int = Field(
        0,
        ge=0,
        le=64,
        description="workers: processes that share the engine's sentences, each with the whole model; 1: none, a "
        "thread of the server's process; 0: one a thread, at most 4, and 1 on a GPU",
    )
    num_rows: int = Field(
        64, ge=1, le=4096, description="hypotheses that run at once in each worker, of a caller that is alone"
    )
    num_kept_rows: int = Field(
        16, ge=0, le=1024, description="as many more in each worker, kept for callers that come; 0: none"
    )
    golden_min_share: float = Field(
        0.8,
        ge=0,
        le=1,
        description="share of the bundle's golden sentences that must come out exactly at start",
    )
    stall_limit_s: float = Field(
        10.0, gt=0, description="seconds that one decoding step may take before /livez says 503"
    )
    max_encode_tokens: int = Field(
        512, ge=1, description="source subwords encoded in one step, at least the longest source of the model"
    )
    max_consecutive_failures: int = Field(
        8, ge=1, description="failed forward passes in a row after which the engine stops and /livez says 503"
    )

    max_items: int = Field(128, ge=1, description="texts in one request")
    max_item_characters: int = Field(5_000, ge=1, description="Unicode code points in one text")
    max_request_characters: int = Field(50_000, ge=1, description="Unicode code points in one request")
    max_request_sentences: int = Field(1_024, ge=1, description="sentences in one request, after splitting")
    max_beam_size: int = Field(16, ge=1, le=16, description="largest `beam_size` of a request")
    max_num_hypotheses: int = Field(16, ge=1, le=16, description="largest `num_hypotheses` of a request")
    max_token_lists: int = Field(
        512,
        ge=1,
        description="lists of tokens in one answer: sentences times `num_hypotheses` times 1 + `num_alternatives`, "
        "and more with `attention`",
    )
    default_timeout_s: float = Field(30.0, gt=0, description="deadline of a request without `timeout_ms`")
    compat_timeout_s: float = Field(
        8.0, gt=0, description="deadline of a request in another API's shape; its clients give up after 10 s"
    )
    max_timeout_s: float = Field(60.0, gt=0, description="largest deadline that a request may ask for")
    max_pending_sentences: int = Field(
        2_048, ge=1, description="sentences accepted and not yet answered; beyond it 429"
    )
    max_pending_tokens: int = Field(
        65_536, ge=1, description="source subwords accepted and not yet answered; beyond it 429"
    )
    sentence_cache_bytes: int = Field(
        67_108_864, ge=0, description="bytes of translated sentences kept in memory; 0: none"
    )
    coalesce: bool = Field(
        True, description="whether equal sentences of requests at the same time are decoded once"
    )
    stream_keep_alive_s: float = Field(
        15.0, gt=0, description="seconds without an event after which a stream sends a comment"
    )
    reader_stall_s: float = Field(
        30.0,
        gt=0,
        description="seconds in which the reader of an answer may take nothing before it is cut off",
    )
    num_text_threads: int = Field(1, ge=1, le=64, description="threads that split and tokenise text")

    files_enabled: bool = Field(
        True, description="whether files are taken at /translate_file and /v2/document"
    )
    max_file_bytes: int = Field(10_000_000, ge=1024, description="bytes of an uploaded file with its form")
    max_files: int = Field(100, ge=1, description="files at work or kept; one more is answered 429")
    max_kept_file_bytes: int = Field(
        200_000_000, ge=1024, description="bytes of all files at work or kept; the kept ones are on disk"
    )
    file_ttl_s: float = Field(3_600.0, gt=0, description="seconds that a translated file is kept")
    file_timeout_s: float = Field(600.0, gt=0, description="seconds that the translation of a file may take")
    file_memory_bytes: int = Field(
        256_000_000, ge=100_000_000, description="bytes of memory that reading or writing a file may take"
    )
    file_cpu_s: int = Field(
        20, ge=1, description="seconds of processor time that reading or writing a file may take"
    )

    api_keys: Annotated[frozenset[str], NoDecode] = Field(
        frozenset(),
        description="SHA-256 of each API key in hexadecimal, parted by commas; none: no key needed",
    )
    api_keys_file: Path | None = Field(
        None, description="file with one such hash a line; `#` begins a comment"
    )
    cors_origins: Annotated[frozenset[str], NoDecode] = Field(
        frozenset(),
        description="origins whose pages may call the API, such as https://example.org, parted by commas; `*`: all; "
        "none: pages of this server only, but for the routes at the root",
    )
    glossary_path: Path | None = Field(
        None, description="SQLite file of the glossaries; unset: in memory, gone when the server ends"
    )
    quota_characters: int = Field(
        1_000_000_000_000,
        ge=1,
        description="Unicode code points that one API key may have translated by /v2/translate while a server runs",
    )
    docs_enabled: bool = Field(True, description="whether /docs and /openapi.json are served")
    page_enabled: bool = Field(True, description="whether the page for people at / is served")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: dict[str, object]) -> dict[str, object]:
        for name in ("api_keys", "cors_origins"):
            listed = values.get(name)
            if isinstance(listed, str):
                values = {**values, name: [part for part in re.split(r"[,\s]+", listed) if part]}
        return values

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """Raises ValueError that names both settings of a contradiction, all of them at once."""
        pairs = (
            ("max_item_characters", "max_request_characters"),
            ("max_request_sentences", "max_pending_sentences"),
            ("default_timeout_s", "max_timeout_s"),
            ("max_num_hypotheses", "max_beam_size"),
            ("max_beam_size", "num_rows"),
            ("max_items", "max_request_sentences"),
            ("max_connections_per_address", "max_connections"),
        )
        problems = [
            f"{PREFIX}{small.upper()} ({getattr(self, small)}) is above {PREFIX}{large.upper()} "
            f"({getattr(self, large)}): lower the first or raise the second"
            for small, large in pairs
            if getattr(self, small) > getattr(self, large)
        ]
        if any(not _HASH.fullmatch(key) for key in self.api_keys):
            problems.append(f"{PREFIX}API_KEYS holds something that is no SHA-256 in lower-case hexadecimal")
        problems += [
            f"{PREFIX}CORS_ORIGINS: {origin} is no origin; write scheme, host and port alone, as in "
            "https://example.org:8443, or *"
            for origin in sorted(self.cors_origins)
            if not _ORIGIN.fullmatch(origin)
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the process's environment, then the overrides, which win.

    Raises SettingsError with one line a problem: an unknown variable with our prefix, a wrong value, a
    contradiction. No line repeats a value of the API keys.
    """
    problems = unknown_variables(os.environ)
    try:
        settings = Settings(**dict(overrides or {}))  # type: ignore[arg-type]  # pydantic checks each value
    except ValidationError as error:
        problems += _lines_of(error)
    else:
        if f"{PREFIX}API_KEY" in os.environ and not (settings.api_keys or settings.api_keys_file):
            problems.append(
                f"{PREFIX}API_KEY is the client's, and without {PREFIX}API_KEYS or {PREFIX}API_KEYS_FILE this server "
                "is open to everyone: set one of these, or unset the first"
            )
    if problems:
        raise SettingsError(problems)
    return settings


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """One line for each variable with our prefix that is no setting, with the nearest one that is."""
    known = [name.upper() for name in Settings.model_fields]
    problems = []
    for variable in sorted(environment):
        name = variable.upper().removeprefix(PREFIX)
        if name != variable.upper() and name not in CLIENT_VARIABLES and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            problems.append(f"{variable} is not a setting{hint}")
    return problems


def _lines_of(error: ValidationError) -> list[str]:
    """Pydantic's findings with the names of our variables, without the values."""
    lines: list[str] = []
    for finding in error.errors(include_input=False, include_url=False):
        message = finding["msg"].removeprefix("Value error, ")
        if finding["loc"]:
            message = f"{PREFIX}{str(finding['loc'][0]).upper()}: {message}"
        lines += message.splitlines()
    return lines


def read_api_keys(settings: Settings) -> frozenset[str]:
    """The hashes of every API key, from the variable and the file. Raises SettingsError for a bad file."""
    if settings.api_keys_file is None:
        return settings.api_keys
    name = f"{PREFIX}API_KEYS_FILE"
    try:
        lines = settings.api_keys_file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise SettingsError([f"{name}: the file cannot be read ({type(error).__name__})"]) from error
    entries = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    problems = [
        f"{name}: line {number} is no SHA-256 in lower-case hexadecimal"
        for number, entry in entries
        if entry and not _HASH.fullmatch(entry)
    ]
    keys = settings.api_keys | {entry for _, entry in entries if entry}
    if not keys:
        problems.append(f"{name}: the file holds no key, which would leave the server open")
    if problems:
        raise SettingsError(problems)
    return keys


def find_bundle(settings: Settings) -> Path:
    """The bundle's folder: the setting, else the only bundle in a folder `bundles`.

    That folder is looked for beside the package (a checkout), in the package, and where the server was started.
    Raises SettingsError where there is none, or more than one.
    """
    if settings.bundle is not None:
        return settings.bundle
    package = Path(__file__).resolve().parent
    places = dict.fromkeys(folder / "bundles" for folder in (package.parent, package, Path.cwd()))
    for place in places:
        found = sorted(manifest.parent for manifest in place.glob("*/manifest.json"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise SettingsError(
                [f"{place} holds more than one bundle ({names}); set {PREFIX}BUNDLE to one of them"]
            )
        if found:
            return found[0]
    looked = ", ".join(map(str, places))
    raise SettingsError([f"no bundle found (looked in {looked}); set {PREFIX}BUNDLE to its folder"])
