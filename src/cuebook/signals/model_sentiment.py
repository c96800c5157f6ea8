"""Sentiment by a language model (method `llm`): its prompt, the answer's JSON schema, and strict parsing."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput
from cuebook.records.mind import Sentiment
from cuebook.signals.emphasis import polarity_of
from cuebook.signals.user_text import spoken

NAME: Final = "llm"

#: JSON Schema of the answer.
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": -1, "maximum": 1},
        "intensity": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["score", "intensity"],
    "additionalProperties": False,
}

#: Characters of a message that the model sees.
_MOST: Final = 4_000
#: Characters of an invalid answer that an error shows.
_SHOWN: Final = 60


class _Answer(Struct, frozen=True, forbid_unknown_fields=True):
    score: Annotated[float, Meta(ge=-1, le=1)]
    intensity: Annotated[float, Meta(ge=0, le=1)]


def asked(text: str) -> str:
    """Return the model's prompt for a message: the user's own words as JSON; of a long one the beginning and end."""
    content = spoken(text)
    if len(content) > _MOST:
        content = f"{content[: _MOST // 2]} … {content[-_MOST // 2 :]}"
    return f"MESSAGE: {msgspec.json.encode(content).decode()}"


def parse_reply(text: str) -> Sentiment:
    """Return the sentiment of a model's answer: an object of exactly `score` and `intensity`. Raises InvalidInput."""
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        content = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        msg = f'sentiment: invalid model answer {content!r} ({error}). Expected {{"score": -1..1, "intensity": 0..1}}.'
        raise InvalidInput(msg, where="sentiment") from error
    score = answer.score + 0.0  # no negative zero
    return Sentiment(score=score, intensity=answer.intensity + 0.0, polarity=polarity_of(score), method=NAME)
