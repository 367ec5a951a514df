"""Requests that a page of another site has its reader's browser send.

A browser sends a form to any server that it can reach, a private one too, without asking that server first. Where the
server needs no key, such a request is told by what the browser says of it: `Sec-Fetch-Site`, and `Origin` where a
browser leaves the first one out (plain HTTP, old versions). A client that is no browser sends neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.errors import CrossSite

# Methods that change nothing, and cost no more than a look.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# What a browser sends with such a request, and other clients do not.
SITE_HEADERS = frozenset({b"sec-fetch-site", b"origin"})
_OWN_SITE = frozenset({b"same-origin", b"none"})


def check_site(method: str, headers: Mapping[bytes, bytes], allowed_origins: Collection[str]) -> None:
    """Raises CrossSite for a request of a page of another origin, unless that origin is allowed.

    headers: names in lower case. allowed_origins: such as `https://example.org`; `*` allows all.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if method in _SAFE_METHODS or (site is None and origin is None) or site in _OWN_SITE:
        return
    told = (origin or b"").decode("latin-1").lower()
    if told in allowed_origins or "*" in allowed_origins:
        return
    own = headers.get(b"host", b"").decode("latin-1").lower()
    if site is None and told.partition("://")[2] == own != "":
        return
    raise CrossSite("a page of another site may not send this here without an API key")
