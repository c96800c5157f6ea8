"""Resolve the options shared by all commands: the project to use and the output format (text or JSON)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cuebook  # loads its names when they are first used: a command that opens no project starts fast
from cuebook.app.setup.project_files import FILE, is_project, load_config, no_project
from cuebook.cli.group import SharedOptions
from cuebook.config import Config
from cuebook.errors import NotFound

if TYPE_CHECKING:
    from cuebook.app.blocking.cuebook import BlockingCuebook


class State(SharedOptions, frozen=True, kw_only=True):
    """The shared options of a command, and the project that they choose."""

    @property
    def where(self) -> Path | None:
        """Return the path of the named project; None = the current directory."""
        if self.config is not None:
            return self.config
        return self.folder / FILE if self.folder is not None else None

    def settings(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Load the settings. Raises InvalidInput."""
        return load_config(self.where, arguments=arguments)

    def project(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Load the settings of a project. Raises NotFound if there is no project and no database, InvalidInput."""
        config = self.settings()
        if not is_project(config):
            way = "Run `cuebook init` to create a project, or use -C DIR to choose one."
            msg = f"{no_project(config)}. {way}"
            raise NotFound(msg)
        return self.settings(arguments) if arguments else config

    def open(self, *, worker: bool = False) -> "BlockingCuebook":
        """Return the project's database handle; `with` opens it. Raises NotFound if there is no project or database."""
        return cuebook.BlockingCuebook.open(self.project(), worker=worker)
