"""The secrets of the settings: values of variables, or the contents of files that variables name, such as keys."""

from __future__ import annotations

from pathlib import Path

from app.api.http.tls import Tls
from app.errors import SettingsError
from app.settings import PREFIX, SHA256_TEXT, Settings

# Characters of the shortest token. A shorter one could be found by trying all tokens.
MIN_TOKEN_CHARACTERS = 16


def read_api_keys(settings: Settings) -> frozenset[str]:
    """The hashes of all API keys, from the variable and the file. Raises SettingsError for a bad file."""
    if settings.api_keys_file is None:
        return settings.api_keys
    name = f"{PREFIX}API_KEYS_FILE"
    lines = _read(settings.api_keys_file, name).splitlines()
    entries = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    problems = [
        f"{name}: line {number} is not a SHA-256 in lower-case hexadecimal"
        for number, entry in entries
        if entry and not SHA256_TEXT.fullmatch(entry)
    ]
    keys = settings.api_keys | {entry for _, entry in entries if entry}
    if not keys:
        problems.append(f"{name}: the file holds no key, so the server would need none")
    if problems:
        raise SettingsError(problems)
    return keys


def read_admin_token(settings: Settings) -> str | None:
    """The administrator's token, from the variable or the file; None without one. Raises SettingsError."""
    if settings.admin_token is not None:
        name, token = f"{PREFIX}ADMIN_TOKEN", settings.admin_token.get_secret_value()
    elif settings.admin_token_file is not None:
        name = f"{PREFIX}ADMIN_TOKEN_FILE"
        token = _read(settings.admin_token_file, name).strip()
    else:
        return None
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"the token must be at least {MIN_TOKEN_CHARACTERS} characters of ASCII without spaces"
        raise SettingsError([f"{name}: {problem}"])
    return token


def read_tls(settings: Settings) -> Tls | None:
    """The certificate and its key; None without them. Raises SettingsError if one is missing or cannot be used."""
    names = f"{PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY"
    if settings.tls_certificate is None and settings.tls_key is None:
        return None
    if settings.tls_certificate is None or settings.tls_key is None:
        raise SettingsError([f"{names} need each other: set both or none"])
    try:
        return Tls(settings.tls_certificate, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise SettingsError([f"{names}: the files cannot be used: {reason}"]) from error


def _read(path: Path, name: str) -> str:
    """The text of a file. name: the variable that holds the path. Raises SettingsError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise SettingsError([f"{name}: the file cannot be read ({type(error).__name__})"]) from error
