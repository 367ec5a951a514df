"""A glossary file that cannot be read or written: what is logged, and which glossaries translations can still use."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.stores import glossaries
from app.stores.glossaries import GlossaryLimits, GlossaryNotFound, GlossaryStore, GlossaryStoreError
from app.text.glossary import Glossary, Term

ANNA = "0123456789ab"
PAIR = ("en", "de")
TERMS = (Term("tree", "Baum"),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "glossaries.sqlite"


def test_what_fails_is_logged_with_its_cause(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = GlossaryStore(path)
    path.unlink()
    calls = (
        lambda: store.create(ANNA, "wood", PAIR, TERMS),
        lambda: store.list(ANNA),
        lambda: store.load(ANNA, "x"),
        lambda: store.delete(ANNA, "x"),
    )
    for call in calls:
        caplog.clear()
        with pytest.raises(GlossaryStoreError):
            call()
        assert caplog.messages == ["glossary_store_failed"]
        assert caplog.records[0].fields == {"problem": "the glossary store failed: SQLITE_CANTOPEN"}  # type: ignore[attr-defined]


def test_a_deleted_file_is_created_by_a_new_store_and_not_by_a_call(path: Path) -> None:
    store = GlossaryStore(path)
    path.unlink()
    with pytest.raises(GlossaryStoreError):
        store.list(ANNA)
    assert not path.exists()
    assert GlossaryStore(path).list(ANNA) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_loaded_glossary_is_used_while_the_file_cannot_be_read(path: Path) -> None:
    store = GlossaryStore(path)
    loaded, other = (store.create(ANNA, name, PAIR, TERMS).glossary_id for name in ("loaded", "other"))
    expected = store.load(ANNA, loaded)
    moved = path.rename(path.with_suffix(".moved"))
    assert store.load(ANNA, loaded) is expected
    for owner, glossary_id in ((ANNA, other), ("", loaded)):
        with pytest.raises(GlossaryStoreError):
            store.load(owner, glossary_id)
    moved.rename(path)
    GlossaryStore(path).delete(ANNA, loaded)  # like another process
    with pytest.raises(GlossaryNotFound):
        store.load(ANNA, loaded)


def test_the_glossaries_that_were_used_last_are_kept_for_a_file_that_cannot_be_read(path: Path) -> None:
    store = GlossaryStore(path, GlossaryLimits(max_cached=2))
    first, second, third = (store.create(ANNA, name, PAIR, TERMS).glossary_id for name in ("1", "2", "3"))
    for used in (first, second, first, third):
        store.load(ANNA, used)
    path.unlink()
    for kept in (first, third):
        assert store.load(ANNA, kept)[0].glossary_id == kept
    with pytest.raises(GlossaryStoreError):
        store.load(ANNA, second)


def test_a_deleted_glossary_is_not_used_while_the_file_cannot_be_read(path: Path) -> None:
    store = GlossaryStore(path)
    here, elsewhere = (store.create(ANNA, name, PAIR, TERMS).glossary_id for name in ("here", "elsewhere"))
    for deleted in (here, elsewhere):
        store.load(ANNA, deleted)
    store.delete(ANNA, here)
    GlossaryStore(path).delete(ANNA, elsewhere)  # like another process
    with pytest.raises(GlossaryNotFound):
        store.load(ANNA, elsewhere)
    path.unlink()
    for deleted in (here, elsewhere):
        with pytest.raises(GlossaryStoreError):
            store.load(ANNA, deleted)


def test_a_glossary_that_is_deleted_while_it_is_loaded_is_not_cached(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = GlossaryStore(path)
    deleted = store.create(ANNA, "deleted", PAIR, TERMS).glossary_id

    def compiled(terms: Sequence[Term], language: str) -> Glossary:
        store.delete(ANNA, deleted)  # like another thread
        return Glossary(terms, language)

    monkeypatch.setattr(glossaries, "Glossary", compiled)
    with suppress(GlossaryNotFound):
        store.load(ANNA, deleted)
    path.unlink()
    with pytest.raises(GlossaryStoreError):
        store.load(ANNA, deleted)


def test_a_complete_file_opens_while_another_process_writes_it(path: Path) -> None:
    made = GlossaryStore(path).create(ANNA, "wood", PAIR, TERMS)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert GlossaryStore(path).list(ANNA) == [made]


def test_a_file_that_may_not_be_written_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test sets what the system says, because root may write any file."""
    GlossaryStore(path)
    monkeypatch.setattr(os, "access", lambda asked, mode: (asked, mode) != (path, os.W_OK))
    with pytest.raises(GlossaryStoreError, match=r"glossaries\.sqlite may not be written"):
        GlossaryStore(path)


def test_a_path_may_have_any_character(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20d ü\udcff.sqlite"
    made = GlossaryStore(path).create(ANNA, "wood", PAIR, TERMS)
    assert GlossaryStore(path).list(ANNA) == [made]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
