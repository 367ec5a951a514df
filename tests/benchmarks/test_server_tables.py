"""The tables about the server have the numbers of cores and of clients from their results."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.server_tables import STARTS, overload_tables, starts_table

MEDIANS = {key: 1.0 for key, _, _ in STARTS}


def result(num_cores: int, **more: object) -> dict[str, Any]:
    machine = {"cpu": "a processor", "num_cores": num_cores, "load_average_before": 0.1}
    return {"machine": machine, "commit": "c", "command": "python -m benchmarks", **more}


@pytest.mark.parametrize(("num_cores", "words"), [(1, "one core"), (2, "two cores"), (16, "16 cores")])
def test_the_second_column_of_starts_is_that_of_all_cores(num_cores: int, words: str) -> None:
    memory = {"under load, twice as long": {"pss": 200.0}}
    table = starts_table(result(num_cores, medians=MEDIANS, medians_on_all_cores=MEDIANS, memory=memory))
    assert table.startswith(f"|  | one core | {words} |\n")


def test_the_capacity_is_that_of_the_clients_of_the_result() -> None:
    figures = {"capacity_per_s": 300.0, "timeout_ms": 1500}
    assert "At first 64 clients, " in overload_tables(result(2, figures=figures))
    assert "At first 32 clients, " in overload_tables(result(2, figures={"num_clients": 32, **figures}))
