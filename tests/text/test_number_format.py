"""Quantities and dates are written as in the target language. Spaces and stray placeholders are corrected."""

from __future__ import annotations

import pytest

from app.text.number_check import changed_numbers
from app.text.number_format import rewritten_numbers, with_numbers_rewritten
from app.text.spacing import clamp_to_clause, closing_marks_start, kept_positions, without_strays


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs 1,200 euros.", "It costs 1.200 euros."),
        ("It weighs 3.5 kilos, not 3.", "It weighs 3,5 kilos, not 3."),
        ("Sales of $1,234,567.89 in 2024", "Sales of $1.234.567,89 in 2024"),
        ("About 2.75 % of 10,000 people", "About 2,75 % of 10.000 people"),
        ("a rise of 0.125 points", "a rise of 0,125 points"),
        ("The price rose to $12.50.", "The price rose to $12,50."),
        ("Rates fell from 12.50% to 10.20%.", "Rates fell from 12,50% to 10,20%."),
        ("up to 12.50 euros", "up to 12,50 euros"),
        ('"About 3.5 million people came."', '"About 3,5 million people came."'),
        ("- (About 3.5 percent)", "- (About 3,5 percent)"),
        ("The price rose from 12.50 to 14.20 euros.", "The price rose from 12,50 to 14,20 euros."),
        (
            "It fell from $12.50 to 10.20 and rose to 11.30 dollars",
            "It fell from $12,50 to 10,20 and rose to 11,30 dollars",
        ),
        ("from 1.50 to 2.50 m", "from 1,50 to 2,50 m"),
        (
            "The plot grew to 2.50 m. It rose to 12.50 km\u00b2.",
            "The plot grew to 2,50 m. It rose to 12,50 km\u00b2.",
        ),
        (
            "It fell from 12.50 MWh to 14.20 MWh and to 2.50 Euros",
            "It fell from 12,50 MWh to 14,20 MWh and to 2,50 Euros",
        ),
        (
            "rose to 12.50 PLN or to \u20b912.50, around 3.50 million",
            "rose to 12,50 PLN or to \u20b912,50, around 3,50 million",
        ),
        (
            '"Around 3.5 times as many people came," he said.',
            '"Around 3,5 times as many people came," he said.',
        ),
        ("- About 2.5 times", "- About 2,5 times"),
    ],
)
def test_quantities_follow_the_target(text: str, expected: str) -> None:
    assert with_numbers_rewritten(text, rewritten_numbers(text, "en", "de")) == expected


@pytest.mark.parametrize(
    "text",
    [
        "version 3.5 is out", "in Python 3.11 it works", "v2.4 and 1.2.3 run", "at 10.0.0.1 port 8080",
        "the train at 12.30 leaves", "from 6.30 pm on", "at 12:30 on 2024-05-01", "see section 2.4 and Figure 3.1",
        "in 2024 and 1999", "x=3.5 and a_1.5", "a 3.5px line", "1,2,3 go", "2.4 Installation",
        "open for 3.5 h", "3.5 hrs", "it closes 10.30 pm",
        "The train to Munich leaves at 10.30 Milan time.", "At 9.30 Miller called.", "Open until 5.30 Milk bar",
        "Doors at 7.30 \u00a35 on the door", "from 12.30 to 14.30 daily", "At 9.30 W. Smith called.",
        ".NET 5.0 is out", "... Java 1.8 runs",
        f"{'(' * 50}About 3.5 percent)",
    ],
)  # fmt: skip
def test_numbers_that_are_no_quantities_keep_their_marks(text: str) -> None:
    assert with_numbers_rewritten(text, rewritten_numbers(text, "en", "de")) == text


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("See section 2.4 of it.", "Siehe Abschnitt 2,4.", "Siehe Abschnitt 2.4."),
        ("See clause 4.2 of it.", "Siehe Klausel 4,2.", "Siehe Klausel 4.2."),
        ("under \u00a7 4.2 of it", "nach \u00a7 4,2", "nach \u00a7 4.2"),
        ('1.1 "Party" means', '1,1 "Partei" ist', '1.1 "Partei" ist'),
        ("Section 2.4 and 3.5 kg", "Abschnitt 2,4 und 3.5 kg", "Abschnitt 2.4 und 3,5 kg"),
        # the model may write a quantity with the marks of its language
        (
            "in Germany 3.5 million live",
            "In Deutschland leben 3,5 Millionen",
            "In Deutschland leben 3,5 Millionen",
        ),
    ],
)
def test_references_have_the_marks_of_the_source(source: str, text: str, expected: str) -> None:
    assert with_numbers_rewritten(text, rewritten_numbers(source, "en", "de")) == expected


def test_a_region_has_the_numbers_of_its_language_or_its_own() -> None:
    text = "It costs 1,234.5 euros."
    for code in ("pt-BR", "de-AT", "es-AR"):
        assert rewritten_numbers(text, "en-GB", code) == {"1,234.5": "1.234,5"}
        assert not changed_numbers(text, "1.234,5", "en", code)
    for code in ("es-MX", "es-419", "de-CH"):
        assert rewritten_numbers(text, "en", code) == {}


def test_quantities_between_other_languages() -> None:
    assert rewritten_numbers("Es kostet 1.200,50 Euro", "de", "en") == {"1.200,50": "1,200.50"}
    assert rewritten_numbers("Wir verkaufen 1.200 am Tag.", "de", "en") == {"1.200": "1,200"}
    assert rewritten_numbers("um 3,5 a.m.", "de", "en") == {}
    assert rewritten_numbers("um 3,30 PM", "de", "en") == {}
    assert rewritten_numbers("It costs 1,200.50 euros", "en", "fr") == {"1,200.50": "1\u00a0200,50"}
    assert rewritten_numbers("It costs 1,200 euros", "en", "ja") == {}
    assert rewritten_numbers("Es kostet 1.200 Euro", "de", "es") == {}
    assert rewritten_numbers("In Berlin 3,5 Grad", "de", "en") == {"3,5": "3.5"}, "no version has a comma"


@pytest.mark.parametrize(
    ("text", "source", "target", "expected"),
    [
        ("The offer ends 12/31/2025.", "en", "de", "The offer ends 31.12.2025."),
        ("It ends on 31/12/2025 at noon.", "en", "de", "It ends on 31.12.2025 at noon."),
        ("From 1/31/2025 to 2/28/2025", "en", "fr", "From 31/1/2025 to 28/2/2025"),
        ("Le 05/06/2025", "fr", "de", "Le 05.06.2025"),
        ("Hasta el 31/12/2025", "es", "de", "Hasta el 31.12.2025"),
    ],
)
def test_dates_follow_the_target(text: str, source: str, target: str, expected: str) -> None:
    assert with_numbers_rewritten(text, rewritten_numbers(text, source, target)) == expected


@pytest.mark.parametrize(
    "text",
    ["05/06/2025", "12/32/2025", "13/32/2025", "32/12/2025", "12/31/25", "x/12/31/2025", "12/31/2025/a"],
)
def test_dates_that_are_ambiguous_or_impossible_stay(text: str) -> None:
    assert rewritten_numbers(f"On {text} it ends.", "en", "de") == {}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Der Router hat die Adresse 192.168.178.100.", "de"),
        ("Appelez le 0 800 123 456.", "fr"),
        ("Appelez le 0\u00a0800\u00a0123\u00a0456.", "fr"),
        ("Zadzwoń pod numer +48 600 123 456.", "pl"),
        ("Zadzwoń pod numer +48\u00a0600\u00a0123\u00a0456.", "pl"),
        ("Llame al +34.600.123.456", "es"),
        ("Звоните 8 800 555 35 35.", "ru"),
        ("Звоните 8\u00a0800\u00a0555\u00a035\u00a035.", "ru"),
        ("Soita numeroon 040 123 4567.", "fi"),
        ("Tel. 0421 123.456", "de"),
        ("Rufen Sie 040.123.456 an", "de"),
        ("Version 10.100", "de"),
        ("la versión 10.100", "es"),
        ("SIREN 552 100 554", "fr"),
        ("Volejte 777 123 456", "cs"),
        ("ISBN 978 123 456 789", "fr"),
        ("Volejte 777 123 456 v pracovní dny.", "cs"),
        ("Zadzwoń +48 600 123 456 w godzinach 8-16.", "pl"),
        ("SIREN 552 100 554 l'entreprise", "fr"),
        ("SIREN 552 100 554 l\u2019entreprise", "fr"),
        ("622 100 554 M. Dupont", "fr"),
        ("622 100 554 m. Dupont", "fr"),
        ("622 100 554 г. Москва", "ru"),
        ("no. 1.200", "es"),
        ("Nr. 1.200", "de"),
    ],
)
def test_phone_numbers_addresses_and_identifiers_stay(text: str, source: str) -> None:
    assert rewritten_numbers(text, source, "en") == {}


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("10 000 €", "fr", "10,000 €"),
        ("10 000 personnes", "fr", "10,000 personnes"),
        ("environ 10 000,5", "fr", "environ 10,000.5"),
        ("3 10 000,5 et +34 600 123,5", "fr", "3 10,000.5 et +34,600,123.5"),
        ("EUR 10 000", "fr", "EUR 10,000"),
        ("$ 10 000", "fr", "$ 10,000"),
        ("12 500 км", "ru", "12,500 км"),
        ("12 500 руб.", "ru", "12,500 руб."),
        ("10\u202f000 personnes", "fr", "10,000 personnes"),
        ("10\u00a0000 personnes", "fr", "10,000 personnes"),
        ("Gewinn +1.234 Euro", "de", "Gewinn +1,234 Euro"),
        ("Im Jahr 2024 1.200 Menschen", "de", "Im Jahr 2024 1,200 Menschen"),
        ("1.200.100 und 1.200.100.300", "de", "1,200,100 und 1,200,100,300"),
        (
            "Die Schule hat 1.200 16- bis 18-jährige Schüler",
            "de",
            "Die Schule hat 1,200 16- bis 18-jährige Schüler",
        ),
        ("etwa 2.500 12-Jährige", "de", "etwa 2,500 12-Jährige"),
        ("1.200 2-Zimmer-Wohnungen", "de", "1,200 2-Zimmer-Wohnungen"),
        ("Im Jahr 1850 1.200 Einwohner", "de", "Im Jahr 1850 1,200 Einwohner"),
        ("Summe 1.234 2.345 3.456", "de", "Summe 1,234 2,345 3,456"),
        ("+1.200 Mitglieder", "de", "+1,200 Mitglieder"),
        ("+1 200 emplois", "fr", "+1,200 emplois"),
        ("Eran 900 y no 1.200 personas", "es", "Eran 900 y no 1,200 personas"),
        ("Puedes ver 1.200 estrellas", "es", "Puedes ver 1,200 estrellas"),
        ("¿Sí o no? 1.200 personas", "es", "¿Sí o no? 1,200 personas"),
        ("Correu no 1.500 metros", "pt", "Correu no 1,500 metros"),
        ("v 1 200 obcích", "cs", "v 1,200 obcích"),
        ("2 148 271 habitants", "fr", "2,148,271 habitants"),
        ("12 148 271 habitants", "fr", "12,148,271 habitants"),
        ("1 200 000 personnes", "fr", "1,200,000 personnes"),
        (
            "552 100 554 W, 552 100 555 g, 552 100 556 KM",
            "fr",
            "552,100,554 W, 552,100,555 g, 552,100,556 KM",
        ),
        ("page 1,234, +1,235 and 3 1,236", "en", "page 1.234, +1.235 and 3 1.236"),
    ],
)
def test_grouped_quantities_follow_the_target(text: str, source: str, expected: str) -> None:
    rewritten = rewritten_numbers(text, source, "de" if source == "en" else "en")
    assert with_numbers_rewritten(text, rewritten) == expected


def test_a_number_that_is_quantity_and_version_is_unchanged() -> None:
    assert rewritten_numbers("version 3.5 weighs 3.5 kilos", "en", "de") == {}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("a b", "x  y", "x y"),
        ("a b.", "x y .", "x y."),
        ("a b", " x , y ", "x, y"),
        ("a  b", "x  y", "x  y"),
        ("a .", "x .", "x ."),
    ],
)
def test_superfluous_spaces_are_removed(source: str, text: str, expected: str) -> None:
    kept = kept_positions(source, text)
    assert (text if kept is None else "".join(text[place] for place in kept)) == expected


def test_a_placeholder_stays_before_the_closing_mark_unless_the_source_has_it_after() -> None:
    assert closing_marks_start("so it is.") == 8
    assert closing_marks_start("\u201eso it is!\u201c ") == 9
    assert closing_marks_start("see {name}.") == 10
    assert clamp_to_clause("a X b.", "X", "x y.", 4) == 3
    assert clamp_to_clause("a b. X", "X", "x y.", 4) == 4
    assert without_strays("a X b.", ("X",), "x y. X") == "x y."
    assert without_strays("a b. X", ("X",), "x y. X") == "x y. X"
    assert without_strays("a X b.", ("X",), "x X y.") == "x X y."
