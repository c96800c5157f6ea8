"""Render the history pages: sentiment and mood of a conversation, and the tuning history of the optimizer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import Response, get
from litestar.params import FromPath

from cuebook.app.turns.optimizer import OptimizerRun
from cuebook.records.answer import to_wire
from cuebook.records.conversation_answers import ListedTurn
from cuebook.server.caller import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.plots import WIDTH, plot_lines, plot_over_time
from cuebook.server.page.render import show
from cuebook.server.route_parts import ConversationQuery, UserQuery

#: Maximum number of turns, reflections and optimizer runs on a page, newest first.
TURNS: Final = 200
REFLECTIONS: Final = 200
RUNS: Final = 200


@get("/page/conversations/{conversation:str}/mind")
async def mind(request: AnyRequest, conversation: FromPath[str]) -> Response[bytes]:
    """Render each message's sentiment, the events, the mood and the metaprompt runs of a conversation."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    recorded = await cue.turns.list(name, user=user, last=TURNS)
    state = await cue.mind.show(name, user=user, limit=REFLECTIONS)
    turns = [_turn_row(each) for each in recorded]
    scored = [(float(each["n"]), each["score"]) for each in turns if each["score"] is not None]
    events = [(float(each["n"]), f"turn {each['n']}: {event['name']}") for each in turns for event in each["events"]]
    return show(
        "mind.html",
        name=name,
        mind=state,
        due=state.due,
        turns=list(reversed(turns)),
        plot=plot_lines({"sentiment": scored}, low=-1.0, high=1.0, events=events),
        moods=_moods(turns),
        width=WIDTH,
        reflections=to_wire(state.reflections),
    )


@get("/page/optimizer")
async def optimizer(
    request: AnyRequest, conversation: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Render the optimizer's runs: tokens before and after, and the resulting parameters."""
    cue, user = cue_of(request), user_of(request, user_id)
    name = conversation or None
    totals = await cue.optimizer.status(name, user=user)
    runs = await cue.optimizer.history(name, user=user, limit=RUNS)
    oldest_first = runs.items[::-1]
    most = max((each.tokens_before for each in runs), default=0)
    return show(
        "optimizer.html",
        conversation=conversation or "",
        totals=to_wire(totals),
        runs=[to_wire(each) for each in runs],
        tokens=plot_over_time(
            _plot_lines(oldest_first, {"before": "tokens_before", "after": "tokens_after"}), low=0.0, high=float(most)
        ),
        parameters=plot_over_time(
            _plot_lines(oldest_first, {
                "compression trigger": "compression_trigger_ratio", "minimum relevance": "min_relevance_score",
                "mean feedback score": "served",
            }),
            low=0.0, high=1.0,
        ),
    )  # fmt: skip


def _plot_lines(runs: Sequence[OptimizerRun], fields: Mapping[str, str]) -> dict[str, list[tuple[float, float]]]:
    """Return fields of runs as lines over time, without fields that have no value."""
    lines = {
        name: [
            (float(each.timestamp), float(getattr(each, field))) for each in runs if getattr(each, field) is not None
        ]
        for name, field in fields.items()
    }
    return {name: points for name, points in lines.items() if points}


def _turn_row(turn: ListedTurn) -> dict[str, Any]:
    """Return the sentiment and events of a turn's message, and the mood of the answer."""
    sentiment, mind = turn.metadata.get("sentiment") or {}, turn.metadata.get("mind") or {}
    reasons = sentiment.get("reasons") or {}
    has_score = sentiment.get("polarity", "unknown") != "unknown"
    return {
        "n": turn.turn,
        "score": sentiment.get("score") if has_score else None,
        "intensity": sentiment.get("intensity") if has_score else None,
        "method": sentiment.get("method", ""),
        "events": [
            {"name": name, "severity": "", "reason": "", **reasons.get(name, {})}
            for name in sentiment.get("events") or []
        ],
        "mood": mind.get("mood", "neutral"),
        "strategy": mind.get("strategy", ""),
    }


def _moods(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return runs of consecutive turns in one mood; the width is proportional to the number of turns."""
    items: list[dict[str, Any]] = []
    for each in turns:
        if items and items[-1]["mood"] == each["mood"]:
            items[-1]["last"] = each["n"]
        else:
            items.append({"mood": each["mood"], "first": each["n"], "last": each["n"], "style": len(items) % 2})
    if not items:
        return []
    start, unit = items[0]["first"], WIDTH / (items[-1]["last"] - items[0]["first"] + 1)
    return [
        {
            **each,
            "x": round((each["first"] - start) * unit, 1),
            "width": round((each["last"] - each["first"] + 1) * unit, 1),
        }
        for each in items
    ]


ROUTES = [mind, optimizer]
