"""Prompt cache rules of providers as data: one rule per cache, with its source and the day it was read.

The rules follow the guides, read conservatively where they are unclear. Not covered: routing (overflow to other
machines above about 15 requests a minute, `prompt_cache_key`), hidden system tokens, requests sent before an earlier
one's answer began, and markers of two lifetimes in one request.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput

__all__ = ["RULES", "CacheRule", "rule_for", "rule_named"]

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

    @property
    def assistant_markers(self) -> bool:
        """Return whether assistant messages support a marker."""
        return "assistant" not in self.unmarkable


_OPENAI = "https://developers.openai.com/api/docs/guides/prompt-caching"
_ANTHROPIC = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
_GEMINI = "https://ai.google.dev/gemini-api/docs/caching"

_ANTHROPIC_5M = CacheRule(
    name="anthropic",
    match="breakpoint",
    minimum=4096,  # the largest of any model; smaller ones are in _MODELS
    ttl=300,
    read=0.1,
    write=1.25,
    markers=4,
    excess="refused",
    lookback=20,
    folded=frozenset({"tool", "tool_use"}),
    implicit="block",
    checked="2026-11-22",
    source=f"{_ANTHROPIC}: 'How automatic prefix checking works', 'Cache limitations', 'Pricing'",
)

#: The rules by name. A setting selects one where `rule_for` cannot (gateways, compatible servers).
RULES: Mapping[str, CacheRule] = MappingProxyType({
    rule.name: rule
    for rule in (
        CacheRule(
            name="openai-prefix",
            match="prefix",
            minimum=1024,  # the guide: "varies by request settings", 2,048 to be safe, "some models may cache shorter"
            step=128,
            ttl=300,  # the guide: typically 5 to 10 minutes for `in_memory`; 24 h retention typically keeps around 30
            read=0.1,
            write=1.0,
            checked="2026-11-22",
            source=f"{_OPENAI}: 'Earlier models', 'Summary of model differences'",
        ),
        CacheRule(
            name="openai-breakpoints",
            match="breakpoint",
            minimum=1024,
            ttl=1800,
            read=0.1,
            write=1.25,
            markers=4,
            first=2,
            latest=50,  # the guide's; its API reference says "up to the latest 80"
            implicit="message",
            endings=20,
            unmarkable=frozenset({"tools", "assistant", "tool_use"}),
            checked="2026-11-22",
            source=f"{_OPENAI}: 'GPT-5.6 and later', 'How prefix matching works', 'Gotchas'",
        ),
        _ANTHROPIC_5M,
        replace(_ANTHROPIC_5M, name="anthropic-1h", ttl=3600, write=2.0),
        CacheRule(
            name="gemini",
            match="prefix",
            minimum=4096,
            ttl=300,  # our assumption: the guide guarantees none ("similar prefix in a short amount of time")
            read=0.1,
            write=1.0,
            checked="2026-11-22",
            source=f"{_GEMINI}: 'Implicit caching' (best effort: what is simulated is the most it can be)",
        ),
    )
})  # fmt: skip

#: Differences of a model from its provider's rule, by prefix of its name; the longest prefix wins. Sources: the guides'
#: minimums and lifetimes, the providers' price pages (cached ÷ uncached input), 2026-11-22.
_MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "gpt-4o": {"read": 0.5},
    "gpt-4.1": {"read": 0.25},
    "gpt-4.5": {"read": 0.5},
    "gpt-5-pro": {"read": 1.0},  # the price page has no cached price for it
    "gpt-5.5": {"minimum": 2048, "step": 2048, "ttl": 1800},  # a breakpoint every 2,048 tokens; around 30 minutes
    "gpt-5.5-pro": {"minimum": 2048, "step": 2048, "ttl": 1800, "read": 1.0},
    "gpt-6.1-sol": {"read": 0.05},
    "gpt-6.2-sol": {"read": 0.05},
    "chatgpt-4o": {"read": 0.5},
    "codex-mini": {"read": 0.25},
    "o1": {"read": 0.5},
    "o1-pro": {"read": 1.0},
    "o3": {"read": 0.25},
    "o3-mini": {"read": 0.5},
    "o3-pro": {"read": 1.0},
    "o4-mini": {"read": 0.25},
    "claude-fable-5": {"minimum": 512},
    "claude-fable-5-1": {"minimum": 512, "read": 0.025},
    "claude-mythos-5": {"minimum": 512},
    "claude-mythos-5-1": {"minimum": 512, "read": 0.025},
    "claude-mythos-preview": {"minimum": 2048},
    "claude-opus-5": {"minimum": 512},
    "claude-opus-5-5": {"minimum": 512, "read": 0.05},
    "claude-opus-4-8": {"minimum": 1024},
    "claude-opus-4-7": {"minimum": 2048},
    "claude-opus-4-1": {"minimum": 1024},
    "claude-opus-4-2025": {"minimum": 1024},
    "claude-sonnet-5": {"minimum": 1024},
    "claude-sonnet-5-5": {"minimum": 1024, "read": 0.05},
    "claude-sonnet-4": {"minimum": 1024},
    "claude-3-5-haiku": {"minimum": 2048},
    "gemini-2.5": {"minimum": 2048},
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
    name = model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:")
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
    starts = [start for start in _MODELS if name.startswith(start)]
    return replace(rule, **_MODELS[max(starts, key=len)]) if starts else rule
