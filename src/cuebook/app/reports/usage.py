"""Compute the usage of model calls: tokens compared with the full history, provider cache hits, and cost."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.app.reports.prices import Prices
from cuebook.errors import InvalidInput
from cuebook.records.answer import added
from cuebook.records.turn import CacheEstimate, CallUsageRecord, Usage
from cuebook.window.models import RULES

#: Maximum number of turns summed per conversation, and in all: a few tenths of a second of loading.
TURNS: Final = 500
MOST: Final = 2000


class CallUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of one or several calls. Tokens by our counter; costs by currency, of calls with a known price.

    `cached` counts those of `cache_known` prompt tokens that a provider read from its cache, reported or simulated.
    `cache_saved` is the money that caching saved.
    """

    calls: int = 0
    tokens: int = 0
    whole: int = 0  # tokens of the same prompts with the full history
    posts: int = 0  # before the newest call
    cached: int = 0
    cache_known: int = 0
    costs: dict[str, float] = {}
    cache_saved: dict[str, float] = {}
    models: tuple[str, ...] = ()  # the models of these prices

    def plus(self, other: "CallUsage") -> "CallUsage":
        """Return the sum of both."""
        models = tuple(dict.fromkeys((*self.models, *other.models)))
        return added(self, other, posts=other.posts, models=models)


def cost_of(prices: Callable[[], Prices], model: str, usage: Usage) -> dict[str, float]:
    """Return the cost of a background call by currency, nothing for an unknown price or an unreadable price file."""
    tokens: Any = {"tokens": usage.input or 0, "whole": 0, "posts": 0, "reply": usage.output or 0}
    call = CallUsageRecord(turn=0, step=0, state="finished", at=0.0, usage=usage, model=model, **tokens)
    try:
        return usage_of(call, prices()).costs
    except InvalidInput:  # reported by the pages and reports that show prices
        return {}


def usage_of(call: CallUsageRecord, prices: Prices) -> CallUsage:
    """Return the usage of a call as reported by its provider, else by our counter and the cache rule."""
    use, cache = call.usage, call.cache or {}
    read = use.cache_read if use is not None and use.cache_read is not None else cache.get("readTokens")
    written = use.cache_write if use is not None and use.cache_write is not None else cache.get("writeTokens") or 0
    counted = use.input if use is not None and use.input is not None else call.tokens
    known, read = read is not None, min(read or 0, counted)
    costs, saved = {}, {}
    price = prices.of(call.model) if call.model else None
    if price is not None:
        reckoned = CacheEstimate(max(0, counted - read - written), read, written)
        rule = RULES.get(str(cache.get("rule", "")))
        output = use.output if use is not None and use.output is not None else call.reply
        costs[price.currency] = price.of(reckoned, write=rule.write if rule else 1.0) + price.of_output(
            output, reckoned
        )
        without = msgspec.structs.replace(reckoned, uncached=reckoned.uncached + read, read=0)
        saved[price.currency] = price.of(without, write=1.0) - price.of(reckoned, write=1.0)
    return CallUsage(
        calls=1,
        tokens=call.tokens,
        whole=call.whole,
        posts=call.posts,
        cached=min(read, call.tokens),
        cache_known=call.tokens if known else 0,
        costs=costs,
        cache_saved=saved,
        models=(call.model,) if costs else (),
    )
