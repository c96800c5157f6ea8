"""What each prompt of a replay costs, beside what sending the whole conversation would; both counted the same way."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from cuebook.app.replay import Call, Said
from cuebook.assembly.cache import CacheRule, CacheSimulator, Chunk, Totals
from cuebook.assembly.forms import weigh
from cuebook.engine.core.desk import chunks_of
from cuebook.records.digest import digest_of
from cuebook.records.turn import Window


class Cost(Struct, frozen=True, kw_only=True, rename="camel"):
    """What prompts cost over a whole conversation.

    Tokens sent, and simulated cost in units of one uncached input token.
    """

    calls: int
    tokens: int
    last_tokens: int
    cost: float
    read_share: float


class Meter:
    """Adds up what each prompt cost, and what sending everything would have."""

    def __init__(self, count: Callable[[str], int], rule: CacheRule) -> None:
        self._count = count
        self.rule = rule
        self.ours, self.everything = Totals(), Totals()
        self.last_ours = self.last_everything = 0
        self.identical = self.rendered = 0
        self._cache, self._whole = CacheSimulator(rule), CacheSimulator(rule)
        self._history: list[Chunk] = []
        self._query = -1
        self._asked = 0

    def measure(self, call: Call, window: Window | None) -> None:
        """Take in one model call."""
        now = call.new[-1].when
        if window is not None:
            use = self._cache.request(self._chunks(window), now)
            self.ours = self.ours.plus(use)
            self.last_ours = window.tokens
        previous = self._query
        self._history.extend(self._chunk(post) for post in call.new)
        self._query = len(self._history) - 1
        marks = (previous, self._query)
        marked = [msgspec.structs.replace(each, marked=n in marks) for n, each in enumerate(self._history)]
        use = self._whole.request(marked, now)
        self.everything = self.everything.plus(use)
        self.last_everything = use.input_tokens
        if call.answer is not None:
            self._history.append(self._chunk(call.answer))

    def _chunks(self, window: Window) -> list[Chunk]:
        """Give a window's chunks, the query of the call before marked too where no turn was opened for it."""
        known = {block.message for block in window.blocks if block.seq and block.seq == self._asked}
        self._asked = next((block.seq for block in window.blocks if block.kind == "query"), 0)
        chunks = chunks_of(window, tools="")
        return [msgspec.structs.replace(each, marked=each.marked or each.digest in known) for each in chunks]

    def _chunk(self, post: Said) -> Chunk:
        """Weigh a message as a window weighs it: a picture is a picture, however many bytes it has."""
        return Chunk(weigh(post.message, self._count), digest_of(msgspec.json.encode(post.message)), post.role)

    def replayed(self, verdict: str) -> None:
        """Take in whether a prompt rendered again was the same."""
        self.rendered += 1
        self.identical += verdict == "identical"

    def costs(self) -> tuple[Cost, Cost]:
        """Say what ours and sending everything came to."""
        return _cost(self.ours, self.last_ours), _cost(self.everything, self.last_everything)


def _cost(totals: Totals, last: int) -> Cost:
    return Cost(
        calls=totals.requests,
        tokens=totals.input_tokens,
        last_tokens=last,
        cost=totals.cost,
        read_share=totals.read_share,
    )
