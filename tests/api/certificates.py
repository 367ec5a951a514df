"""Self-signed certificates for tests."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

# The options of openssl for each kind of key.
KEY_OPTIONS = {
    "ec": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    "rsa": ["-newkey", "rsa:2048"],
}


def make_certificate(folder: Path, name: str = "server", kind: str = "ec") -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 and its key. Returns both paths. kind: "ec" or "rsa".

    Skips the test if openssl is not installed.
    """
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    algorithm = [*KEY_OPTIONS[kind], "-noenc", "-days", "2"]
    command = ["openssl", "req", "-x509", *algorithm, *names, "-out", str(certificate), "-keyout", str(key)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return certificate, key


def trusting(certificate: Path) -> ssl.SSLContext:
    """A client's context that trusts this certificate only."""
    return ssl.create_default_context(cafile=str(certificate))
