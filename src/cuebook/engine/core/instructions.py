"""Run a background model task: select its instructions, a managed prompt or the shipped default, and call the model.

An instruction has a key, such as a compaction profile's `promptKey`. The key is a prompt id under `system/` or
`default/`, the project's own prompts first. The active version on `main` applies; background tasks have no observations
and therefore no variants. An unusable prompt is logged, and the shipped prompt of that key or purpose replaces it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.judgement_cache import aside
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.engine.core.tracing import usage_values
from cuebook.errors import BackendError, CuebookError, InvalidInput, UpstreamError
from cuebook.interfaces import Model, ModelRequest, SingleModel
from cuebook.interfaces.prompts import Family
from cuebook.prompts.digest import sealed
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import SYSTEM, instructions
from cuebook.prompts.params import coerce
from cuebook.prompts.template import render
from cuebook.records.answers import MAX_BROKEN, matches, mended
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.persona import VARIABLES, Metaprompt, Persona
from cuebook.records.prompt import BODY, MAIN, Param, ResolvedVersion, Version
from cuebook.records.turn import Usage, WorkUsage

T = TypeVar("T")

log = logging.getLogger("cuebook.prompts")

#: Exceptions of faulty code.
BROKEN: Final = (
    ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError, msgspec.MsgspecError,
)  # fmt: skip
#: Most characters of an answer, and of an invalid one that is shown to the model again.
LONGEST = 1_000_000
REPEATED = 4_000
#: Status codes of servers without support for a response schema.
NO_SCHEMA = (400, 404, 415, 422)


class Instruction(Struct, frozen=True, kw_only=True):
    """Rendered instructions with their version and their variable values."""

    text: str
    version: Version
    context: Mapping[str, str]


async def instruct(
    services: Services,
    scope: Scope,
    key: str,
    values: Mapping[str, Any],
    *,
    agent: str,
    project: str,
    otherwise: str = "",
) -> Instruction:
    """Return the instructions of a task with a key for an agent. `otherwise` is the key of a shipped fallback."""
    try:
        names = instructions(key, project)
        families = await services.prompts.families(scope, names)
        version = standing(names, families, services.settings.builtin)
        return render_instruction(await resolved_of(services, version, families, scope=scope), values)
    except CuebookError as error:
        shipped = services.settings.builtin.get(SYSTEM + key) or services.settings.builtin[SYSTEM + otherwise]
        reason = services.writer.clean(str(error))
        log.warning("Task %s uses the built-in prompt %s: prompt %s is unusable: %s", agent, shipped.slug, key, reason)
        return render_instruction(await resolved_of(services, shipped), values)


def standing(names: tuple[str, ...], families: Mapping[str, Family], builtin: Mapping[str, Version]) -> Version:
    """Return the active version of the first existing name, from the database or shipped.

    Raises InvalidInput.
    """
    for name in names:
        version = families[name].version(MAIN) if name in families else None
        if version is not None:
            return version
    for name in names:
        if name in builtin:
            return builtin[name]
    msg = f"Unknown prompt {names[0]!r}"
    raise InvalidInput(msg, where="promptKey")


def render_instruction(resolved: ResolvedVersion, values: Mapping[str, Any]) -> Instruction:
    """Render instructions with the values they declare. Raises InvalidInput if the text is empty."""
    declared = {param.name for param in resolved.params}
    context = coerce(resolved.params, {name: values[name] for name in declared & set(values)})
    text = render(text_of(resolved), context, engine=resolved.version.engine, declared=declared)
    if not text.strip():
        msg = f"Prompt {resolved.version.slug!r} renders to an empty text"
        raise InvalidInput(msg, where="sections")
    return Instruction(text=text, version=resolved.version, context=context)


def instruction_record(services: Services, instruction: Instruction, *, agent: str, conversation: str) -> Record:
    """Return the audit record of an instruction for an agent."""
    return receipt(
        services,
        instruction.version,
        "render",
        agent=agent,
        context=instruction.context,
        text=instruction.text,
        render_id=services.dice.new_id("render"),
        conversation=conversation,
    )


class CheckedAnswer(Struct, Generic[T], frozen=True):
    """A model's answer: the parsed value, the text, and whether it matched the schema at once."""

    value: T
    text: str
    outcome: Literal["accepted", "repaired"]


def name_of(model: Model, request: ModelRequest) -> str:
    """Return the name of the model that answers a request."""
    return model.name if isinstance(model, SingleModel) else request.model or model.name


async def checked_answer(
    services: Services,
    model: Model,
    request: ModelRequest,
    read: Callable[[str], T],
    *,
    usages: list[WorkUsage],
    longest: int = LONGEST,
) -> CheckedAnswer[T]:
    """Return a model's answer as `read` parses it. Add the usage of each complete answer to `usages`.

    After an invalid answer, name the fault to the model and ask once more. A server without support for a response
    schema is asked without one. Raises BackendError, and InvalidInput if both answers are invalid.
    """
    ask = partial(_streamed, services, model, usages=usages, longest=longest)
    try:
        text = await ask(request)
    except UpstreamError as error:
        if error.status not in NO_SCHEMA or request.schema is None:
            raise
        request = replace(request, schema=None)
        text = await ask(request)
    try:
        value = await _read(text, read)
        return CheckedAnswer(value, text, "accepted" if matches(text, request.schema) else "repaired")
    except InvalidInput as error:
        fault = f"This answer is invalid: {error}. Answer again, with the corrected JSON object only."
        said = ({"role": "assistant", "content": text[:REPEATED]}, {"role": "user", "content": fault})
        messages = (*request.messages, *map(msgspec.json.encode, said))
        text = await ask(replace(request, messages=messages))
        return CheckedAnswer(await _read(text, read), text, "repaired")


async def _read(text: str, read: Callable[[str], T]) -> T:
    """Parse an answer, a long one in a thread, because the repair of broken JSON takes time."""
    return await aside(len(text) > MAX_BROKEN, read, text)


async def _streamed(
    services: Services, model: Model, request: ModelRequest, *, usages: list[WorkUsage], longest: int
) -> str:
    """Return a model's complete answer. Raises BackendError if it ends early or has more characters than `longest`."""
    text, left, finish, usage = list[str](), longest, "", Usage()
    with services.tracing.call(request.model or model.name, conversation=request.conversation) as span:
        async with closing(model.stream(request)) as pieces:
            async for piece in pieces:
                text.append(piece.text)
                finish, usage = piece.finish or finish, piece.usage or usage
                left -= len(piece.text)
                if left < 0:
                    msg = f"Answer of model {model.name} exceeds {longest:,} characters"
                    raise BackendError(msg, retryable=True)
        span.set(**usage_values(usage), gen_ai__response__finish_reasons=[finish] if finish else None)
    if not finish:
        msg = f"The answer of model {model.name} ended early"
        raise BackendError(msg, retryable=True)
    answer = mended("".join(text))
    usages.append(_usage_of(services, request, name_of(model, request), usage, answer))
    return answer


def _usage_of(services: Services, request: ModelRequest, model: str, usage: Usage, answer: str) -> WorkUsage:
    """Return the usage of a call as its provider reports it, else by our counter."""
    count = services.count
    sent = sum(count(message.decode()) for message in request.messages) if usage.input is None else usage.input
    received = count(answer) if usage.output is None else usage.output
    return WorkUsage(
        task=request.purpose,
        model=model,
        input_tokens=sent,
        output_tokens=received,
        cached_tokens=usage.cache_read or 0,
        costs=services.cost_of(model, replace(usage, input=sent, output=received)),
    )


async def background_answer(
    services: Services, scope: Scope, model: Model, request: ModelRequest, read: Callable[[str], T]
) -> CheckedAnswer[T]:
    """Return a model's answer in a background job, as `checked_answer` does, and store its usage.

    Raises BackendError also after a timeout, because other jobs wait. A model may be user code: its faults count as
    unavailability.
    """
    usages: list[WorkUsage] = []
    try:
        async with asyncio.timeout(services.settings.work_patience_s):
            return await checked_answer(services, model, request, read, usages=usages)
    except TimeoutError:
        msg = f"Model {model.name} timed out after {services.settings.work_patience_s:g} s"
        raise BackendError(msg, retryable=True) from None
    except BROKEN as error:  # its message may contain conversation text, which must not be logged
        msg = f"Model {model.name} failed with {type(error).__name__}"
        raise BackendError(msg) from error
    finally:
        if usages:
            await services.store.tuning.add_work(scope, request.conversation, usages)


# ---- A persona's own instructions -----------------------------------------------------------------------------------


#: Prefix of their names.
PLACE = "metaprompt/"
_PARAMS = tuple(Param(name=name, required=False) for name in VARIABLES)


def own_version(persona: Persona, metaprompt: Metaprompt) -> Version:
    """Return a persona's own metaprompt text as a version, named after persona and metaprompt."""
    return sealed(
        Version(
            slug=f"{PLACE}{persona.id}/{metaprompt.id}",
            branch="persona",
            semver=persona.version,
            type="system",
            sections={BODY: metaprompt.template},
            params=_PARAMS,
            engine="braces",
            description=metaprompt.description,
        )
    )


def own_versions(services: Services, slug: str) -> Iterator[Version]:
    """Yield the versions of a name from the current persona files."""
    if slug.startswith(PLACE):
        for persona in services.settings.personas.values():
            made = (own_version(persona, each) for each in persona.metaprompts if each.template)
            yield from (version for version in made if version.slug == slug)
