"""Token limits of a request: the context window of its model, its answer, and how the provider counts tokens.

Our counter is an estimate, and providers use other tokenizers. So the count that a provider reports of a prompt
(`usage`) is compared with ours, and the ratio corrects the budget of the conversation's next prompts.
"""

from collections.abc import Mapping
from statistics import median_high
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.config import BudgetConfig
from cuebook.engine.core.services import Services, TokenRatio
from cuebook.records.memory import Scope
from cuebook.window.models import UNKNOWN_CONTEXT, ContextSize, context_in_table
from cuebook.window.tokens import estimate
from cuebook.wire.too_long import TooLong

#: Sources of a context window, best first: the setting, an error of the upstream, its list of models, the table of
#: models, the default.
ContextSource = Literal["setting", "error", "upstream", "table", "default"]
#: Conversations whose last report is loaded when the process starts.
LOADED: Final = 200
#: Room for parts of the next prompt that have more tokens than the average. Measured on 50 conversations in seven
#: languages at 4,000 and 8,000 tokens: 2 in 1,000 prompts exceed the last ratio by more.
MARGIN: Final = 1.02
#: The same where the provider does not name the length.
UNNAMED_MARGIN: Final = 1.1
#: Fewest tokens of a prompt whose report is used: a provider's fixed overhead distorts the ratio of shorter ones.
LEAST_PROMPT: Final = 500
#: Plausible ratios of a provider's count to ours. Any other report does not count the tokens of the prompt.
PLAUSIBLE: Final = (0.5, 5.0)
#: The estimate of most prompts exceeds o200k by 1 to 6 % (`window/tokens.py`). Before the first report, a history that
#: exceeds its room by less may fit, so it is sent whole; if the provider refuses it, the retry sends what fits.
EXCESS: Final = 1.04


class ModelTarget(Struct, frozen=True):
    """The model that a request goes to, and the most tokens that it asks for in the answer."""

    model: str = ""
    base_url: str = ""  # "" = none that has a context window of its own: the settings apply
    reply_tokens: int | None = None


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The limits of a request, and the model and source of its context window, "" without a model."""

    limits: BudgetConfig  # in tokens by our count
    model: str = ""
    source: ContextSource | Literal[""] = ""
    prompt: int = 0  # most tokens of the prompt, as the provider counts
    ratio: float | None = None  # the provider's count to ours; None before its first report
    excess: float = 1.0  # a history of at most so many times its room may fit

    def metadata(self) -> dict[str, Any]:
        """Return `metadata.window.context`, {} without a model."""
        if not self.source:
            return {}
        reply = self.limits.reply
        context = {"model": self.model, "tokens": self.prompt + reply, "reply": reply, "source": self.source}
        return context | ({"ratio": self.ratio} if self.ratio else {})


def target_of(services: Services, model: str = "", base_url: str = "", *, reply: int | None = None) -> ModelTarget:
    """Return the target of a request for a model of an upstream, or for the configured model without an upstream."""
    if not base_url:
        return ModelTarget(services.model.name, services.settings.model_url, reply)
    return ModelTarget(model, base_url, reply)


def limits_of(services: Services, target: ModelTarget, conversation: str) -> RequestLimits:
    """Return the limits of a request, in tokens by our count."""
    limits = services.settings.limits
    if not target.base_url:
        return RequestLimits(limits=_with_reply(limits, limits.reply, target.reply_tokens))
    ratio = _ratio(services, target.model, conversation)
    if services.settings.sets_context:
        limits = _with_reply(limits, limits.reply, target.reply_tokens)
        prompt = limits.context - limits.reply
        return _by_our_count(services, limits, prompt, model=target.model, source="setting", ratio=ratio)
    size, source = _context(services, target)
    limits = replace(limits, context=size.tokens)
    limits = _with_reply(limits, min(limits.reply, size.tokens // 4), target.reply_tokens)
    prompt = size.tokens if size.prompt_only else size.tokens - limits.reply
    return _by_our_count(services, limits, prompt, model=target.model, source=source, ratio=ratio)


def recorded_limits(services: Services, context: Mapping[str, Any]) -> RequestLimits:
    """Return the limits that a turn's metadata records, or those of the settings."""
    limits = services.settings.limits
    if not context:
        return RequestLimits(limits=limits)
    limits, prompt = replace(limits, reply=context["reply"]), context["tokens"] - context["reply"]
    values: Any = {name: context.get(name) for name in ("model", "source", "ratio")}
    return _by_our_count(services, limits, prompt, **values)


def _by_our_count(
    services: Services, limits: BudgetConfig, prompt: int, *, model: str, source: ContextSource, ratio: float | None
) -> RequestLimits:
    """Return the limits for a prompt of at most `prompt` tokens by the provider's count."""
    limits = replace(limits, context=int(prompt / (ratio or 1.0)) + limits.reply)
    excess = EXCESS if ratio is None and services.count is estimate else 1.0
    return RequestLimits(limits=limits, model=model, source=source, prompt=prompt, ratio=ratio, excess=excess)


def learn_limits(
    services: Services, target: ModelTarget, conversation: str, error: TooLong, tokens: int
) -> RequestLimits:
    """Return the limits that an error teaches, and remember them. `tokens` is the refused prompt by our count."""
    contexts, ratios = services.caches.contexts, services.caches.token_ratios
    if error.limit:
        contexts[target.base_url, target.model] = ContextSize(error.limit, prompt_only=error.prompt_only)
    size, source = _context(services, target)
    known = ratios.get((target.model, conversation), TokenRatio(1.0))
    ratio = least = 1.0
    if error.length:
        reply = limits_of(services, target, conversation).limits.reply  # the length may include the answer
        ratio, least = error.length * MARGIN / max(1, tokens), (error.length - reply) / max(1, tokens)
    elif source != "default":
        ratio = least = size.tokens * UNNAMED_MARGIN / max(1, tokens)
    ratios[target.model, conversation] = TokenRatio(max(known.value, ratio), max(known.least, least))
    return limits_of(services, target, conversation)


# ---- The provider's count -------------------------------------------------------------------------------------------


def learn_ratio(services: Services, model: str, conversation: str, *, reported: int | None, tokens: int) -> None:
    """Remember a provider's count of a prompt of `tokens` by our count, if it is plausible.

    It replaces the conversation's last one, but does not fall below what an error for a long prompt named.
    """
    if reported is None or tokens < LEAST_PROMPT or not PLAUSIBLE[0] <= reported / tokens <= PLAUSIBLE[1]:
        return
    ratios = services.caches.token_ratios
    least = ratios.get((model, conversation), TokenRatio(1.0)).least
    ratios[model, conversation] = TokenRatio(max(least, reported * MARGIN / tokens), least)


async def restore_token_ratios(services: Services, scope: Scope) -> None:
    """Fill the cache of token ratios, once, with what providers reported before this process started."""
    if services.caches.has_ratios:
        return
    for report in await services.store.token_reports(scope, limit=LOADED):
        if (report.model, report.conversation) not in services.caches.token_ratios:
            values: Any = {"reported": report.reported, "tokens": report.tokens}
            learn_ratio(services, report.model, report.conversation, **values)
    services.caches.has_ratios = True


def _ratio(services: Services, model: str, conversation: str) -> float | None:
    """Return the ratio of a provider's count to ours: the conversation's last one, else the median of the model's.

    It is None before the first report.
    """
    ratios = services.caches.token_ratios
    known = ratios.get((model, conversation))
    if known is not None:
        return round(known.value, 4)
    others = [each.value for (name, _), each in ratios.items() if name == model]
    return round(median_high(others), 4) if others else None


# ---- The context window ---------------------------------------------------------------------------------------------


def _context(services: Services, target: ModelTarget) -> tuple[ContextSize, ContextSource]:
    learned = services.caches.contexts.get((target.base_url, target.model))
    if learned is not None:
        return learned, "error"
    if listed := services.caches.listed_contexts.get((target.base_url, target.model)):
        return ContextSize(listed), "upstream"
    size = context_in_table(target.model)
    return (ContextSize(UNKNOWN_CONTEXT), "default") if size is None else (size, "table")


def _with_reply(limits: BudgetConfig, otherwise: int, asked: int | None) -> BudgetConfig:
    """Return limits with room for the requested answer. At least an eighth of the context window is for the prompt."""
    reply = otherwise if asked is None else min(asked, limits.context * 7 // 8)
    return replace(limits, reply=reply)
