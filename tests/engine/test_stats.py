"""The health of several engines as one."""

from __future__ import annotations

from dataclasses import replace

from app.engine.stats import Health

SOUND = Health(True, False, 0.5, 1, 20, drain_time_s=2.0)


def test_one_stalled_engine_makes_all_unhealthy() -> None:
    assert Health.joint([SOUND, SOUND]).is_healthy
    assert not Health.joint([SOUND, replace(SOUND, is_stalled=True)]).is_healthy
    assert not Health.joint([SOUND, replace(SOUND, is_alive=False)]).is_healthy


def test_the_joint_drain_time_is_the_longest_one_and_unknown_if_one_is_unknown() -> None:
    assert Health.joint([SOUND, replace(SOUND, drain_time_s=3.0)]).drain_time_s == 3.0
    assert Health.joint([SOUND, replace(SOUND, drain_time_s=None)]).drain_time_s is None
