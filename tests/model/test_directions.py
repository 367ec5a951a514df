"""One model for both directions: the tags in the vocabulary, the pairs in both directions, and the bundle."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from app.bundle import load_bundle
from app.text.tokenizer import Tokenizer, TokenizerError
from export.bundle_writer import BundleRequest, write_bundle
from export.verify import VerifyOptions, verify
from export.verify_scores import read_test_sets
from model.checkpoint import Saved, save
from model.corpus import CorpusError, Direction, Filter, encode_corpus
from model.data_arguments import directions_of, one_way_directions, one_way_pairs, with_lexicon
from model.imported import read_sentencepiece
from model.lexicon import Entry
from model.tokenizer_training import add_tags, train_tokenizer
from model.variants import as_typed
from tests.export.tiny import FACTS, MAX_LENGTH, random_model
from tests.model.sentences import pairs, write_tsv

FORWARD, BACKWARD = ">>de<<", ">>en<<"


@pytest.fixture(scope="module")
def tagged_path(tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tagged") / "tagged.spm"
    add_tags(tokenizer_path, path, (FORWARD, BACKWARD))
    return path


def test_tags_take_the_places_of_rare_subwords(
    tokenizer: Tokenizer, tokenizer_path: Path, tagged_path: Path
) -> None:
    """The rarest merged subwords are the last ones."""
    tagged = Tokenizer(tagged_path)
    assert tagged.vocab_size == tokenizer.vocab_size
    ids = {tagged.id_of(FORWARD), tagged.id_of(BACKWARD)}
    before = SentencePieceProcessor(model_file=str(tokenizer_path))
    merged = [
        number
        for number in range(tokenizer.vocab_size)
        if len(before.id_to_piece(number)) > 1
        and not (before.is_control(number) or before.is_unknown(number))
    ]
    assert ids == {*merged[-2:]}
    text = "Anna sees the river today."
    assert tagged.encode_tagged(text, FORWARD).ids == (tagged.id_of(FORWARD), *tagged.encode(text).ids)
    assert tagged.decode(tagged.encode(text).ids[:-1]).text == text


def test_a_tag_in_a_text_is_encoded_as_text(tagged_path: Path) -> None:
    tagged = Tokenizer(tagged_path)
    assert tagged.id_of(FORWARD) not in tagged.encode(f"Anna {FORWARD} sees").ids


def test_a_tag_that_the_vocabulary_has_is_not_added_again(tagged_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has >>de<< already"):
        add_tags(tagged_path, tmp_path / "again.spm", (FORWARD,))


def test_two_equal_tags_and_an_empty_tag_are_errors(tokenizer_path: Path, tmp_path: Path) -> None:
    """SentencePiece does not load a vocabulary with two equal subwords or an empty one."""
    with pytest.raises(ValueError, match="two tags are equal"):
        add_tags(tokenizer_path, tmp_path / "new.spm", (FORWARD, FORWARD))
    with pytest.raises(ValueError, match="a tag is empty"):
        add_tags(tokenizer_path, tmp_path / "new.spm", ("",))
    assert not (tmp_path / "new.spm").exists()


def test_tags_of_a_file_that_is_no_vocabulary_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.spm").write_text("no vocabulary", "utf-8")
    with pytest.raises(ValueError, match=r"text\.spm is not a SentencePiece model"):
        add_tags(tmp_path / "text.spm", tmp_path / "new.spm", (FORWARD,))


def test_more_tags_than_subwords_are_an_error(tokenizer_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has \d+ merged subwords, fewer than the 400 tags"):
        add_tags(tokenizer_path, tmp_path / "new.spm", [f">>{number}<<" for number in range(400)])
    assert not (tmp_path / "new.spm").exists()


def test_tags_may_take_the_places_of_all_merged_subwords(tokenizer_path: Path, tmp_path: Path) -> None:
    pieces = read_sentencepiece(tokenizer_path).pieces
    num_merged = sum(piece.type == piece.NORMAL and len(piece.piece) > 1 for piece in pieces)
    tags = [f">>{number}<<" for number in range(num_merged)]
    add_tags(tokenizer_path, tmp_path / "new.spm", tags)
    new = Tokenizer(tmp_path / "new.spm")
    assert len({new.id_of(tag) for tag in tags}) == num_merged


def test_a_vocabulary_can_be_trained_with_tags(tmp_path: Path) -> None:
    path = tmp_path / "new.spm"
    train_tokenizer(pairs(), path, vocab_size=400, character_coverage=1.0, tags=(FORWARD, BACKWARD))
    tokenizer = Tokenizer(path)
    assert tokenizer.id_of(FORWARD) not in tokenizer.encode(FORWARD).ids


def test_every_pair_is_read_in_both_directions(tagged_path: Path) -> None:
    tagged = Tokenizer(tagged_path)
    keep = Filter(strange_share=0.0)
    both = (Direction(FORWARD), Direction(BACKWARD, is_reversed=True))
    corpus = encode_corpus(pairs()[:8], tagged, keep=keep, directions=both)
    assert len(corpus) == 16
    pair = pairs()[0]
    assert tuple(corpus.source(0)) == tagged.encode_tagged(pair.source, FORWARD).ids
    assert tuple(corpus.target(0)) == tagged.encode_target(pair.target)
    assert tuple(corpus.source(1)) == tagged.encode_tagged(pair.target, BACKWARD).ids
    assert tuple(corpus.target(1)) == tagged.encode_target(pair.source)


def test_one_way_pairs_are_read_in_one_direction(tagged_path: Path, tmp_path: Path) -> None:
    """--one-way has the tag of --data, and --one-way-reverse has the other tag. Neither file is reversed."""
    forward, backward = pairs()[:2]
    write_tsv(tmp_path / "forward.tsv", [forward])
    write_tsv(tmp_path / "backward.tsv", [backward])
    args = argparse.Namespace(
        tag=FORWARD,
        reverse_tag=BACKWARD,
        one_way=[str(tmp_path / "forward.tsv")],
        one_way_reverse=[str(tmp_path / "backward.tsv")],
    )
    tagged = Tokenizer(tagged_path)
    one_way = one_way_pairs(args, directions_of(args))
    corpus = encode_corpus([], tagged, keep=Filter(strange_share=0.0), one_way=one_way)
    assert len(corpus) == 2
    assert tuple(corpus.source(0)) == tagged.encode_tagged(forward.source, FORWARD).ids
    assert tuple(corpus.target(0)) == tagged.encode_target(forward.target)
    assert tuple(corpus.source(1)) == tagged.encode_tagged(backward.source, BACKWARD).ids
    assert tuple(corpus.target(1)) == tagged.encode_target(backward.target)


def test_one_way_pairs_have_the_lexicon_of_their_direction() -> None:
    """The lexicon maps words of the pair's source language, because placeholders replace words that it maps."""
    args = argparse.Namespace(tag=FORWARD, reverse_tag=BACKWARD)
    directions = with_lexicon(directions_of(args), [Entry("dog", "Hund", 1, 1.0)])
    assert [one.lexicon for one in directions] == [{"dog": "hund"}, {"hund": "dog"}]
    assert one_way_directions(directions) == (
        directions[0],
        Direction(BACKWARD, is_reversed=False, lexicon=directions[1].lexicon),
    )


def test_one_way_reverse_needs_a_reverse_tag() -> None:
    args = argparse.Namespace(tag=None, reverse_tag=None, one_way=[], one_way_reverse=["x.tsv"])
    with pytest.raises(CorpusError, match="--one-way-reverse needs --reverse-tag"):
        one_way_pairs(args, directions_of(args))


def test_a_tag_that_the_vocabulary_lacks_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="no piece '>>fr<<'"):
        encode_corpus(pairs(), tokenizer, keep=Filter(), directions=(Direction(">>fr<<"),))


def test_typed_forms_keep_the_words() -> None:
    """`as_typed` changes capitals of the source, and removes the final full stops of both sides."""
    random_numbers = random.Random(1)
    forms = [as_typed("We Are here.", "Wir sind hier.", random_numbers) for _ in range(200)]
    assert {target for _, target in forms} == {"Wir sind hier"}
    assert {source for source, _ in forms} == {"We Are here", "we are here", "We Are Here"}
    assert as_typed("Who is it?", "Wer ist das?", random_numbers)[1] == "Wer ist das?"
    assert as_typed("...", "...", random_numbers) == ("...", "...")
    assert as_typed("We Are here.", "Wir sind hier", random_numbers)[0].endswith(".")


def test_a_target_gains_the_first_capital_that_its_source_gains() -> None:
    random_numbers = random.Random(1)
    forms = {as_typed("show more", "mehr anzeigen", random_numbers) for _ in range(200)}
    assert forms == {
        ("show more", "mehr anzeigen"),
        ("Show More", "Mehr anzeigen"),
        ("Show more", "Mehr anzeigen"),
    }
    capital = {as_typed("Show more", "mehr anzeigen", random_numbers)[1] for _ in range(200)}
    assert capital == {"mehr anzeigen"}, "the source has its first capital already"


@pytest.fixture(scope="module")
def two_way_bundle(tagged_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-way")
    model = random_model(max_length=MAX_LENGTH)
    save(
        folder / "checkpoint",
        Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}),
        tagged_path,
    )
    request = BundleRequest(
        name="tiny",
        version="1",
        source="en",
        target="de",
        precisions=("int8",),
        facts=FACTS,
        tag=FORWARD,
        reverse_tag=BACKWARD,
    )
    write_bundle(folder / "checkpoint", folder / "bundle", request)
    return folder / "bundle"


@pytest.mark.seconds
def test_a_bundle_of_both_directions(two_way_bundle: Path) -> None:
    bundle = load_bundle(two_way_bundle)
    found = [(pair.source, pair.target, pair.source_prefix) for pair in bundle.manifest.language_pairs]
    assert found == [("en", "de", FORWARD), ("de", "en", BACKWARD)]
    assert {line.pair for line in bundle.golden} == {0, 1}
    assert any("Bahnhof" in line.source for line in bundle.golden if line.pair == 1)


@pytest.mark.seconds
def test_both_directions_are_verified_and_scored(
    two_way_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.verify.NUM_BATCHES", 1)
    data = write_tsv(tmp_path / "held-out.tsv", pairs()[:3])
    report = verify(two_way_bundle, VerifyOptions(data=(str(data),)))
    assert [check.name for check in report.checks if not check.is_passed] == []
    names = {score.test_set for score in report.scores}
    assert names == {"held-out, en to de", "held-out, de to en"}


def test_a_test_set_of_the_reverse_direction_has_its_columns_exchanged(
    two_way_bundle: Path, tmp_path: Path
) -> None:
    bundle, (pair, *_) = load_bundle(two_way_bundle), pairs()
    tokenizer = Tokenizer(bundle.file("source.spm"))
    data = write_tsv(tmp_path / "held-out.tsv", [pair])
    forward, backward = read_test_sets(bundle.manifest, tokenizer, (str(data),), limit=None)
    assert forward.sources == [tokenizer.encode_tagged(pair.source, FORWARD)]
    assert backward.sources == [tokenizer.encode_tagged(pair.target, BACKWARD)]
    assert (forward.references, backward.references) == ([pair.target], [pair.source])


def test_a_tag_that_is_no_subword_is_not_exported(two_way_bundle: Path, tmp_path: Path) -> None:
    request = BundleRequest(
        name="tiny", version="1", source="en", target="de", precisions=("int8",), facts=FACTS, tag=">>fr<<"
    )
    with pytest.raises(TokenizerError, match="no piece '>>fr<<'"):
        write_bundle(two_way_bundle.parent / "checkpoint", tmp_path / "bundle", request)
