"""The secrets of the settings: values of variables, or the contents of files that variables name, such as keys."""

from __future__ import annotations

from pathlib import Path

from app.api.http.auth import NamedKeys, unnamed_key
from app.api.http.tls import Tls, problem_with_files
from app.errors import SettingsError
from app.keys_file import SECRET_RULE, VARIABLE, is_secret, problems_of, read_keys_file
from app.settings import PREFIX, Settings


def read_api_keys(settings: Settings) -> list[NamedKeys]:
    """All API keys, from the variable TRANSDUCE_API_KEYS and from the file that TRANSDUCE_API_KEYS_FILE names.

    Raises SettingsError for a bad file, for a key that is in the variable and in the file, and for more than MAX_KEYS
    keys.
    """
    keys, names = [unnamed_key(digest) for digest in sorted(settings.api_keys)], f"{PREFIX}API_KEYS"
    in_both: list[str] = []
    if settings.api_keys_file is not None:
        named = read_keys_file(settings.api_keys_file)
        in_both = [
            f"{VARIABLE}: [{each.name}] has a key that is also in {names} (SHA-256 {digest[:12]}...)"
            for each in named
            for digest in each.hashes
            if digest in settings.api_keys
        ]
        keys += named
        names += f" and {VARIABLE}"
    if problems := in_both or [f"{names}: {problem}" for problem in problems_of(keys)]:
        raise SettingsError(problems)
    return keys


def read_admin_token(settings: Settings) -> str | None:
    """The administrator's token, from the variable or the file; None if neither is set. Raises SettingsError."""
    if settings.admin_token is not None:
        name, token = f"{PREFIX}ADMIN_TOKEN", settings.admin_token.get_secret_value()
    elif settings.admin_token_file is not None:
        name = f"{PREFIX}ADMIN_TOKEN_FILE"
        token = _read(settings.admin_token_file, name).strip()
    else:
        return None
    if not is_secret(token):
        raise SettingsError([f"{name}: the token {SECRET_RULE}"])
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
    except OSError as error:
        raise SettingsError([f"{names}: {problem_with_files(error)}"]) from error


def _read(path: Path, name: str) -> str:
    """The text of a file. name: the variable that holds the path. Raises SettingsError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise SettingsError([f"{name}: the file cannot be read ({type(error).__name__})"]) from error
