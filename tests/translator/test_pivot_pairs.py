"""Pairs through another language: which there are, and the prefixes and the parts of their translations."""

from __future__ import annotations

import pytest

from app.text.tokenizer import Tokenizer
from app.translator import Models, ServedModel
from tests.api.echo import Behaviour
from tests.api.server_process import ROOT
from tests.translator.scripted import ScriptedTranslator
from tests.translator.test_pivot import Pivoted, copy_of


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ROOT / "bundles" / "en-de" / "source.spm")


def test_a_language_is_not_translated_into_itself_through_another_one(tokenizer: Tokenizer) -> None:
    pairs = (("en", "fr"), ("fr", "en"), ("fr", "de"))
    served = [
        ServedModel(
            ScriptedTranslator(
                tokenizer, copy_of, behaviour=Behaviour(pairs=(pair,), name="-".join(pair))
            ).translator,
            "fp32",
        )
        for pair in pairs
    ]
    models = Models(served, pivots=("fr",))
    assert list(models.pivoted) == [("en", "de")]
    assert models.pairs == {*pairs, ("en", "de")}


def test_only_the_first_sentence_of_a_text_begins_with_the_prefix(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    pivoted("Anna draws. Nobody sees it.", target_prefixes=("Anna",))
    prefixes = [tokenizer.offsets(options.target_prefix)[0] for _, options in pivoted.last.engine.submitted]
    assert prefixes == ["Anna", ""]


@pytest.mark.parametrize(
    ("source", "output", "prefix", "expected"),
    [
        ("{a} Anna draws.", "Anna sees it.", "Anna sees", "Anna sees {a} it."),
        ("Anna sees {a}.", "Anna draws. \ue000", "Anna draws. {a}", "Anna draws. {a}"),
    ],
)
def test_a_placeholder_is_inserted_behind_the_prefix(
    tokenizer: Tokenizer, source: str, output: str, prefix: str, expected: str
) -> None:
    pivoted = Pivoted(tokenizer, out_of=lambda _: output)
    assert pivoted(source, target_prefixes=(prefix,)).text == expected


def test_a_part_of_a_pivot_text_without_a_translation_is_kept_and_the_others_are_translated(
    tokenizer: Tokenizer,
) -> None:
    pivot_text = "the old river, " * 30 + "the old tree"
    pivoted = Pivoted(
        tokenizer,
        lambda _: pivot_text,
        lambda source: "!" if source.endswith("tree") else source.replace("river", "letter"),
    )
    translation = pivoted("Anna sees the river.")
    assert len(set(pivoted.last.sources)) > 1
    assert translation.text.startswith("the old letter, ")
    assert translation.text.endswith("the old river, the old tree")
