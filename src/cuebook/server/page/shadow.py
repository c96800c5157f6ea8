"""Render the Shadow view: the figures of each profile on own traffic, and what shadow mode would have sent."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from litestar import Response, get, post

from cuebook.app.reports.prices import UNKNOWN
from cuebook.app.reports.shadow import ModelCost, ShadowCall, ShadowReport
from cuebook.server.caller import AnyRequest, actor_of, caller_of, cue_of, user_of
from cuebook.server.page.memories import go
from cuebook.server.page.plots import plot_lines
from cuebook.server.page.render import base_url, show
from cuebook.server.page.turns import post_address
from cuebook.server.route_parts import ConversationQuery, UserQuery

#: Maximum number of calls in the table, newest first.
CALLS: Final = 200


@get("/page/shadow")
async def shadow(
    request: AnyRequest, conversation_id: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Render shadow calls and their totals: tokens and costs of both prompts, and posts that either lacked."""
    cue, user, name = cue_of(request), user_of(request, user_id), conversation_id or None
    shadow_report = await cue.shadow.report(name, user=user)
    calls = await cue.shadow.calls(name, user=user)
    return show(
        "shadow.html",
        conversation=name or "",
        report=shadow_report,
        unknown_price=UNKNOWN,
        failed=_failed(shadow_report),
        unrecorded=sum(shadow_report.lost.values()),
        costs=_costs(shadow_report.models),
        plot=_plot(calls),
        calls=list(reversed(calls[-CALLS:])),
        examples=[(each, _address(each.conversation, each.seq)) for each in shadow_report.examples],
        shadow_mode=cue.shadows,
        profiles=shadow_report.replay.profiles if any(each.calls for each in shadow_report.replay.profiles) else (),
        may_switch=caller_of(request).may("owner"),
        base=base_url(request),
    )


@post("/page/shadow/profile", role="owner", status_code=303)
async def use_profile(request: AnyRequest) -> Response[Any]:
    """Switch the summarization profile, then redirect to the report."""
    profile = str((await request.form()).get("profile", ""))
    await cue_of(request).shadow.use_profile(profile, by=actor_of(request))
    return go("/page/shadow#profiles")


def _plot(calls: Sequence[ShadowCall]) -> dict[str, Any] | None:
    """Return a plot of the cumulative tokens of both prompts by call."""
    entries = [each.call.entry for each in calls]
    lines = {
        "sent": [each.client_tokens for each in entries],
        "would have sent": [each.window_tokens for each in entries],
    }
    points_by_line = {
        name: [(float(n), float(total)) for n, total in enumerate(accumulate(each), 1)] for name, each in lines.items()
    }
    high = max((y for points in points_by_line.values() for _, y in points), default=0.0)
    return plot_lines(points_by_line, low=0.0, high=high)


def _costs(models: Sequence[ModelCost]) -> Mapping[str, dict[str, float]]:
    """Return the input cost of both prompts by currency, for models with a known price and cache rule."""
    costs: dict[str, dict[str, float]] = {"client": {}, "window": {}}
    for each in models:
        if each.currency is not None and each.client_cost is not None and each.window_cost is not None:
            for side, cost in (("client", each.client_cost), ("window", each.window_cost)):
                costs[side][each.currency] = costs[side].get(each.currency, 0.0) + cost
    return costs


def _failed(found: ShadowReport) -> str:
    counts = {"rejected by the upstream": found.refused_calls, "not answered by the upstream": found.unanswered_calls}
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def _address(conversation: str, seq: int) -> str:
    address, _, _ = post_address(conversation, "").partition("?")
    return f"{address}?behind={max(0, seq - 5)}#post-{seq}"


ROUTES = [shadow, use_profile]
