"""Hermes: write the plugin that keeps its memory in a Cuebook server."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

#: The folder of the plugin in Hermes' home.
PLUGIN: Final = Path("plugins/cuebook")
#: The file with the plugin's settings in Hermes' home.
SETTINGS: Final = "cuebook.json"
_MANIFEST: Final = """name: cuebook
version: 1.0.0
description: "Cuebook: every conversation and memory, searchable, also after compression."
hooks:
  - on_session_end
"""


def install(home: Path, *, url: str, user: str | None = None) -> list[Path]:
    """Write the plugin and its settings to Hermes' home, over an earlier version. Return the files."""
    folder = home / PLUGIN
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"url": url} | ({"user": user} if user else {})
    texts = {
        folder / "__init__.py": files(__name__).joinpath("plugin.py").read_text("utf-8"),
        folder / "plugin.yaml": _MANIFEST,
        home / SETTINGS: json.dumps(settings, indent=2) + "\n",
    }
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return list(texts)
