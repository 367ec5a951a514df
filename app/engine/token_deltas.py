"""New tokens of the sequences that are streamed: collected in a worker, and passed on by the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.decoding.greedy import GreedyRows, GreedySearch
from app.decoding.search import Search
from app.engine.sequence import Sequence, Status

# Called with new tokens: the position of the first one, and the tokens; see `TokenDelta`.
OnTokens = Callable[[int, tuple[int, ...]], None]


class TokenDelta(NamedTuple):
    """New tokens of a sequence's target. They replace all tokens from `position` on.

    position: the number of tokens sent before, or 0 if decoding has restarted.
    """

    sequence: Sequence
    position: int
    ids: tuple[int, ...]


class TokenStreams:
    """Tracks how many tokens of each streamed sequence were sent. Used only on the worker's thread.

    Only searches with beam size 1 are streamed, because the best hypothesis of a beam is known at its end only.
    """

    def __init__(self, greedy: GreedyRows) -> None:
        """greedy: the rows in which plain greedy searches run."""
        self._greedy = greedy
        # The search of each sequence when its tokens were last sent, and how many of that search's tokens were sent.
        self._sent: dict[Sequence, tuple[Search, int]] = {}

    @property
    def is_streaming(self) -> bool:
        """Whether a sequence is streamed. One that ends counts until the next `take_deltas`."""
        return bool(self._sent)

    def add(self, sequence: Sequence) -> None:
        """Stream a sequence from its first token on, again if it was streamed already."""
        self._sent[sequence] = sequence.search, 0

    def take_deltas(self) -> list[TokenDelta]:
        """Return the new tokens since the last call. Ended sequences are dropped: their results hold all tokens."""
        deltas: list[TokenDelta] = []
        for sequence, (search, num_sent) in list(self._sent.items()):
            if sequence.status is Status.ENDED:
                del self._sent[sequence]
            elif sequence.status is Status.RUNNING:
                if isinstance(sequence.search, GreedySearch) and self._greedy.has_search(sequence.rows[0]):
                    self._greedy.sync(sequence.rows[0])
                (tokens,) = sequence.search.prefixes()
                # Another search: decoding has restarted.
                position = num_sent if sequence.search is search else 0
                if position != num_sent or len(tokens) != num_sent:
                    deltas.append(TokenDelta(sequence, position, tokens[position:]))
                self._sent[sequence] = sequence.search, len(tokens)
        return deltas


class SentTokens:
    """Passes the tokens of a streamed sequence to `on_tokens`, each once, also if decoding restarts on another worker.

    Decoding is deterministic, and so is sampling with its seed. So the other worker finds the tokens that were sent,
    and the stream continues after them. If it finds others, they replace all tokens sent.
    """

    def __init__(self, on_tokens: OnTokens) -> None:
        self._on_tokens = on_tokens
        self._sent: list[int] = []
        # The tokens that the other worker has found since the restart. None before a restart. Set to None again once
        # these tokens differ from those sent, or are more than those.
        self._repeated: list[int] | None = None

    def restart(self) -> None:
        """Expect the tokens again, from the first on, because another worker decodes the sequence."""
        self._repeated = []

    def add(self, position: int, ids: tuple[int, ...]) -> None:
        """Pass on what is new in a `TokenDelta`."""
        if self._repeated is not None:
            repeated = self._repeated
            repeated[position:] = ids
            if repeated == self._sent[: len(repeated)]:
                return
            num_same = len(self._sent)
            position = num_same if repeated[:num_same] == self._sent else 0
            ids = tuple(repeated[position:])
            self._repeated = None
        self._sent[position:] = ids
        self._on_tokens(position, ids)
