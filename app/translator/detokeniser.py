"""The engine's results become texts again, with what was asked to be told of them."""

from __future__ import annotations

from collections.abc import Sequence

from app.bundle import LanguagePair
from app.decoding.options import Hypothesis
from app.engine.sequence import SequenceResult
from app.text.segmentation import join
from app.text.spans import as_sent, target_offsets
from app.text.tokenizer import Tokenizer
from app.translator.pieces import Cutter, SourcePiece, stripped
from app.translator.request import (
    PairScore,
    ScoreRequest,
    Segment,
    SegmentHypothesis,
    TextSpan,
    Token,
    Translation,
    TranslationRequest,
)
from app.translator.tokens import TokenTeller


class Detokeniser:
    """Of one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, cutter: Cutter) -> None:
        """tokenizer: of the target. cutter: what cut the sources."""
        self._tokenizer = tokenizer
        self._cutter = cutter

    def translations(
        self,
        request: TranslationRequest,
        pair: LanguagePair,
        texts: Sequence[Sequence[SourcePiece]],
        results: Sequence[SequenceResult],
    ) -> tuple[Translation, ...]:
        """Detokenise and join. `texts`: the pieces of each; `results`: one a piece, texts in order."""
        remaining = iter(results)
        num_hypotheses = request.options.num_hypotheses if request.options else 1
        translations = []
        for text, pieces in zip(request.texts, texts, strict=True):
            found = [next(remaining) for _ in pieces]
            told = [
                tuple(self._hypotheses(request, pair, piece, result.hypotheses))
                for piece, result in zip(pieces, found, strict=True)
            ]
            spans = [piece.span for piece in pieces]
            joined = [
                join(text, spans, [ranked[min(rank, len(ranked) - 1)].text for ranked in told])
                for rank in range(num_hypotheses)
            ]
            segments = tuple(
                Segment(TextSpan(span.start, span.end), TextSpan(*target), hypotheses, result.has_looped)
                for span, target, hypotheses, result in zip(spans, joined[0].spans, told, found, strict=True)
            )
            whole_texts = tuple(whole.text for whole in joined)
            translations.append(Translation(joined[0].text, whole_texts, segments, pair.source))
        return tuple(translations)

    def scores(
        self,
        request: ScoreRequest,
        pair: LanguagePair,
        pieces: Sequence[SourcePiece],
        results: Sequence[SequenceResult],
    ) -> tuple[PairScore, ...]:
        """`results`: one a pair. The tokens' places are those in the caller's translation."""
        scores = []
        for index, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            text, hypothesis = request.translations[index], result.hypotheses[0]
            span = stripped("translation", index, text)
            teller = self._teller(request, pair, piece)
            tokens: tuple[Token, ...] = ()
            if teller is not None:
                offsets = target_offsets(self._tokenizer, hypothesis.ids, piece.encoded.carried)
                places = [
                    (start + span.start, end + span.start) for start, end in as_sent(span.of(text), offsets)
                ]
                tokens = teller.tell(hypothesis, text[: span.end], places)
            num_tokens = len(hypothesis.token_log_probabilities)
            scores.append(PairScore(hypothesis.log_probability, hypothesis.score, num_tokens, tokens))
        return tuple(scores)

    def _hypotheses(
        self,
        request: TranslationRequest,
        pair: LanguagePair,
        piece: SourcePiece,
        hypotheses: Sequence[Hypothesis],
    ) -> list[SegmentHypothesis]:
        """A piece's translations, in their order."""
        carried = piece.encoded.carried
        teller = self._teller(request, pair, piece)
        told = []
        for hypothesis in hypotheses:
            text = self._tokenizer.decode(hypothesis.ids, carried).text
            tokens: tuple[Token, ...] = ()
            if teller is not None:
                tokens = teller.tell(
                    hypothesis, text, target_offsets(self._tokenizer, hypothesis.ids, carried)
                )
            log_probability, score = hypothesis.log_probability, hypothesis.score
            told.append(SegmentHypothesis(text, log_probability, score, hypothesis.finish_reason, tokens))
        return told

    def _teller(
        self, request: TranslationRequest | ScoreRequest, pair: LanguagePair, piece: SourcePiece
    ) -> TokenTeller | None:
        """None where the answer tells no tokens."""
        if not request.tells_tokens:
            return None
        is_aligned = request.options is not None and request.options.alignment
        places = self._cutter.places(piece, pair) if is_aligned else []
        return TokenTeller(self._tokenizer, piece.encoded.carried, places)
