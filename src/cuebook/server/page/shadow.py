"""Render the shadow mode report: what clients sent, beside what Cuebook would have sent."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from litestar import Response, get

from cuebook.app.reports.shadow import ModelCost, ShadowCall
from cuebook.server.api.tuning import ConversationQuery
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.page.block_sources import post_address
from cuebook.server.page.plots import plotted
from cuebook.server.page.render import show
from cuebook.server.route_parts import UserQuery

#: Most calls in the table, newest first.
CALLS: Final = 200


@get("/page/shadow", include_in_schema=False)
async def shadow(
    request: AnyRequest, conversation_id: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Render shadow calls and their totals: tokens and costs of both prompts, and posts that either lacked."""
    cue, user, named = cue_of(request), user_of(request, user_id), conversation_id or None
    found = await cue.shadow.report(named, user=user)
    calls = await cue.shadow.calls(named, user=user)
    host = request.headers.get("host", "127.0.0.1:8760")
    return show(
        "shadow.html",
        view="Shadow",
        conversation=named or "",
        found=found,
        lost=sum(found.lost.values()),
        costs=_costs(found.models),
        plot=_plot(calls),
        calls=list(reversed(calls[-CALLS:])),
        examples=[(each, _address(each.conversation, each.seq)) for each in found.examples],
        shadows=cue.shadows,
        base=f"http://{host}",
    )


def _plot(calls: Sequence[ShadowCall]) -> dict[str, Any] | None:
    """Return a plot of the cumulative tokens of both prompts by call."""
    lines = {"sent": [each.client_tokens for each in calls], "would have sent": [each.window_tokens for each in calls]}
    drawn = {
        name: [(float(n), float(sum_)) for n, sum_ in enumerate(accumulate(each), 1)] for name, each in lines.items()
    }
    high = max((y for points in drawn.values() for _, y in points), default=0.0)
    return plotted(drawn, low=0.0, high=high)


def _costs(models: Sequence[ModelCost]) -> Mapping[str, dict[str, float]]:
    """Return the input cost of both prompts by currency, for models with a known price and cache rule."""
    found: dict[str, dict[str, float]] = {"client": {}, "window": {}}
    for each in models:
        if each.currency is not None and each.client_cost is not None and each.window_cost is not None:
            for side, cost in (("client", each.client_cost), ("window", each.window_cost)):
                found[side][each.currency] = found[side].get(each.currency, 0.0) + cost
    return found


def _address(conversation: str, seq: int) -> str:
    address, _, _ = post_address(conversation, "").partition("?")
    return f"{address}?behind={max(0, seq - 5)}#post-{seq}"


ROUTES = [shadow]
