"""TLS from a certificate and its key, which are read again when the server reloads."""

from __future__ import annotations

import ssl
from pathlib import Path


class Tls:
    """The server's side of TLS 1.2 and 1.3.

    context: the TLS context of all connections. `reload` changes this object in place, so the listeners need no change.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both PEM files. Raises OSError if one cannot be read, or if the key is not that of the certificate."""
        self._certificate, self._key = certificate, key
        self.context = self._read()

    def reload(self) -> None:
        """Read both files again. If this raises OSError, the old certificate stays."""
        self._read()  # a test: a load that fails half-way would leave a new certificate with an old key in the context
        self._load(self.context)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        # Without a password, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(self._certificate, self._key, password="")
