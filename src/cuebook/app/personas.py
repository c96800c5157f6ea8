"""The personas of a project as currently defined in their files: `cue.persona`."""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import Cursor, MaybePageSize
from cuebook.app.namespace import Namespace
from cuebook.app.paging import short_page
from cuebook.app.setup.personas import PersonaShown, PersonaWhole, describe_persona
from cuebook.operations import operation
from cuebook.records.answer import Page

Mode = Annotated[str | None, Meta(description="Show the settings that apply in this mode.")]


class Personas(Namespace):
    """The personas of a project."""

    @operation("GET /api/personas", role="viewer")
    async def list(
        self, *, mode: Mode = None, limit: MaybePageSize = None, cursor: Cursor = None
    ) -> Page[PersonaShown]:
        """List the personas of the current files, without their texts."""
        options = await self._options(mode)
        personas = [
            describe_persona(PersonaShown, each, **options)
            for _, each in sorted(self._services.settings.personas.items())
        ]
        return short_page(personas, "personas", limit=limit, cursor=cursor)

    @operation("GET /api/personas/{persona}", role="viewer")
    async def get(
        self,
        persona: Annotated[str, Meta(description="Persona ID.")],
        *,
        mode: Mode = None,
    ) -> PersonaWhole:
        """Return a persona: text, prompts, sentiment tracking and metaprompts. Raises NotFound."""
        options = await self._options(mode)
        found = describe_persona(PersonaWhole, self._services.settings.persona(persona), **options)
        return replace(found, base_system_prompt=self._services.writer.clean(found.base_system_prompt))

    async def _options(self, mode: str | None) -> dict[str, Any]:
        await self._services.catch_up()
        settings = self._services.settings
        return {"default": settings.default_persona, "profiles": settings.profiles, "mode": mode}
