"""Every setting of the server: environment variables and command-line overrides, validated together, then frozen.

Only the modules that assemble the server read them; others receive plain values. A test keeps docs/configuration.md
equal to this file.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.errors import SettingsError
from app.graphs import KernelChoice
from app.settings_problems import check_holds_key, check_is_url, problem_lines, unknown_variables

PREFIX = "TRANSDUCE_"
# A worker's rows if `num_rows` is 0. On an H100, a step of the base size takes 0.5 ms with 32 rows, 1.9 ms with 512.
DEFAULT_NUM_ROWS = {"cpu": 64, "cuda": 512}
# Variables of the command-line client, which may run in the same environment.
CLIENT_VARIABLES = frozenset({"URL", "API_KEY"})
# An origin as browsers send it: lower case, without a path.
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.\-]*://[a-z0-9.\-_\[\]:]+")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
SHA256_TEXT = re.compile(r"[0-9a-f]{64}")


class Settings(BaseSettings):
    """The operator's settings. An empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    host: str = Field(
        "127.0.0.1", description="address to listen on: 0.0.0.0 is all of IPv4, :: is all of IPv4 and IPv6"
    )
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 lets the system choose")
    probe_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="separate TCP port for probes and /metrics; 0 lets the system choose; unset: none",
    )
    tls_certificate: Path | None = Field(
        None,
        description="PEM file with the server's certificate and those that signed it; the server then speaks HTTPS",
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the certificate's private key, without a password"
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="open connections; a further one replaces an idle one, or gets 503 if none is idle",
    )
    max_connections_per_address: int = Field(
        0,
        ge=0,
        description="open connections per client address; 0: nine tenths of TRANSDUCE_MAX_CONNECTIONS",
    )
    keep_alive_s: float = Field(75.0, gt=0, description="seconds until an idle connection is closed")
    read_timeout_s: float = Field(
        10.0, gt=0, description="seconds in which a request must arrive, or 1,000 bytes of its body a second"
    )
    max_header_bytes: int = Field(16_384, ge=1024, description="bytes of a request's start line and headers")
    max_body_bytes: int = Field(1_000_000, ge=1024, description="bytes of a request's body")
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        description="seconds after SIGTERM during which requests are still accepted while /readyz returns 503",
    )
    drain_timeout_s: float = Field(
        25.0, ge=0, description="seconds after the drain delay for requests to end and responses to be read"
    )

    bundle: Path | None = Field(
        None, description="folder of the bundle; unset: the only one in `bundles`, see below"
    )
    bundles: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="bundles, or folders of bundles, separated by commas, all of which are served; "
        "the first bundle that has a language pair translates it",
    )
    pivot: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="language codes, separated by commas: a pair without a model is translated through the first of "
        "these languages that has a model from the source and a model to the target; unset: such a pair is refused",
    )
    model_memory: int | None = Field(
        None,
        ge=1,
        description="bytes of memory for loaded models, by an estimate; models are then loaded when requests need "
        "them; unset: all models are loaded at the start",
    )
    preload: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="with TRANSDUCE_MODEL_MEMORY: names of models or of their folders, separated by commas, that are "
        "loaded at the start; unset: the first model",
    )
    traces_endpoint: Annotated[str, AfterValidator(check_is_url)] | None = Field(
        None,
        description="URL that receives traces by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; unset: none",
    )
    traces_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="share of the requests without a valid `traceparent` header that are traced",
    )
    watch: bool = Field(
        False,
        description="whether a model is reloaded when its bundle changes, and the keys when their file changes",
    )
    precision: Literal["auto", "int8", "fp16", "fp32"] = Field(
        "auto",
        description="variant of the bundle; auto: fp16 on a GPU, on a CPU the first of int8, fp32 and fp16 that the "
        "bundle has",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where the model runs; auto: the GPU if there is one"
    )
    kernels: KernelChoice = Field(
        "auto",
        description="operators on a CPU; native: Transduce's own; standard: ONNX Runtime's; auto: native if CPU, "
        "installation and bundle support it, else standard; avx512, avxvnni, avx2, neon: native for these instructions",
    )
    shortlist: bool = Field(
        True,
        description="whether greedy and beam searches use a bundle's shortlist; with native kernels only",
    )
    num_threads: int = Field(
        0, ge=0, le=256, description="threads of the engine, shared by its workers; 0: one per usable core"
    )
    num_lanes: int = Field(
        0,
        ge=0,
        le=64,
        description="workers of the engine, each with the whole model; 1: a thread of the server's process; more: "
        "processes; 0: one for each thread of the engine, at most 4, and 1 on a GPU",
    )
    num_rows: int = Field(
        0,
        ge=0,
        le=4096,
        description="maximum number of hypotheses in a worker's batch, without TRANSDUCE_NUM_KEPT_ROWS; 0: 64 on a "
        "CPU, 512 on a GPU",
    )
    num_kept_rows: int = Field(
        16,
        ge=0,
        le=1024,
        description="further hypotheses of a batch, for other callers if a caller has all TRANSDUCE_NUM_ROWS; 0: none",
    )
    golden_min_share: float = Field(
        0.8,
        ge=0,
        le=1,
        description="share of the bundle's golden sentences that must match exactly at start, 0 to 1",
    )
    stall_limit_s: float = Field(
        10.0, gt=0, description="seconds that one step of a worker may take before /livez returns 503"
    )
    max_encode_tokens: int = Field(
        512, ge=1, description="source subwords encoded in one step; at least the model's longest source"
    )
    max_consecutive_failures: int = Field(
        8,
        ge=1,
        description="consecutive failed forwards after which a worker ends; a forward retried in halves does not count",
    )
    max_worker_restarts: int = Field(
        5,
        ge=0,
        le=1000,
        description="starts of workers in place of dead ones within TRANSDUCE_WORKER_RESTART_WINDOW_S, failed starts "
        "included; when one more is needed, the server ends with exit code 70",
    )
    worker_restart_window_s: float = Field(
        300.0, gt=0, description="seconds over which TRANSDUCE_MAX_WORKER_RESTARTS counts"
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
        description="token lists in one response: sentences × `num_hypotheses` × (1 + `num_alternatives`), and more "
        "with `attention`",
    )
    default_timeout_s: float = Field(
        30.0, gt=0, description="deadline in seconds of a request without `timeout_ms`"
    )
    compat_timeout_s: float = Field(
        8.0,
        gt=0,
        description="deadline in seconds of a request in another API's format, whose clients give up after 10 s",
    )
    max_timeout_s: float = Field(60.0, gt=0, description="largest `timeout_ms` of a request, in seconds")
    max_pending_sentences: int = Field(
        2_048, ge=1, description="sentences accepted and not yet answered; a request beyond it gets 429"
    )
    max_pending_tokens: int = Field(
        65_536,
        ge=1,
        description="source subwords accepted and not yet answered; a request beyond it gets 429",
    )
    sentence_cache_bytes: int = Field(
        67_108_864, ge=0, description="bytes of memory for the cache of translated sentences; 0: no cache"
    )
    coalesce: bool = Field(
        True, description="whether equal sentences of concurrent requests are decoded once"
    )
    stream_keep_alive_s: float = Field(
        15.0, gt=0, description="seconds without an event after which a stream sends a keep-alive comment"
    )
    reader_stall_s: float = Field(
        30.0,
        gt=0,
        description="seconds that a client may stop reading its response before the connection is closed",
    )
    num_text_threads: int = Field(1, ge=1, le=64, description="threads that split and tokenise text")

    files_enabled: bool = Field(True, description="whether /translate_file and /v2/document accept files")
    max_file_bytes: int = Field(
        10_000_000, ge=1024, description="bytes of an upload: the file and the rest of its form"
    )
    max_files: int = Field(100, ge=1, description="files being translated or kept; a further one may get 429")
    max_kept_file_bytes: int = Field(
        200_000_000,
        ge=1024,
        description="bytes of all files being translated (in memory) or kept (in the temporary folder)",
    )
    file_ttl_s: float = Field(3_600.0, gt=0, description="seconds for which a translated file is kept")
    file_timeout_s: float = Field(
        600.0, gt=0, description="seconds per file from upload; /v2/document counts anew from translation on"
    )
    file_memory_bytes: int = Field(
        256_000_000, ge=100_000_000, description="bytes of memory that reading or writing one file may take"
    )
    file_cpu_s: int = Field(
        20, ge=1, description="seconds of CPU time that reading or writing one file may take"
    )

    api_keys: Annotated[frozenset[str], NoDecode, AfterValidator(check_holds_key)] = Field(
        frozenset(),
        validate_default=False,
        description="SHA-256 of each API key in lower-case hexadecimal, separated by commas",
    )
    api_keys_file: Path | None = Field(
        None, description="TOML file of keys with names and limits; SIGHUP reads it again"
    )
    admin_token: SecretStr | None = Field(
        None,
        description="token for the routes below /admin, of at least 16 characters; unset: the routes do not exist",
    )
    admin_token_file: Path | None = Field(None, description="file that holds the token for /admin")
    cors_origins: Annotated[frozenset[str], NoDecode] = Field(
        frozenset(),
        description="origins whose pages may call the API, such as https://example.org, separated by commas; `*`: all; "
        "unset: only pages of this server; pages of any site may always call LibreTranslate's routes, except "
        "/translate_file of a server without keys and /download_file of one with keys",
    )
    trusted_proxies: Annotated[frozenset[str], NoDecode] = Field(
        frozenset(),
        description="addresses and networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are read, such "
        "as 127.0.0.1,10.0.7.0/28; unset: the connection's own address counts",
    )
    glossary_path: Path | None = Field(
        None, description="SQLite file of the glossaries; unset: in memory, lost when the server stops"
    )
    usage_path: Path | None = Field(
        None,
        description="SQLite file of what each key has used; unset: in memory, lost when the server stops",
    )
    usage_redis_url: SecretStr | None = Field(
        None,
        description="URL of a Redis for what each key has used, instead of a file, such as redis://10.0.0.7:6379/0",
    )
    docs_enabled: bool = Field(True, description="whether /docs and /openapi.json are served")
    page_enabled: bool = Field(True, description="whether the web page at / is served")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: dict[str, object]) -> dict[str, object]:
        separators = dict.fromkeys(("api_keys", "cors_origins", "trusted_proxies", "pivot"), r"[,\s]+")
        for name, separator in (separators | dict.fromkeys(("bundles", "preload"), r"\s*,\s*")).items():
            if isinstance(listed := values.get(name), str):
                values = {**values, name: [part for part in re.split(separator, listed.strip()) if part]}
        return values

    def rows_on(self, device: Literal["cpu", "cuda"]) -> int:
        """The number of cache rows of each worker on this device, num_kept_rows not counted."""
        return self.num_rows or DEFAULT_NUM_ROWS[device]

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        """Raise ValueError with a line for each bad item of a list, and for each contradiction, with both settings."""
        pairs = (
            ("max_item_characters", "max_request_characters"),
            ("max_request_sentences", "max_pending_sentences"),
            ("default_timeout_s", "max_timeout_s"),
            ("max_num_hypotheses", "max_beam_size"),
            ("max_beam_size", "num_rows"),
            ("max_items", "max_request_sentences"),
            ("max_connections_per_address", "max_connections"),
            *([("max_file_bytes", "max_kept_file_bytes")] if self.files_enabled else []),
        )
        values = {name: getattr(self, name) for pair in pairs for name in pair}
        values["num_rows"] = self.rows_on("cpu")
        problems = [
            f"{PREFIX}{small.upper()} ({values[small]}) is above {PREFIX}{large.upper()} "
            f"({values[large]}): lower the first or raise the second"
            for small, large in pairs
            if values[small] > values[large]
        ]
        if self.bundle is not None and self.bundles:
            problems.append(f"{PREFIX}BUNDLE and {PREFIX}BUNDLES are both set: unset one of them")
        problems += [
            f"{PREFIX}PIVOT: {code} is not a language code, such as en or pt-BR"
            for code in self.pivot
            if not _LANGUAGE.fullmatch(code)
        ]
        if self.preload and self.model_memory is None:
            problems.append(
                f"{PREFIX}PRELOAD is set without {PREFIX}MODEL_MEMORY, so all models are loaded: unset it"
            )
        if self.admin_token is not None and self.admin_token_file is not None:
            problems.append(
                f"{PREFIX}ADMIN_TOKEN and {PREFIX}ADMIN_TOKEN_FILE are both set: unset one of them"
            )
        if self.usage_path is not None and self.usage_redis_url is not None:
            problems.append(f"{PREFIX}USAGE_PATH and {PREFIX}USAGE_REDIS_URL are both set: unset one of them")
        if any(not SHA256_TEXT.fullmatch(key) for key in self.api_keys):
            problems.append(f"{PREFIX}API_KEYS holds a value that is not a SHA-256 in lower-case hexadecimal")
        problems += [
            f"{PREFIX}CORS_ORIGINS: {origin} is not an origin; write only scheme, host and port, such as "
            "https://example.org:8443, or *"
            for origin in sorted(self.cors_origins)
            if not _ORIGIN.fullmatch(origin)
        ]
        problems += [
            f"{PREFIX}TRUSTED_PROXIES: {proxy} is neither an address nor a network, such as 10.0.0.7 or 10.0.0.0/8"
            for proxy in sorted(self.trusted_proxies)
            if not _is_network(proxy)
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self


def _is_network(text: str) -> bool:
    """Whether a text is an IP address or a network without host bits."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the process's environment; `overrides` take precedence.

    Raises SettingsError with one line per problem: an unknown variable with our prefix, a wrong value, a contradiction,
    a client's API key on a server without keys. No line repeats an API key.
    """
    known = [name.upper() for name in Settings.model_fields]
    problems = unknown_variables(os.environ, PREFIX, known, CLIENT_VARIABLES)
    try:
        settings = Settings(**dict(overrides or {}))  # type: ignore[arg-type]  # pydantic checks each value
    except ValidationError as error:
        problems += problem_lines(error, PREFIX)
    else:
        if os.environ.get(f"{PREFIX}API_KEY") and not (settings.api_keys or settings.api_keys_file):
            problems.append(
                f"{PREFIX}API_KEY is a setting of the client. Without {PREFIX}API_KEYS or {PREFIX}API_KEYS_FILE this "
                f"server is open to everyone: set one of them, or unset {PREFIX}API_KEY"
            )
    if problems:
        raise SettingsError(problems)
    return settings
