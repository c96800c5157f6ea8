"""A persona's own metaprompts as versions of prompts: they stand in its file, and are said and replayed alike."""

from collections.abc import Iterator

from cuebook.engine.desk import Desk
from cuebook.prompts.digest import sealed
from cuebook.records.persona import Persona
from cuebook.records.prompt import BODY, Param, Version
from cuebook.records.tracking import VARIABLES, Metaprompt

#: Under which they are named.
PLACE = "metaprompt/"
_PARAMS = tuple(Param(name=name, required=False) for name in VARIABLES)


def own_version(persona: Persona, metaprompt: Metaprompt) -> Version:
    """Give a metaprompt with a text of its own as a version, named after persona and metaprompt."""
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


def own_versions(desk: Desk, slug: str) -> Iterator[Version]:
    """Give the versions of a name that stand in the personas' files now."""
    if slug.startswith(PLACE):
        for persona in desk.personas.values():
            made = (own_version(persona, each) for each in persona.metaprompts if each.template)
            yield from (version for version in made if version.slug == slug)
