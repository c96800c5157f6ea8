"""List the effective settings, each with its value (secrets redacted) and source, for `cuebook config`."""

from typing import Any

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.config import Config, without_secret
from cuebook.records.credentials import spans


def setting_rows(config: Config) -> list[Wire]:
    """Return every setting by `section.key` with `value` and `source`, then the environment's compaction settings."""
    rows = [
        _row(f"{section}.{name}", value, config.origins.get(f"{section}.{name}", "default"))
        for section, values in msgspec.to_builtins(config.settings).items()
        for name, value in values.items()
    ]
    return rows + [_row(name, value, f"environment {name}") for name, value in sorted(config.compaction_env.items())]


def shown_setting(value: Any) -> str:
    """Return a value as text for a table."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _row(name: str, value: Any, source: str) -> Wire:
    return {"name": name, "value": _clean(value) if isinstance(value, str) else value, "source": source}


def _clean(text: str) -> str:
    """Return a text without the user part of URLs and without secrets."""
    for start, end, _ in reversed(list(spans(text))):
        text = text[:start] + "***" + text[end:]
    return without_secret(text)
