"""A translation has the closing marks of its source, and spaces before its placeholders."""

from __future__ import annotations

import pytest

from app.text.segments import SegmentTranslation, repair
from tests.text.test_segments import A, segment, translated


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("Come here!!!", "Komm her!", "Komm her!!!"),
        ("Is it?!", "Ist es?", "Ist es?!"),
        ("\u201cRun!!\u201d", "\u201eLauf!\u201c", "\u201eLauf!!\u201c"),
        ("Well...", "Nun", "Nun..."),
        ("Open\u2026", "Auf ...", "Auf ..."),
        ("Good!!", "\u597d\uff01", "\u597d\uff01"),
        ("Come here!", "Komm her.", "Komm her."),
        ("Me...?", "Ich?", "Ich...?"),
        ("Me...?", "Ich...?", "Ich...?"),
        ("Tea, etc., ?!", "Tee usw., ?!", "Tee usw., ?!"),
        ("It takes 5\u20137 hours", "Es dauert 5:7 Stunden", "Es dauert 5\u20137 Stunden"),
        ("9:30\u201317:00, 1.5\u20132.5 m", "9:30-17:00, 1,5-2,5 m", "9:30\u201317:00, 1,5\u20132,5 m"),
        ("1\u20132\u20133 of 1922\u201326", "1:2-3 von 1922-26", "1\u20132\u20133 von 1922\u201326"),
        ("They won 3\u20130 and 2\u20132", "Sie siegten 3:0 und 2:2", "Sie siegten 3:0 und 2:2"),
        ("Rows 5\u20137 at 5:7", "Reihen 5\u20137 bei 5:7", "Reihen 5\u20137 bei 5:7"),
        ("Rows 5\u20137 or 6", "Reihen 15:7, 5:70, 6:7, 5: 7", "Reihen 15:7, 5:70, 6:7, 5: 7"),
        ("Rows 5-7, 5:7 or 5 \u2013 7", "Reihen 5:7", "Reihen 5:7"),
        ("\u20135 to 030\u2013123", "\u20135 bis 030-123", "\u20135 bis 030\u2013123"),
        (f"Is \u201c{A}\u201d here?", f"Ist{A} da?", f"Ist {A} da?"),
        (f"the {A} file", f"die{A}-Datei", f"die {A}-Datei"),
        (f"the pre-{A} file", f"die Vor{A}", f"die Vor{A}"),
        (f"the {A}", f"\u90a3{A}", f"\u90a3{A}"),
    ],
)
def test_a_translation_is_corrected(source: str, text: str, expected: str) -> None:
    assert repair(segment(source), SegmentTranslation(text)).text == expected


def test_offsets_follow_the_corrections() -> None:
    translation = translated(f"See {A} now!!", f"Sieh{A} jetzt!", [(0, 0), (1, 1)])
    repaired = repair(
        segment(f"See {A} now!!"), translation._replace(token_offsets=[(0, 4), (4, 5), (6, 11), (11, 12)])
    )
    spans = [repaired.text[start:end] for start, end in repaired.token_offsets]
    assert spans == ["Sieh", A, "jetzt", "!!"]


def test_offsets_within_a_removed_mark_are_at_its_end() -> None:
    translation = SegmentTranslation("Nun......", token_offsets=[(0, 3), (3, 5), (5, 8), (8, 9)])
    repaired = repair(segment("Well..."), translation)
    assert repaired.text == "Nun..."
    assert repaired.token_offsets == [(0, 3), (3, 5), (5, 6), (6, 6)]


def test_a_hashtag_is_not_separated_from_its_word() -> None:
    assert (
        repair(segment("It is #fun now"), SegmentTranslation("Es ist # Spa\u00df")).text
        == "Es ist #Spa\u00df"
    )
    assert repair(segment("the # key"), SegmentTranslation("die # Taste")).text == "die # Taste"
    assert repair(segment("die C#-Sprache"), SegmentTranslation("the C# code")).text == "the C# code"


def test_a_prefix_is_not_corrected() -> None:
    translation = SegmentTranslation(f"Sieh{A} jetzt!", prefix_end=12)
    assert repair(segment(f"See {A} now!!"), translation).text == f"Sieh{A} jetzt!"
