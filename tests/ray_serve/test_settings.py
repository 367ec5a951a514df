"""The settings of a replica."""

from __future__ import annotations

import pytest

from app.errors import SettingsError
from app.settings import Settings
from transduce.ray_serve.settings import RAYS_OWN, replica_settings


def test_a_replica_uses_the_cpus_that_ray_reserves() -> None:
    assert replica_settings({"num_rows": 24}, num_cpus=3).num_threads == 3
    assert replica_settings({}, num_cpus=0).num_threads == 1
    assert replica_settings({"num_threads": 2}, num_cpus=3).num_threads == 2


def test_settings_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_NUM_ROWS", "16")
    assert replica_settings({}, num_cpus=1).num_rows == 16


@pytest.mark.parametrize("name", RAYS_OWN)
def test_a_setting_without_effect_under_ray_is_refused(name: str) -> None:
    assert name in Settings.model_fields
    texts = {"host": "0.0.0.0", "tls_certificate": "cert.pem", "tls_key": "key.pem"}
    value = texts.get(name, 9 if name == "max_connections_per_address" else 2000)
    with pytest.raises(SettingsError, match=f"TRANSDUCE_{name.upper()} has no effect under Ray"):
        replica_settings({name: value}, num_cpus=1)


def test_a_setting_without_effect_is_refused_in_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_PORT", "9000")
    with pytest.raises(SettingsError, match="TRANSDUCE_PORT has no effect under Ray"):
        replica_settings({}, num_cpus=1)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="NUM_ROWS"):
        replica_settings({"num_rows": -1}, num_cpus=1)
