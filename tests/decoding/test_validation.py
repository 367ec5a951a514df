"""Values out of range and contradictory options are rejected, and the error names the fields. Valid options pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.decoding.options import DecodingOptions, EarlyStop, Sampling
from app.decoding.validation import Bounds, bounded_by_source, check_options
from app.errors import InvalidRequest

BOUNDS = Bounds(vocab_size=50, eos_id=3, max_target_length=40)
BEAM = DecodingOptions(max_target_length=40)
GREEDY = DecodingOptions(beam_size=1, max_target_length=40)


def refusal(options: DecodingOptions, bounds: Bounds = BOUNDS) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        check_options(options, bounds)
    return error.value


@pytest.mark.parametrize(
    ("options", "changes", "named"),
    [
        (BEAM, {"num_hypotheses": 5, "patience": 2.0}, ("num_hypotheses", "beam_size")),
        (BEAM, {"num_hypotheses": 0}, ("num_hypotheses", "beam_size")),
        (BEAM, {"min_target_length": 9, "max_target_length": 8}, ("min_target_length", "max_target_length")),
        (BEAM, {"sampling": Sampling()}, ("sampling", "beam_size")),
        (BEAM, {"forced_target": (5,)}, ("forced_target", "beam_size")),
        (BEAM, {"target_prefix": (5, 6), "max_target_length": 1}, ("target_prefix", "max_target_length")),
        (GREEDY, {"forced_target": (5, 6), "max_target_length": 1}, ("forced_target", "max_target_length")),
        (BEAM, {"patience": 2.0, "early_stop": EarlyStop.BOUND}, ("patience", "early_stop")),
        (BEAM, {"patience": 0.5, "num_hypotheses": 3}, ("num_hypotheses", "patience")),
        (GREEDY, {"patience": 2.0}, ("patience", "beam_size")),
        (GREEDY, {"early_stop": EarlyStop.BOUND}, ("early_stop", "beam_size")),
        *(
            (replace(GREEDY, forced_target=(5,)), {field: value}, ("forced_target", field))
            for field, value in {
                "sampling": Sampling(),
                "target_prefix": (5,),
                "min_target_length": 1,
                "min_target_ratio": 0.5,
                "max_target_ratio": 2.0,
                "suppress_sequences": ((5,),),
                "no_repeat_ngram_size": 3,
                "repetition_penalty": 1.2,
                "loop_guard": True,
            }.items()
        ),
    ],
)
def test_a_contradiction_names_both_fields(
    options: DecodingOptions, changes: dict[str, Any], named: tuple[str, str]
) -> None:
    error = refusal(replace(options, **changes))
    assert error.field == named[0]
    assert all(name in error.message for name in named)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("beam_size", {"beam_size": 17}),
        ("max_target_length", {"max_target_length": 41}),
        ("min_target_length", {"min_target_length": -1}),
        ("min_target_ratio", {"min_target_ratio": float("nan")}),
        ("max_target_ratio", {"max_target_ratio": 0.0}),
        ("alpha", {"alpha": float("inf")}),
        ("repetition_penalty", {"repetition_penalty": 0.0}),
        ("no_repeat_ngram_size", {"no_repeat_ngram_size": -1}),
        ("patience", {"patience": 0.0}),
        ("num_alternatives", {"num_alternatives": 17}),
        ("num_hypotheses", {"beam_size": 1, "sampling": Sampling(), "num_hypotheses": 17}),
        ("num_hypotheses", {"beam_size": 1, "sampling": Sampling(), "num_hypotheses": 0}),
        ("temperature", {"beam_size": 1, "sampling": Sampling(temperature=0.0)}),
        ("top_k", {"beam_size": 1, "sampling": Sampling(top_k=51)}),
        ("top_p", {"beam_size": 1, "sampling": Sampling(top_p=0.0)}),
        ("seed", {"beam_size": 1, "sampling": Sampling(seed=-1)}),
        ("target_prefix", {"target_prefix": (50,)}),
        ("target_prefix", {"target_prefix": (5, 3)}),
        ("forced_target", {"beam_size": 1, "forced_target": (-1,)}),
        ("forced_target", {"beam_size": 1, "forced_target": (3,)}),
        ("suppress_sequences", {"suppress_sequences": ((5, 50),)}),
        ("suppress_sequences", {"suppress_sequences": ((),)}),
        ("suppress_sequences", {"suppress_sequences": ((5,) * 1025,)}),
        # The model of BOUNDS returns no attention.
        ("coverage_penalty", {"coverage_penalty": 0.2}),
        ("alignment", {"alignment": True}),
    ],
)
def test_a_value_that_is_not_allowed_names_its_field(field: str, changes: dict[str, Any]) -> None:
    error = refusal(replace(BEAM, **changes))
    assert error.field == field
    assert field in error.message


@pytest.mark.parametrize("value", [-0.1, 10.1, float("nan")])
def test_a_coverage_penalty_out_of_range_is_refused_also_with_attention(value: float) -> None:
    error = refusal(replace(BEAM, coverage_penalty=value), replace(BOUNDS, has_alignment=True))
    assert error.message == f"coverage_penalty must be 0.0 to 10.0, and is {value}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (replace(GREEDY, patience=2.0), "patience must be 1 if beam_size is 1"),
        (replace(GREEDY, early_stop=EarlyStop.BOUND), 'early_stop must be "first" if beam_size is 1'),
        (
            replace(BEAM, early_stop=EarlyStop.BOUND, patience=2.0),
            'patience must be 1 if early_stop is "bound", and is 2.0',
        ),
    ],
)
def test_values_of_early_stop_are_quoted_in_messages(options: DecodingOptions, message: str) -> None:
    assert refusal(options).message == message


@pytest.mark.parametrize(
    "options",
    [
        BEAM,
        replace(BEAM, patience=2.0, num_hypotheses=4),
        replace(BEAM, early_stop=EarlyStop.BOUND, min_target_length=40),
        replace(
            GREEDY, sampling=Sampling(temperature=0.7, top_k=50, top_p=0.9, seed=2**63 - 1), num_hypotheses=16
        ),
        replace(GREEDY, forced_target=(), num_alternatives=4),
        replace(GREEDY, forced_target=(5,) * 40),
        replace(BEAM, target_prefix=(5,) * 40, suppress_sequences=((3,), (5, 3))),
        replace(BEAM, no_repeat_ngram_size=2, repetition_penalty=1.5, loop_guard=True),
    ],
)
def test_valid_options_pass(options: DecodingOptions) -> None:
    check_options(options, BOUNDS)


def test_a_model_with_alignment_accepts_options_that_need_it() -> None:
    check_options(replace(BEAM, coverage_penalty=0.2, alignment=True), replace(BOUNDS, has_alignment=True))


def test_beam_size_is_limited_by_the_cache_rows() -> None:
    assert refusal(BEAM, replace(BOUNDS, max_beam_size=3)).field == "beam_size"


@pytest.mark.parametrize(
    ("minimum", "maximum", "source_length", "lengths"),
    [
        (0.0, 1.1, 10, (0, 11)),
        (0.0, 0.29, 100, (0, 29)),
        (0.0, 9.0, 10, (0, 40)),
        (0.0, 0.1, 3, (0, 1)),
        (0.5, None, 9, (5, 40)),
        (0.7, 0.7, 10, (7, 7)),
        (0.14, None, 50, (7, 40)),
        (2.0, 2.0, 0, (0, 1)),
    ],
)
def test_ratios_become_lengths(
    minimum: float, maximum: float | None, source_length: int, lengths: tuple[int, int]
) -> None:
    options = replace(BEAM, min_target_ratio=minimum, max_target_ratio=maximum)
    bounded = bounded_by_source(options, source_length)
    assert (bounded.min_target_length, bounded.max_target_length) == lengths
    assert bounded_by_source(bounded, 1) == bounded


def test_the_stricter_of_length_and_ratio_applies() -> None:
    options = replace(
        BEAM, min_target_length=6, min_target_ratio=0.5, max_target_length=9, max_target_ratio=2.0
    )
    bounded = bounded_by_source(options, 8)
    assert (bounded.min_target_length, bounded.max_target_length) == (6, 9)


@pytest.mark.parametrize(
    ("changes", "source_length", "named"),
    [
        (
            {"min_target_ratio": 2.0, "max_target_length": 10},
            6,
            ("min_target_ratio", "max_target_length"),
        ),
        ({"min_target_length": 7, "max_target_ratio": 1.0}, 6, ("min_target_length", "max_target_ratio")),
        ({"min_target_ratio": 1.5, "max_target_ratio": 1.0}, 6, ("min_target_ratio", "max_target_ratio")),
        ({"target_prefix": (5,) * 7, "max_target_ratio": 1.0}, 6, ("target_prefix", "max_target_ratio")),
    ],
)
def test_a_contradiction_with_a_ratio_names_both_fields(
    changes: dict[str, Any], source_length: int, named: tuple[str, str]
) -> None:
    options = replace(BEAM, **changes)
    check_options(options, BOUNDS)
    with pytest.raises(InvalidRequest) as error:
        bounded_by_source(options, source_length)
    assert error.value.field == named[0]
    assert all(name in error.value.message for name in named)


def test_options_without_ratios_are_returned_unchanged() -> None:
    assert bounded_by_source(BEAM, 5) is BEAM
