"""Render a window in Anthropic's wire format, with the client's own blocks for unchanged posts.

The system text is the client's, then the persona's, then the summary, because the provider expects an agent program's
header (Claude Code's billing line and identity) first. Recalled text is a block after the query's own. Cache markers
are set at the window's anchors unless the client set its own. A conversation starts with the user; if its start is
omitted, a note says so. A system message in the middle is sent unchanged if the answer after it is in the window.
Otherwise its text goes into the user's next message, because the provider would reject it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from cuebook.engine.proxy.wire import Wire
from cuebook.engine.turn.plan import WindowPlan
from cuebook.engine.turn.step import OpenStep
from cuebook.records.conversation import ASSISTANT, SYSTEM
from cuebook.window.post_forms import JOIN
from cuebook.window.window import MOST_ANCHORS, Sheet
from cuebook.wire.anthropic_messages import MARK, THOUGHTS, ConvertedMessage, read_reminders, read_system, write_blocks

#: Note before a path that starts with an answer.
LEFT_OUT = "[Earlier messages were left out.]"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_raws = msgspec.json.Decoder(list[Raw])


class _OutgoingMessage(Struct):
    """An outgoing message: its blocks, and the number of the client's message that it comes from, -1 for none or
    several.
    """

    role: str
    blocks: list[Any]
    at: int = -1
    pieces: int = 0  # of those parsed from a client's message
    changed: bool = False


def window_body(wire: Wire, step: OpenStep, *, model: str | None, marks: bool, hour: bool = False) -> bytes:
    """Return a request's body with the window as its system text and messages. All other bytes stay the same.

    If the window equals the request, the whole body stays the same.
    """
    body, own_fields, converted, plan = wire.call.body, wire.own_fields, wire.converted, step.plan
    fields = dict(own_fields)
    front = len(plan.messages) - len(plan.sheet.partition.kept)
    system, unchanged = _system(fields, plan.messages[:front], plan.sheet)
    messages, places = _messages(converted, step, front)
    if marks and MARK.encode() not in body:
        mark = {"type": "ephemeral"} | ({"ttl": "1h"} if hour else {})
        system, unchanged = _mark(plan, system, messages, places, mark), False
        if not system and "tools" in fields:
            fields["tools"] = _marked_tools(fields["tools"], mark)
    if system and not unchanged:
        fields["system"] = Raw(_encode(system))
    own = _raws.decode(fields["messages"])
    written = _message_bytes(converted, own, messages)
    if written is not None:
        fields["messages"] = Raw(b"[" + b",".join(written) + b"]")
    if model is not None:
        fields["model"] = Raw(_encode(model))
    same = all(bytes(fields[name]) == bytes(own_fields.get(name, b"")) for name in fields)
    return body if same else _encode(fields)


# ---- The system text ------------------------------------------------------------------------------------------------


def _system(fields: Mapping[str, Raw], front: Sequence[bytes], sheet: Sheet) -> tuple[list[Any], bool]:
    """Return the system text's blocks, and whether all are the client's."""
    own: list[Any] = list(read_system(fields["system"])) if "system" in fields else []
    if not own:
        content = _decode(front[0])["content"] if front else ""
        return [{"type": "text", "text": content}] if content else [], False
    before = [_decode(front[0])["content"][0]] if sheet.front else []
    behind = [_decode(front[-1])["content"][-1]] if sheet.summary else []
    return [*own, *before, *behind], not (before or behind)


# ---- The path -------------------------------------------------------------------------------------------------------


def _messages(
    converted: Sequence[ConvertedMessage], step: OpenStep, front: int
) -> tuple[list[_OutgoingMessage], dict[int, tuple[int, int]]]:
    """Return the path's messages, and by number of the window's message the position of its last stable block."""
    plan, numbers = step.plan, step.position.messages_by_seq(step.decision.start.expected_last_seq)
    sheet = plan.sheet
    messages: list[_OutgoingMessage] = []
    places: dict[int, tuple[int, int]] = {}
    for number, post_in_form in enumerate(sheet.partition.kept, front):
        seq, chat, recalled = post_in_form.post.seq, plan.messages[number], ""
        if seq == sheet.query and sheet.volatile:
            chat, recalled = split_recall(chat, sheet.fence)
        sent = numbers.get(seq)
        source = converted[sent] if sent is not None and post_in_form.form == "full" else None
        if source is not None:
            _add(messages, source.role, list(source.blocks), at=source.at)
        else:
            role, blocks = write_blocks(chat)
            _add(messages, role, blocks)
        last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role != SYSTEM), None)
        if last is not None:
            places[number] = (last, len(messages[last].blocks) - 1)
        if recalled and last is not None:
            messages[last].blocks.append({"type": "text", "text": recalled})
            messages[last].changed = True
        for at, raw in enumerate(source.behind, source.at + 1) if source is not None else ():
            messages.append(_OutgoingMessage(SYSTEM, read_reminders(raw), at=at, pieces=1))
    begins = bool(sheet.partition.kept) and numbers.get(sheet.partition.kept[0].post.seq) == 0
    if messages and messages[0].role == ASSISTANT and not begins:
        messages.insert(0, _OutgoingMessage("user", [{"type": "text", "text": LEFT_OUT}], changed=True))
        places = {number: (at + 1, block) for number, (at, block) in places.items()}
    return messages, places


def _add(messages: list[_OutgoingMessage], role: str, blocks: list[Any], *, at: int = -1) -> None:
    """Append a post. Merge it into the previous message if one of both is ours, or both come from one message."""
    if role == "user" and messages and messages[-1].role == SYSTEM and at != messages[-1].at + 1:
        values: list[Any] = []
        while messages[-1].role == SYSTEM:
            values = messages.pop().blocks + values
        blocks, at = values + blocks, -1
    last = messages[-1] if messages else None
    if last is not None and last.role == role and (at < 0 or last.at < 0 or at == last.at):
        last.blocks += blocks
        last.pieces += 1
        if at != last.at:
            last.at, last.changed = -1, True
    elif blocks or at >= 0:  # the provider decides about a client's empty message
        messages.append(_OutgoingMessage(role, blocks, at=at, pieces=1))


def split_recall(chat: bytes, fence: str) -> tuple[bytes, str]:
    """Split the query from its recalled text."""
    message = _decode(chat)
    content = message["content"]
    if isinstance(content, list):
        return _encode(message | {"content": content[:-1]}), content[-1]["text"]
    value, _, recalled = content.rpartition(f"<recalled {fence}>")
    return _encode(message | {"content": value.removesuffix(JOIN)}), f"<recalled {fence}>{recalled}"


def _message_bytes(
    converted: Sequence[ConvertedMessage], own: Sequence[Raw], messages: Sequence[_OutgoingMessage]
) -> list[bytes] | None:
    """Return the messages' bytes, with the client's own bytes for unchanged messages, or None if all are unchanged."""
    pieces = _count_pieces(converted)
    as_came = [each.at >= 0 and not each.changed and each.pieces == pieces[each.at] for each in messages]
    if all(as_came) and [each.at for each in messages] == list(range(len(own))):
        return None
    return [
        bytes(own[each.at]) if same else _encode({"role": each.role, "content": each.blocks})
        for each, same in zip(messages, as_came, strict=True)
    ]


def _count_pieces(source: Sequence[ConvertedMessage]) -> dict[int, int]:
    counted: dict[int, int] = {}
    for each in source:
        counted[each.at] = counted.get(each.at, 0) + 1
        counted |= dict.fromkeys(range(each.at + 1, each.at + 1 + len(each.behind)), 1)
    return counted


# ---- Markers --------------------------------------------------------------------------------------------------------


def _mark(
    plan: WindowPlan,
    system: list[Any],
    messages: Sequence[_OutgoingMessage],
    places: Mapping[int, tuple[int, int]],
    mark: Mapping[str, str],
) -> list[Any]:
    """Set cache markers in messages at the window's anchors. Return the marked system text."""
    for anchor in plan.window.anchors:
        if anchor.name in ("system", "summary"):
            stable = 2 if plan.sheet.summary and len(plan.window.anchors) < MOST_ANCHORS else 1
            system = [*system[:-stable], *(_with_mark(each, mark) for each in system[-stable:])]
        elif anchor.after in places:
            at, block = places[anchor.after]
            _mark_block(messages[at], block, mark)
    return system


def _mark_block(message: _OutgoingMessage, last: int, mark: Mapping[str, str]) -> None:
    """Set a cache marker on the last suitable block up to a number."""
    for number in range(last, -1, -1):
        block = message.blocks[number]
        read = _decode(block) if isinstance(block, Raw) else block
        blank = read.get("type") == "text" and not str(read.get("text", "")).strip()
        if read.get("type") not in THOUGHTS and not blank:
            message.blocks[number], message.changed = _with_mark(read, mark), True
            return


def _with_mark(block: Any, mark: Mapping[str, str]) -> dict[str, Any]:
    read = _decode(block) if isinstance(block, Raw) else block
    return {**read, MARK: mark}


def _marked_tools(tools: Raw, mark: Mapping[str, str]) -> Raw:
    own = _raws.decode(tools)
    return Raw(_encode([*own[:-1], _with_mark(own[-1], mark)])) if own else tools
