"""The settings of a replica."""

from __future__ import annotations

from collections.abc import Mapping

from app.errors import SettingsError
from app.settings import PREFIX, Settings, load_settings

# Settings of the listener and of the drain. Under Ray, Ray's proxy listens, and Ray drains replicas.
RAYS_OWN = (
    "host",
    "port",
    "probe_port",
    "tls_certificate",
    "tls_key",
    "max_connections",
    "max_connections_per_address",
    "keep_alive_s",
    "read_timeout_s",
    "reader_stall_s",
    "max_header_bytes",
    "drain_delay_s",
    "drain_timeout_s",
)


def replica_settings(settings: Mapping[str, object], *, num_cpus: int) -> Settings:
    """The settings of a replica. It uses one thread for each CPU that Ray reserves, unless `settings` has num_threads.

    settings: those of the Serve application; they override the environment. TRANSDUCE_NUM_THREADS of the environment is
    ignored. Raises SettingsError, also for a setting that has no effect under Ray.
    """
    checked = load_settings({"num_threads": max(1, num_cpus), **settings})
    problems = [
        f"{PREFIX}{name.upper()} has no effect under Ray, whose proxy holds the connections: unset it (docs/ray.md)"
        for name in RAYS_OWN
        if name in checked.model_fields_set
    ]
    if problems:
        raise SettingsError(problems)
    return checked
