"""A beam size or length penalty that no bundle can have is refused by its file and name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model.imported import UnusableModel
from model.m2m import read_m2m
from model.marian import read_marian
from tests.export.m2m_folder import change, write_m2m
from tests.export.marian_folder import write_marian

pytestmark = pytest.mark.training
CONFIGURATIONS = ("config.json", "generation_config.json")
WHOLE, NUMBER = "a whole number of at least 1", "a number from 0 to 10"


def _update(fields: dict[str, Any], found: dict[str, Any]) -> None:
    found.update(fields)


@pytest.mark.parametrize(("write", "read"), [(write_m2m, read_m2m), (write_marian, read_marian)])
def test_a_wrong_beam_size_or_length_penalty_is_refused(
    tmp_path: Path, write: Callable[[Path], Any], read: Callable[[Path], Any]
) -> None:
    write(tmp_path)
    beams: tuple[Any, ...] = ("four", [4], 4.7, 0, -1, True)
    penalties: tuple[Any, ...] = ("x", [1.0], -1.0, 10.5, float("nan"), True)
    wrong = [("num_beams", value, WHOLE) for value in beams]
    wrong += [("length_penalty", value, NUMBER) for value in penalties]
    for field, value, needed in wrong:
        for file in CONFIGURATIONS:
            for each in CONFIGURATIONS:
                fields: dict[str, Any] = {"num_beams": None, "length_penalty": None}
                fields |= {field: value} if each == file else {}
                change(tmp_path / each, partial(_update, fields))
            message = f"{field} of {file} is {value!r}; it must be {needed}"
            with pytest.raises(UnusableModel, match=re.escape(message) + "$"):
                read(tmp_path)
