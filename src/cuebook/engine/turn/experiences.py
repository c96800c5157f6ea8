"""Select handwritten experiences for each query, by a model or by similarity (D4, D5).

The model sees only `when`, works while the prompt is assembled, and has a time limit. After a timeout or an invalid
answer, words and meaning decide (`memory/experience`). A selection is cached by query and place, so that a retried
decision does not call the model again.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.audit_records import answered
from cuebook.engine.core.instructions import BROKEN, CheckedAnswer, checked_answer, instruct, instruction_record
from cuebook.engine.core.recall import embed_query, vectors_of
from cuebook.engine.core.services import ModelSelection, Services
from cuebook.engine.turn.request import TurnRequest
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import Model, ModelRequest
from cuebook.interfaces.store import Scene
from cuebook.memory.experience import E, ScoredExperience, choose, clauses, offered, read_reply, score
from cuebook.prompts.names import project_of
from cuebook.records.audit import Record
from cuebook.records.conversation import ERROR, Part, PathPost
from cuebook.records.memory import Dense, Scope
from cuebook.records.persona import Experience, Persona
from cuebook.records.turn import Ask, Block, WorkUsage

# ---- In the prompt --------------------------------------------------------------------------------------------------


SOURCE = "experience:"


def advice_of(experience: Experience) -> Block:
    """Return an experience's prompt text: only `what`, because `when` is for the selection."""
    text = f"Advice of this assistant's authors for such messages ({experience.exp_id}):\n{experience.what}"
    return Block(kind="experience", source=SOURCE + experience.exp_id, text=text, role="user")


log = logging.getLogger("cuebook.experience")

#: Prompt id of the model's instructions, and its recipient name in the audit log.
KEY = "experience_selection"
SELECTOR = "experience selector"
#: Conversation turns shown to a model, and characters of each query.
ROUNDS = 3
SHOWN = 400
#: Characters of the query itself, from its start. A longer one also shows its end.
ASKED = 6_000
#: Candidates shown to a model, the most similar first, and characters of each `when`.
CANDIDATES = 40
WHEN = 1_000
#: Characters and tokens of the model's answer: an id of at most 120 and true or false each.
LONGEST = 20_000
REPLY_TOKENS = 1_024
#: Seconds until a failed selection is retried.
AGAIN_S = 30.0

#: Cache key of a failed call of the model.
_DOWN = b"down"
_parts = msgspec.json.Decoder(tuple[Part, ...])


class SelectedExperiences(Struct, frozen=True, kw_only=True):
    """The selection: each offered experience with its score, the selected ones in order, and the method."""

    chosen: tuple[str, ...]
    scored: tuple[ScoredExperience, ...]
    by: str  # a model's name, "meaning" or "words"
    instead: str = ""  # why the model did not decide
    selected: ModelSelection | None = None


@asynccontextmanager
async def advising(
    services: Services, scene: Scene, request: TurnRequest, ask: Ask
) -> AsyncGenerator[asyncio.Task[tuple[tuple[Block, ...], SelectedExperiences | None]]]:
    """Select the experiences for a query in a task, beside the assembly of its prompt; cancel it at the end."""
    choosing = asyncio.create_task(advise(services, request.scope, scene, ask, asks_model=request.asks_model))
    try:
        yield choosing
    finally:
        choosing.cancel()
        await asyncio.wait([choosing])


async def advise(
    services: Services, scope: Scope, scene: Scene, ask: Ask, *, asks_model: bool
) -> tuple[tuple[Block, ...], SelectedExperiences | None]:
    """Return the experiences relevant to a query, best first, and their selection; none for a query without words."""
    if services.experiences is None or not ask.text.strip() or not (experiences := await services.experiences()):
        return (), None
    conversation = scene.conversation
    persona = services.settings.persona(ask.persona or conversation.persona)
    candidates = offered(experiences, (persona.id, persona.role))
    if not candidates:
        return (), None
    project = project_of(ask.project, conversation.metadata.get("project"), services.settings.project)
    query = ExperienceQuery(
        text=services.writer.clean(ask.text),
        context=context_of(scene.path),
        project=project,
        conversation=ask.conversation,
    )
    choice = await choose_for(services, scope, persona, query, candidates, asks_model=asks_model)
    by_id = {each.exp_id: each for each in candidates}
    texts = tuple(advice_of(clean(services, by_id[name])) for name in choice.chosen)
    return texts, choice


class ExperienceQuery(Struct, frozen=True, kw_only=True):
    """Input of the selection: the query, redacted, and the conversation before it."""

    text: str
    context: str = ""
    project: str = ""
    conversation: str = ""


def told_of(choice: SelectedExperiences) -> dict[str, Any]:
    """Return `metadata.experienceSelection`, empty without a selection or a failure."""
    if not (choice.chosen or choice.instead):
        return {}
    scores = {each.exp_id: each.score for each in choice.scored}
    data: dict[str, Any] = {
        "by": choice.by,
        "chosen": {name: scores[name] for name in choice.chosen},
        "offered": len(choice.scored),
    }
    return {"experienceSelection": data | ({"instead": choice.instead} if choice.instead else {})}


def clean(services: Services, experience: E) -> E:
    """Return an experience with its secrets redacted, like all stored and sent text."""
    when, what = services.writer.clean(experience.when), services.writer.clean(experience.what)
    return msgspec.structs.replace(experience, when=when, what=what)


async def choose_for(
    services: Services,
    scope: Scope,
    persona: Persona,
    query: ExperienceQuery,
    candidates: Sequence[Experience],
    *,
    asks_model: bool,
) -> SelectedExperiences:
    """Select among the offered experiences: by the model if there is one, else by meaning, else by words."""
    closeness, min_similarity = await _closeness(services, query.text, candidates)
    scored = score(query.text, candidates, closeness, akin=min_similarity)
    without = choose(scored, most=services.config.experience.most)
    plain = SelectedExperiences(
        chosen=tuple(each.exp_id for each in without if each.chosen),
        scored=tuple(without),
        by="words" if closeness is None else "meaning",
    )
    if services.experience_model is None:
        return plain
    by_id = {each.exp_id: each for each in candidates}
    experiences = [by_id[each.exp_id] for each in scored[:CANDIDATES]]
    selected = await _selected(services, scope, persona, query, experiences, asks=asks_model)
    if selected is None or selected.ids is None:
        why = selected.failed if selected else ""
        return msgspec.structs.replace(plain, instead=why, selected=selected)
    chosen = selected.ids[: services.config.experience.most]
    judged = tuple(
        msgspec.structs.replace(
            each,
            chosen=each.exp_id in chosen,
            reason=_reason(each.exp_id, chosen, selected.ids, {one.exp_id for one in experiences}),
        )
        for each in scored
    )
    return SelectedExperiences(chosen=chosen, scored=judged, by=selected.by, selected=selected)


def _reason(name: str, chosen: Sequence[str], named: Sequence[str], entries: set[str]) -> str:
    if name in chosen:
        return "the model found it relevant"
    if name in named:
        return f"the model found it relevant, but at most {len(chosen)} are selected"
    return "the model found it irrelevant" if name in entries else "too far from the query to be shown to the model"


# ---- By meaning -----------------------------------------------------------------------------------------------------


async def _closeness(
    services: Services, query: str, candidates: Sequence[Experience]
) -> tuple[Mapping[str, float] | None, float]:
    """Return the best cosine between a query and each one's clauses, and the embedder's `akin`, or None without
    vectors.
    """
    embedder, dense = services.embedder, await embed_query(services, query)
    if embedder is None or dense is None:
        return None, 0.0
    parts = [(each.exp_id, services.writer.clean(clause)) for each in candidates for clause in clauses(each.when)]
    within_s = max(services.config.embedder.timeout_s, services.config.experience.timeout_s)
    vectors = await vectors_of(services, embedder, [clause for _, clause in parts], within_s=within_s)
    if vectors is None:
        return None, 0.0
    closeness = dict.fromkeys((each.exp_id for each in candidates), 0.0)
    for (name, _), cosine in zip(parts, _cosines(dense, vectors), strict=True):
        closeness[name] = max(closeness[name], cosine)
    return closeness, embedder.akin


def _cosines(query: Dense, others: Sequence[Dense]) -> list[float]:
    """Return the cosines of vectors of length 1."""
    import numpy as np

    rows = np.frombuffer(b"".join(each.vector for each in others), "<f4").reshape(len(others), -1)
    return [float(each) for each in rows @ np.frombuffer(query.vector, "<f4")]


# ---- By a model -----------------------------------------------------------------------------------------------------


def context_of(path: Sequence[PathPost]) -> str:
    """Return a summary of the last turns before a query for the model: queries, results, errors."""
    lines: list[str] = []
    rounds = sorted({post.round for post in path})[-ROUNDS:]
    for post in path:
        if post.round not in rounds:
            continue
        if post.role == "user" and post.seq == post.round and post.message:
            lines.append(f"User: {' '.join(post.message.split())[:SHOWN]}")
        for part in _parts.decode(post.parts) if post.parts else ():
            if part.type == "execution_status":
                lines.append(f"Execution: {' '.join(part.content.split())[:SHOWN]}")
            elif part.type == ERROR and part.content:
                lines.append(f"Error: {' '.join(part.content.split())[:SHOWN]}")
    return "\n".join(lines)


async def _selected(
    services: Services,
    scope: Scope,
    persona: Persona,
    query: ExperienceQuery,
    experiences: Sequence[Experience],
    *,
    asks: bool,
) -> ModelSelection | None:
    """Return the cached selection of the model, or else call it if allowed."""
    model = services.experience_model
    if model is None:
        return None
    listed = "\n\n".join(
        f"--- Experience {number} (ID: {each.exp_id}) ---\n{services.writer.clean(each.when)[:WHEN]}"
        for number, each in enumerate(experiences, 1)
    )
    values = {"experiences": listed, "agent_name": persona.name, "most": services.config.experience.most}
    instruction = await instruct(services, scope, KEY, values, agent=SELECTOR, project=query.project)
    messages = _messages(instruction.text, listed, query)
    key, now = _key(services, model, messages), services.clock.now()
    selected = services.caches.selections.get(key)
    if selected is not None and (selected.ids is not None or now - selected.at < AGAIN_S):
        return selected
    if not asks:
        return None
    down = services.caches.selections.get(_DOWN)
    if down is not None and now - down.at < AGAIN_S:  # do not wait for it again so soon
        return ModelSelection(ids=None, by=model.name, failed=f"{down.failed}. It is called again after {AGAIN_S:g} s.")
    usages: list[WorkUsage] = []
    answer, failed = await _reply(services, model, messages, query, experiences, usages=usages)
    if failed:
        log.warning("Selecting experiences without the model: %s", failed)
    record = instruction_record(services, instruction, agent=SELECTOR, conversation=query.conversation)
    await _tell(services, scope, record, answer, failed)
    ids = answer.value if answer else None
    chosen = ModelSelection(ids=ids, by=model.name, failed=failed, at=now, messages=messages, usages=tuple(usages))
    services.caches.selections[key] = msgspec.structs.replace(chosen, usages=())  # those of the first turn
    return chosen


def _messages(instruction: str, listed: str, query: ExperienceQuery) -> tuple[bytes, bytes]:
    """Return the messages to the model. Conversation text goes in as data, never into the system text."""
    asked = query.text if len(query.text) <= ASKED else f"{query.text[:ASKED]} … {query.text[-SHOWN:]}"
    before = "" if listed in instruction else f"{listed}\n\n"
    before += f"The conversation before it:\n{query.context}\n\n" if query.context else ""
    return (
        msgspec.json.encode({"role": "system", "content": instruction}),
        msgspec.json.encode({"role": "user", "content": f"{before}Select relevant experiences for: {asked}"}),
    )


def _key(services: Services, model: Model, messages: Sequence[bytes]) -> bytes:
    text = json.dumps([model.name, *(message.decode() for message in messages)])
    return hashlib.blake2b(text.encode(), key=services.settings.key[:64]).digest()


async def _tell(
    services: Services, scope: Scope, record: Record, answer: CheckedAnswer[tuple[str, ...]] | None, failed: str
) -> None:
    """Add an audit record of the call, whatever its result."""
    text = answer.text if answer else ""
    context = {"outcome": answer.outcome} if answer else {"outcome": "refused", "reason": failed}
    try:
        await services.audit.append(scope, [record, *answered(services, [record], text, context=context)])
    except CuebookError as error:  # the turn goes on: the store reports records that it requires
        log.warning("Cannot write an audit record of an experience selection: %s", services.writer.clean(str(error)))


async def _reply(
    services: Services,
    model: Model,
    messages: tuple[bytes, ...],
    query: ExperienceQuery,
    experiences: Sequence[Experience],
    *,
    usages: list[WorkUsage],
) -> tuple[CheckedAnswer[tuple[str, ...]] | None, str]:
    """Call the model. Return its answer with the selected ids, or None and the reason why there is none."""
    names = [each.exp_id for each in experiences]
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    request = ModelRequest(
        messages=messages, purpose=KEY, schema=schema, max_tokens=REPLY_TOKENS, conversation=query.conversation
    )

    def read(text: str) -> tuple[str, ...]:
        ids = read_reply(text, names)
        if ids is None:
            raise InvalidInput("it names none of the offered ids")
        return ids

    try:
        async with asyncio.timeout(services.config.experience.timeout_s):
            answer = await checked_answer(services, model, request, read, usages=usages, longest=LONGEST)
    except InvalidInput as error:
        return None, f"Model {model.name} returned an unreadable answer: {error}"
    except TimeoutError:
        failed = f"Model {model.name} timed out after {services.config.experience.timeout_s:g} s"
    except BackendError as error:
        failed = services.writer.clean(str(error))[:SHOWN]
    except BROKEN as error:  # a model may be user code, and its error may contain conversation text
        failed = f"Model {model.name} failed with {type(error).__name__}"
    else:
        return answer, ""
    at = services.clock.now()
    services.caches.selections[_DOWN] = ModelSelection(ids=None, by=model.name, failed=failed, at=at)
    return None, failed
