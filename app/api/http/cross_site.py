"""Refuses requests that a page of another site makes its reader's browser send.

A browser sends a form to any server that it can reach, also a private one, without a preflight. If the server needs
no key, such a request is recognised by the browser's own headers: `Sec-Fetch-Site`, and `Origin` where a browser leaves
out the first (plain HTTP, old versions). A client that is no browser sends neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.errors import CrossSite

# Methods that change nothing and cost little.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Headers of a browser's requests. Other clients send neither.
SITE_HEADERS = frozenset({b"sec-fetch-site", b"origin"})
_OWN_SITE = frozenset({b"same-origin", b"none"})


def check_site(method: str, headers: Mapping[bytes, bytes], allowed_origins: Collection[str]) -> None:
    """Raises CrossSite for a request of a page of another origin, unless that origin is allowed.

    headers: names in lower case. allowed_origins: such as `https://example.org`; `*` allows all.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if method in _SAFE_METHODS or (site is None and origin is None) or site in _OWN_SITE:
        return
    sent = (origin or b"").decode("latin-1").lower()
    if sent in allowed_origins or "*" in allowed_origins:
        return
    own = headers.get(b"host", b"").decode("latin-1").lower()
    if site is None and sent.partition("://")[2] == own != "":
        return
    raise CrossSite("a page of another site may not send this here without an API key")
