"""Refuses cross-site requests: those that a page of another site makes a browser send.

A browser sends a form to any server that it can reach, even a private one, without a preflight. A server that needs
no key recognises such a request by the header `Sec-Fetch-Site`. Old browsers leave that header out. Other browsers
leave it out over plain HTTP, except to localhost. Without that header, the server checks `Origin`. Clients other than
browsers send neither header.
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
    """Raise CrossSite for a request from a page of another origin, unless the origin or the method is allowed.

    GET, HEAD and OPTIONS are always allowed. headers: names in lower case. allowed_origins: such as
    `https://example.org`; `*` allows all.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if method in _SAFE_METHODS or (site is None and origin is None) or site in _OWN_SITE:
        return
    sent = (origin or b"").decode("latin-1").lower()
    if sent in allowed_origins or "*" in allowed_origins:
        return
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if site is None and sent.partition("://")[2] == host != "":
        return
    raise CrossSite("a page of another site sent this request to a server without API keys")
