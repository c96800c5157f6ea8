"""Convert audit records to JSON objects and mirror lines: camelCase, texts instead of their hashes."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.app.reports.audit import ReplayedRender
from cuebook.errors import InvalidInput
from cuebook.prompts.chain import mirror_line
from cuebook.records.audit import Checkpoint, Record, Verdict


def record(value: Record) -> Wire:
    """Return a record. An erased text is null, an absent one is empty."""
    context = _said(value, "input_context")
    return {
        "seq": value.seq,
        "timestamp": value.timestamp,
        "event": value.event,
        "agent": value.agent,
        "promptId": value.prompt_id,
        "version": value.version,
        "digest": value.digest,
        "renderId": value.render_id,
        "conversationId": value.conversation or None,
        "turn": value.turn or None,
        "inputContext": _values(context) if context is not None else None,
        "interpolatedText": _said(value, "interpolated_text"),
        "outputSummary": _said(value, "output_summary"),
        "propensity": value.propensity,
        "selection": value.selection,
        "prev": value.prev,
        "hash": value.hash,
    }


def _said(value: Record, name: str) -> str | None:
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


def verdict(value: Verdict) -> Wire:
    """Return the result of a verification; `firstBad` is the seq of the first altered record."""
    first: Wire = {} if value.first_bad is None else {"firstBad": value.first_bad}
    return {"ok": value.ok, "records": value.records} | first | ({"reason": value.reason} if value.reason else {})


def replayed(value: ReplayedRender) -> Wire:
    """Return a prompt re-rendered."""
    return {"seq": value.seq, "verdict": value.verdict, "text": value.text}


def checkpoint(value: Checkpoint) -> Wire:
    """Return a checkpoint as it was signed, with its signature."""
    return dict(msgspec.to_builtins(value))


def checkpoints_of(document: bytes | str) -> list[Checkpoint]:
    """Parse checkpoints stored elsewhere: a list of them, or `{"items": [...]}`. Raises InvalidInput."""
    try:
        result = msgspec.json.decode(document)
        listed = result.get("items") if isinstance(result, dict) else result
        return msgspec.convert(listed, list[Checkpoint])
    except ValueError as error:
        msg = f"checkpoints: {error}. Pass the output of `cuebook audit checkpoints --json`."
        raise InvalidInput(msg, where="checkpoints") from error


def lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as lines of the mirror file, which anyone can verify."""
    return map(mirror_line, records)
