"""Command `cuebook config`: show all settings with their values and sources."""

from functools import partial

from cuebook.app.setup.project_files import setting_rows, shown_setting
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook config", "CUEBOOK_MODEL_NAME=gpt-5-mini cuebook config --json", name="config")
def config(state: State) -> None:
    """Show every setting with its value and source: default, file or environment."""
    found = state.settings()
    rows = setting_rows(found)
    entries = [(each["name"], shown_setting(each["value"]), each["source"]) for each in rows]
    state.report(
        {"folder": found.folder, "items": rows},
        render=partial(screen.table, ("setting", "value", "source"), entries),
    )
