"""Read MemoryCode: dialogues in which a mentor changes instructions, asked for in their newest version."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.replay import UNDATED
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.engine.core.drafts import Posted
from cuebook.memory.evidence import Question
from cuebook.memory.tokenizer import words

WEEK_S = 7 * 86_400.0
_WORD = re.compile(r"'[^']+'|[\w_]+")
#: Words of an instruction that are no value.
_SMALL = frozenset("a always an and as but do for in never not of the to use with".split())
_NAME = 30  # longest name of a speaker


class _Instruction(Struct, frozen=True):
    """An instruction: its versions, and the task that shows whether it is followed, if there is one."""

    versions: tuple[str, ...]
    task: str = ""
    kind: str = ""

    def shared(self) -> set[str]:
        """Return the words of all versions."""
        return set.intersection(*(set(_tokens(each)) for each in self.versions))

    def value(self, version: str) -> list[str]:
        """Return the words that only this version has."""
        return [each for each in _tokens(version) if each not in self.shared() | _SMALL]

    def query(self) -> str:
        """Return the shared words in order."""
        shared = self.shared() - {"always", "never"}
        return " ".join(each for each in _tokens(self.versions[0]) if each in shared)


def read_dialogues(place: FilePlace, dialogues: Any, topics: Any) -> list[Transcript]:
    """Parse dialogues and the instructions of `topics`: lists of versions, wherever they are in it."""
    instructions = list(_instructions(topics))
    of_text = {text: each for each in instructions for text in each.versions}
    transcripts: list[Transcript] = []
    for n, raw in enumerate(place.sequence(dialogues)):
        here = place.at("dialogues").at(n)
        fields = here.mapping(raw)
        people = here.mapping(fields.get("context") or fields)
        mentor, mentee = str(people.get("mentor", "")), str(people.get("mentee", ""))
        posts: list[Posted] = []
        told: dict[str, list[tuple[str, tuple[str, ...]]]] = {}  # by the first version: each version with its posts
        for s, session in enumerate(here.at("sessions").sequence(fields.get("sessions"))):
            turns = list(_turns(str(session.get("text", "")), s, mentor=mentor, mentee=mentee))
            posts += turns
            for text in filter(of_text.__contains__, session.get("topic") or ()):
                found = _posts_of(of_text[text], text, [each for each in turns if each.sender == "user"] or turns)
                told.setdefault(of_text[text].versions[0], []).append((text, found))
        questions = tuple(
            question for first, tellings in told.items() for question in _questions(of_text[first], tellings)
        )
        name = f"dialogue-{fields.get('id', n)}"
        transcripts.append(Transcript(conversation=name, posts=tuple(posts), source="MemoryCode", questions=questions))
    return transcripts


def _instructions(value: Any) -> Iterator[_Instruction]:
    """Yield each list of two or more texts, with the task and kind beside it."""
    if isinstance(value, Mapping):
        for several in value.values():
            if isinstance(several, list) and len(several) > 1 and all(isinstance(each, str) for each in several):
                task = value.get("task") or value.get("eval_query") or ""
                kind = str(value.get("kind") or ("code" if task else "office"))
                yield _Instruction(tuple(several), task if isinstance(task, str) else "", kind)
            else:
                yield from _instructions(several)
    elif isinstance(value, list):
        for each in value:
            yield from _instructions(each)


def _turns(text: str, session: int, *, mentor: str, mentee: str) -> Iterator[Posted]:
    """Yield the turns of lines such as `Name: …`, sessions a week apart. The mentor is the user."""
    turns: list[Posted] = []
    for line in filter(str.strip, text.splitlines()):
        name, colon, said = line.partition(": ")
        if (not colon or len(name) > _NAME) and turns:
            turns[-1] = replace(turns[-1], message=f"{turns[-1].message}\n{line}")
            continue
        if not colon or len(name) > _NAME:
            name, said = mentor, line
        sender = "assistant" if name.strip("* ") == mentee else "user"
        when = UNDATED + session * WEEK_S + len(turns)
        turns.append(Posted(sender=sender, message=said, id=f"s{session}t{len(turns)}", created_at=when))
    yield from turns


def _posts_of(instruction: _Instruction, version: str, posts: Sequence[Posted]) -> tuple[str, ...]:
    """Return the ids of the posts with a version's value, else of the one that shares most words with it."""
    value = instruction.value(version)
    found = [each for each in posts if value and all(_contains(each.message, word) for word in value)]
    if not found:
        found = [max(posts, key=lambda each: len(set(words(version)) & set(words(each.message))))]
    return tuple(each.id or "" for each in found)


def _contains(text: str, word: str) -> bool:
    """Return whether a text has a word of its own; `_at` may follow a letter, as in `name_at`."""
    before, after = "" if word.startswith("_") else r"(?<!\w)", "" if word.endswith("_") else r"(?!\w)"
    return re.search(before + re.escape(word) + after, text.lower()) is not None


def _questions(instruction: _Instruction, tellings: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[Question]:
    """Yield the question for an instruction that changed, and its task. The version told last is valid."""
    newest, posts = tellings[-1]
    outdated = tuple(dict.fromkeys(id_ for text, ids in tellings if text != newest for id_ in ids if id_ not in posts))
    if outdated:
        yield Question(text=instruction.query(), evidence=posts, outdated=outdated, kind=instruction.kind)
        if instruction.task:
            task = f"Write a {instruction.task}"
            yield Question(text=task, evidence=posts, outdated=outdated, kind=f"{instruction.kind} as a task")


def _tokens(text: str) -> list[str]:
    return [each.strip("'").lower() for each in _WORD.findall(text)]
