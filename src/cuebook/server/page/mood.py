"""Render the pages over time: sentiment and mood of a conversation, and the tuning history of the optimizer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from cuebook.app.turns.mood import reflection_shape
from cuebook.app.turns.optimizer import snapshot
from cuebook.records.tuning import Snapshot
from cuebook.records.turn import Turn
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.plots import WIDTH, plotted, plotted_over_time
from cuebook.server.page.render import show
from cuebook.server.route_parts import UserQuery

#: Most turns, reflections and optimizer runs a page shows, newest first.
TURNS: Final = 200
REFLECTIONS: Final = 200
RUNS: Final = 200

ConversationQuery = Annotated[str | None, QueryParameter(name="conversationId", description="Only this conversation")]


@get("/page/conversations/{conversation:str}/mind", include_in_schema=False)
async def mind(request: AnyRequest, conversation: FromPath[str]) -> Response[bytes]:
    """Render each message's sentiment, the events, the mood and the metaprompt runs of a conversation."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    turns = await cue.turns.last(name, user=user, last=TURNS)
    state = await cue.mind.show(name, user=user, limit=REFLECTIONS)
    heard = [_heard(each) for each in turns]
    scored = [(float(each["n"]), each["score"]) for each in heard if each["score"] is not None]
    fired = [(float(each["n"]), f"turn {each['n']}: {event['name']}") for each in heard for event in each["events"]]
    return show(
        "mind.html",
        view="Conversations",
        name=name,
        mind=state.mind,
        due=state.due,
        heard=list(reversed(heard)),
        plot=plotted({"sentiment": scored}, low=-1.0, high=1.0, events=fired),
        moods=_moods(heard),
        width=WIDTH,
        reflections=[reflection_shape(each) for each in state.reflections],
    )


@get("/page/optimizer", include_in_schema=False)
async def optimizer(
    request: AnyRequest, conversation: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Render the optimizer's runs: tokens before and after, and the resulting parameters."""
    cue, user = cue_of(request), user_of(request, user_id)
    named = conversation or None
    totals = await cue.optimizer.status(named, user=user)
    runs = await cue.optimizer.history(named, user=user, limit=RUNS)
    oldest_first = list(reversed(runs))
    most = max((each.tokens_before for each in runs), default=0)
    return show(
        "optimizer.html",
        view="Optimizer",
        conversation=conversation or "",
        totals=msgspec.to_builtins(totals),
        runs=[snapshot(each) for each in runs],
        tokens=plotted_over_time(
            _lines(oldest_first, {"before": "tokens_before", "after": "tokens_after"}), low=0.0, high=float(most)
        ),
        parameters=plotted_over_time(
            _lines(oldest_first, {
                "compression trigger": "compression_trigger_ratio", "minimum relevance": "min_relevance_score",
                "applied": "served",
            }),
            low=0.0, high=1.0,
        ),
    )  # fmt: skip


def _lines(runs: Sequence[Snapshot], fields: Mapping[str, str]) -> dict[str, list[tuple[float, float]]]:
    """Return fields of runs as lines over time, without fields that have no value."""
    lines = {
        name: [(each.timestamp, float(getattr(each, field))) for each in runs if getattr(each, field) is not None]
        for name, field in fields.items()
    }
    return {name: points for name, points in lines.items() if points}


def _heard(turn: Turn) -> dict[str, Any]:
    """Return the sentiment and events of a turn's message, and the mood of the answer."""
    sentiment, mind = turn.metadata.get("sentiment") or {}, turn.metadata.get("mind") or {}
    reasons = sentiment.get("reasons") or {}
    known = sentiment.get("polarity", "unknown") != "unknown"
    return {
        "n": turn.n,
        "score": sentiment.get("score") if known else None,
        "intensity": sentiment.get("intensity") if known else None,
        "method": sentiment.get("method", ""),
        "events": [
            {"name": name, "severity": "", "reason": "", **reasons.get(name, {})}
            for name in sentiment.get("events") or []
        ],
        "mood": mind.get("mood", "neutral"),
        "strategy": mind.get("strategy", ""),
    }


def _moods(heard: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return runs of consecutive turns in one mood; the width is proportional to the number of turns."""
    found: list[dict[str, Any]] = []
    for each in heard:
        if found and found[-1]["mood"] == each["mood"]:
            found[-1]["last"] = each["n"]
        else:
            found.append({"mood": each["mood"], "first": each["n"], "last": each["n"], "style": len(found) % 2})
    if not found:
        return []
    start, unit = found[0]["first"], WIDTH / (found[-1]["last"] - found[0]["first"] + 1)
    return [
        {
            **each,
            "x": round((each["first"] - start) * unit, 1),
            "width": round((each["last"] - each["first"] + 1) * unit, 1),
        }
        for each in found
    ]


ROUTES = [mind, optimizer]
