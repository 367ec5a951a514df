"""Settings are read and validated: unknown variables, values out of range and contradictions are reported."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.bundle import load_bundle
from app.bundle_folders import find_bundles
from app.errors import SettingsError
from app.keys_file import MAX_KEYS
from app.runtime.device import Device
from app.secret_settings import read_admin_token, read_api_keys
from app.settings import PREFIX, Settings, load_settings
from app.startup import model_spec
from tests.house_rules.project import ROOT

HASH = hashlib.sha256(b"key").hexdigest()


def problems(**overrides: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        load_settings(overrides)
    return raised.value.problems


def test_defaults() -> None:
    settings = load_settings()
    assert settings.host == "127.0.0.1"
    assert (settings.max_body_bytes, settings.max_items) == (1_000_000, 128)
    assert (settings.max_item_characters, settings.max_request_characters) == (5_000, 50_000)
    assert (settings.max_beam_size, settings.default_timeout_s) == (16, 30)
    assert (settings.max_header_bytes, settings.read_timeout_s) == (16_384, 10)


def test_variables_in_capital_or_small_letters_set_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_PORT", "9000")
    monkeypatch.setenv("transduce_max_items", "5")
    monkeypatch.setenv("TRANSDUCE_API_KEYS", f"{HASH}, {'a' * 64}")
    settings = load_settings()
    assert (settings.port, settings.max_items) == (9000, 5)
    assert settings.api_keys == {HASH, "a" * 64}


def test_the_command_line_wins_over_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_PORT", "9000")
    assert load_settings({"port": 9001}).port == 9001


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_PORT", "")
    assert load_settings().port == 8000


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TRANSDUCE_PROT", "TRANSDUCE_PORT"),
        ("TRANSDUCE_MAX_ITEM", "TRANSDUCE_MAX_ITEMS"),
        ("transduce_hots", "TRANSDUCE_HOST"),
    ],
)
def test_a_misspelled_variable_is_named_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, variable: str, nearest: str
) -> None:
    monkeypatch.setenv(variable, "1")
    assert problems() == (f"{variable} is not a setting; did you mean {nearest}?",)


def test_a_variable_that_is_near_nothing_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_XYZZY", "1")
    assert problems() == ("TRANSDUCE_XYZZY is not a setting",)


def test_all_problems_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_PROT", "1")
    monkeypatch.setenv("TRANSDUCE_PORT", "70000")
    monkeypatch.setenv("TRANSDUCE_READ_TIMEOUT_S", "inf")
    found = problems()
    assert [line.split(":")[0].split(" ")[0] for line in found] == [
        "TRANSDUCE_PROT",
        "TRANSDUCE_PORT",
        "TRANSDUCE_READ_TIMEOUT_S",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_item_characters": 9, "max_request_characters": 8},
        {"default_timeout_s": 9.5, "max_timeout_s": 8.5},
        {"max_num_hypotheses": 9, "max_beam_size": 8},
        {"max_beam_size": 9, "num_rows": 8, "max_num_hypotheses": 1},
        {"max_request_sentences": 3000, "max_pending_sentences": 2000},
        {"max_items": 2000, "max_request_sentences": 1024},
        {"max_file_bytes": 5001, "max_kept_file_bytes": 5000},
    ],
)
def test_a_contradiction_names_both_settings(settings: dict[str, object]) -> None:
    (line,) = problems(**settings)
    for name, value in list(settings.items())[:2]:
        assert f"{PREFIX}{name.upper()} ({value})" in line


@pytest.mark.parametrize(("device", "default"), [("cpu", 64), ("cuda", 512)])
def test_the_default_number_of_rows_depends_on_the_device(tiny: Path, device: Device, default: int) -> None:
    bundle = load_bundle(tiny / "bundle")
    for num_rows, expected in ((0, default), (7, 7)):
        settings = Settings(num_rows=num_rows, num_kept_rows=2, max_beam_size=4, max_num_hypotheses=4)
        limits = model_spec(bundle.path, bundle.manifest, device, settings).limits
        assert (limits.num_rows, limits.num_kept_rows) == (expected + 2, 2)


@pytest.mark.parametrize(("model_memory", "loads_at_low_priority"), [(None, False), (10**9, True)])
def test_with_a_memory_budget_loads_yield_to_other_models(
    tiny: Path, model_memory: int | None, loads_at_low_priority: bool
) -> None:
    bundle = load_bundle(tiny / "bundle")
    spec = model_spec(bundle.path, bundle.manifest, "cpu", Settings(model_memory=model_memory))
    assert spec.loads_at_low_priority is loads_at_low_priority


NUMBERS = (int, float, int | None, float | None)


@pytest.mark.parametrize(
    "name", [name for name, field in Settings.model_fields.items() if field.annotation in NUMBERS]
)
def test_no_number_can_be_negative_infinite_or_nan(name: str) -> None:
    assert problems(**{name: -1})
    assert problems(**{name: "inf"})
    assert problems(**{name: "nan"})


def test_settings_are_frozen() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


def test_a_plain_text_key_is_rejected_and_not_repeated() -> None:
    (line,) = problems(api_keys="my secret key")
    assert "API_KEYS" in line
    assert "secret" not in line


@pytest.mark.parametrize("value", [",", " ", " ,\n,"])
def test_a_variable_without_any_key_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """`"$A,$B"` without its two secrets would otherwise open the server to everyone."""
    monkeypatch.setenv("TRANSDUCE_API_KEYS", value)
    monkeypatch.setenv("TRANSDUCE_PORT", "70000")
    assert [line.split(":")[0] for line in problems()] == ["TRANSDUCE_PORT", "TRANSDUCE_API_KEYS"]
    assert "TRANSDUCE_API_KEYS: it is set but holds no key" in problems()[1]
    monkeypatch.delenv("TRANSDUCE_PORT")
    assert len(problems(api_keys_file="keys.toml")) == 1
    monkeypatch.setenv("TRANSDUCE_API_KEYS", f"{HASH},")
    assert load_settings().api_keys == {HASH}


def test_the_clients_variables_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_URL", "http://127.0.0.1:8000")
    monkeypatch.setenv("TRANSDUCE_API_KEY", "key")
    assert load_settings({"api_keys": HASH}).api_keys == {HASH}
    # A server does not read the client's variable. With this variable alone it would be open, so the start is refused.
    (line,) = problems()
    assert "open to everyone" in line


def test_an_empty_key_of_the_client_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_API_KEY", "")
    assert not load_settings().api_keys


def test_keys_of_the_variable_and_of_the_file_are_read_together(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f'[sales]\nsha256 = "{"b" * 64}"\n', "utf-8")
    settings = load_settings({"api_keys": HASH, "api_keys_file": file})
    assert [(keys.name, keys.hashes) for keys in read_api_keys(settings)] == [
        (HASH[:12], (HASH,)),
        ("sales", ("b" * 64,)),
    ]


def test_a_key_in_both_the_variable_and_the_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f'[sales]\nsha256 = "{HASH}"\n', "utf-8")
    with pytest.raises(SettingsError) as raised:
        read_api_keys(load_settings({"api_keys": HASH, "api_keys_file": file}))
    (problem,) = raised.value.problems
    begin = "TRANSDUCE_API_KEYS_FILE: [sales] has a key that is also in TRANSDUCE_API_KEYS"
    assert problem == f"{begin} (SHA-256 {HASH[:12]}...)"


def test_the_variable_may_hold_as_many_keys_as_a_file_and_no_more() -> None:
    hashes = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(MAX_KEYS + 1)]
    assert len(read_api_keys(load_settings({"api_keys": ",".join(hashes[:-1])}))) == MAX_KEYS
    with pytest.raises(SettingsError, match=rf"^TRANSDUCE_API_KEYS: there are {MAX_KEYS + 1} keys"):
        read_api_keys(load_settings({"api_keys": ",".join(hashes)}))


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "http:///v1/traces", "grpc://127.0.0.1:4317"])
def test_a_receiver_of_traces_has_a_url_of_http(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings({"traces_endpoint": url})
    line = "TRANSDUCE_TRACES_ENDPOINT: the URL must begin with http:// or https:// and a host"
    assert raised.value.problems == (line,)


def test_the_usage_counts_have_one_store(tmp_path: Path) -> None:
    stores = {"usage_path": tmp_path / "usage", "usage_redis_url": "redis://user:secret@127.0.0.1"}
    with pytest.raises(
        SettingsError, match="USAGE_PATH and TRANSDUCE_USAGE_REDIS_URL are both set"
    ) as caught:
        load_settings(stores)
    assert "secret" not in str(caught.value)


def make_bundle(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()
    return folder


def test_without_a_setting_the_only_bundle_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.bundle_folders.__file__", str(tmp_path / "app" / "bundle_folders.py"))
    monkeypatch.chdir(tmp_path)
    assert find_bundles(load_settings({"bundle": tmp_path / "x"})) == [tmp_path / "x"]
    with pytest.raises(SettingsError, match="TRANSDUCE_BUNDLE"):
        find_bundles(load_settings())
    bundle = make_bundle(tmp_path / "bundles" / "small-en-de")
    assert find_bundles(load_settings()) == [bundle]
    make_bundle(tmp_path / "bundles" / "big-en-de")
    with pytest.raises(SettingsError, match=r"big-en-de, small-en-de"):
        find_bundles(load_settings())


def test_a_listed_folder_is_a_bundle_or_contains_bundles(tmp_path: Path) -> None:
    one = make_bundle(tmp_path / "one")
    inner = [make_bundle(tmp_path / "many" / name) for name in ("b", "a")]
    listed = f"{tmp_path / 'many'}, {one} ,{inner[0]}"
    assert find_bundles(load_settings({"bundles": listed})) == [*sorted(inner), one]
    with pytest.raises(SettingsError, match="nothing holds no bundle"):
        find_bundles(load_settings({"bundles": [one, tmp_path / "nothing"]}))
    with pytest.raises(SettingsError, match="TRANSDUCE_BUNDLE and TRANSDUCE_BUNDLES"):
        load_settings({"bundle": one, "bundles": [one]})


def shown_default(value: object) -> str:
    if value is None or value in (frozenset(), ()):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_the_documentation_says_each_default_and_meaning() -> None:
    lines = (ROOT / "docs" / "configuration.md").read_text("utf-8").splitlines()
    expected = {
        f"| `{PREFIX}{name.upper()}` | {shown_default(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    }
    assert expected - set(lines) == set()


def test_the_administrators_token_is_a_variable_or_a_file(tmp_path: Path) -> None:
    token, file = "a-token-of-enough-letters", tmp_path / "token"
    file.write_text(f"{token}\n", "utf-8")
    assert read_admin_token(load_settings()) is None
    assert read_admin_token(load_settings({"admin_token": token})) == token
    assert read_admin_token(load_settings({"admin_token_file": file})) == token
    assert token not in repr(load_settings({"admin_token": token}))
    with pytest.raises(SettingsError, match="ADMIN_TOKEN_FILE are both set"):
        load_settings({"admin_token": token, "admin_token_file": file})


@pytest.mark.parametrize("token", ["short", "has spaces in it, and more", "nicht nur ASCII: ä" * 2])
def test_an_invalid_token_is_rejected_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError, match="TRANSDUCE_ADMIN_TOKEN: the token must be") as caught:
        read_admin_token(load_settings({"admin_token": token}))
    assert token not in str(caught.value)


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TRANSDUCE_ADMIN_TOKEN_FILE: the file cannot be read"):
        read_admin_token(load_settings({"admin_token_file": tmp_path / "none"}))


def test_a_list_of_models_to_load_needs_a_budget() -> None:
    settings = load_settings({"model_memory": 10**9, "preload": "first , second,"})
    assert settings.preload == ("first", "second")
    with pytest.raises(SettingsError, match="TRANSDUCE_PRELOAD is set without TRANSDUCE_MODEL_MEMORY"):
        load_settings({"preload": "first"})
