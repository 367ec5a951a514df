"""Writes pairs with numbers, dates, prices, times, units and names as TSV: domain, English, German.

    python training/en-de/number_phrases.py >numbers.tsv

The templates are our own and are filled at random. The same seed gives the same pairs. The pairs are needed because the
two languages write numbers differently (1,200.50 and 1.200,50), and the corpora have few short texts with a price or a
date.
"""

from __future__ import annotations

import random

SEED = 1
PAIRS_A_TEMPLATE = 60
WEEKDAYS = dict(
    zip(
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
        strict=True,
    )
)
MONTHS = dict(
    zip(
        [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ],
        [
            "Januar",
            "Februar",
            "März",
            "April",
            "Mai",
            "Juni",
            "Juli",
            "August",
            "September",
            "Oktober",
            "November",
            "Dezember",
        ],
        strict=True,
    )
)
GOODS = {
    "apples": "Äpfel", "bread": "Brot", "milk": "Milch", "cheese": "Käse", "eggs": "Eier", "butter": "Butter",
    "rice": "Reis", "sugar": "Zucker", "salt": "Salz", "coffee": "Kaffee", "tea": "Tee", "water": "Wasser",
    "onions": "Zwiebeln", "carrots": "Karotten", "tomatoes": "Tomaten", "potatoes": "Kartoffeln", "fish": "Fisch",
    "meat": "Fleisch", "flour": "Mehl", "honey": "Honig", "pens": "Stifte", "paper": "Papier", "scissors": "Scheren",
    "books": "Bücher", "shoes": "Schuhe", "socks": "Socken", "shirts": "Hemden", "chairs": "Stühle", "tables": "Tische",
    "cars": "Autos", "houses": "Häuser", "dogs": "Hunde", "cats": "Katzen", "trees": "Bäume", "flowers": "Blumen",
    "soap": "Seife", "towels": "Handtücher", "plates": "Teller", "spoons": "Löffel", "forks": "Gabeln",
}  # fmt: skip
COUNTED = {
    "people": "Menschen", "users": "Benutzer", "guests": "Gäste", "employees": "Mitarbeiter", "students": "Studenten",
    "children": "Kinder", "pages": "Seiten", "days": "Tage", "weeks": "Wochen", "months": "Monate", "years": "Jahre",
    "hours": "Stunden", "minutes": "Minuten", "seconds": "Sekunden", "files": "Dateien", "messages": "Nachrichten",
    "rooms": "Zimmer", "tickets": "Karten", "bottles": "Flaschen", "boxes": "Kisten", "houses": "Häuser",
    "items": "Artikel", "results": "Ergebnisse", "words": "Wörter", "points": "Punkte", "seats": "Plätze",
}  # fmt: skip
SINGLE = {
    "item": "Artikel", "file": "Datei", "user": "Benutzer", "message": "Nachricht", "comment": "Kommentar",
    "result": "Ergebnis", "page": "Seite", "day": "Tag", "week": "Woche", "month": "Monat", "year": "Jahr",
    "hour": "Stunde", "minute": "Minute", "second": "Sekunde", "person": "Person", "guest": "Gast", "child": "Kind",
    "room": "Zimmer", "ticket": "Karte", "bottle": "Flasche", "box": "Kiste", "word": "Wort", "point": "Punkt",
    "seat": "Platz", "error": "Fehler", "photo": "Foto", "song": "Lied", "vote": "Stimme", "step": "Schritt",
    "new notification": "neue Benachrichtigung", "open question": "offene Frage", "unread email": "ungelesene E-Mail",
}  # fmt: skip
UNITS = {
    "km": "km", "m": "m", "cm": "cm", "mm": "mm", "kg": "kg", "g": "g", "l": "l", "ml": "ml", "GB": "GB", "MB": "MB",
    "kilometers": "Kilometer", "meters": "Meter", "kilograms": "Kilogramm", "grams": "Gramm", "liters": "Liter",
    "tons": "Tonnen", "miles": "Meilen", "percent": "Prozent", "degrees": "Grad", "inches": "Zoll", "kWh": "kWh",
}  # fmt: skip
FIRST_NAMES = [
    "Anna",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Greta",
    "Hugo",
    "Ida",
    "Jonas",
    "Karl",
    "Lena",
    "Max",
    "Nora",
    "Otto",
    "Paula",
    "Rosa",
    "Tom",
]
LAST_NAMES = [
    "Adams",
    "Bauer",
    "Clark",
    "Davis",
    "Fischer",
    "Green",
    "Hoffmann",
    "Jones",
    "Keller",
    "Lewis",
    "Miller",
    "Neumann",
    "Parker",
    "Weber",
]
CITIES = {
    "Munich": "München", "Cologne": "Köln", "Vienna": "Wien", "Zurich": "Zürich", "Berlin": "Berlin",
    "Hamburg": "Hamburg", "London": "London", "Paris": "Paris", "Rome": "Rom", "Milan": "Mailand", "Prague": "Prag",
    "Warsaw": "Warschau", "Lisbon": "Lissabon", "Madrid": "Madrid", "Boston": "Boston", "Chicago": "Chicago",
    "Geneva": "Genf", "Brussels": "Brüssel", "Copenhagen": "Kopenhagen", "Athens": "Athen", "Moscow": "Moskau",
}  # fmt: skip
STREETS = ("Lindenstraße", "Gartenweg", "Schulstraße", "Bergallee", "Oak Street", "Mill Road", "Station Road")
AREA_CODES = ("+49 30", "+1 555", "089", "040", "(0221)")
SITES = ("example.com", "example.org", "shop.example.net", "docs.example.com")

# English, tab, German. `values` gives the English and the German text of each `{name}`.
TEMPLATES = """
{price}\t{price}
It costs {price}.\tEs kostet {price}.
The price is {price}.\tDer Preis beträgt {price}.
Total: {price}\tSumme: {price}
Only {price} each\tNur {price} pro Stück
from {price} per month\tab {price} pro Monat
Shipping costs {price} extra.\tDer Versand kostet {price} zusätzlich.
I paid {price} for it.\tIch habe {price} dafür bezahlt.
The rent is {price} a month.\tDie Miete beträgt {price} im Monat.
They owe us {price}.\tSie schulden uns {price}.
Save up to {percent}\tSparen Sie bis zu {percent}
{percent} off\t{percent} Rabatt
Sales rose by {percent}.\tDer Umsatz stieg um {percent}.
{percent} of {people} agree.\t{percent} der Menschen stimmen zu.
{measure}\t{measure}
It weighs {decimal} kg.\tEs wiegt {decimal} kg.
It is {decimal} km away.\tEs ist {decimal} km entfernt.
The room is {decimal} meters long.\tDas Zimmer ist {decimal} Meter lang.
The file has {decimal} MB.\tDie Datei hat {decimal} MB.
Add {decimal} liters of water.\tGeben Sie {decimal} Liter Wasser hinzu.
The temperature is {small} degrees.\tDie Temperatur beträgt {small} Grad.
{counted}\t{counted}
1 {single}\t1 {single}
{small} of {small2}\t{small} von {small2}
More than {counted}\tMehr als {counted}
about {counted}\tetwa {counted}
There were {counted}.\tEs waren {counted}.
We have {counted}.\tWir haben {counted}.
{small} of {thousand} results\t{small} von {thousand} Ergebnissen
Page {small} of {thousand}\tSeite {small} von {thousand}
Version {version}\tVersion {version}
Step {small}: done\tSchritt {small}: fertig
The city has {thousand} inhabitants.\tDie Stadt hat {thousand} Einwohner.
{date}\t{date}
{date_long}\t{date_long}
on {date}\tam {date}
on {weekday}\tam {weekday}
until {date}\tbis {date}
since {month} {year}\tseit {month} {year}
in {month} {year}\tim {month} {year}
She was born on {date}.\tSie wurde am {date} geboren.
He was born in {year}.\tEr wurde {year} geboren.
The meeting is on {weekday} at {time}.\tDas Treffen ist am {weekday} um {time}.
The deadline is {date}.\tDie Frist ist der {date}.
Please answer by {date}.\tBitte antworten Sie bis zum {date}.
The course begins on {weekday}, {date}.\tDer Kurs beginnt am {weekday}, dem {date}.
Closed on {weekday}s\tAm {weekday} geschlossen
See you on {weekday}!\tBis {weekday}!
{time}\t{time}
at {time}\tum {time}
It is {time}.\tEs ist {time}.
The ferry leaves at {time}.\tDie Fähre legt um {time} ab.
The shop opens at {time}.\tDer Laden öffnet um {time}.
Doors open at {time}\tEinlass ab {time}
from {clock} to {clock2}\tvon {clock} bis {clock2} Uhr
Open daily from {clock} to {clock2}\tTäglich von {clock} bis {clock2} Uhr geöffnet
I wake up at {time}.\tIch wache um {time} auf.
Call me at {phone}.\tRufen Sie mich unter {phone} an.
Phone: {phone}\tTelefon: {phone}
Tel. {phone}\tTel. {phone}
E-mail: {email}\tE-Mail: {email}
Write to {email}.\tSchreiben Sie an {email}.
Please send it to {email}.\tBitte senden Sie es an {email}.
More at {url}\tMehr unter {url}
Visit {url} for details.\tDetails finden Sie unter {url}.
{address}\t{address}
Address: {address}\tAdresse: {address}
I live at {address}.\tIch wohne in der {address}.
My name is {name}.\tIch heiße {name}.
I am {name} from {city}.\tIch bin {name} aus {city}.
{name} lives in {city}.\t{name} wohnt in {city}.
Mr. {last} is not here.\tHerr {last} ist nicht da.
Ms. {last} will call you.\tFrau {last} wird Sie anrufen.
Dear Ms. {last},\tSehr geehrte Frau {last},
Dear Mr. {last},\tSehr geehrter Herr {last},
Hi {first},\tHallo {first},
Hello {first}!\tHallo {first}!
Thank you, {first}!\tDanke, {first}!
{name}, {city}\t{name}, {city}
The flight from {city} to {city2} takes {counted_hours}.\tDer Flug von {city} nach {city2} dauert {counted_hours}.
We are going to {city} on {weekday}.\tWir fahren am {weekday} nach {city}.
{city} is {thousand} kilometers from {city2}.\t{city} ist {thousand} Kilometer von {city2} entfernt.
{goods1}, {goods2} and {goods3}\t{goods1}, {goods2} und {goods3}
{goods1}, {goods2}, {goods3}\t{goods1}, {goods2}, {goods3}
We need {goods1}, {goods2} and {goods3}.\tWir brauchen {goods1}, {goods2} und {goods3}.
{small}. {goods1}\t{small}. {goods1}
{small} kg {goods1}, {small2} kg {goods2}\t{small} kg {goods1}, {small2} kg {goods2}
Order no. {code}\tBestellnr. {code}
Invoice {code}\tRechnung {code}
Your code is {code}.\tIhr Code lautet {code}.
Error {code}\tFehler {code}
Room {small}\tZimmer {small}
Flight {flight}\tFlug {flight}
Platform {small}\tGleis {small}
"""


def grouped(number: float, decimals: int = 0) -> tuple[str, str]:
    """The number as English and as German text, with separators of thousands and this many decimals."""
    english = f"{number:,.{decimals}f}"
    return english, english.translate(str.maketrans(",.", ".,"))


def time_of_day(hour: int, minute: int) -> tuple[str, str]:
    """A time of day as English and as German text.

    Hours keep their number: 15:30, not 3:30 p.m., because a translation keeps all numbers.
    """
    if hour > 12:
        return f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr"
    clock = f"{hour}:{minute:02}" if minute else str(hour)
    return f"{clock} {'a.m.' if hour < 12 else 'p.m.'}", f"{clock} Uhr"


def pick(numbers: random.Random, table: dict[str, str]) -> tuple[str, str]:
    """An entry of a table."""
    return numbers.choice(list(table.items()))


def values(numbers: random.Random) -> dict[str, tuple[str, str]]:
    """English and German form of each name that templates use."""

    def same(text: str) -> tuple[str, str]:
        return text, text

    def joined(number: tuple[str, str], unit: tuple[str, str]) -> tuple[str, str]:
        return f"{number[0]} {unit[0]}", f"{number[1]} {unit[1]}"

    cents = numbers.choice((0, 2))
    amount = grouped(
        numbers.choice((9.99, 4.5, 19.9, 49, 120, 250.75, 999, 1200, 3499, 15000)) + numbers.randint(0, 40),
        cents,
    )
    sign, before = numbers.choice((("€", True), ("$", True), ("EUR", False), ("£", True), ("euros", False)))
    word = {"euros": "Euro"}.get(sign, sign)
    price = (f"{sign}{amount[0]}" if before else f"{amount[0]} {sign}"), f"{amount[1]} {word}"
    decimal = grouped(numbers.uniform(0.1, 90), numbers.choice((1, 1, 2)))
    thousand = grouped(
        numbers.choice((numbers.randint(1100, 9999), numbers.randint(10**4, 10**6), numbers.randint(2, 900)))
    )
    month, weekday, city = pick(numbers, MONTHS), pick(numbers, WEEKDAYS), pick(numbers, CITIES)
    day, year, hour, hour2 = (
        numbers.randint(1, 28),
        numbers.randint(1890, 2030),
        numbers.randint(6, 11),
        numbers.randint(12, 22),
    )
    first, last = numbers.choice(FIRST_NAMES), numbers.choice(LAST_NAMES)
    minute = numbers.choice((0, 0, 15, 30, 45, 5, 20))
    american = numbers.random() < 0.5
    english_date = f"{month[0]} {day}, {year}" if american else f"{day} {month[0]} {year}"
    goods = numbers.sample(list(GOODS.items()), 3)
    ratio = grouped(numbers.choice((5, 10, 12.5, 20, 25, 30, 3.7, 50, 75)), numbers.choice((0, 1)))
    site = numbers.choice(SITES)
    house_number, number = numbers.randint(1, 99), numbers.randint(2, 60)
    address = f"{numbers.choice(STREETS)} {house_number}"
    return {
        "price": price,
        "percent": numbers.choice(
            ((f"{ratio[0]}%", f"{ratio[1]} %"), (f"{ratio[0]} percent", f"{ratio[1]} Prozent"))
        ),
        "measure": joined(decimal, pick(numbers, UNITS)),
        "decimal": decimal,
        "small": same(str(number)),
        "small2": same(str(numbers.randint(2, 60))),
        "counted": joined(thousand, pick(numbers, COUNTED)),
        "single": pick(numbers, SINGLE),
        "people": ("people", "Menschen"),
        "counted_hours": (f"{number} hours", f"{number} Stunden"),
        "thousand": thousand,
        "version": same(f"{numbers.randint(0, 12)}.{numbers.randint(0, 20)}.{numbers.randint(0, 9)}"),
        "date": (english_date, f"{day}. {month[1]} {year}"),
        "date_long": (f"{weekday[0]}, {english_date}", f"{weekday[1]}, {day}. {month[1]} {year}"),
        "month": month,
        "weekday": weekday,
        "year": same(str(year)),
        "time": time_of_day(numbers.randint(5, 22), minute),
        "clock": same(f"{hour}:{minute:02}"),
        "clock2": same(f"{hour2}:00"),
        "phone": same(f"{numbers.choice(AREA_CODES)} {numbers.randint(10**5, 10**7 - 1)}"),
        "email": same(f"{numbers.choice(('info', 'support', first.lower(), f'{first}.{last}'.lower()))}@{site}"),
        "url": same(f"{numbers.choice(('https://', 'www.', ''))}{site}{numbers.choice(('', '/help', '/en/start'))}"),
        "address": same(address),
        "name": same(f"{first} {last}"),
        "first": same(first),
        "last": same(last),
        "city": city,
        "city2": pick(numbers, CITIES),
        "goods1": goods[0],
        "goods2": goods[1],
        "goods3": goods[2],
        "code": same(str(numbers.randint(100, 99999))),
        "flight": same(f"{numbers.choice(('LH', 'BA', 'UA', 'AF'))} {numbers.randint(10, 2999)}"),
    }  # fmt: skip


def main() -> None:
    """Write the pairs, each once."""
    numbers = random.Random(SEED)
    seen = set()
    for line in TEMPLATES.strip().splitlines():
        english, german = line.split("\t")
        for _ in range(PAIRS_A_TEMPLATE):
            filled = values(numbers)
            # "a.m." at the end of a sentence needs no second full stop.
            pair = (
                english.format(**{name: value[0] for name, value in filled.items()}).replace("..", "."),
                german.format(**{name: value[1] for name, value in filled.items()}),
            )
            if pair not in seen:
                seen.add(pair)
                print("numbers", *pair, sep="\t")


if __name__ == "__main__":
    main()
