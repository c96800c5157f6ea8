"""Export prompts with every version as a migration file, and parse such files."""

from collections.abc import Sequence
from typing import Any

from cuebook.app.json_shapes import Wire
from cuebook.app.prompts import Prompts
from cuebook.app.prompts.compare import families_of
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.prompts.files import write_file
from cuebook.prompts.migrate import read
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version


async def export_prompts(services: Services, slugs: Sequence[str] = ()) -> Wire:
    """Return all versions of the given prompts (default: all), `main` first, oldest first. Raises NotFound."""
    prompts = Prompts(services)
    names = [(await prompts.family(slug)).slug for slug in slugs] or sorted(await families_of(services, None))
    rows = []
    for name in dict.fromkeys(names):
        versions = await services.prompts.versions(Scope(), name)
        rows += [
            _row(each) for each in sorted(versions, key=lambda each: (each.branch != MAIN, each.branch, each.number))
        ]
    return {"prompts": rows}


def read_document(data: bytes, *, name: str) -> Any:
    """Parse a migration file. Raises InvalidInput naming it."""
    try:
        return read(data)
    except InvalidInput as error:
        msg = f"{'stdin' if name == '-' else name}: {error}"
        raise InvalidInput(msg, where=error.where) from error


def file_of(version: Version) -> str:
    """Return the text of a version's prompt file."""
    return write_file(version)


def _row(version: Version) -> Wire:
    fields: Wire = to_wire(version)
    for name in ("digest", "created_at", "supersedes", "branched_from"):
        del fields[name]
    return {"version" if name == "number" else name: value for name, value in fields.items()}
