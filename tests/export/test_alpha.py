"""`transduce export --alpha` sets the exponent of a bundle's default length penalty."""

from __future__ import annotations

import pytest

from export.bundle_writer import DEFAULT_DECODING
from export.cli import decoding_defaults


def test_the_option_replaces_the_default_exponent() -> None:
    assert decoding_defaults(None) == DEFAULT_DECODING
    assert decoding_defaults(1.25) == DEFAULT_DECODING.model_copy(update={"alpha": 1.25})


@pytest.mark.parametrize("alpha", [-0.1, 10.1, float("nan")])
def test_an_exponent_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="--alpha must be from 0 to 10"):
        decoding_defaults(alpha)
