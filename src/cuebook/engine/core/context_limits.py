"""Token limits of a request: the context window of its model, from the best source that knows it, and its answer."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.window.budget import Limits
from cuebook.window.models import UNKNOWN_CONTEXT, ContextSize, context_in_table
from cuebook.window.tokens import estimate
from cuebook.wire.too_long import TooLong

#: Sources of a context window, best first: the setting, an error of the upstream, its list of models, the table of
#: models, the default.
ContextSource = Literal["setting", "error", "upstream", "table", "default"]
#: Most models and conversations whose limits are remembered.
MOST: Final = 1_000
#: Room for the error of a prompt's length, whose parts may have more tokens than the average.
MARGIN: Final = 1.02
#: The same where the provider does not name the length.
UNNAMED_MARGIN: Final = 1.1
#: The estimate counts 12 to 18 % too many tokens of Latin text, JSON and code (`window/tokens.py`). A history that
#: exceeds its room by less may fit, so it is sent whole; if the provider refuses it, the retry sends what fits.
EXCESS: Final = 1.15


class ModelTarget(Struct, frozen=True):
    """The model that a request goes to, and the most tokens that it asks for in the answer."""

    model: str = ""
    base_url: str = ""  # "" = none that has a context window of its own: the settings apply
    reply_tokens: int | None = None


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The limits of a request, and the model and source of its context window, "" without a model."""

    limits: Limits
    model: str = ""
    source: ContextSource | Literal[""] = ""
    excess: float = 1.0  # a history of at most so many times its room may fit

    def metadata(self) -> dict[str, Any]:
        """Return `metadata.window.context`, {} without a model."""
        if not self.source:
            return {}
        tokens = {"tokens": self.limits.context_tokens, "reply": self.limits.reply_tokens}
        excess = {"excess": self.excess} if self.excess != 1.0 else {}
        return {"model": self.model, **tokens, "source": self.source, **excess}


def target_of(services: Services, model: str = "", base_url: str = "", *, reply: int | None = None) -> ModelTarget:
    """Return the target of a request for a model of an upstream, or for the configured model without an upstream."""
    if not base_url:
        return ModelTarget(services.model.name, services.settings.model_url, reply)
    return ModelTarget(model, base_url, reply)


def limits_of(services: Services, target: ModelTarget, conversation: str) -> RequestLimits:
    """Return the limits of a request, in tokens by our count."""
    if not (services.settings.sets_context and target.base_url):
        return _model_limits(services, target, conversation)
    limits = services.settings.limits
    limits = _with_reply(limits, limits.reply_tokens, target.reply_tokens)
    excess = _excess(services, conversation)
    return RequestLimits(limits=limits, model=target.model, source="setting", excess=excess)


def _excess(services: Services, conversation: str) -> float:
    """Return how far the estimate of a fitting history may exceed its room: not at all after a refused prompt."""
    return EXCESS if services.count is estimate and conversation not in services.caches.token_ratios else 1.0


def learn_limits(
    services: Services, target: ModelTarget, conversation: str, error: TooLong, tokens: int
) -> RequestLimits:
    """Return the limits that an error teaches, and remember them. `tokens` is the refused prompt by our count.

    The provider may count more tokens than we do, in this conversation more than in others.
    """
    contexts, ratios = services.caches.contexts, services.caches.token_ratios
    if error.limit:
        contexts[target.base_url, target.model] = ContextSize(error.limit, prompt_only=error.prompt_only)
    size, source = _context(services, target)
    ratio = 1.0
    if source != "default":
        ratio = (error.length * MARGIN if error.length else size.tokens * UNNAMED_MARGIN) / max(1, tokens)
    ratios[conversation] = max(ratios.get(conversation, 1.0), ratio)
    for known in (contexts, ratios):
        while len(known) > MOST:
            known.popitem(last=False)
    return _model_limits(services, target, conversation)


def _model_limits(services: Services, target: ModelTarget, conversation: str) -> RequestLimits:
    limits = services.settings.limits
    if not target.base_url:
        return RequestLimits(limits=_with_reply(limits, limits.reply_tokens, target.reply_tokens))
    size, source = _context(services, target)
    limits = replace(limits, context_tokens=size.tokens)
    limits = _with_reply(limits, min(limits.reply_tokens, size.tokens // 4), target.reply_tokens)
    prompt = size.tokens if size.prompt_only else size.tokens - limits.reply_tokens
    prompt = int(prompt / services.caches.token_ratios.get(conversation, 1.0))
    limits = replace(limits, context_tokens=prompt + limits.reply_tokens)
    return RequestLimits(limits=limits, model=target.model, source=source, excess=_excess(services, conversation))


def recorded_limits(services: Services, context: Mapping[str, Any]) -> RequestLimits:
    """Return the limits that a turn's metadata records, or those of the settings."""
    limits = services.settings.limits
    if not context:
        return RequestLimits(limits=limits)
    limits = replace(limits, context_tokens=context["tokens"], reply_tokens=context["reply"])
    excess = context.get("excess", 1.0)
    return RequestLimits(limits=limits, model=context["model"], source=context["source"], excess=excess)


def _context(services: Services, target: ModelTarget) -> tuple[ContextSize, ContextSource]:
    learned = services.caches.contexts.get((target.base_url, target.model))
    if learned is not None:
        return learned, "error"
    if listed := services.caches.listed_contexts.get((target.base_url, target.model)):
        return ContextSize(listed), "upstream"
    size = context_in_table(target.model)
    return (ContextSize(UNKNOWN_CONTEXT), "default") if size is None else (size, "table")


def _with_reply(limits: Limits, otherwise: int, asked: int | None) -> Limits:
    """Return limits with room for the requested answer. At least an eighth of the context window is for the prompt."""
    reply = otherwise if asked is None else min(asked, limits.context_tokens * 7 // 8)
    return replace(limits, reply_tokens=reply)
