"""The HTTP client of a Transduce server: one call, `translate`, over `POST /v1/translate`.

It waits and asks again where the server says that it is overloaded or not ready yet, and sends a batch that the
server finds too large or too slow again in two halves. Every other failure is one `CommandError`.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from transduce.errors import CommandError

TOO_LARGE_OR_SLOW = frozenset({httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.GATEWAY_TIMEOUT})
TRY_LATER = frozenset({httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE})
CONNECT_TIMEOUT_S = 5.0
DEFAULT_RETRY_S = 1.0
MAX_ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class ClientOptions:
    """How to reach the server.

    Attributes:
        url: root of the server, such as http://127.0.0.1:8000.
        api_key: sent as a bearer token; None sends none.
        timeout_s: seconds to wait for one answer.
        max_wait_s: seconds that one batch may spend waiting because the server asked for it; 0 gives up at once.
    """

    url: str
    api_key: str | None = None
    timeout_s: float = 60.0
    max_wait_s: float = 300.0


@dataclass(frozen=True)
class TranslateOptions:
    """What is asked of the server for every text.

    Attributes:
        source, target: languages.
        options: decoding options as the server names them; those that are missing are left to it.
        target_prefix: what each translation begins with; empty leaves it free.
    """

    source: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    target_prefix: str = ""


class TranslationClient:
    """A connection to one server, kept open between calls. Use it as a context manager."""

    def __init__(self, options: ClientOptions) -> None:
        """Check the URL and open nothing yet.

        Raises:
            CommandError: the URL is not an http or https one.
        """
        parts = urlsplit(options.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CommandError(f"--url {options.url!r} is not of the form http://host:port")
        self._options = options
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {options.api_key}"} if options.api_key else {},
            timeout=httpx.Timeout(options.timeout_s, connect=CONNECT_TIMEOUT_S),
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=not is_loopback(parts.hostname),
        )

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._http.close()

    def translate(self, texts: list[str], options: TranslateOptions) -> list[dict[str, Any]]:
        """The translations of `texts`, one for each, in order, as the server tells them: `text` and more.

        Raises:
            CommandError: the server cannot be reached, refuses, or answers what nobody asked for.
        """
        body = {"text": texts, "source": options.source, "target": options.target, **options.options}
        if options.target_prefix:
            body["target_prefix"] = [options.target_prefix] * len(texts)
        response = self._post_patiently(body)
        if response.status_code in TOO_LARGE_OR_SLOW and len(texts) > 1:
            half = len(texts) // 2
            return self.translate(texts[:half], options) + self.translate(texts[half:], options)
        if response.status_code != httpx.codes.OK:
            raise CommandError(f"the server answered {response.status_code}: {error_message(response)}")
        return translations(response, num_texts=len(texts))

    def _post_patiently(self, body: dict[str, Any]) -> httpx.Response:
        """Post `body`, again after each wait that the server asks for, until `max_wait_s` is used up."""
        waited_s = 0.0
        while True:
            response = self._post(body)
            if response.status_code not in TRY_LATER:
                return response
            wait_s = retry_after_s(response)
            if waited_s + wait_s > self._options.max_wait_s:
                return response
            time.sleep(wait_s)
            waited_s += wait_s

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        url = f"{self._options.url.rstrip('/')}/v1/translate"
        try:
            return self._http.post(url, json=body)
        except httpx.ConnectError as error:
            raise CommandError(
                f"no server answers at {self._options.url} ({error}); `make serve` starts one"
            ) from error
        except httpx.TimeoutException as error:
            raise CommandError(
                f"no answer from {self._options.url} in time ({type(error).__name__}, --timeout "
                f"{self._options.timeout_s:g} s)"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{self._options.url}: {str(error) or type(error).__name__}") from error


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def retry_after_s(response: httpx.Response) -> float:
    """Seconds that the server asks to wait; `DEFAULT_RETRY_S` where it names none (RFC 9110, 10.2.3).

    The other form of the header, a date, is not sent by our server and counts as none.
    """
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return DEFAULT_RETRY_S
    return seconds if 0 <= seconds < float("inf") else DEFAULT_RETRY_S


def error_message(response: httpx.Response) -> str:
    """What an error answer says, on one line and at most `MAX_ERROR_CHARACTERS` long."""
    message: object = None
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        error = answer.get("error", answer)
        message = error.get("message") if isinstance(error, dict) else error
    text = message if isinstance(message, str) else response.text
    return " ".join(text.split())[:MAX_ERROR_CHARACTERS] or response.reason_phrase


def translations(response: httpx.Response, *, num_texts: int) -> list[dict[str, Any]]:
    """The translations in a good answer.

    Raises:
        CommandError: it is not JSON, or does not hold one text for each that was sent.
    """
    try:
        found = list(response.json()["translations"])
        texts = [translation["text"] for translation in found]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"the answer is not a translation ({type(error).__name__})") from error
    if len(texts) != num_texts or not all(isinstance(text, str) for text in texts):
        raise CommandError(f"the answer holds {len(texts)} translations of {num_texts} texts")
    return found
