"""Run a background model task: select its instructions, a managed prompt or the shipped default, and call the model.

An instruction has a key, such as a compaction profile's `promptKey`. The key is a prompt id under `system/` or
`default/`, the project's own prompts first. The active version on `main` applies; background tasks have no observations
and therefore no variants. An unusable prompt is logged, and the shipped prompt of that key or purpose replaces it.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import Model, ModelRequest
from cuebook.interfaces.prompts import Family
from cuebook.prompts.digest import sealed
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import SYSTEM, instructions
from cuebook.prompts.params import coerce
from cuebook.prompts.template import render
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.persona import VARIABLES, Metaprompt, Persona
from cuebook.records.prompt import BODY, MAIN, Param, ResolvedVersion, Version

log = logging.getLogger("cuebook.prompts")

#: Exceptions of faulty code.
BROKEN: Final = (
    ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError, msgspec.MsgspecError,
)  # fmt: skip
#: Most characters of an answer.
LONGEST = 1_000_000


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


async def complete_answer(model: Model, request: ModelRequest, *, longest: int = LONGEST) -> str:
    """Return a model's complete answer. Raises BackendError if it has more characters than `longest`."""
    text, left = list[str](), longest
    async with closing(model.stream(request)) as pieces:
        async for piece in pieces:
            text.append(piece.text)
            left -= len(piece.text)
            if left < 0:
                msg = f"Answer of model {model.name} exceeds {longest:,} characters"
                raise BackendError(msg, retryable=True)
    return "".join(text)


async def background_answer(services: Services, model: Model, request: ModelRequest) -> str:
    """Return a model's complete answer in a background job.

    Raises BackendError, also after a timeout, because other jobs wait. A model may be user code: its faults count as
    unavailability.
    """
    try:
        async with asyncio.timeout(services.settings.work_patience_s):
            return await complete_answer(model, request)
    except TimeoutError:
        msg = f"Model {model.name} timed out after {services.settings.work_patience_s:g} s"
        raise BackendError(msg, retryable=True) from None
    except BROKEN as error:  # its message may contain conversation text, which must not be logged
        msg = f"Model {model.name} failed with {type(error).__name__}"
        raise BackendError(msg) from error


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
