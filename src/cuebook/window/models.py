"""The shipped table of models, `models.toml`: context windows, prices and prompt cache rules.

A rule describes the cache of one provider, with its source and the day it was read. Not covered: routing (overflow to
other machines above about 15 requests a minute, `prompt_cache_key`), hidden system tokens, requests sent before an
earlier one's answer began, and markers of two lifetimes in one request.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput

#: The context window of a model that no source knows.
UNKNOWN_CONTEXT: Final = 128_000
#: The date suffix of a model's name.
_DATE = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class ModelTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `models.toml`, which explains each field."""

    checked: str
    priced: str
    contexts: Mapping[str, int]
    inputs: Mapping[str, int]
    prices: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Any]]
    exceptions: Mapping[str, Mapping[str, Any]]


class ContextSize(Struct, frozen=True):
    """The most tokens of a request: its prompt and answer together, or its prompt alone."""

    tokens: int
    prompt_only: bool = False


@cache
def model_table() -> ModelTable:
    """Load the table."""
    return msgspec.toml.decode(files(__package__).joinpath("models.toml").read_text("utf-8"), type=ModelTable)


def bare_name(model: str) -> str:
    """Return a model's name without a gateway's prefix and the mark of a fine-tuned model, in lower case."""
    return model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:")


def undated(name: str) -> str:
    """Return a model's name without its date."""
    return _DATE.sub("", name)


def context_in_table(model: str) -> ContextSize | None:
    """Return a model's context window by the longest match in the table, or None for an unknown model."""
    table, name = model_table(), bare_name(model)
    starts = [start for start in (*table.contexts, *table.inputs) if name.startswith(start)]
    if not starts:
        return None
    start = max(starts, key=len)
    alone = start in table.inputs
    return ContextSize(table.inputs[start] if alone else table.contexts[start], prompt_only=alone)


# ---- Prompt cache rules ----------------------------------------------------------------------------------------------


Match = Literal["prefix", "breakpoint"]
Implicit = Literal["none", "message", "block"]
Excess = Literal["unwritten", "refused"]


class CacheRule(Struct, frozen=True, kw_only=True):
    """The matching rule of one provider's cache, its lifetime and its prices, in units of one uncached input token.

    `prefix` caches the longest common prefix automatically. `breakpoint` reads and writes only at markers.
    """

    name: str
    match: Match
    minimum: int  # tokens; a shorter prefix is silently not cached
    ttl: float  # seconds since the last write or read; at every provider here, reading refreshes it for free
    read: float
    write: float
    step: int = 1  # granularity of matches in tokens
    markers: int = 0  # most cache writes (markers) of a request
    excess: Excess = "unwritten"  # extra markers: skip the earliest, or reject the request (HTTP 400)
    lookback: int = 1  # positions checked from each marker backwards, including itself
    folded: frozenset[str] = frozenset()  # roles of which a run of chunks is one position
    first: int = 0  # if not all markers are looked up: the number of first ones
    latest: int = 0  # and of latest ones; 0 for all
    implicit: Implicit = "none"  # the implicit marker: end of the latest eligible message, or the last block
    endings: int = 0  # earlier message ends looked up in implicit mode
    unmarkable: frozenset[str] = frozenset()  # roles whose chunks support no marker; a marker there has no effect
    checked: str  # the day the source was read
    source: str


#: The rules by name. A setting selects one where `rule_for` cannot (gateways, compatible servers).
RULES: Mapping[str, CacheRule] = MappingProxyType({
    name: msgspec.convert({"name": name, **rule}, CacheRule) for name, rule in model_table().rules.items()
})  # fmt: skip

#: Each provider's own hosts. Other hosts may cache the same model by other rules, or not at all.
_HOSTS = (
    ("openai", re.compile(r"(?:[a-z]{2}\.)?api\.openai\.com")),
    ("anthropic", re.compile(r"api\.anthropic\.com")),
    ("gemini", re.compile(r"generativelanguage\.googleapis\.com|(?:[a-z0-9-]+-)?aiplatform\.googleapis\.com")),
)
_HOST = re.compile(r"(?:[a-z]+://)?(?:[^/@]*@)?([^/:?#]+)", re.IGNORECASE)
_GPT = re.compile(r"gpt-(\d+)(o)?(?:\.(\d+))?(?![\d.])")
_REASONING = re.compile(r"(?:o[134]|chatgpt-4o|codex-mini)(?:-|$)")


def rule_for(model: str, base_url: str | None = None) -> CacheRule | None:
    """Return the cache rule of a model at its provider's own host (`base_url` None), or None if unknown.

    None disables the simulation: for an unknown model, one without a cache, or another host. A gateway may rewrite,
    reroute or drop markers, so nothing is assumed; a setting can name a rule (`rule_named`).
    """
    name = bare_name(model)
    provider, rule = _provider_rule(name)
    if rule is None or (base_url is not None and provider != _provider_at(base_url)):
        return None
    return _as_model(rule, name)


def rule_named(name: str) -> CacheRule:
    """Return the rule of that name. Raises InvalidInput for an unknown one."""
    if name in RULES:
        return RULES[name]
    raise InvalidInput(f"Unknown cache rule {name!r}. Use one of {', '.join(RULES)}.", where="cacheRule")


def _provider_rule(name: str) -> tuple[str, CacheRule | None]:
    if name.startswith("claude-"):
        return "anthropic", RULES["anthropic"]
    if name.startswith("gemini-"):
        return "gemini", RULES["gemini"]
    if _REASONING.match(name):
        return "openai", RULES["openai-prefix"]
    if not (version := _GPT.match(name)):
        return "", None
    number, omni, minor = int(version[1]), version[2], int(version[3] or 0)
    if (number, minor) >= (5, 6):
        return "openai", RULES["openai-breakpoints"]
    cached = number >= 5 or bool(omni) or (number, minor) > (4, 0)  # "all recent models, gpt-4o and newer"
    return "openai", RULES["openai-prefix"] if cached else None


def _provider_at(base_url: str) -> str:
    result = _HOST.match(base_url.strip())
    host = result[1].lower() if result else ""
    return next((provider for provider, own in _HOSTS if own.fullmatch(host)), "")


def _as_model(rule: CacheRule, name: str) -> CacheRule:
    exceptions = model_table().exceptions
    starts = [start for start in exceptions if name.startswith(start)]
    return replace(rule, **exceptions[max(starts, key=len)]) if starts else rule
