"""Limit the tokens that an API key spends per day (`server.tokens_per_day`). The database has the count of each key."""

import re
from http import HTTPStatus
from typing import Final

from cuebook.engine.core.services import Services
from cuebook.errors import Busy
from cuebook.interfaces.store import Spending
from cuebook.records.key import DAY_S
from cuebook.records.memory import Scope

#: Requests that spend tokens even if their answer does not say how many.
_SPENDING: Final = ("/chat/completions", "/responses", "/responses/compact", "/messages", "/embeddings")
#: Requests that only count tokens.
_FREE: Final = ("/messages/count_tokens", "/responses/input_tokens")
#: A provider's token count. Within a string of JSON its quotes would have backslashes.
_COUNT: Final = re.compile(
    rb'(?<!\\)"(total_tokens|input_tokens|prompt_tokens|output_tokens|completion_tokens)"\s*:\s*(\d{1,15})'
)
#: Bytes per token of an estimate.
_BYTES: Final = 4
#: Longest token count that may be split between two parts of an answer, in bytes.
_SPLIT: Final = 64


async def admit_key(services: Services, key: str) -> None:
    """Check that a key, "" for none, has tokens left today. Raises Busy until the next day in UTC."""
    most = services.config.server.tokens_per_day
    if not key or not most:
        return
    now = services.clock.now()
    day = int(now // DAY_S)
    if await services.store.keys.spent(Scope(), key, day=day) >= most:
        limit = f"server.tokens_per_day allows {most:,}"
        msg = f"Too many tokens of this API key today: {limit}. Try again tomorrow (UTC), or raise the limit."
        raise Busy(msg, retry_after=(day + 1) * DAY_S - now)


def spending_of(services: Services, key: str, tokens: int) -> Spending | None:
    """Return tokens to count for a key, None if it has no limit."""
    if not key or not tokens or not services.config.server.tokens_per_day:
        return None
    return Spending(key, int(services.clock.now() // DAY_S), tokens)


class AnswerMeter:
    """Counts the tokens of an answer that is passed on: as the provider reports them, else an estimate by its bytes."""

    def __init__(self, path: str, sent: int) -> None:
        self._path, self._bytes = path, sent
        self._counts: dict[bytes, int] = {}
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Add a part of the answer."""
        text = self._rest + chunk
        for name, count in _COUNT.findall(text):
            self._counts[name] = max(self._counts.get(name, 0), int(count))
        self._rest = text[-_SPLIT:]
        self._bytes += len(chunk)

    def tokens(self, status: int) -> int:
        """Return the tokens of an answer with this status."""
        counts = self._counts
        if status >= HTTPStatus.BAD_REQUEST or self._path in _FREE:
            return 0
        prompt = counts.get(b"input_tokens", counts.get(b"prompt_tokens", 0))
        answer = counts.get(b"output_tokens", counts.get(b"completion_tokens", 0))
        reported = max(counts.get(b"total_tokens", 0), prompt + answer)
        return reported or (self._bytes // _BYTES if self._path in _SPENDING else 0)
