"""Load the scene of a turn: one snapshot of the path, summary, recalled posts, memories and prompts."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cuebook.config import BudgetConfig
from cuebook.engine.core.context_limits import limits_of
from cuebook.engine.core.recall import embed_query, recall_span
from cuebook.engine.core.services import Services, Settings
from cuebook.engine.turn.history import HistoryPosition
from cuebook.engine.turn.request import TurnRequest
from cuebook.errors import NotFound
from cuebook.interfaces.store import CorrectionInput, MemoryLook, PathQuery, Scene, SearchLook
from cuebook.memory.corrections import corrected, restored, says, unquoted
from cuebook.memory.rolling import RELAY, choose
from cuebook.memory.schema import compact
from cuebook.memory.scopes import Policy, read_control
from cuebook.memory.summary import write
from cuebook.memory.supersede import unmarked
from cuebook.prompts.names import candidates, own_names
from cuebook.records.conversation import Stretch
from cuebook.records.memory import Dense, Item, Scope, Summary
from cuebook.records.turn import Ask, Turn
from cuebook.window.partition import reach

#: Posts from full text; their neighbors are added. On LoCoMo dev 24 are as good as 200 (R@10 79.0, 79.2).
CANDIDATES = 32


async def load_scene(services: Services, request: TurnRequest, position: HistoryPosition) -> Scene:
    """Load the scene of a new turn, with what it recalls. A summary that contains corrected text is corrected.

    For a client that resends its history, load the posts that the summary covers too.
    """
    settings, scope, ask, resends = services.settings, request.scope, position.ask, request.resends_history
    limits = limits_of(services, request.target, ask.conversation).limits
    profile = choose(settings.compaction, ask.mode or (RELAY if resends else None))
    terms: Any = {"prompts": candidate_prompts(settings, ask.persona), "memory": memory_query(services, ask)}
    terms |= {"project": ask.project, "otherwise": settings.project}
    terms |= {"steady_posts": profile.tail + profile.most if profile.trigger == "posts" else 0}
    where: Any = {"parent": position.parent, "limits": limits, "budget": ask.token_budget}
    with recall_span(services, ask) as recall:
        where["dense"] = await embed_query(services, ask.text) if services.config.memory.recall else None
        query = replace(
            path_query(services, ask.conversation, ask.text, **where), **terms, whole=resends, quotes=request.quotes
        )
        scene = await services.store.scene(scope, query)
        recall.set(gen_ai__memory__record__count=len(scene.known.memories) if scene.known else 0)
    if scene.summary and scene.summary.corrected < scene.corrected:
        await correct_summary(services, scope, ask.conversation, upto=scene.summary.upto_seq)
        scene = await services.store.scene(scope, query)
    services.caches.drop_erased(scene.epoch)
    if not scene.conversation.no:
        scene = replace(scene, conversation=replace(scene.conversation, user=ask.user))
    return scene


async def load_step_scene(services: Services, request: TurnRequest, position: HistoryPosition, turn: Turn) -> Scene:
    """Load the scene of a later step of a turn: as for its first step, so that the text before it stays the same."""
    scope, ask, version = request.scope, position.ask, turn.steps[0].manifest.summary_version
    query = path_query(services, ask.conversation, "", parent=position.parent, budget=ask.token_budget)
    query = replace(query, summary_version=version, whole=request.resends_history)
    scene = await services.store.scene(scope, query)
    services.caches.drop_erased(scene.epoch)
    return await _with_query(services, scope, scene, turn.query_seq)


def path_query(
    services: Services,
    conversation: str,
    text: str,
    *,
    parent: int | None,
    budget: int | None,
    limits: BudgetConfig | None = None,
    dense: Dense | None = None,
) -> PathQuery:
    """Return a turn's store query: as much of the path as may fit, and search results for the query.

    `limits` are those of the model; default: the settings.
    """
    far = reach(limits or services.settings.limits, budget)
    return PathQuery(
        conversation=conversation,
        parent=parent,
        full_tokens=far.full,
        small_tokens=far.small,
        small_after=far.small_after,
        post_tokens=far.post,
        search=SearchLook(text=text, limit=CANDIDATES, dense=dense) if services.config.memory.recall and text else None,
    )


def candidate_prompts(settings: Settings, persona: str | None) -> tuple[str, ...]:
    """Return the prompts that the system prompt may need: of one persona, or of all if it is not known yet."""
    named = settings.personas.get(persona or "")
    personas = [named] if named else list(settings.personas.values())
    links = [name for each in personas for slug in each.chain.values() for name in candidates(slug)]
    keys = [key for preset in settings.presets.presets for key in preset.addon_prompt_keys]
    addons = [name for key in keys for name in candidates(key)]
    own = [name for each in personas for name in own_names(each.id)]
    return tuple(dict.fromkeys([*own, *links, *addons]))


def memory_query(services: Services, ask: Ask) -> MemoryLook:
    """Return a turn's store query for cross-conversation memories."""
    settings = services.settings
    defaults = settings.keyed_policy if ask.authenticated else settings.memory_policy
    if ask.relayed:  # what the client did not send is added only for a user whom memory may know
        reads = ask.user is not None if services.config.memory.user == "named" else settings.memory_policy.user
        defaults = replace(defaults, user=reads, conversation=reads)
    if ask.utility:
        defaults = Policy(enabled=False)
    if ask.organization is None:
        defaults = replace(defaults, organization=False)
    return MemoryLook(
        control=read_control(ask.memory_control),
        defaults=defaults,
        user=ask.user,
        persona=ask.persona or "",
        otherwise=settings.default_persona,
        organization=ask.organization,
        text=ask.text if services.config.memory.recall else "",
    )


async def _with_query(services: Services, scope: Scope, scene: Scene, query: int) -> Scene:
    """Return a scene that includes the open turn's query in full, however long the turn is."""
    gap = next((each for each in scene.unread if each.first <= query <= each.last), None)
    small = any(post.seq == query and post.message is None for post in scene.path)
    if not (gap or small):
        return scene
    path_posts = await services.store.posts_in(scope, scene.conversation.id, [(query, query)])
    if not path_posts:
        return scene  # erased meanwhile
    post = path_posts[0]
    if gap is None:
        return replace(scene, path=tuple(post if each.seq == query else each for each in scene.path))
    newer = sum(each.tokens for each in scene.unread if each.first > query)
    behind = scene.path[0].path_tokens - scene.path[0].tokens - newer - post.path_tokens
    before = gap.tokens - post.tokens - behind
    halves = [
        Stretch(gap.first, query - 1, query - gap.first, before),
        Stretch(query + 1, gap.last, gap.last - query, behind),
    ]
    unread = [half for each in scene.unread for half in (halves if each is gap else [each]) if half.count]
    return replace(scene, path=(post, *scene.path), unread=tuple(unread))


# ---- Manual corrections of the summary ------------------------------------------------------------------------------


#: Retries after a concurrent summarization pass.
CORRECTION_RETRIES = 20


async def correct_summary(services: Services, scope: Scope, conversation: str, *, upto: int | None = None) -> bool:
    """Apply all corrections to the summary that ends at a post, by default the current one.

    Return whether a corrected summary was stored.
    """
    store = services.store.memories
    for _ in range(CORRECTION_RETRIES):
        try:
            correcting = await store.correcting(scope, conversation, upto=upto)
        except NotFound:
            return False  # erased
        if correcting is None:
            return False
        services.failpoint("correct.read")
        summary, items = await asyncio.to_thread(_correct, services, correcting)
        if await store.save_corrected(scope, correcting, summary, items, sinks=tuple(services.sinks)):
            services.notify_jobs()
            return True
    return False


def _correct(services: Services, correcting: CorrectionInput) -> tuple[Summary, list[Item]]:
    """Return the corrected summary and the changed items. A correct one stays unchanged and is marked as checked."""
    before, now = correcting.summary, services.clock.now()
    fresh = [each for each in correcting.corrections if each.no > before.corrected]
    items = corrected(correcting.items, correcting.corrections, since=before.corrected)
    items = unmarked(restored(items, correcting.corrections, since=before.corrected, now=now))
    stays = {each.id for each in items}
    entries = [each for each in correcting.items if each.id not in stays]
    added = [each for each in items if each not in correcting.items]
    summary = replace(before, corrected=correcting.corrections[-1].no, created_at=now)
    lines = f"{before.markdown}\n{before.tainted}\n{compact(before.memory_json)}".split("\n")
    if added or entries or any(says(line, each) for line in lines for each in fresh):
        summary = _write_summary(services, correcting, items, summary)
    gone = [replace(each, text="", subject="", name="", valid_to=each.valid_to or now) for each in entries]
    return summary, [*gone, *added]


def _write_summary(services: Services, correcting: CorrectionInput, items: Sequence[Item], summary: Summary) -> Summary:
    previous = unquoted(summary.markdown, correcting.corrections)
    markdown, memory_json, tainted = write(
        items,
        previous="",
        max_tokens=choose(services.settings.compaction, summary.profile).max_summary_tokens,
        count=services.count,
        zone=services.settings.zone_of(None, correcting.conversation),
    )
    markdown = markdown or previous
    tokens = services.count(markdown) + services.count(compact(memory_json))
    made = replace(summary, markdown=markdown, memory_json=memory_json, tainted=tainted, tokens=tokens)
    return replace(made, made_by="quotes", prompt="")
