"""The directions that a model translates, as the manifest of its bundle names them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

# The maximum number of languages of a model that translates between any two of them. If larger, a short manifest makes
# millions of pairs.
MAX_LANGUAGES = 256


class ManifestPart(BaseModel):
    """A frozen part of the manifest that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# The form of a BCP 47 tag.
LANGUAGE_TAG = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$"
LanguageTag = Annotated[str, Field(pattern=LANGUAGE_TAG)]


class LanguagePair(ManifestPart):
    """A direction that the model translates.

    source_prefix: a subword added to the source, for a model with several targets or sources. It comes first, or, with
        the manifest's tag_follows_source, last.
    target_start: the subword with which the target starts, after special_ids.bos. It is no part of the translation.
        Either every pair of a model has one, or none has.
    """

    source: LanguageTag
    target: LanguageTag
    source_prefix: str | None = None
    target_start: str | None = None

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out target_start if there is none, so that older servers read the pair."""
        fields: dict[str, Any] = write(self)
        if self.target_start is None:
            del fields["target_start"]
        return fields


def pairs_between(languages: Mapping[str, str]) -> tuple[LanguagePair, ...]:
    """Both directions between any two languages, without Pydantic's checks, which take long for many pairs.

    languages: the subword of each language tag. Pydantic has checked tags and subwords already.
    """
    fields = set(LanguagePair.model_fields)
    return tuple(
        LanguagePair.model_construct(
            fields,
            source=source,
            target=target,
            source_prefix=languages[source],
            target_start=languages[target],
        )
        for source, target in itertools.permutations(languages, 2)
    )


def pair_problems(pairs: Sequence[LanguagePair]) -> list[str]:
    """What is wrong with a model's pairs together: a direction twice, or only some with a target_start."""
    problems = [
        f"language_pairs: {source} to {target} is there {count} times"
        for (source, target), count in Counter((pair.source, pair.target) for pair in pairs).items()
        if count > 1
    ]
    if len({pair.target_start is None for pair in pairs}) > 1:
        problems.append("language_pairs: either all have a target_start or none")
    return problems
