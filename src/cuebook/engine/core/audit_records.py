"""Build audit records of rendered prompts and prompt changes for the audit log's hash chain."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.engine.core.services import Services
from cuebook.prompts.chain import SALT_SIZE, seal
from cuebook.records.answer import Time
from cuebook.records.audit import PERSONAL, Record
from cuebook.records.prompt import MAIN, Version

#: Characters of an answer stored in its record.
SUMMARY = 200


def receipt(
    services: Services,
    about: Version | str,
    event: str,
    *,
    agent: str = "",
    context: Mapping[str, Any] | None = None,
    text: str = "",
    output: str = "",
    render_id: str = "",
    selection: Mapping[str, Any] | None = None,
    conversation: str = "",
) -> Record:
    """Return the record of an action on a version, or on something else by its name.

    Secrets are redacted. Texts are salted and can be erased.
    """
    version = Version(slug=about) if isinstance(about, str) else about
    place = {"branch": version.branch, "number": version.number}
    name = services.dice.new_id("salt").encode()
    salt = hashlib.blake2b(name, key=services.settings.key[:64], digest_size=SALT_SIZE * len(PERSONAL)).digest()
    bare = Record(
        timestamp=str(Time(services.clock.now())),
        agent=agent,
        prompt_id=version.slug,
        version=version.semver,
        input_context="",
        interpolated_text="",
        output_summary="",
        event=event,
        seq=0,
        render_id=render_id,
        digest=version.digest,
        selection=None if isinstance(about, str) else {**(selection or {}), **place},
        conversation=conversation,
    )
    values = {
        key: services.writer.clean(value) if isinstance(value, str) else value for key, value in (context or {}).items()
    }
    return seal(
        bare,
        context=values,
        interpolated_text=services.writer.clean(text),
        output_summary=services.writer.clean(output)[:SUMMARY],
        salt=salt,
    )


def answered(
    services: Services, renders: Sequence[Record], output: str, *, context: Mapping[str, Any] | None = None
) -> tuple[Record, ...]:
    """Return the record of a model's answer to rendered prompts, or none if no managed prompt was used.

    `context` says what became of the answer.
    """
    if not renders or not (output or context):
        return ()
    first = renders[0]
    place = first.selection or {}
    number, branch = int(place.get("number", 0)), str(place.get("branch", MAIN))
    version = Version(slug=first.prompt_id, branch=branch, number=number, semver=first.version, digest=first.digest)
    record = receipt(
        services,
        version,
        "answer",
        agent=first.agent,
        context=context,
        output=output,
        render_id=first.render_id,
        conversation=first.conversation,
    )
    return (record,)
