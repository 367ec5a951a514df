"""The decoding options that a request sets. All other options are defaults of a model that may not be known yet."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from app.decoding.options import MAX_BEAM_SIZE, DecodingOptions, Sampling
from app.decoding.validation import OFF, Bounds, check_options


@dataclass(frozen=True)
class OptionChanges:
    """The decoding options that a request sets.

    Each property is an option for which no model has a default. Its value is the request's, or off.

    values: pairs of an option's name, as in `DecodingOptions`, and its value. max_beam_size: the server's limit. If the
    request does not set beam_size, the beam_size that is chosen for it is at most max_beam_size.
    """

    values: tuple[tuple[str, Any], ...] = ()
    max_beam_size: int = MAX_BEAM_SIZE

    @classmethod
    def of(cls, **values: Any) -> OptionChanges:
        """Return the changes with these values."""
        return cls(tuple(values.items()))

    @functools.cached_property
    def num_hypotheses(self) -> int:
        """The number of hypotheses to return; 1 unless the request sets it."""
        value: int = self._value("num_hypotheses")
        return value

    @functools.cached_property
    def num_alternatives(self) -> int:
        """The number of alternatives at each position; 0 unless the request sets it."""
        value: int = self._value("num_alternatives")
        return value

    @functools.cached_property
    def alignment(self) -> bool:
        """Whether the request asks for the alignment."""
        value: bool = self._value("alignment")
        return value

    @functools.cached_property
    def loop_guard(self) -> bool:
        """Whether the request turns the loop guard on."""
        value: bool = self._value("loop_guard")
        return value

    @functools.cached_property
    def sampling(self) -> Sampling | None:
        """The sampling options; None unless the request sets them."""
        value: Sampling | None = self._value("sampling")
        return value

    def updated(self, **values: Any) -> OptionChanges:
        """Return the changes with these values in addition, or in the place of earlier ones."""
        if not values:
            return self
        changed = tuple((self._by_name | values).items())
        if "sampling" in values:  # each request may have its own seed, so these changes are not cached
            return OptionChanges(changed, self.max_beam_size)
        return _cached(changed, self.max_beam_size)

    def only(self, names: Collection[str]) -> OptionChanges:
        """Return the changes of the options with these names, without the other changes."""
        return replace(self, values=tuple(item for item in self.values if item[0] in names))

    def merged(self, defaults: DecodingOptions) -> DecodingOptions:
        """Return a model's default options with these changes.

        If the request does not set beam_size, it is 1 with sampling. Without sampling it is the larger of the model's
        beam_size and num_hypotheses, but at most max_beam_size.
        """
        if self.sampling is not None:  # each request may have its own seed, so these options are not cached
            return _merged.__wrapped__(self, defaults)
        return _merged(self, defaults)

    def checked(self, defaults: DecodingOptions, bounds: Bounds) -> DecodingOptions:
        """As `merged`. bounds: of the same model. Raises InvalidRequest as `check_options` does."""
        options = self.merged(defaults)
        check_options(options, bounds)
        return options

    @functools.cached_property
    def _by_name(self) -> dict[str, Any]:
        return dict(self.values)

    def _value(self, name: str) -> Any:
        return self._by_name.get(name, OFF[name])


# The changes of a request that sets no option, and of one that sets only a greedy search.
NO_CHANGES = OptionChanges()
GREEDY = OptionChanges.of(beam_size=1)


@functools.lru_cache(maxsize=256)
def _cached(values: tuple[tuple[str, Any], ...], max_beam_size: int) -> OptionChanges:
    return OptionChanges(values, max_beam_size)


@functools.lru_cache(maxsize=256)
def _merged(changes: OptionChanges, defaults: DecodingOptions) -> DecodingOptions:
    """Return `OptionChanges.merged`. Cached, because most requests have the same options."""
    options = replace(defaults, **changes._by_name)
    if "beam_size" in changes._by_name:
        return options
    beam_size = min(max(defaults.beam_size, options.num_hypotheses), changes.max_beam_size)
    return replace(options, beam_size=1 if options.sampling is not None else beam_size)
