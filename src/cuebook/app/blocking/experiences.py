"""Made by scripts/blocking.py from `cuebook.app.experiences`: `scripts/check --fix` makes it anew."""

from cuebook.app.blocking.host import Host
from cuebook.app.experiences import ExperienceChoice, ExperienceList


class BlockingExperiences:
    """`Cuebook.experiences` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def list(self, role: str | None = None) -> ExperienceList:
        """Give what the files say now; with `role` (a persona's id, or a role) what is offered to that one.

        Raises NotFound for a role nobody has.
        """
        return self._host.run(lambda book: book.experiences.list(role))

    def select(self, query: str, *, role: str | None = None) -> ExperienceChoice:
        """Choose for a query as the first turn of a conversation does, and say why of each; nothing is stored.

        `role` is a persona's id, or a role; the default persona's unless given. A model is asked where one chooses.
        Raises InvalidInput, NotFound.
        """
        return self._host.run(lambda book: book.experiences.select(query, role=role))
