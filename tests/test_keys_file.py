"""The file of API keys: what it may contain, and the error for each problem of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.keys_file import MAX_FILE_BYTES, MAX_KEYS, read_keys_file
from app.stores.key_limits import KeyLimits

SECRET = "0123456789abcdef"
DIGEST = hashlib.sha256(b"another").hexdigest()


def write(folder: Path, text: str) -> Path:
    file = folder / "keys.toml"
    file.write_text(text, "utf-8")
    return file


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read_keys_file(write(folder, text))
    prefix = "TRANSDUCE_API_KEYS_FILE: "
    assert all(problem.startswith(prefix) for problem in raised.value.problems)
    assert SECRET not in str(raised.value)
    return [problem.removeprefix(prefix) for problem in raised.value.problems]


def test_keys_and_limits_are_read(tmp_path: Path) -> None:
    sales, shop = read_keys_file(
        write(
            tmp_path,
            f"""
            [sales]  # two keys, while the old one is replaced
            key = "{SECRET}"
            sha256 = ["{DIGEST}"]
            requests_per_minute = 600
            characters_per_month = 20_000_000
            [shop_2]
            key = ["{SECRET}-2", "{SECRET}-3"]
            """,
        )
    )
    assert (sales.name, shop.name) == ("sales", "shop_2")
    assert sales.hashes == (DIGEST, hashlib.sha256(SECRET.encode()).hexdigest())
    assert sales.limits == KeyLimits(requests_per_minute=600, characters_per_month=20_000_000)
    assert len(shop.hashes) == 2
    assert shop.limits == KeyLimits()
    assert SECRET not in repr([sales, shop])
    assert DIGEST not in repr([sales, shop])


def test_a_byte_order_mark_at_the_beginning_is_no_part_of_the_file(tmp_path: Path) -> None:
    (keys,) = read_keys_file(write(tmp_path, f'\ufeff[sales]\nkey = "{SECRET}"\n'))
    assert keys.name == "sales"


UNKNOWN = (
    "a field is not known; the known fields are key, sha256, requests_per_minute, requests_per_day, "
    "characters_per_day, characters_per_month, concurrent_requests"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file holds no key, so the server would be open to everyone"),
        ("[sales]\nsha256 = x", "the file is not TOML at line 2, column 10"),
        (DIGEST, "the file is not TOML at end of document"),
        (f"a = {'[' * 9999}", "the file is not TOML"),
        (f"a = {'1' * 9999}", "the file is not TOML"),
        (f'key = "{SECRET}"', "key is outside of a table; each key needs a table such as [sales]"),
        (f'{SECRET} = "sales"', "a value is outside of a table; each key needs a table such as [sales]"),
        ('limit = "5"', "a value is outside of a table; each key needs a table such as [sales]"),
        (f'[sales]\nkey = "{SECRET}"\n{SECRET} = 5', f"[sales] {UNKNOWN}"),
        (f'[sales]\nkey = "{SECRET}"\n[{SECRET}]', "entry 2: it has neither key nor sha256"),
        ("[sales]\nrequests_per_day = 5", "[sales] it has neither key nor sha256"),
        ('[sales]\nkey = "short"', "[sales] key must be at least 16 characters of ASCII without spaces"),
        (
            '[sales]\nkey = "01234567 89abcdef"',
            "[sales] key must be at least 16 characters of ASCII without spaces",
        ),
        (f'[sales]\nsha256 = "{SECRET}"', "[sales] sha256 is not a SHA-256 in lower-case hexadecimal"),
        (
            f'[sales]\nkey = "{SECRET}"\ncharacters_a_day = 5',
            "[sales] characters_a_day is not known; did you mean characters_per_day?",
        ),
        (
            f'[sales]\nkey = "{SECRET}"\ncharacters_per_day = 0',
            "[sales] characters_per_day: Input should be greater than or equal to 1",
        ),
        (
            f'[sales]\nkey = "{SECRET}"\ncharacters_per_day = "5"',
            "[sales] characters_per_day: Input should be a valid integer",
        ),
        (
            f'[sales]\nkey = "{SECRET}"\n["a b"]\nkey = "{SECRET}-2"',
            "entry 2: its name must be 1 to 64 ASCII letters, digits, - and _, and must not begin with - or _",
        ),
        (f'[sales]\nkey = "{SECRET}"\n[[shop]]\nkey = "{SECRET}-2"', "entry 2: write [name], not [[name]]"),
        ("sales = []", "a value is outside of a table; each key needs a table such as [sales]"),
        ("[sales]\nkey = 5", "[sales] key must be a string or an array of strings"),
        (f'[sales]\nsha256 = ["{DIGEST}", 5]', "[sales] sha256 must be a string or an array of strings"),
        ("[sales]\nsha256 = [5, 6]", "[sales] sha256 must be a string or an array of strings"),
        (f'[a]\nkey = "{SECRET}"\n[b]\nkey = "{SECRET}"', "[b] has a key of [a]"),
    ],
)
def test_the_problem_of_a_bad_file_is_named_without_a_key(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ('3fK9x7Qa.Zp41LmN0 = ""', "entry 1:"),
        ('[sales]\n3fK9x7Qa.Zp41LmN0 = "x"', "entry 1:"),
        (f'[sales]\nkey = "{SECRET}"\n3fK9x7Qa.Zp41LmN0 = "x"', "[sales]"),
    ],
)
def test_a_key_with_a_dot_in_place_of_a_field_is_unknown(tmp_path: Path, text: str, entry: str) -> None:
    """TOML reads `a.b = "x"` as the field `b` of a table `a`. The error must not repeat either of them."""
    assert problems(tmp_path, text) == [f"{entry} {UNKNOWN}"]


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "[a]\nkey = 1\n[b]\nsha256 = 'x'\n[c]\nlimit = 3")) >= 3


def test_the_number_of_keys_is_limited(tmp_path: Path) -> None:
    table = "".join(f'[k{number}]\nkey = "{SECRET}{number}"\n' for number in range(MAX_KEYS + 1))
    assert problems(tmp_path, table) == [f"there are {MAX_KEYS + 1} keys, more than {MAX_KEYS}"]
    file = write(tmp_path, table.rpartition("[")[0])
    assert len(read_keys_file(file)) == MAX_KEYS


def test_the_length_of_the_file_is_limited(tmp_path: Path) -> None:
    text = f'[sales]\nkey = "{SECRET}"\n'.ljust(MAX_FILE_BYTES, "#")
    assert problems(tmp_path, text + "#") == [f"the file has more than {MAX_FILE_BYTES} bytes"]
    assert len(read_keys_file(write(tmp_path, text))) == 1


def test_a_file_that_is_missing_or_not_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="FileNotFoundError"):
        read_keys_file(tmp_path / "none")
    (tmp_path / "keys").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="the file is not UTF-8"):
        read_keys_file(tmp_path / "keys")
