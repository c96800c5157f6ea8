"""Load a gold list file: the facts of a conversation, and which later facts supersede them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuebook.app.gold import Fact, read_facts
from cuebook.app.transcripts import Transcript
from cuebook.app.transcripts.transcript import FilePlace
from cuebook.errors import InvalidInput


def read_gold(file: Path) -> list[Fact]:
    """Load `{"facts": [{id, fact, question, answer, match, sources, current, supersedes?}]}`.

    `match` is a list of word groups: a text states the fact if it has a word of every group, ignoring case. Raises
    InvalidInput naming file and position.
    """
    place = FilePlace(file.name)
    try:
        document = json.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        msg = f"{str(file)!r} cannot be read ({error.strerror}). Check the path and its permissions."
        raise InvalidInput(msg, where=str(file)) from error
    except (ValueError, RecursionError) as error:
        place.refuse(f"not JSON ({error})")
    rows = place.at("facts").sequence(place.mapping(document).get("facts"))
    for number, row in enumerate(rows):
        _check(row, place.at("facts").at(number))
    facts = read_facts(document)
    ids = {fact.id for fact in facts}
    for number, fact in enumerate(facts):
        if fact.supersedes is not None and fact.supersedes not in ids:
            place.at("facts").at(number).at("supersedes").refuse(f"no fact has the id {fact.supersedes!r}")
    return facts


def _check(row: Any, place: FilePlace) -> None:
    fields = place.mapping(row)
    for key in ("id", "fact", "question", "answer"):
        place.at(key).text(fields.get(key))
    if not isinstance(fields.get("current"), bool):
        place.at("current").refuse("expected true (it holds at the end) or false (something superseded it)")
    groups = place.at("match").sequence(fields.get("match"))
    if not groups:
        place.at("match").refuse("empty list. Name at least one group of words, like [['ghent'], ['live']]")
    for at, group in enumerate(groups):
        inside = place.at("match").at(at)
        for n, word in enumerate(inside.sequence(group)):
            inside.at(n).text(word)
    sources = place.at("sources")
    for n, source in enumerate(sources.sequence(fields.get("sources"))):
        sources.at(n).text(source)


def check_sources(facts: Sequence[Fact], transcript: Transcript, ids: set[str], name: str) -> None:
    """Check that the transcript has all posts of the gold list. Raises InvalidInput."""
    for number, fact in enumerate(facts):
        missing = next((source for source in fact.sources if source not in ids), None)
        if missing is not None:
            place = FilePlace(name).at("facts").at(number).at("sources")
            place.refuse(f"{transcript.conversation!r} has no post {missing!r}. Use the gold list of this file.")
