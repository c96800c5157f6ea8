"""List the handwritten experiences (few-shot examples) of a project, and select them for a query."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuebook.app.arguments import Cursor, MaybePageSize
from cuebook.app.namespace import Namespace
from cuebook.app.paging import short_page
from cuebook.app.setup.experience_files import ExperienceEntry, ExperienceFiles, Shelf, strangers
from cuebook.engine.core.drafts import check_text
from cuebook.engine.turn.experiences import ExperienceQuery, SelectedExperiences, choose_for, clean
from cuebook.errors import InvalidInput, NotFound
from cuebook.memory.experience import offered
from cuebook.operations import Argument, operation
from cuebook.records.answer import Answer, Page, as_answer
from cuebook.records.memory import Scope
from cuebook.records.persona import Persona


class ExperiencePage(Page[ExperienceEntry], frozen=True, kw_only=True):
    """Experiences in the order of their files, and problems of the files."""

    items: tuple[ExperienceEntry, ...]  # named again for the OpenAPI document
    problems: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Return whether a file has problems."""
        return bool(self.problems)


class WeighedExperience(Struct, frozen=True, kw_only=True):
    """A candidate for a query: its score and the score's parts, whether it was selected, and why."""

    exp_id: str
    chosen: bool
    score: float
    words: float
    meaning: float | None
    reason: str


class ExperienceChoice(Answer, frozen=True, kw_only=True):
    """The selection for a query: candidates best first, role, method, and why it was not the configured model."""

    query: str
    role: str  # a persona's id, or a role
    by: str
    items: tuple[WeighedExperience, ...]
    instead: str = ""


RoleName = Annotated[
    str | None,
    Meta(min_length=1, description="Use only experiences for this persona ID or role."),
    Argument(flag="role", metavar="ROLE"),
]


class Experiences(Namespace):
    """The handwritten experiences of a project."""

    @operation(
        "GET /api/experiences",
        role="viewer",
        cli="experience list",
        examples=("cuebook experience list", "cuebook experience list --role helper --json"),
    )
    async def list(
        self,
        role: RoleName = None,
        *,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> ExperiencePage:
        """List the handwritten experiences of the current files, and the problems of the files.

        The command exits with 1 if there are problems. Raises NotFound for an unknown role.
        """
        files = self._files
        if files is None:
            return ExperiencePage(items=(), problems=('experience.selection is "off": no experience is used',))
        shelf = await asyncio.to_thread(files.read, quiet=True)
        kept = shelf.kept if role is None else offered(shelf.kept, self._names(role, shelf))
        odd = strangers(
            shelf, [name for each in self._services.settings.personas.values() for name in (each.id, each.role)]
        )
        entries = [clean(self._services, each) for each in kept]
        page = short_page(entries, f"experiences {role}", limit=limit, cursor=cursor)
        problems = (*shelf.problems, *odd, *await asyncio.to_thread(files.unread))
        return ExperiencePage(items=page.items, next=page.next, problems=problems)

    @operation(
        "POST /api/experiences/select",
        role="editor",
        cli="experience test",
        examples=(
            'cuebook experience test "which laptop should I buy?"',
            'cuebook experience test "plan a trip" --role helper --json',
        ),
    )
    async def select(
        self,
        query: Annotated[str, Meta(min_length=1, description="User message.")],
        *,
        role: RoleName = None,
    ) -> ExperienceChoice:
        """Select experiences for a query as a turn does, with reasons. May call a model; stores nothing.

        `role` is a persona's ID or a role (default: the default persona's). Raises InvalidInput, NotFound.
        """
        check_text(query, "query")
        files = self._files
        if files is None:
            msg = 'Experiences are disabled. Set experience.selection to "auto", "model" or "similarity".'
            raise InvalidInput(msg, where="experience.selection")
        if not query.strip():
            msg = "query: no words to compare. Write a message as a user would."
            raise InvalidInput(msg, where="query")
        shelf = await asyncio.to_thread(files.read)
        names = self._names(self._services.settings.default_persona if role is None else role, shelf)
        candidates = offered(shelf.kept, names)
        experience_query = ExperienceQuery(
            text=self._services.writer.clean(query), project=self._services.settings.project
        )
        speaker = self._services.settings.personas.get(names[0]) or replace(
            self._services.settings.persona(None), role=names[-1]
        )
        choice = await choose_for(self._services, Scope(), speaker, experience_query, candidates, asks_model=True)
        return _given(query, names[0], choice)

    @property
    def _files(self) -> ExperienceFiles | None:
        files = self._services.experiences
        return files if isinstance(files, ExperienceFiles) else None

    def _names(self, role: str, shelf: Shelf) -> tuple[str, ...]:
        """Return the persona id and role names of a role. Raises NotFound."""
        personas: Mapping[str, Persona] = self._services.settings.personas
        if role in personas:
            return role, personas[role].role
        wanted = role.casefold()
        known = {each.role for each in personas.values()} | {who for one in shelf.kept for who in one.who}
        if wanted not in {name.casefold() for name in known}:
            label = ", ".join(sorted({*personas, *known}))
            msg = f"role: unknown persona or role {role!r}. Available: {label}."
            raise NotFound(msg)
        return (role,)


def _given(query: str, role: str, choice: SelectedExperiences) -> ExperienceChoice:
    place = {name: at for at, name in enumerate(choice.chosen)}
    items = [
        as_answer(WeighedExperience, each, chosen=each.exp_id in place, words=each.by_words, meaning=each.by_meaning)
        for each in choice.scored
    ]
    items.sort(key=lambda each: place.get(each.exp_id, len(place)))
    return ExperienceChoice(query=query, role=role, by=choice.by, items=tuple(items), instead=choice.instead)
