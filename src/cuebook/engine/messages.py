"""Anthropic's `/v1/messages` on its way through: as it came, but for cache breakpoints where they are read."""

import msgspec

from cuebook.assembly.cache import rule_for
from cuebook.assembly.messages_anchors import with_cache_marks
from cuebook.engine.desk import Desk
from cuebook.ports.model import RelayRequest, Upstream

#: Requests that make an answer; those that only count tokens are not cached.
PATH = "/messages"


class _Named(msgspec.Struct):
    model: str = ""


def marked(desk: Desk, upstream: Upstream, request: RelayRequest) -> RelayRequest:
    """Give a request with cache breakpoints, by setting or where the provider itself answers; else as it is."""
    if request.method != "POST" or request.path != PATH or desk.breakpoints == "off":
        return request
    if desk.breakpoints == "auto":
        try:
            model = msgspec.json.decode(request.body, type=_Named).model
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return request
        rule = rule_for(model, upstream.base_url)
        if rule is None or not rule.name.startswith("anthropic"):
            return request
    hour = desk.cache_rule is not None and desk.cache_rule.name == "anthropic-1h"
    return msgspec.structs.replace(request, body=with_cache_marks(request.body, hour=hour))
