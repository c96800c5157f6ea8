"""Made by scripts/blocking.py from `cuebook.app.prompts.files`: `scripts/check --fix` makes it anew."""

from collections.abc import Collection
from pathlib import Path

from cuebook.app.blocking.host import Host
from cuebook.app.prompts.files import Change
from cuebook.records.prompt import Version


class BlockingPromptFiles:
    """`Cuebook.prompt_files` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def root(self) -> Path:
        """The folder they lie in."""
        return self._host.read(lambda book: book.prompt_files.root)

    def push(self, folder: Path | None = None, *, dry_run: bool = False, force: bool = False) -> list[Change]:
        """Store what was edited or added on disk, all or nothing, and list what changed.

        Raises InvalidInput, BackendError naming the file that is odd, and Conflict where the graph has changed too;
        `force` stores the file's text on top then.
        """
        return self._host.run(lambda book: book.prompt_files.push(folder, dry_run=dry_run, force=force))

    def pull(
        self,
        folder: Path | None = None,
        *,
        slugs: Collection[str] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> list[Change]:
        """Write the files of the heads, older versions into `.objects`, and the registry; list what changed.

        `slugs` limits it to these prompts. A file edited meanwhile is left as it is; where the graph has changed too it
        is a Conflict, unless `force` writes over both.
        """
        return self._host.run(lambda book: book.prompt_files.pull(folder, slugs=slugs, dry_run=dry_run, force=force))

    def drift(self, folder: Path | None = None) -> list[Change]:
        """List where files, registry and graph do not say the same; nothing where all is well. Writes nothing.

        A graph without any prompt, as that of a fresh checkout, is not compared where there is a registry.
        """
        return self._host.run(lambda book: book.prompt_files.drift(folder))

    def edited(self, slug: str, branch: str) -> tuple[str, Version] | None:
        """Give a branch's file, its path and what it says, where it was edited and is not stored yet.

        Raises InvalidInput, BackendError where it is odd.
        """
        return self._host.run(lambda book: book.prompt_files.edited(slug, branch))
