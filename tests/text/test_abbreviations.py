"""A sentence does not end after an abbreviation or in a number, although sentencex ends it there."""

from __future__ import annotations

import pytest

from app.text.abbreviations import joined
from app.text.segmentation import sentence_spans
from tests.text.growth import check_near_linear


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("fr", "J'ai vu M. Dupont hier. Il va bien.", ["J'ai vu M. Dupont hier.", "Il va bien."]),
        (
            "fr",
            "MM. Durand et Mme.\u00a0Petit (Dr. Martin).",
            ["MM. Durand et Mme.\u00a0Petit (Dr. Martin)."],
        ),
        ("fr-CA", "Le no. 5 est bon.", ["Le no. 5 est bon."]),
        ("fr", "Il dit no. Elle part.", ["Il dit no.", "Elle part."]),
        ("fr", "Il mesure 5 m. Elle part.", ["Il mesure 5 m.", "Elle part."]),
        ("fr", "Le film. Il part.", ["Le film.", "Il part."]),
        ("ru", "Это т. е. так. Помоги им. Иди.", ["Это т. е. так.", "Помоги им.", "Иди."]),
        ("hr", "Vidi ul. Novaka. Vidi žul. Idi.", ["Vidi ul. Novaka.", "Vidi žul.", "Idi."]),
        ("sv", "T.ex. Volvo.", ["T.ex. Volvo."]),
        ("hu", "Volt 2024. május 5-én. Jó.", ["Volt 2024. május 5-én.", "Jó."]),
        ("hu", "Volt 2024. Jó.", ["Volt 2024.", "Jó."]),
        ("nb", "Den 5. mai kom hun.", ["Den 5. mai kom hun."]),
        ("zh", "价格３．５元。版本１．２．３", ["价格３．５元。", "版本１．２．３"]),
        ("ja", "３．５円。", ["３．５円。"]),
        ("zh", "他有３．你好。", ["他有３．", "你好。"]),
        ("km", "បាទ។ ទេ៕ បាទ", ["បាទ។", "ទេ៕", "បាទ"]),
        ("km", "បាទ។ល។ ទេ", ["បាទ។ល។ ទេ"]),
        ("pl", "Kupuj na allegro.pl. Warto.", ["Kupuj na allegro.pl.", "Warto."]),
        ("pl", "Pisz: jan@wp.pl. Czekam.", ["Pisz: jan@wp.pl.", "Czekam."]),
        ("pl", "Tu jest pl. Zamkowy.", ["Tu jest pl. Zamkowy."]),
        ("pl", "Był prof.dr. Jan.", ["Był prof.dr. Jan."]),
        ("id", "Ada Dr.Ir. Budi.", ["Ada Dr.Ir. Budi."]),
        ("el", "Τι κάνεις\u037e Καλά", ["Τι κάνεις\u037e", "Καλά"]),
    ],
)
def test_where_sentences_end(language: str, text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in sentence_spans(text, language)] == expected


@pytest.mark.parametrize(
    ("language", "text", "num_sentences"),
    [
        ("en", "It takes approx. 5 days. We call approx. Monday.", 2),
        ("en", "Open Mon.\u2013Fri., all day", 1),
        ("en", "Attn.: Ms. Hill", 1),
        ("en", "Max. weight: 5 lbs. per box, due on Fri. 5 May", 1),
        ("en", "It has 5 lbs. The box is due on Fri. He knows.", 3),
        ("en", "See Eq. 4 and vol. 3. I met Max. He left.", 3),
        ("de", "Der Preis gilt zzgl. Versand. Er gilt inkl. Montage.", 2),
        ("de", "USt-IdNr.: DE12", 1),
        ("de", "Siehe Abb. 3 und Kap. 2.", 1),
        ("de", "Sie wohnt im 3. Stock am Park.", 1),
        ("de", "Das ist der 1. und 2. Teil. Der 12. Teil fehlt.", 2),
        ("de", "Hafenweg 3, 1. Etage", 1),
        ("de", "Heute ist der 5. Morgen ist der 6. Dann kommt er.", 3),
        ("de", "Wir warten bis um 9. Danach gehen wir.", 2),
        ("nl", "Kamer im 3. Stock", 2),
    ],
)
def test_abbreviations_and_ordinals_end_no_sentence(language: str, text: str, num_sentences: int) -> None:
    assert len(list(sentence_spans(text, language))) == num_sentences


@pytest.mark.parametrize("language", ["en", "de"])
def test_words_that_end_sentences_are_not_joined(language: str) -> None:
    parts = ["Mr. ", "Dr. ", "Mme. ", "2024. ", "mai ", "No. ", "5."]
    assert joined(parts, language) == parts


def test_joining_many_sentences_takes_linear_time() -> None:
    check_near_linear(lambda size: joined(["M. "] * size, "fr"), 100_000)
    check_near_linear(lambda size: joined(["M. " + "x" * size, "M." + " " * size, "a"], "fr"), 400_000)
