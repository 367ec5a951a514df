"""TLS from a certificate and its key, which are read again when the server reloads."""

from __future__ import annotations

import ssl
from pathlib import Path


def problem_with_files(error: OSError) -> str:
    """Why the files of a certificate cannot be used, without their paths. error: one that `Tls` raised."""
    # ssl.SSLError is an OSError with a reason.
    return f"the files cannot be used: {getattr(error, 'reason', None) or error.strerror or type(error).__name__}"


class Tls:
    """The server's side of TLS 1.2 and 1.3.

    context: the context of the listeners. After a `reload` it hands each handshake to the newest context. The new
    certificate is not loaded into the old context, because a context keeps a certificate for each type of key: a
    certificate with another type of key would not replace the old certificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both PEM files. Raises OSError if one cannot be read, or if the key is not that of the certificate."""
        self._certificate, self._key = certificate, key
        self.context = self._newest = self._read()
        self.context.sni_callback = self._select

    def reload(self) -> None:
        """Read both files again. If this raises OSError, the old certificate stays."""
        self._newest = self._read()

    def _select(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Use the newest certificate in this handshake. OpenSSL calls this for clients without a server name, too."""
        connection.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # Without a password, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(self._certificate, self._key, password="")
        return context
