"""Recognize an upstream's error for a prompt that exceeds its model's context window, and parse the limit in it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from msgspec import Struct

#: Statuses of such errors: 500 is that of older llama.cpp servers.
STATUSES: Final = frozenset({400, 413, 422, 500})


class TooLong(Struct, frozen=True):
    """An error for a prompt that is too long: the limit, and the length by the provider's count; None = not named."""

    limit: int | None = None
    prompt_only: bool = False  # the limit does not include the answer
    length: int | None = None


def read_too_long(status: int, body: bytes) -> TooLong | None:
    """Return what an error answer says about a prompt that is too long, or None for any other error."""
    if status not in STATUSES:
        return None
    try:
        text = msgspec.json.encode(msgspec.json.decode(body)).decode()  # without escaped characters
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
    wordings = _wordings()
    if not _first(wordings["errors"], text) or _first(wordings["rates"], text):
        return None
    length = _number(wordings["lengths"], text)
    alone = _number(wordings["prompt_limits"], text)
    return TooLong(alone or _number(wordings["limits"], text), prompt_only=bool(alone), length=length)


@cache
def _wordings() -> Mapping[str, Sequence[re.Pattern[str]]]:
    """Load the wordings of the providers; `<n>` is a number."""
    lists = tomllib.loads(files(__package__).joinpath("too_long.toml").read_text("utf-8"))
    return {
        name: [re.compile(each.replace("<n>", r"(\d[\d,_]{0,20})"), re.IGNORECASE) for each in wordings]
        for name, wordings in lists.items()
    }


def _first(wordings: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((match for wording in wordings if (match := wording.search(text))), None)


def _number(wordings: Sequence[re.Pattern[str]], text: str) -> int | None:
    """Return the number that the first matching wording names."""
    match = _first(wordings, text)
    return int(match[1].replace(",", "").replace("_", "")) if match else None
