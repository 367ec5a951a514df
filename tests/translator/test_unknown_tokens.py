"""Each unknown token of a translation gets the unknown span of the source that it attends to most."""

from __future__ import annotations

import pytest

from app.decoding.options import FinishReason, Hypothesis
from app.engine.sequence import SequenceResult
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Encoded, Tokenizer
from app.translator.unknown_tokens import UnknownTokens
from tests.model.sentences import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "source.spm"))


@pytest.fixture(scope="module")
def symbols(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.id_of(symbol) for symbol in PLACEHOLDER_SYMBOLS]


def result(ids: tuple[int, ...], alignment: tuple[tuple[float, ...], ...] = ()) -> SequenceResult:
    return SequenceResult(
        [Hypothesis(ids, -1.0, -1.0, FinishReason.STOP, (), (), alignment)], 0.0, 0.0, 0.0, 1
    )


def matched(tokenizer: Tokenizer, source: Encoded, given: SequenceResult) -> list[int]:
    return list(UnknownTokens(tokenizer).matched(given, source).hypotheses[0].ids)


def encoded(tokenizer: Tokenizer, num_spans: int) -> Encoded:
    found = tokenizer.encode("".join(f"again {chr(0x4E00 + index)} " for index in range(num_spans)))
    assert len(found.verbatim_spans) == num_spans
    return found


def attention(source: Encoded, *symbols: int) -> tuple[tuple[float, ...], ...]:
    """A row of weights for each of `symbols`, highest at the position of this symbol in the source."""
    return tuple(tuple(0.9 if each == symbol else 0.01 for each in source.ids) for symbol in symbols)


def test_each_token_gets_the_span_that_it_attends_to(tokenizer: Tokenizer, symbols: list[int]) -> None:
    source = encoded(tokenizer, 3)
    given = result((symbols[0],) * 3, attention(source, symbols[2], symbols[0], symbols[1]))
    assert matched(tokenizer, source, given) == [symbols[2], symbols[0], symbols[1]]


def test_two_tokens_never_share_a_span(tokenizer: Tokenizer, symbols: list[int]) -> None:
    source = encoded(tokenizer, 2)
    given = result((symbols[0],) * 2, attention(source, symbols[1], symbols[1]))
    assert matched(tokenizer, source, given) == [symbols[1], symbols[0]]


def test_a_token_too_many_is_dropped(tokenizer: Tokenizer, symbols: list[int]) -> None:
    source = encoded(tokenizer, 2)
    given = result((symbols[0],) * 3, attention(source, symbols[1], symbols[0], symbols[1]))
    ids = matched(tokenizer, source, given)
    assert ids == [symbols[1], symbols[0], symbols[2]]
    decoded = tokenizer.decode(ids, source.verbatim_spans)
    assert decoded.text.split() == [source.verbatim_spans[1], source.verbatim_spans[0]] or (
        decoded.text == source.verbatim_spans[1] + source.verbatim_spans[0]
    )
    assert decoded.num_appended == 0


def test_a_token_too_many_is_dropped_if_all_symbols_have_spans(
    tokenizer: Tokenizer, symbols: list[int]
) -> None:
    source = encoded(tokenizer, len(symbols))
    ids = matched(tokenizer, source, result((symbols[0],) * (len(symbols) + 1)))
    assert ids == [*symbols, symbols[-1]]
    assert "".join(tokenizer.decode(ids, source.verbatim_spans).text.split()) == "".join(
        source.verbatim_spans
    )


def test_without_attention_the_spans_keep_the_order_of_the_source(
    tokenizer: Tokenizer, symbols: list[int]
) -> None:
    assert matched(tokenizer, encoded(tokenizer, 2), result((symbols[0],) * 2)) == symbols[:2]


def test_a_forced_target_has_the_same_token_for_each_unknown_text(
    tokenizer: Tokenizer, symbols: list[int]
) -> None:
    known = tokenizer.encode("Anna").ids[:-1]
    forced = UnknownTokens(tokenizer).as_written((*known, symbols[3], tokenizer.unk_id, symbols[0]))
    assert forced == (*known, symbols[0], symbols[0], symbols[0])
