"""What every command knows: which project is meant, and whether a machine reads the answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cuebook.app.blocking import BlockingCuebook
from cuebook.app.setup.project_files import FILE, is_project, load_config, no_project
from cuebook.config import Config
from cuebook.errors import NotFound


class State(Struct, frozen=True, kw_only=True):
    """The shared options of a command."""

    config: Path | None = None
    folder: Path | None = None
    json: bool = False

    @property
    def where(self) -> Path | None:
        """The project named; None = the working folder."""
        if self.config is not None:
            return self.config
        return self.folder / FILE if self.folder is not None else None

    def settings(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Read the settings. Raises InvalidInput."""
        return load_config(self.where, arguments=arguments)

    def project(self, arguments: Mapping[str, Any] | None = None) -> Config:
        """Read the settings of a project. Raises NotFound where there is none and no book either, InvalidInput."""
        config = self.settings()
        if not is_project(config):
            msg = f"{no_project(config)}; `cuebook init` makes a project, -C DIR names another"
            raise NotFound(msg)
        return self.settings(arguments) if arguments else config

    def open(self, *, worker: bool = False) -> BlockingCuebook:
        """Name the project's book; `with` opens it. Raises NotFound where there is no project and no book either."""
        return BlockingCuebook.open(self.project(), worker=worker)
