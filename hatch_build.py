"""Generates the blocking classes during a wheel build, because they are not committed."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BlockingHook(BuildHookInterface[Any]):
    """Runs scripts/blocking.py before the build collects the files of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # the base class requires these names
        """Write the generated modules into the source tree."""
        runpy.run_path(str(Path(self.root) / "scripts/blocking.py"), run_name="__main__")
