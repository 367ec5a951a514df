"""`transduce export --alpha` sets the exponent of a bundle's default length penalty."""

from __future__ import annotations

import argparse

import pytest

from export.bundle_writer import DEFAULT_DECODING
from export.cli import decoding_defaults


def test_the_option_replaces_the_default_exponent() -> None:
    assert decoding_defaults(None) == DEFAULT_DECODING
    for alpha in (0.0, 1.25, 10.0):
        assert decoding_defaults(alpha) == DEFAULT_DECODING.model_copy(update={"alpha": alpha})


@pytest.mark.parametrize("alpha", [-0.1, 10.1, float("nan")])
def test_an_exponent_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(argparse.ArgumentError, match="--alpha must be from 0 to 10"):
        decoding_defaults(alpha)
