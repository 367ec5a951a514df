"""Checks API keys. The server stores only their SHA-256 and compares in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.api.page import page_paths
from app.errors import Unauthorized
from app.stores.key_limits import NO_LIMITS, KeyLimits

# Paths of the server's own API and page that never need a key. A probe cannot hold a key, and a user types the key into
# the page after the page is loaded. `Dialect.open_paths` has the paths of another API for which `Gate` checks no key.
# Some routes of those paths read the key from the query or the body.
OPEN_PATHS = frozenset({"/livez", "/readyz"}) | page_paths()
# A route whose path begins with this prefix checks the administrator's token instead of an API key.
ADMIN_PREFIX = "/admin/"
# Schemes of the header Authorization. The second is that of DeepL's clients. Every route that reads this header accepts
# both, even a route of another API.
_SCHEMES = (b"bearer ", b"deepl-auth-key ")


@dataclass(frozen=True)
class NamedKeys:
    """The keys of one caller.

    name: the caller in the log, in the metrics, and as the owner of glossaries and files.
    hashes: the SHA-256 of each key in lower-case hexadecimal.
    limits: the limits that the keys share.
    """

    name: str
    hashes: tuple[str, ...] = field(repr=False)
    limits: KeyLimits = NO_LIMITS


def unnamed_key(sha256: str) -> NamedKeys:
    """A key without a name. The beginning of its hash serves as the name."""
    return NamedKeys(sha256[:12], (sha256,))


class ApiKeys:
    """The keys that the server accepts. If none is set, the server accepts every request."""

    def __init__(self, keys: Sequence[NamedKeys]) -> None:
        self.replace(keys)

    def replace(self, keys: Sequence[NamedKeys]) -> None:
        """Accept these keys and no others from now on."""
        self._names = [(bytes.fromhex(each), named.name) for named in keys for each in named.hashes]

    def caller(self, path: str, authorization: Sequence[bytes]) -> str:
        """The caller's name; empty if no key is needed.

        authorization: the values of the Authorization header. Raises Unauthorized.
        """
        if path in OPEN_PATHS or path.startswith(ADMIN_PREFIX) or not self._names:
            return ""
        if len(authorization) != 1 or not authorization[0].lower().startswith(_SCHEMES):
            raise Unauthorized("an API key is needed: Authorization: Bearer <key>", is_wrong_key=False)
        return self._name_of(authorization[0].partition(b" ")[2].strip())

    @property
    def are_needed(self) -> bool:
        """Whether any key is set."""
        return bool(self._names)

    def caller_of(self, key: str) -> str:
        """The name of a caller whose key is not in the header. key: empty if none was sent. Raises Unauthorized."""
        if not self._names:
            return ""
        if not key:
            raise Unauthorized("an API key is needed", is_wrong_key=False)
        return self._name_of(key.encode())

    def _name_of(self, key: bytes) -> str:
        digest = hashlib.sha256(key).digest()
        # Every key is compared, so that the time does not reveal a match.
        matches = [name for known, name in self._names if hmac.compare_digest(digest, known)]
        if not matches:
            raise Unauthorized("this API key is not known", is_wrong_key=True)
        return matches[0]
