"""Command `cuebook init`: create a project directory."""

from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.setup.project_templates import init_project
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook init myproject", "cuebook init . --force", name="init")
def init(
    state: State,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Project directory; created if missing.")] = Path(),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Create a project directory with working settings, a persona and presets."""
    files = init_project(folder, force=force)
    step = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    lines = [*(f"wrote {file}" for file in files), f"\nNext: {step}cuebook chat"]
    state.report({"folder": str(folder), "files": [str(file) for file in files]}, *lines)
