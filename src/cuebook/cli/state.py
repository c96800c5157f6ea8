"""Resolve the options shared by all commands: the project to use and the output format (text or JSON)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec import Struct

import cuebook  # loads its names when they are first used: a command that opens no project starts fast
from cuebook.app.setup.project_files import FILE, is_project, load_config, load_server_config, no_project
from cuebook.cli.output import screen
from cuebook.config import Config
from cuebook.errors import NotFound
from cuebook.records.answer import to_wire

if TYPE_CHECKING:
    from cuebook.app.blocking.cuebook import BlockingCuebook
    from cuebook.app.cuebook import Cuebook


class State(Struct, frozen=True, kw_only=True):
    """The shared options of a command, and the project that they choose."""

    config: Path | None = None
    folder: Path | None = None
    json: bool = False

    def report(
        self, answer: object, *lines: str, render: Callable[[], None] | None = None, failed: bool = False
    ) -> None:
        """Print an answer: as JSON with --json, else by `render`, else as these lines. Exit with 1 if it `failed`."""
        if self.json:
            screen.say_json(to_wire(answer))
        elif render is not None:
            render()
        else:
            screen.say("\n".join(lines))
        if failed:
            raise typer.Exit(1)

    @property
    def where(self) -> Path | None:
        """Return the path of the named project; None = the current directory."""
        if self.config is not None:
            return self.config
        return self.folder / FILE if self.folder is not None else None

    def settings(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Load the settings. Raises InvalidInput."""
        return load_config(self.where, arguments=arguments)

    def server_settings(self, arguments: Mapping[str, Any]) -> Config:
        """Load the settings of a server, which needs no project. Raises InvalidInput."""
        return load_server_config(self.where, arguments=arguments)

    def project(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Load the settings of a project. Raises NotFound if there is no project and no database, InvalidInput."""
        config = self.settings()
        if not is_project(config):
            way = "Run `cuebook init` to create a project, or use -C DIR to choose one."
            msg = f"{no_project(config)}. {way}"
            raise NotFound(msg)
        return self.settings(arguments) if arguments else config

    def open_async(self, *, autopush: bool = True) -> "Cuebook":
        """Return the same handle for asynchronous commands. Without `autopush` edited prompt files are not pushed."""
        config = self.project({} if autopush else {"prompts.autopush": False})
        return cuebook.Cuebook.open(config, worker=False)

    def open(self, *, worker: bool = False) -> "BlockingCuebook":
        """Return the project's database handle; `with` opens it. Raises NotFound if there is no project or database."""
        return cuebook.BlockingCuebook.open(self.project(), worker=worker)
