"""Convert part of a transcript to page entries: posts with their turns, forks of branches, the summary's end."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cuebook.app.json_shapes import iso
from cuebook.app.transcript_views.conversation_list import TranscriptStretch
from cuebook.records.conversation import CALL, ERROR, RESULT, TOOL, Part, Post
from cuebook.records.conversation_list import Answering
from cuebook.records.memory import Summary

#: Most characters shown of an attachment, a tool's arguments or its result.
SHOWN: Final = 20_000
#: Characters of a tool's arguments up to which they are not folded.
_OPEN: Final = 600
#: Characters of a post above which it may scroll.
_LONG: Final = 600
_IMAGE: Final = "image_url"
#: Parts with binary content.
_BYTES: Final = ("audio", "file")
#: Bytes of each unit, largest first.
_UNITS: Final = ((1_000_000, "MB"), (1_000, "kB"))


def entries_of(told: TranscriptStretch, summary: Summary | None) -> list[dict[str, Any]]:
    """Return the entries of a transcript, oldest first; `is` is post, ways, turn or reach."""
    return list(_entries(told, summary))


def _entries(told: TranscriptStretch, summary: Summary | None) -> Iterator[dict[str, Any]]:
    reach = summary.upto_seq if summary and (told.current or summary.upto_seq <= told.shared) else 0
    answered = {seq: (turn, step) for turn in told.turns for seq, step in turn.replies.items()}
    silent = {turn.query_seq: turn for turn in told.turns if not turn.replies}
    names = _names(told.posts)
    above = told.posts[0].parent if told.posts else 0
    if above in told.partings:
        yield {"is": "ways", "ways": told.partings[above], "behind": above}
    for post in told.posts:
        turn, step = answered.get(post.seq, (None, 0))
        yield {"is": "post", **_post(post, names), "covered": post.seq <= reach, **_turn(turn, step, post.seq)}
        if post.seq == reach and summary:
            yield {"is": "reach", "version": summary.version, "upto": reach}
        if post.seq in silent:
            yield {"is": "turn", **_turn(silent[post.seq], 0, 0)}
        if post.seq in told.partings:
            yield {"is": "ways", "ways": told.partings[post.seq], "behind": post.seq}


def _turn(turn: Answering | None, step: int, seq: int) -> dict[str, Any]:
    """Return the turn that produced a post; its final state is on the turn's last post."""
    if turn is None:
        return {"turn": 0}
    several, newest = len(turn.replies) > 1, seq == max(turn.replies, default=0)
    return {
        "turn": turn.turn,
        "step": step if several else 0,
        "state": turn.state if newest else "finished",
        "error": turn.error if newest else "",
        "prompt": turn.tokens if newest else 0,
        "shadow": turn.shadow,
    }


def _post(post: Post, names: Mapping[str, str]) -> dict[str, Any]:
    calls = [_call(each) for each in post.parts if each.type == CALL]
    result = None
    if post.role == TOOL or (not post.message and any(each.type in (RESULT, ERROR) for each in post.parts)):
        said = post.message or "\n".join(each.content for each in post.parts if each.type in (RESULT, ERROR))
        failed = any(each.type == ERROR for each in post.parts)
        result = {"of": names.get(post.result_of or "", ""), "failed": failed, **_text(said)}
    own = (CALL, RESULT, ERROR) if result else (CALL,)
    return {
        "post": post,
        "at": iso(post.created_at),
        "calls": calls,
        "result": result,
        "attached": [_attached(each) for each in post.parts if each.type not in own and not _is_said(each, post)],
        "opens": post.seq == post.round,
        "long": len(post.message) > _LONG,
    }


def _is_said(part: Part, post: Post) -> bool:
    """Return whether a part's text is empty or already in the message."""
    if part.type in (RESULT, ERROR):
        return not part.content
    return part.type == "text" and part.content.strip() in post.message


def _names(posts: Iterable[Post]) -> dict[str, str]:
    """Return tool names by call ID."""
    calls = (part for post in posts for part in post.calls)
    return {str(each.extra.get("callId")): _call(each)["name"] for each in calls if isinstance(each.extra, Mapping)}


def _call(part: Part) -> dict[str, Any]:
    """Return a call's name and its arguments, indented if they are JSON."""
    data = _json(part.content)
    if not isinstance(data, dict):
        return {"name": "a tool", **_text(part.content), "fold": len(part.content) > _OPEN}
    asked = data.get("arguments")
    text = asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False)
    read = _json(text)
    if isinstance(read, dict | list):
        text = "" if not read else json.dumps(read, ensure_ascii=False, indent=1)
    return {"name": str(data.get("name") or "a tool"), **_text(text), "fold": len(text) > _OPEN}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(text: str) -> dict[str, Any]:
    return {"text": text[:SHOWN], "size": len(text), "more": max(0, len(text) - SHOWN)}


def _attached(part: Part) -> dict[str, Any]:
    """Return an attachment's kind, size and text, if it has one. Images are named, not loaded."""
    extra = part.extra if isinstance(part.extra, Mapping) else {}
    named = str(extra.get("filename") or extra.get("name") or "")
    content, kind = part.content, part.type.replace("_", " ")
    if part.type == "opaque" and extra.get("originalType"):
        kind = str(extra["originalType"]).replace("_", " ")
    if content.startswith("data:"):
        head, _, data = content.partition(",")
        size = len(data) * 3 // 4 - data[-2:].count("=") if head.endswith(";base64") else len(data)
        return {"kind": _kind(kind), "about": _about(head[5:].split(";")[0], named, _size(size)), "text": ""}
    if part.type == _IMAGE:
        return {"kind": "image", "about": _about(content, named, "not loaded"), "text": ""}
    if part.type in _BYTES:
        return {"kind": kind, "about": _about(named, _size(len(content.encode()))), "text": "", "more": 0}
    return {"kind": kind, "about": _about(named, f"{len(content):,} characters"), **_text(content)}


def _kind(kind: str) -> str:
    return "image" if kind == "image url" else kind


def _about(*said: str) -> str:
    return " · ".join(each for each in said if each)


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
