"""Token limits of a request: the context window of its model, from the best source that knows it, and its answer."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.window.budget import Limits
from cuebook.window.models import UNKNOWN_CONTEXT, ContextSize, context_in_table

#: Sources of a context window, best first: `budget.context`, the shipped table of models, and the default.
ContextSource = Literal["setting", "table", "default"]


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

    def metadata(self) -> dict[str, Any]:
        """Return `metadata.window.context`, {} without a model."""
        if not self.source:
            return {}
        tokens = {"tokens": self.limits.context_tokens, "reply": self.limits.reply_tokens}
        return {"model": self.model, **tokens, "source": self.source}


def target_of(services: Services, model: str = "", base_url: str = "", *, reply: int | None = None) -> ModelTarget:
    """Return the target of a request for a model of an upstream, or for the configured model without an upstream."""
    if not base_url:
        return ModelTarget(services.model.name, services.settings.model_url, reply)
    return ModelTarget(model, base_url, reply)


def limits_of(services: Services, target: ModelTarget) -> RequestLimits:
    """Return the limits of a request."""
    limits = services.settings.limits
    if not target.base_url:
        return RequestLimits(limits=_with_reply(limits, limits.reply_tokens, target.reply_tokens))
    if services.settings.sets_context:
        limits = _with_reply(limits, limits.reply_tokens, target.reply_tokens)
        return RequestLimits(limits=limits, model=target.model, source="setting")
    size, source = _context(target)
    limits = replace(limits, context_tokens=size.tokens)
    limits = _with_reply(limits, min(limits.reply_tokens, size.tokens // 4), target.reply_tokens)
    if size.prompt_only:
        limits = replace(limits, context_tokens=size.tokens + limits.reply_tokens)
    return RequestLimits(limits=limits, model=target.model, source=source)


def recorded_limits(services: Services, context: Mapping[str, Any]) -> RequestLimits:
    """Return the limits that a turn's metadata records, or those of the settings."""
    limits = services.settings.limits
    if not context:
        return RequestLimits(limits=limits)
    limits = replace(limits, context_tokens=context["tokens"], reply_tokens=context["reply"])
    return RequestLimits(limits=limits)


def _context(target: ModelTarget) -> tuple[ContextSize, ContextSource]:
    size = context_in_table(target.model)
    return (ContextSize(UNKNOWN_CONTEXT), "default") if size is None else (size, "table")


def _with_reply(limits: Limits, otherwise: int, asked: int | None) -> Limits:
    """Return limits with room for the requested answer. At least an eighth of the context window is for the prompt."""
    reply = otherwise if asked is None else min(asked, limits.context_tokens * 7 // 8)
    return replace(limits, reply_tokens=reply)
