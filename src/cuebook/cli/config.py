"""`cuebook config`."""

import msgspec

from cuebook.cli import screen
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
from cuebook.config import without_secret

app = new_app()


@command(app, "cuebook config", "CUEBOOK_MODEL_NAME=gpt-5-mini cuebook config --json", name="config")
def config(state: State) -> None:
    """Show every setting, its value, and whether it came from a default, the file or the environment."""
    found = state.settings()
    rows = [
        (f"{section}.{name}", _without_secret(value), found.origins.get(f"{section}.{name}", "default"))
        for section, values in msgspec.to_builtins(found.settings).items()
        for name, value in values.items()
    ]
    rows += [(name, value, f"environment {name}") for name, value in sorted(found.compaction_env.items())]
    if state.json:
        items = [{"name": name, "value": value, "source": source} for name, value, source in rows]
        screen.say_json({"folder": found.folder, "items": items})
        return
    screen.table(("setting", "value", "source"), [(name, _shown(value), source) for name, value, source in rows])


def _without_secret(value: object) -> object:
    return without_secret(value) if isinstance(value, str) else value


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
