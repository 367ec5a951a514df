"""`transduce shortlist` learns the requested directions in bounded memory. `verify` scores int8 with the shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.bundle import Score, load_bundle
from app.shortlist_file import SHORTLIST, read_shortlists
from app.text.tokenizer import Tokenizer
from export.bundle_shortlist import write_with_shortlist
from export.shortlist import encode_pairs, make_table
from export.verify import VerifyOptions, verify
from export.verify_scores import MAX_SHORTLIST_LOSS, shortlist_check
from model.corpus import Pair
from tests.bundles.damage import set_field
from tests.export.tiny import recorded_translations, sentences, verify_few_sentences
from tests.native_kernels import NEEDS_NATIVE
from transduce.cli import main


def write_pairs(path: Path, pairs: Sequence[Pair]) -> Path:
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), "utf-8")
    return path


@pytest.mark.parametrize(("one_way", "learned"), [([], (0, 1)), (["--one-way"], (1,))])
def test_one_way_leaves_the_reverse_direction_out(
    one_way: list[str], learned: tuple[int, ...], own_bundle: Path, tmp_path: Path
) -> None:
    set_field("language_pairs", [{"source": "en", "target": "de"}, {"source": "de", "target": "en"}])(
        own_bundle
    )
    data = write_pairs(
        tmp_path / "pairs.tsv", [Pair(pair.target, pair.source, "") for pair in sentences()[:20]]
    )
    languages = ["--source", "de", "--target", "en"]
    assert main(["shortlist", str(own_bundle), "--data", str(data), *languages, *one_way]) == 0
    entry = load_bundle(own_bundle).manifest.shortlist
    assert entry is not None
    assert entry.pairs == learned


def test_one_way_does_not_take_the_reverse_of_a_direction(
    own_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    languages = ["--source", "de", "--target", "en"]
    assert main(["shortlist", str(own_bundle), "--data", "none.tsv", *languages, "--one-way"]) != 0
    assert "the bundle does not translate from de to en" in capsys.readouterr().err


def test_pairs_beyond_the_memory_are_left_out_at_random(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(tiny / "bundle" / "source.spm")
    pairs = [*sentences(), Pair("", "leer", "tiny"), Pair("long " * 90, "lang", "tiny")]
    whole = encode_pairs(pairs, tokenizer, tokenizer, is_reversed=False)
    assert (len(whole.sentences), whole.num_skipped, whole.num_left_out) == (400, 2, 0)
    combinations = [(len(source) + 1) * len(target) for source, target in whole.sentences]
    monkeypatch.setattr("export.shortlist.MAX_COMBINATIONS", sum(combinations[:40]))
    part = encode_pairs(pairs, tokenizer, tokenizer, is_reversed=False)
    assert part.sentences == whole.sentences[:40]
    assert len(part.sentences) + part.num_skipped + part.num_left_out == len(pairs)
    first = {tokenizer.encode(pair.source).ids[:-1] for pair in pairs[:40]}
    assert not {tuple(source) for source, _ in part.sentences} <= first, "the first pairs are not preferred"


def test_a_side_of_exactly_the_maximum_length_is_used(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(tiny / "bundle" / "source.spm")
    (pair, *_) = sentences()
    lengths = [len(tokenizer.encode(text).ids) - 1 for text in (pair.source, pair.target)]
    monkeypatch.setattr("export.shortlist.MAX_SUBWORDS", max(lengths))
    for is_reversed in (False, True):
        assert encode_pairs([pair], tokenizer, tokenizer, is_reversed=is_reversed).num_skipped == 0


def test_the_command_tells_how_many_pairs_it_used(
    own_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("export.shortlist.MAX_COMBINATIONS", 5000)
    data = write_pairs(tmp_path / "pairs.tsv", [*sentences()[:50], Pair("long " * 90, "lang", "")])
    assert main(["shortlist", str(own_bundle), "--data", str(data)]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("en-de: ")
    assert first.endswith(" left out to limit memory")
    assert " 0 left out" not in first


def test_the_scores_of_a_model_card_are_said_to_be_without_the_shortlist(
    own_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["shortlist", str(own_bundle), "--data"]
    arguments.append(str(write_pairs(tmp_path / "pairs.tsv", sentences()[:20])))
    message = "its model card has the scores without this shortlist"
    assert main(arguments) == 0
    assert message not in capsys.readouterr().err
    score = Score(
        test_set="x", precision="int8", beam_size=4, bleu=1, chrf=1, bleu_signature="", chrf_signature=""
    )
    set_field("scores", [score.model_dump()])(own_bundle)
    assert main(arguments) == 0
    assert message in capsys.readouterr().err


@pytest.fixture
def bundle_with_shortlist(own_bundle: Path) -> Path:
    """A bundle whose shortlist has no translation of any source subword.

    No mean log-probability is below -1000, so no sentence is decoded again with the whole vocabulary.
    """
    paths = own_bundle / "source.spm", own_bundle / "target.spm"
    table = make_table({}, [], source=paths[0], target=paths[1])
    write_with_shortlist(load_bundle(own_bundle), own_bundle, {0: table}, -1000.0)
    return own_bundle


@pytest.mark.seconds
@NEEDS_NATIVE  # only native kernels use a shortlist
def test_verify_scores_int8_with_the_shortlist_too(
    bundle_with_shortlist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_few_sentences(monkeypatch)
    found = recorded_translations(monkeypatch)
    data = write_pairs(tmp_path / "made.tsv", sentences()[:4])
    report = verify(bundle_with_shortlist, VerifyOptions(data=(str(data),), beam_size=1))
    assert [(score.test_set, score.precision) for score in report.scores] == [
        ("made", "int8"),
        ("made", "fp32"),
        ("made with the shortlist", "int8"),
    ]
    assert [check.name for check in report.checks[-2:]] == [
        "int8 BLEU on made",
        "int8 BLEU on made with the shortlist",
    ]
    assert report.skipped == ()
    (table,) = read_shortlists(bundle_with_shortlist / SHORTLIST)
    is_shortlisted = {
        name: all(set(ids) <= set(table.shortlist(source).tolist()) for source, ids in translations)
        for name, translations in found.items()
    }
    assert is_shortlisted == {"made int8": False, "made fp32": False, "made with the shortlist int8": True}


@pytest.mark.seconds
def test_verify_says_that_no_kernels_can_use_the_shortlist(
    bundle_with_shortlist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_few_sentences(monkeypatch)
    for module in ("export.verify", "export.verify_scores"):
        monkeypatch.setattr(f"{module}.usable_kernels", lambda _variant: ("standard",))
    data = write_pairs(tmp_path / "made.tsv", sentences()[:2])
    report = verify(bundle_with_shortlist, VerifyOptions(data=(str(data),), beam_size=1))
    assert report.skipped == ("BLEU with the shortlist: it needs int8 and native kernels",)
    assert [score.test_set for score in report.scores] == ["made", "made"]


@pytest.mark.parametrize(("listed", "is_passed"), [(29.6, False), (29.8, True), (30.5, True)])
def test_bleu_with_a_shortlist_may_lose_at_most_the_limit(listed: float, is_passed: bool) -> None:
    check = shortlist_check("a test set", listed=listed, whole=30.0)
    assert check.is_passed == is_passed
    assert f"{listed:.2f}, whole vocabulary 30.00" in check.line()
    assert shortlist_check("a test set", listed=0.0, whole=MAX_SHORTLIST_LOSS).is_passed
