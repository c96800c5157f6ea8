"""A blocking book's experiences."""

from cuebook.app.blocking.parts import Host
from cuebook.app.experiences import ExperienceChoice, ExperienceList


class BlockingExperiences:
    """`Cuebook.experiences` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def list(self, role: str | None = None) -> ExperienceList:
        """Give what the files say now; with `role` what is offered to that one. Raises NotFound."""
        return self._host.run(lambda book: book.experiences.list(role))

    def select(self, query: str, *, role: str | None = None) -> ExperienceChoice:
        """Choose for a query, and say why of each; nothing is stored. Raises InvalidInput, NotFound."""
        return self._host.run(lambda book: book.experiences.select(query, role=role))
