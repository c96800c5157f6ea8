"""Audit log records: a hash chain of events, signed checkpoints, and the result of a verification.

A record contains personal texts as salted commitments. Text and salt are stored beside it (`texts`) and are not
hashed, so that they can be erased without breaking the chain.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct

from cuebook.records.answer import Answer, as_answer
from cuebook.records.expression import counted

#: Fields with personal text: a record contains SHA-256(salt + text) of each in hex, "" for no text.
PERSONAL = ("input_context", "interpolated_text", "output_summary")
#: `prev` of the first record.
GENESIS = "0" * 64
#: The event of an erasure. `selection.records` has the records whose texts it removed, as ranges [first, last].
FORGET = "forget"
#: The event of an export or a backup, which may contain texts that are erased later.
EXPORT = "export"
#: The event of a checkpoint of documents and memories. `selection` has the number of `changes`, that of the record
#: before it (`after`), and the hidden `sum` of their seals; if somebody `accepted` altered rows, also how many.
SEAL = "seal"
#: The event of a record whose row is damaged.
UNREADABLE = "unreadable"


#: The rows that have seals, and how they can be altered without Cuebook.
RowKind = Literal["document", "memory", "source"]
RowChange = Literal["changed", "removed", "inserted"]


class CommittedText(Struct, frozen=True):
    """A text and the salt of its commitment (hex, 16 bytes)."""

    text: str
    salt: str


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a prompt. The first seven fields are kAI's.

    `hash` = SHA-256 of the RFC 8785 form of all fields except `hash` and `texts`. Fields at their default are omitted,
    so that a field added later does not change old hashes.
    """

    timestamp: str  # ISO 8601 UTC
    agent: str
    prompt_id: str
    version: str
    input_context: str  # these three are commitments; `texts` has the plain text until it is erased
    interpolated_text: str
    output_summary: str
    event: str  # render, select, observe, rollback, write, label, …
    seq: int  # counts from 1, no gap
    prev: str = ""  # the hash of the record before it
    hash: str = ""
    render_id: str = ""
    digest: str = ""  # of the Version that was used
    propensity: float | None = None
    selection: Mapping[str, Any] | None = None  # how the version was selected: scores, signals
    conversation: str = ""
    turn: int = 0
    texts: Mapping[str, CommittedText] = {}  # by field name; JSON for `input_context`


def plain_record(
    event: str, about: str = "", *, timestamp: str = "", seq: int = 0, selection: Mapping[str, Any] | None = None
) -> Record:
    """Return a record without texts."""
    return Record(
        timestamp=timestamp,
        agent="",
        prompt_id=about,
        version="",
        input_context="",
        interpolated_text="",
        output_summary="",
        event=event,
        seq=seq,
        selection=selection,
    )


def unreadable(seq: int) -> Record:
    """Return a placeholder for an unreadable record, which fails verification."""
    return plain_record(UNREADABLE, seq=seq)


class AuditRecord(Answer, frozen=True, kw_only=True):
    """A record of the audit log. An erased text is null, an absent one is empty."""

    COLUMNS: ClassVar = ("seq", "timestamp", "event", "prompt_id", "version", "agent", "text")

    seq: int
    timestamp: str
    event: str
    agent: str
    prompt_id: str
    version: str
    digest: str
    render_id: str
    conversation_id: str | None
    turn: int | None
    input_context: Any
    interpolated_text: str | None
    output_summary: str | None
    propensity: float | None
    selection: Mapping[str, Any] | None
    prev: str
    hash: str

    @property
    def text(self) -> str:
        """Return the prompt's or the answer's text."""
        if self.interpolated_text is None or self.output_summary is None:
            return "(erased)"
        return self.interpolated_text or self.output_summary


def audit_record(value: Record) -> AuditRecord:
    """Return a record as an answer."""
    context = _text(value, "input_context")
    return as_answer(
        AuditRecord,
        value,
        conversation_id=value.conversation or None,
        turn=value.turn or None,
        input_context=_values(context) if context is not None else None,
        interpolated_text=_text(value, "interpolated_text"),
        output_summary=_text(value, "output_summary"),
    )


def _text(value: Record, name: str) -> str | None:
    text = value.texts.get(name)
    if text is not None:
        return text.text
    return None if getattr(value, name) else ""


def _values(context: str) -> Any:
    """Return the values of a context, or its text if it is damaged."""
    try:
        return json.loads(context or "{}")
    except ValueError:
        return context


class ReplayedRender(Answer, frozen=True, kw_only=True):
    """A record's prompt re-rendered. `changed`: an inherited prompt has a different text now."""

    seq: int
    verdict: Literal["identical", "changed", "erased", "gone"]
    text: str = ""

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.verdict, self.text)))

    @property
    def failed(self) -> bool:
        """Return whether the same prompt can no longer be rendered."""
        return self.verdict in ("changed", "gone")


class Checkpoint(Answer, frozen=True, kw_only=True):
    """A signed statement that the chain of `origin` had `size` records, the last with hash `root`, at `time`."""

    COLUMNS: ClassVar = ("time", "size", "root")

    origin: str
    size: int
    root: str
    time: str  # ISO 8601 UTC
    signature: str = ""  # "ed25519:" and base64


class MirrorReport(Answer, frozen=True, kw_only=True):
    """The state of the mirror file: its last record, and the first one that it had and lacks."""

    file: str
    records: int
    missing_from: int | None
    rebuilt: bool

    def __str__(self) -> str:
        if self.missing_from:
            return f"{self.file} lacks the records from {self.missing_from:,} on, which it had. Use --rebuild."
        return f"{'rebuilt ' * self.rebuilt}{self.file}: {counted(self.records, 'record')}"

    @property
    def failed(self) -> bool:
        """Return whether records were removed from the file."""
        return bool(self.missing_from)


class AlteredRow(Answer, frozen=True, kw_only=True):
    """A document or memory, or a source of a memory, that was altered without Cuebook."""

    kind: RowKind
    what: RowChange
    #: A document's user ("" for none), space and key; a memory's number, scope, owner and ID; a source's memory,
    #: conversation and post.
    name: tuple[str | int, ...]

    def __str__(self) -> str:
        match self.kind, self.name:
            case "document", (user, *space, key) if space:
                about = f"document {key!r} in {'/'.join(map(str, space))!r}{f' of user {user!r}' if user else ''}"
            case "memory", (_, scope, owner, memory):
                about = f"memory {memory!r} of {scope} {owner!r}"
            case "source", (memory, _, post):
                about = f"source {post!r} of memory number {memory}"
            case _:
                about = f"{self.kind} {', '.join(map(str, self.name))}"
        return f"{about} was {self.what}"


class SealReport(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The result of comparing documents and memories with their seals. `altered` lists the first of the `found` rows.

    `reason` says what is wrong, "" if they are as Cuebook stored them.
    """

    rows: int = 0
    found: int = 0
    altered: tuple[AlteredRow, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        more = [f"{self.found - len(self.altered):,} more"] if self.found > len(self.altered) else []
        return "\n  ".join([self.reason, *map(str, self.altered), *more])


class AcceptedRows(Answer, frozen=True, kw_only=True):
    """The documents and memories that were sealed as they are, and how many of them had been altered or removed."""

    rows: int
    altered: int

    def __str__(self) -> str:
        return f"sealed {self.rows:,} documents and memories as they are; {self.altered:,} had been altered"


class Verdict(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a verification. `firstBad` is the first position, from 1, that is proven to be altered.

    `erased` counts records with an erased text, which are still valid. Checkpoints sign the first `signed` records; a
    truncation after them cannot be detected. `data` is the state of documents and memories, None without any.
    """

    ok: bool
    records: int
    first_bad: int | None = None
    reason: str = ""
    erased: int = 0
    signed: int = 0
    data: SealReport | None = None

    def __str__(self) -> str:
        count = counted(self.records, "record")
        if not self.ok:
            faults = [f"{self.reason} ({count})"] if self.reason else []
            faults += [str(self.data)] if self.data and self.data.reason else []
            return "\n".join(f"FAILED: {each}" for each in faults)
        rows = f"; {self.data.rows:,} documents and memories are unchanged" if self.data and self.data.rows else ""
        erased = f"; {self.erased:,} with erased text, which does not affect integrity" if self.erased else ""
        signed = f"signed by checkpoints up to record {self.signed:,}" if self.signed else "no checkpoints yet"
        return f"ok: {count}; {signed}{erased}{rows}"
