"""Simulate the prompt cache of a provider by its rule: tokens read, written and charged for a series of requests.

A request is its chunks in prefix order: tool definitions, system parts, then messages or their content blocks. A prefix
rule stores every request and reads the longest common prefix. A breakpoint rule stores entries only at markers, and
finds them only at positions defined by the rule. Stable text without a marker after it is never read.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.window.models import CacheRule
from cuebook.window.post_forms import common_length

_FRONT = ("tools", "system", "developer")


class CacheChunk(Struct, frozen=True):
    """A piece of a request that is cached as a whole: a tool list, a message or one of its content blocks.

    `role` is tools (definitions), system, developer, user, assistant, tool_use (a call block) or tool (a result).
    `digest` identifies the bytes, and may be the bytes. Two chunks with equal digest and role are equal. With `text`, a
    prefix rule credits the common part of the first differing chunk, by bytes. `ends` is False for a block that is not
    the last of its message.
    """

    tokens: int
    digest: bytes
    role: str
    marked: bool = False
    text: bytes | None = None
    ends: bool = True


class CacheUse(Struct, frozen=True):
    """Tokens that requests read, wrote and paid in full. `cost` is in units of one uncached input token."""

    input_tokens: int = 0
    read_tokens: int = 0
    write_tokens: int = 0
    uncached_tokens: int = 0
    cost: float = 0.0
    requests: int = 0

    @property
    def read_share(self) -> float:
        """Return the share of input tokens read from cache, in [0, 1]; 0.0 without input."""
        return self.read_tokens / self.input_tokens if self.input_tokens else 0.0


class CacheSimulator:
    """Simulates one provider's cache over time. Call it per request, in the order sent.

    Entries expire after their lifetime. A request costs O(its chunks).
    """

    def __init__(self, rule: CacheRule) -> None:
        self.rule = rule
        self._used: dict[int, float] = {}  # entry → seconds of its last write or read, oldest first
        self._next: dict[int, dict[int, CacheChunk]] = {}  # prefix rules: entry → the chunks that followed it

    def copy(self) -> "CacheSimulator":
        """Return a copy with independent state, to simulate alternatives."""
        twin = CacheSimulator(self.rule)
        twin.__dict__.update(
            {name: dict(value) if isinstance(value, dict) else value for name, value in self.__dict__.items()}
        )
        return twin

    def request(self, chunks: Sequence[CacheChunk], now: float, *, explicit: bool = True) -> CacheUse:
        """Send a request at `now` (seconds, any origin). Return its use.

        With `explicit` only the chunks' own markers count. False adds the provider's implicit marker (OpenAI's default
        mode; Anthropic's automatic form). Prefix rules ignore markers. Raises InvalidInput if the provider would reject
        the request.
        """
        ends = list(accumulate(chunk.tokens for chunk in chunks))
        # the hash of each prefix over its chunks' roles and digests, without markers
        keys = list(accumulate(chunks, lambda key, chunk: hash((key, chunk.role, chunk.digest)), initial=0))[1:]
        while self._used and not self._lives(oldest := next(iter(self._used)), now):
            del self._used[oldest]
            self._next.pop(oldest, None)
        if self.rule.match == "prefix":
            read, written = self._longest(chunks, keys, ends, now), 0
        else:
            read, written = self._at_markers(chunks, keys, ends, now, explicit=explicit)
        total = ends[-1] if ends else 0
        uncached = total - read - written
        cost = uncached + read * self.rule.read + written * self.rule.write
        return CacheUse(total, read, written, uncached, cost, requests=1)

    def _longest(self, chunks: Sequence[CacheChunk], keys: list[int], ends: list[int], now: float) -> int:
        """Read the longest known prefix, and store this whole request. A write costs the same as input."""
        known = next((at for at, key in enumerate(keys) if not self._lives(key, now)), len(keys))
        common = ends[known - 1] if known else 0
        if known < len(keys):
            common += self._partly(chunks[known], keys[known - 1] if known else 0, now)
        for before, key, chunk in zip([0, *keys], keys, chunks, strict=False):
            self._touch(key, now)
            self._next.setdefault(before, {})[key] = chunk
        read = common - common % self.rule.step
        return read if read >= self.rule.minimum else 0

    def _partly(self, chunk: CacheChunk, before: int, now: float) -> int:
        """Return the chunk's cached tokens by its share of common bytes, rounded down."""
        followers = self._next.get(before, {})
        for dead in [key for key in followers if not self._lives(key, now)]:
            del followers[dead]
        if not chunk.text:
            return 0
        texts = [other.text for other in followers.values() if other.text and other.role == chunk.role]
        same = max((common_length(chunk.text, text) for text in texts), default=0)
        return chunk.tokens * same // len(chunk.text)

    def _at_markers(
        self, chunks: Sequence[CacheChunk], keys: list[int], ends: list[int], now: float, *, explicit: bool
    ) -> tuple[int, int]:
        """Read the longest entry found by the rule, write up to the last marker. Return tokens read and written."""
        marks = [at for at, chunk in enumerate(chunks) if chunk.marked and chunk.role not in self.rule.unmarkable]
        implicit = None
        if not explicit and self.rule.implicit == "message":
            implicit = next(reversed(_endings(chunks)), None)
        elif not explicit and self.rule.implicit == "block" and chunks:
            implicit = len(chunks) - 1
        looked = _looked_at(self.rule, chunks, marks, implicit, explicit=explicit)
        hit = next((at for at in sorted(looked, reverse=True) if self._lives(keys[at], now)), None)
        read = 0
        if hit is not None:
            read = ends[hit]
            self._touch(keys[hit], now)
        reach = read
        for at in _written(self.rule, marks, implicit):
            if ends[at] >= self.rule.minimum:
                self._touch(keys[at], now)
                reach = max(reach, ends[at])
        return read, reach - read

    def _lives(self, key: int, now: float) -> bool:
        return key in self._used and now - self._used[key] <= self.rule.ttl

    def _touch(self, key: int, now: float) -> None:
        self._used[key] = max(now, self._used.pop(key, now))


def _written(rule: CacheRule, marks: list[int], implicit: int | None) -> list[int]:
    """Return the markers that are written: the implicit one, and the latest others within the limit."""
    others = [at for at in marks if at != implicit]
    own = [] if implicit is None else [implicit]
    slots = rule.markers - len(own)
    if len(others) <= slots:
        return others + own
    if rule.excess == "refused":
        raise InvalidInput(
            f"Too many cache markers under rule {rule.name!r}: {len(others) + len(own)}. The provider allows "
            f"{rule.markers}. Mark fewer chunks.",
            where="marked",
        )
    return others[len(others) - slots :] + own


def _looked_at(
    rule: CacheRule, chunks: Sequence[CacheChunk], marks: list[int], implicit: int | None, *, explicit: bool
) -> set[int]:
    """Return the positions (chunk indices) at which an earlier request's entry would be found."""
    places = marks[: rule.first] + marks[-rule.latest :] if rule.latest else list(marks)
    if implicit is not None:
        places.append(implicit)
    looked = {at for place in places for at in _back(chunks, place, rule)}
    if rule.endings and not explicit:
        endings = _endings(chunks)
        looked.update(endings[-1 - rule.endings :])
        looked.update(endings[:1] if endings and chunks[endings[0]].role in _FRONT else ())
    return looked


def _endings(chunks: Sequence[CacheChunk]) -> list[int]:
    """Return the ends of eligible messages, in order (OpenAI's guide, "Implicit mode").

    They are: the first run of system or developer messages, each user message, the last of each run of tool results.
    """
    front = next((at for at, chunk in enumerate(chunks) if chunk.role not in _FRONT), len(chunks)) - 1
    endings = [front] if front >= 0 and chunks[front].role != "tools" else []
    for at in range(front + 1, len(chunks)):
        last_of_run = at + 1 == len(chunks) or chunks[at + 1].role != "tool"
        if chunks[at].ends and (chunks[at].role == "user" or (chunks[at].role == "tool" and last_of_run)):
            endings.append(at)
    return endings


def _back(chunks: Sequence[CacheChunk], at: int, rule: CacheRule) -> Iterator[int]:
    """Yield the rule's positions from a marker backwards. A run of chunks of one folded role is one position."""
    left = rule.lookback
    while at >= 0 and left:
        yield at
        role = chunks[at].role
        at -= 1
        if at >= 0 and not (role in rule.folded and chunks[at].role == role):
            left -= 1
