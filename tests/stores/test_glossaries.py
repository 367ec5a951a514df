"""Glossaries persist, and errors name bad entries by line."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stores import glossaries
from app.stores.glossaries import (
    EntriesError,
    EntriesFormat,
    GlossaryLimits,
    GlossaryNotFound,
    GlossaryStore,
    GlossaryStoreError,
    GlossaryStoreFull,
    StoredGlossary,
    format_tsv,
    parse_entries,
    term_problem,
)
from app.text.glossary import Term

LIMITS = GlossaryLimits(max_glossaries=3, max_terms=4, max_term_length=10, max_name_length=8, max_problems=3)
ANNA, BOB = "0123456789ab", ""  # owners of glossaries
PAIR = ("en", "de")
# Seconds for which a writer waits for another call. The wait must end, because that call may wait for the writer.
WAIT_S = 0.3
TERMS = (Term("tree", "Baum"), Term("Ann's", "Ann's"))


@pytest.fixture
def store(tmp_path: Path) -> GlossaryStore:
    return GlossaryStore(tmp_path / "glossaries.sqlite", LIMITS)


def test_a_glossary_is_stored(store: GlossaryStore, tmp_path: Path) -> None:
    made = store.create(ANNA, " wood ", PAIR, TERMS)
    again = GlossaryStore(tmp_path / "glossaries.sqlite", LIMITS)
    assert again.get(ANNA, made.glossary_id) == made
    assert (made.name, made.source_language, made.target_language, made.num_terms) == ("wood", "en", "de", 2)
    assert abs(datetime.now(UTC) - made.created_at) < timedelta(minutes=1)
    assert again.entries(ANNA, made.glossary_id) == TERMS


def test_glossaries_are_listed_in_the_order_of_creation(store: GlossaryStore) -> None:
    assert store.list(ANNA) == []
    made = [store.create(ANNA, name, PAIR, TERMS) for name in ("b", "a", "c")]
    assert store.list(ANNA) == made


def test_deleting_a_glossary_deletes_its_terms(store: GlossaryStore, tmp_path: Path) -> None:
    kept, deleted = (store.create(ANNA, name, PAIR, TERMS).glossary_id for name in ("kept", "deleted"))
    store.delete(ANNA, deleted)
    for call in (store.get, store.entries, store.delete):
        with pytest.raises(GlossaryNotFound):
            call(ANNA, deleted)
    assert store.entries(ANNA, kept) == TERMS
    connection = sqlite3.connect(tmp_path / "glossaries.sqlite")
    assert connection.execute("SELECT COUNT(*) FROM terms").fetchone() == (2,)
    connection.close()


def test_deleting_a_glossary_in_memory_deletes_its_terms() -> None:
    store = GlossaryStore(None, LIMITS)
    store.delete(ANNA, store.create(ANNA, "wood", PAIR, TERMS).glossary_id)
    assert store._memory is not None
    assert store._memory.execute("SELECT COUNT(*) FROM terms").fetchone() == (0,)


def test_an_id_cannot_inject_sql(store: GlossaryStore) -> None:
    store.create(ANNA, "one", PAIR, TERMS)
    with pytest.raises(GlossaryNotFound):
        store.delete(ANNA, "' OR '1'='1")
    assert len(store.list(ANNA)) == 1


def test_the_number_of_glossaries_is_bounded(store: GlossaryStore) -> None:
    for name in ("a", "b", "c"):
        store.create(ANNA, name, PAIR, TERMS)
    with pytest.raises(GlossaryStoreFull, match="3"):
        store.create(ANNA, "d", PAIR, TERMS)
    assert len(store.list(ANNA)) == 3


def test_two_stores_of_one_file_share_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread counts the glossaries. It then waits, for at most WAIT_S, until the other thread has counted."""
    have_counted = threading.Barrier(2)

    def time_s() -> float:
        with suppress(threading.BrokenBarrierError):
            have_counted.wait(WAIT_S)
        return time.time()

    monkeypatch.setattr(glossaries, "time", SimpleNamespace(time=time_s))
    stores = [
        GlossaryStore(tmp_path / "glossaries.sqlite", GlossaryLimits(max_glossaries=1)) for _ in range(2)
    ]
    with ThreadPoolExecutor(2) as executor:
        creating = [executor.submit(store.create, ANNA, "name", PAIR, TERMS) for store in stores]
    errors = [future.exception() for future in creating]
    assert sorted(type(error).__name__ for error in errors) == ["GlossaryStoreFull", "NoneType"]
    assert len(stores[0].list(ANNA)) == 1


@pytest.mark.parametrize("name", ["", "  ", "n" * 9])
def test_the_length_of_a_name_is_bounded(store: GlossaryStore, name: str) -> None:
    with pytest.raises(EntriesError, match="1 to 8"):
        store.create(ANNA, name, PAIR, TERMS)


@pytest.mark.parametrize("number", [0, 5])
def test_the_number_of_terms_is_bounded(store: GlossaryStore, number: int) -> None:
    with pytest.raises(EntriesError, match="1 to 4"):
        store.create(ANNA, "name", PAIR, [Term(str(index), "x") for index in range(number)])


def test_threads_may_write_at_once(tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "glossaries.sqlite", GlossaryLimits())
    with ThreadPoolExecutor(4) as executor:
        made = list(executor.map(lambda number: store.create(ANNA, str(number), PAIR, TERMS), range(20)))
    assert {glossary.glossary_id for glossary in store.list(ANNA)} == {
        glossary.glossary_id for glossary in made
    }


@pytest.mark.parametrize("has_file", [True, False])
def test_glossaries_of_other_owners_are_invisible(tmp_path: Path, has_file: bool) -> None:
    store = GlossaryStore(tmp_path / "glossaries.sqlite" if has_file else None, LIMITS)
    ours = store.create(ANNA, "ours", PAIR, TERMS).glossary_id
    assert store.list(BOB) == []
    for call in (store.get, store.entries, store.delete, store.load):
        with pytest.raises(GlossaryNotFound):
            call(BOB, ours)
    for name in ("a", "b", "c"):
        store.create(BOB, name, PAIR, TERMS)  # the limit is per owner
    with pytest.raises(GlossaryStoreFull):
        store.create(BOB, "d", PAIR, TERMS)
    assert [glossary.glossary_id for glossary in store.list(ANNA)] == [ours]
    assert store.entries(ANNA, ours) == TERMS


class SlowTerms(list[Term]):
    """Terms whose iteration blocks until `go_on` is set, for at most WAIT_S."""

    def __init__(self, terms: Sequence[Term]) -> None:
        super().__init__(terms)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Term]:
        self.begun.set()
        self.go_on.wait(WAIT_S)
        return super().__iter__()


@pytest.mark.parametrize("has_file", [True, False])
def test_a_glossary_that_is_being_written_is_invisible(tmp_path: Path, has_file: bool) -> None:
    store = GlossaryStore(tmp_path / "glossaries.sqlite" if has_file else None)
    old = store.create(ANNA, "old", PAIR, TERMS)
    terms = SlowTerms(TERMS)
    with ThreadPoolExecutor(2) as executor:
        creating = executor.submit(store.create, ANNA, "new", PAIR, terms)
        assert terms.begun.wait(10)
        reading = executor.submit(store.list, ANNA)
        reading.add_done_callback(lambda _done: terms.go_on.set())
        seen = reading.result(10)
        new = creating.result(10)
    assert seen in ([old], [old, new])


@pytest.mark.parametrize("has_file", [True, False])
def test_a_failed_write_does_not_undo_another(tmp_path: Path, has_file: bool) -> None:
    store = GlossaryStore(tmp_path / "glossaries.sqlite" if has_file else None)
    old = store.create(ANNA, "old", PAIR, TERMS)
    terms = SlowTerms(TERMS)
    with ThreadPoolExecutor(2) as executor:
        creating = executor.submit(store.create, ANNA, "new", PAIR, terms)
        assert terms.begun.wait(10)
        failing = executor.submit(store.create, ANNA, "bad", PAIR, [Term("tree", "\udc00")])
        failing.add_done_callback(lambda _done: terms.go_on.set())
        with pytest.raises(UnicodeEncodeError):
            failing.result(10)
        new = creating.result(10)
    assert store.list(ANNA) == [old, new]
    assert store.entries(ANNA, new.glossary_id) == TERMS


def test_a_store_in_memory_is_thread_safe(frequent_thread_switches: None) -> None:
    store = GlossaryStore(None, GlossaryLimits(max_cached=2))
    kept = store.create(ANNA, "kept", PAIR, TERMS)

    def create_and_delete(number: int) -> str:
        made = [store.create(ANNA, f"{number}.{part}", PAIR, TERMS * 20) for part in range(2)]
        for glossary in (kept, made[0]):
            assert store.load(ANNA, glossary.glossary_id)[0] == glossary
        assert store.entries(ANNA, made[0].glossary_id) == TERMS * 20
        assert {glossary.num_terms for glossary in store.list(ANNA)} <= {len(TERMS), len(TERMS) * 20}
        store.delete(ANNA, made[0].glossary_id)
        with pytest.raises(GlossaryNotFound):
            store.load(ANNA, made[0].glossary_id)
        return made[1].glossary_id

    with ThreadPoolExecutor(8) as executor:
        ids = list(executor.map(create_and_delete, range(40)))
    assert {glossary.glossary_id for glossary in store.list(ANNA)} == {kept.glossary_id, *ids}
    assert GlossaryStore(None).list(ANNA) == []


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """Threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_loaded_glossary_is_cached_until_it_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.sqlite"
    store = GlossaryStore(path, GlossaryLimits(max_cached=2))
    ids = [store.create(ANNA, str(number), PAIR, TERMS).glossary_id for number in range(3)]
    stored, glossary = store.load(ANNA, ids[0])
    assert stored == store.get(ANNA, ids[0])
    assert [hit.replacement for hit in glossary.hits("A tree of Ann's")] == ["Baum", "Ann's"]
    assert store.load(ANNA, ids[0])[1] is glossary
    for other in ids[1:]:
        store.load(ANNA, other)
    assert store.load(ANNA, ids[0])[1] is not glossary
    GlossaryStore(path).delete(ANNA, ids[0])  # like another process
    with pytest.raises(GlossaryNotFound):
        store.load(ANNA, ids[0])


class PausingOwner(str):
    """An owner key whose hash pauses, so that other threads run during every lookup."""

    __slots__ = ()

    def __hash__(self) -> int:
        time.sleep(0.0005)
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


def test_threads_may_evict_each_others_cached_glossaries() -> None:
    store = GlossaryStore(None, GlossaryLimits(max_cached=1))
    owner = PausingOwner(ANNA)
    made = [store.create(ANNA, str(number), PAIR, TERMS) for number in range(2)]

    def use(number: int) -> list[StoredGlossary]:
        return [store.load(owner, made[(number + turn) % 2].glossary_id)[0] for turn in range(10)]

    with ThreadPoolExecutor(8) as executor:
        for number, found in enumerate(executor.map(use, range(16))):
            assert found == [made[(number + turn) % 2] for turn in range(10)]


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.sqlite"
    GlossaryStore(path, LIMITS)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(GlossaryStoreError, match="format 2, not 1"):
        GlossaryStore(path, LIMITS)


def test_a_path_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.sqlite"
    path.write_text("not a database, but long enough to be looked at " * 10)
    with pytest.raises(GlossaryStoreError, match="NOTADB"):
        GlossaryStore(path, LIMITS)
    with pytest.raises(GlossaryStoreError, match="in its folder: No such file or directory"):
        GlossaryStore(tmp_path / "missing" / "glossaries.sqlite", LIMITS)
    with pytest.raises(GlossaryStoreError, match="in its folder: File name too long"):
        GlossaryStore(tmp_path / ("a" * 256), LIMITS)


def test_a_stored_name_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.sqlite"
    store = GlossaryStore(path, LIMITS)
    store.create(ANNA, "trees", PAIR, TERMS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE glossaries SET name = CAST(x'ff' AS TEXT)")
    with pytest.raises(GlossaryStoreError, match="OperationalError"):
        store.list(ANNA)


@pytest.mark.parametrize(
    ("text", "entries_format"),
    [
        ("tree\tBaum\nAnn's\tAnn's\n", EntriesFormat.TSV),
        ("\ufeff tree \t Baum\r\n\r\nAnn's\tAnn's", EntriesFormat.TSV),
        ("tree,Baum\n\"Ann's\",Ann's\n", EntriesFormat.CSV),
        ("tree,Baum,en,de\r\n\r\nAnn's,Ann's,en,de\r\n", EntriesFormat.CSV),
        ("tree,Baum,EN-US, de_AT\nAnn's,Ann's,,", EntriesFormat.CSV),
    ],
)
def test_entries_are_read(text: str, entries_format: EntriesFormat) -> None:
    assert parse_entries(text, entries_format, PAIR, LIMITS) == TERMS


@pytest.mark.parametrize(
    ("text", "entries_format", "problems"),
    [
        ("", EntriesFormat.TSV, ("entries: there are none",)),
        ("\n \n", EntriesFormat.CSV, ("entries: there are none",)),
        ("a\tb\nlonely", EntriesFormat.TSV, ("line 2: 1 columns between tabs, not 2",)),
        ("a\tb\tc", EntriesFormat.TSV, ("line 1: 3 columns between tabs, not 2",)),
        ("a,b,c", EntriesFormat.CSV, ("line 1: 3 columns between commas, not 2 or 4",)),
        ("a;b", EntriesFormat.CSV, ("line 1: 1 columns between commas, not 2 or 4",)),
        ("a,b,en,de\nc,d,DE,EN", EntriesFormat.CSV, ("line 2: column 3 names another language than en",)),
        ("a,b,en,fr", EntriesFormat.CSV, ("line 1: column 4 names another language than de",)),
        ("a\t \n\tb", EntriesFormat.TSV, ("line 1: the translation is empty", "line 2: the term is empty")),
        ("a\t" + "b" * 11, EntriesFormat.TSV, ("line 1: the translation has 11 characters, more than 10",)),
        ("a\x00\tb", EntriesFormat.TSV, ("line 1: the term has a control character (U+0000)",)),
        ('"a\nb",c', EntriesFormat.CSV, ("line 2: the term has a control character (U+000A)",)),
        ("a\tb\n\na\tc", EntriesFormat.TSV, ("line 3: it repeats the term of line 1",)),
        (
            "a\na\na\na\na",
            EntriesFormat.TSV,
            tuple(f"line {n}: 1 columns between tabs, not 2" for n in (1, 2, 3)),
        ),
        ("\n".join(f"{n}\tx" for n in range(5)), EntriesFormat.TSV, ("entries: more than 4",)),
    ],
)
def test_bad_entries_are_named_by_line(
    text: str, entries_format: EntriesFormat, problems: tuple[str, ...]
) -> None:
    with pytest.raises(EntriesError) as caught:
        parse_entries(text, entries_format, PAIR, LIMITS)
    assert caught.value.problems == problems


def test_a_term_may_have_every_character_but_control_characters_and_line_breaks() -> None:
    refused = {
        chr(code) for code in range(sys.maxunicode + 1) if term_problem(f"a{chr(code)}b", 3) is not None
    }
    noncharacters = {"\ufffe", "\uffff"}
    categories = {unicodedata.category(character) for character in refused - noncharacters}
    assert noncharacters < refused
    assert categories == {"Cc", "Cs", "Zl", "Zp"}
    others = (chr(code) for code in range(sys.maxunicode + 1) if chr(code) not in refused)
    assert categories.isdisjoint(map(unicodedata.category, others))


def test_an_open_quote_is_no_csv() -> None:
    with pytest.raises(EntriesError, match=r"line 2: not comma-separated"):
        parse_entries('a,b\n"c,d', EntriesFormat.CSV, PAIR, LIMITS)


WORD = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=10).filter(
    lambda word: word.strip() == word and not word.startswith("\ufeff")
)


@given(st.dictionaries(WORD, WORD, min_size=1, max_size=4))
def test_formatted_entries_can_be_parsed(pairs: dict[str, str]) -> None:
    terms = tuple(Term(source, target) for source, target in pairs.items())
    assert parse_entries(format_tsv(terms), EntriesFormat.TSV, PAIR, LIMITS) == terms
