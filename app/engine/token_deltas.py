"""New tokens of the sentences that somebody watches while they are decoded. The others pay nothing for it."""

from __future__ import annotations

from typing import NamedTuple

from app.decoding.greedy import GreedyRows, GreedySearch
from app.engine.sequence import Sequence, Status


class TokenDelta(NamedTuple):
    """From `position` on a sentence's translation says `ids` now; what was told from there on before is void.

    position is the number of ids told so far, or 0 where the sentence has begun again.
    """

    sequence: Sequence
    position: int
    ids: tuple[int, ...]


class TokenStreams:
    """The engine thread's own. Sentences have greedy searches: of a beam nobody knows which hypothesis will win."""

    def __init__(self, greedy: GreedyRows) -> None:
        """greedy: where those run that have no options but the plain ones."""
        self._greedy = greedy
        self._num_sent: dict[Sequence, int] = {}

    @property
    def is_streaming(self) -> bool:
        """Whether a sentence that has not ended is listened to."""
        return bool(self._num_sent)

    def add(self, sequence: Sequence) -> None:
        """Tell of a sentence from its first token on, also where it was listened to before."""
        self._num_sent[sequence] = 0

    def take_deltas(self) -> list[TokenDelta]:
        """What is new since the last call. Who has ended is forgotten: its result tells all."""
        found: list[TokenDelta] = []
        for sequence, told in list(self._num_sent.items()):
            if sequence.status is Status.ENDED:
                del self._num_sent[sequence]
            elif sequence.status is Status.RUNNING:
                if isinstance(sequence.search, GreedySearch) and self._greedy.is_running(sequence.rows[0]):
                    self._greedy.sync(sequence.rows[0])
                (said,) = sequence.search.prefixes()
                position = told if len(said) >= told else 0  # fewer than before: begun again
                if len(said) != told:
                    found.append(TokenDelta(sequence, position, said[position:]))
                    self._num_sent[sequence] = len(said)
        return found
