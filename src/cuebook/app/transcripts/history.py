"""Build transcripts from the logs of other programs: join the records of an answer, link branches, note what is lost.

A log grows while its program runs. The same records must yield the same posts at every import, so calls without a
result and thoughts without an answer at the end of a log are left for the next import.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.errors import InvalidInput
from cuebook.wire.chat_messages import read_message

Kind = Literal["user", "answer", "thought", "call", "result"]
#: Replaces characters that cannot be stored: NUL and lone surrogates.
_REPLACEMENT = "\ufffd"
#: What `left_out` counts, by its English name.
UNFINISHED = "unfinished answers at the end"
REPLACED = "messages with invalid characters, which were replaced"


class ImportNotes:
    """Records that are not imported: unreadable ones by position, and counts of those that are no messages."""

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.left_out: Counter[str] = Counter()

    def skip(self, error: InvalidInput) -> None:
        """Note an unreadable record. The error names file and position."""
        self.skipped.append(str(error))

    def storable(self, value: Any) -> Any:
        """Return a JSON value that can be stored, and count it if characters were replaced."""
        clean = storable(value)
        if clean != value:
            self.left_out[REPLACED] += 1
        return clean


class Record(Struct, frozen=True, kw_only=True):
    """A message of a log, or a part of an answer. `value` has the format of its log."""

    kind: Kind
    id: str
    value: Any
    place: FilePlace
    when: float | None = None
    parent: str | None = None  # the id of the record before it
    answer: str = ""  # the answer it belongs to: calls of different answers are not joined


def joined(records: Iterable[Record], notes: ImportNotes) -> Iterator[list[Record]]:
    """Yield the records of each post: thoughts with the answer after them, and parallel calls of an answer together."""
    group: list[Record] = []
    for each in records:
        last = group[-1] if group else None
        parallel = last is not None and last.kind == "call" and each.kind == "call" and last.answer == each.answer
        thinks = last is not None and last.kind == "thought" and each.kind in ("thought", "call", "answer")
        if last is not None and not parallel and not thinks:
            yield group
            group = []
        group.append(each)
    if group and group[-1].kind in ("call", "thought"):
        notes.left_out[UNFINISHED] += 1
    elif group:
        yield group


class TranscriptBuilder:
    """Collects the posts of one conversation. Their ids come from the log, so that a second import adds nothing."""

    def __init__(self, notes: ImportNotes) -> None:
        self.notes = notes
        self._posts: list[Mapping[str, Any]] = []
        self._parents: dict[str, str | None] = {}
        self._results: set[str] = set()
        self._linked = False

    @property
    def last(self) -> str | None:
        """Return the id of the newest post."""
        return self._posts[-1]["id"] if self._posts else None

    def add(
        self,
        chat: Mapping[str, Any],
        *,
        name: str,
        when: float | None,
        place: FilePlace,
    ) -> bool:
        """Add an OpenAI chat message after the newest post; see `add_after`."""
        return self.add_after(chat, self.last, name=name, when=when, place=place)

    def add_after(
        self,
        chat: Mapping[str, Any],
        parent: str | None,
        *,
        name: str,
        when: float | None,
        place: FilePlace,
    ) -> bool:
        """Add an OpenAI chat message with the id `name` after a post, or at a root for None.

        A result joins the results before it. A message that cannot be stored or repeats an id is noted and left out.
        """
        if name in self._parents:
            self.notes.left_out["repeated messages"] += 1
            return False
        if parent is not None and parent in self._above(self.last):
            parent = self.last  # parallel calls are answered one after the other
        clean = self.notes.storable(chat)
        try:
            read_message(clean)
            time = place.time(when)
        except InvalidInput as error:
            problem = str(error).removeprefix("messages[0]").removeprefix(".").removeprefix(f"{place.file}: ")
            self.notes.skipped.append(f"{place.file}: {place.path}: {problem}" if place.path else problem)
            return False
        self._linked = self._linked or parent != self.last
        self._parents[name] = parent
        if clean.get("role") == "tool":
            self._results.add(name)
        self._posts.append({**clean, "id": name} | ({} if time is None else {"timestamp": time}))
        return True

    def _above(self, post: str | None) -> Iterator[str]:
        """Yield a post's ancestors as long as only results are between."""
        while post is not None and post in self._results:
            post = self._parents[post]
            if post is not None:
                yield post

    def transcript(self, conversation: str, source: str, *, user: str | None = None) -> list[Transcript]:
        """Return the conversation, none without posts."""
        if not self._posts:
            return []
        parents = self._parents if self._linked else {}
        return [
            Transcript(
                conversation=conversation, posts=tuple(self._posts), source=source, user=user, parents=parents,
                head=self.last if self._linked else None,
            )
        ]  # fmt: skip


def storable(value: Any) -> Any:
    """Return a JSON value with a replacement character for each character that cannot be stored."""
    if isinstance(value, str):
        if "\x00" in value:
            value = value.replace("\x00", _REPLACEMENT)
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {storable(key) if isinstance(key, str) else str(key): storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [storable(each) for each in value]
    return value


def text_of(value: object) -> str:
    """Return a text, or another value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(storable(value)).decode()


def call_of(id_: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a tool call of an OpenAI chat message."""
    return {"id": str(id_ or ""), "type": "function", "function": {"name": str(name), "arguments": text_of(arguments)}}


def answer_of(text: str, thoughts: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return an assistant's chat message with its text, reasoning and calls."""
    chat: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    return chat | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})
