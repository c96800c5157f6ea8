"""Render the live page and stream its changes as server-sent events: the newest turns and the totals."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from litestar import Response, get

from cuebook import Cuebook
from cuebook.app.reports.prices import money
from cuebook.app.transcript_views.live import LiveTurn, Sums
from cuebook.records.expression import counted
from cuebook.server.authorization import admit
from cuebook.server.caller import AnyRequest, cue_of, user_of
from cuebook.server.concurrency_limits import seat
from cuebook.server.page.prompt_bar import kinds_shown
from cuebook.server.page.render import HEADERS, base_url, number, percent, place, plain, seconds, show
from cuebook.server.streaming import Start, StreamResponse, encoded, event

#: Idle polls after which a comment is sent, to detect clients that disconnected.
_QUIET = 20
#: Idle polls after which the caller's API key is checked again.
_RECHECK_KEY = 2
_HEAD = [("content-type", "text/event-stream; charset=utf-8"), ("x-accel-buffering", "no"), *HEADERS.items()]


@get("/")
async def front(request: AnyRequest) -> Response[bytes]:
    """Render the newest turns with the contents and cost of their prompts, and what they leave out."""
    cue, user = cue_of(request), user_of(request)
    return show(
        "live.html",
        turns=[live_row(each) for each in await cue.live.newest(user=user)],
        sums=totals(await cue.live.sums(user=user)) | unreachable(cue),
        base=base_url(request),
        upstream=cue.upstream_url or "",
        shadow_mode=cue.shadows,
    )


@get("/page/live")
async def changes(request: AnyRequest) -> StreamResponse:
    """Stream each change of a turn as an event (a JSON object), followed by the totals.

    429 if too many streams are open.
    """
    return StreamResponse(request.app.state.running, _events(request), is_view=True)


async def _events(request: AnyRequest) -> AsyncGenerator[Start | bytes, None]:
    """Yield events until the caller's API key is revoked or expires."""
    cue, user, quiet = cue_of(request), user_of(request), 0
    with seat(request):
        async with aclosing(cue.live.changes(user=user)) as found:
            await anext(found)  # changes from here on are reported
            yield Start(200, encoded(_HEAD))
            yield b": watching\n\n"
            async for each in found:
                quiet = 0 if each else quiet + 1
                if each is not None or quiet % _RECHECK_KEY == 0:
                    await admit(request)
                if isinstance(each, LiveTurn):
                    yield event("turn", live_row(each))
                elif isinstance(each, Sums):
                    yield event("sums", totals(each) | unreachable(cue))
                elif quiet % _QUIET == 0:
                    yield b": quiet\n\n"


def live_row(turn: LiveTurn) -> dict[str, Any]:
    """Return a turn as the page and its script show it: texts, and a bar in percent."""
    return {
        "key": f"{turn.conversation}#{turn.first}",
        "name": f"{plain(turn.conversation)} · turn {turn.turn}"
        + (f", attempt {turn.attempt}" if turn.attempt > 1 else ""),
        "href": f"/page/conversations/{place(turn.conversation)}/turns/{turn.turn}",
        "state": turn.state,
        "when": " ".join(filter(None, [plain(turn.user), (turn.at or "")[:19].replace("T", " ")])),
        "query": plain(turn.query),
        "reply": plain(turn.reply),
        "bar": kinds_shown(turn.kinds),
        "cached": round(100 * min(1.0, turn.cached / turn.tokens), 2) if turn.tokens else 0,
        "facts": list(_facts(turn)),
    }


def _facts(turn: LiveTurn) -> Iterator[str]:
    usage = turn.spent
    calls = f" in {number(usage.calls)} model calls" if usage.calls > 1 else ""
    yield f"{number(usage.tokens or turn.tokens)} tokens{calls}"
    if usage.whole > usage.tokens:
        yield f"{percent(usage.tokens / usage.whole)} of the full history ({number(usage.whole)})"
    if turn.cached and turn.tokens:
        yield f"{percent(min(1.0, turn.cached / turn.tokens))} read from cache"
    if usage.costs:
        yield money(usage.costs)
    if turn.dropped:
        yield f"{number(turn.dropped)} left out"
    if turn.first_s is not None:
        yield f"first token after {seconds(turn.first_s)}"
    if turn.seconds:
        yield f"{'response time' if turn.state == 'finished' else 'ended after'} {seconds(turn.seconds)}"
    yield from turn.events
    if turn.mood not in ("", "neutral"):
        yield f"mood {turn.mood}"
    if turn.shadow:
        yield "shadow mode: not sent"
    if turn.error:
        yield turn.error


def unreachable(cue: Cuebook) -> dict[str, str]:
    """Return the text of the banner for an upstream that did not answer the last request, "" if it did."""
    return {"unreachable": cue.services.caches.failures.get("upstream", "")}


def totals(sums: Sums) -> dict[str, Any]:
    """Return the totals as the page and its script show them: texts by name, and `part`, a bar width in percent."""
    usage = sums.taken
    share = usage.tokens / usage.whole if usage.whole else 1.0
    saved = {name: value for name, value in usage.cache_saved.items() if value}
    return {
        "turns": number(sums.turns),
        "turns_of": f"{counted(sums.conversations, 'conversation')}, {counted(sums.posts, 'post')}"
        + ("" if sums.all else "; only the newest turns are counted"),
        "tokens": number(usage.tokens),
        "tokens_of": f"{percent(share)} of the {number(usage.whole)} that full histories would use",
        "cached": percent(usage.cached / usage.cache_known) if usage.cache_known else "none",
        "cached_of": f"of prompt tokens; saved {money(saved)}" if saved else "of prompt tokens",
        "cost": money(usage.costs) or "–",
        "cost_of": f"at the prices of {_model_names(usage.models)}"
        if usage.costs
        else "prices of these models are unknown",
        "memories": number(sums.memories),
        "memories_of": "linked to their source posts",
        "part": round(max(0.5, 100 * min(1.0, share)), 2),
    }


def _model_names(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else counted(len(models), "model")


ROUTES = [front, changes]
