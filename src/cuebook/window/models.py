"""The shipped table of models, `models.toml`: context windows, prices and prompt cache rules."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from msgspec import Struct

#: The context window of a model that no source knows.
UNKNOWN_CONTEXT: Final = 128_000
#: The date suffix of a model's name.
_DATE = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class ModelTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `models.toml`, which explains each field."""

    checked: str
    priced: str
    contexts: Mapping[str, int]
    inputs: Mapping[str, int]
    prices: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Any]]
    exceptions: Mapping[str, Mapping[str, Any]]


class ContextSize(Struct, frozen=True):
    """The most tokens of a request: its prompt and answer together, or its prompt alone."""

    tokens: int
    prompt_only: bool = False


@cache
def model_table() -> ModelTable:
    """Load the table."""
    return msgspec.toml.decode(files(__package__).joinpath("models.toml").read_text("utf-8"), type=ModelTable)


def bare_name(model: str) -> str:
    """Return a model's name without a gateway's prefix and the mark of a fine-tuned model, in lower case."""
    return model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:")


def undated(name: str) -> str:
    """Return a model's name without its date."""
    return _DATE.sub("", name)


def context_in_table(model: str) -> ContextSize | None:
    """Return a model's context window by the longest match in the table, or None for an unknown model."""
    table, name = model_table(), bare_name(model)
    starts = [start for start in (*table.contexts, *table.inputs) if name.startswith(start)]
    if not starts:
        return None
    start = max(starts, key=len)
    alone = start in table.inputs
    return ContextSize(table.inputs[start] if alone else table.contexts[start], prompt_only=alone)
