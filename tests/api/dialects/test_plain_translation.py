"""The fields of a translation in the dialects."""

from __future__ import annotations

from app.api.plain_translation import PlainTranslation, to_plain
from app.translator import Translation


def test_alternatives_differ_from_the_translation_and_from_one_another() -> None:
    hypotheses = ("Eins.", "Zwei.", "Eins.", "Drei.", "Zwei.")
    found = to_plain(Translation("Eins.", hypotheses, (), source="en", confidence=0.5))
    assert found == PlainTranslation("Eins.", "en", 0.5, ("Zwei.", "Drei."))
