"""Convert part of a transcript to page entries: posts with their turns, forks of branches, the summary's end."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cuebook.app.transcript_views.transcript import TranscriptStretch
from cuebook.records.answer import Time
from cuebook.records.conversation import CALL, ERROR, RESULT, TOOL, Part, Post
from cuebook.records.memory import Summary
from cuebook.records.turn import TurnEntry

#: Maximum number of characters shown of an attachment, a tool's arguments or its result.
MAX_TEXT: Final = 20_000
#: Maximum length of a tool's arguments that are not folded, in characters.
_MAX_UNFOLDED: Final = 600
#: Length of a post above which it scrolls, in characters.
_LONG: Final = 600
_IMAGE: Final = "image_url"
#: Parts with binary content.
_BINARY: Final = ("audio", "file")
#: Bytes of each unit, largest first.
_UNITS: Final = ((1_000_000, "MB"), (1_000, "kB"))


def entries_of(page: TranscriptStretch, summary: Summary | None) -> list[dict[str, Any]]:
    """Return the entries of a transcript, oldest first; `is` is post, fork, turn or summary_end."""
    return list(_entries(page, summary))


def _entries(page: TranscriptStretch, summary: Summary | None) -> Iterator[dict[str, Any]]:
    summary_end = summary.upto_seq if summary and (page.current or summary.upto_seq <= page.shared) else 0
    replies = {seq: (turn, step) for turn in page.turns for seq, step in turn.replies.items()}
    unanswered = {turn.query_seq: turn for turn in page.turns if not turn.replies}
    names = _tool_names(page.posts)
    before = page.posts[0].parent if page.posts else 0
    if before in page.partings:
        yield {"is": "fork", "branches": page.partings[before], "behind": before}
    for last, post in zip((before, *(each.seq for each in page.posts)), page.posts, strict=False):
        turn, step = replies.get(post.seq, (None, 0))
        branch = {"side": post.seq in page.side, "after": post.parent if post.parent != last else 0}
        covered = post.seq <= summary_end and not (page.current and branch["side"])
        yield {"is": "post", **_post(post, names), **branch, "covered": covered, **_turn(turn, step, post.seq)}
        if post.seq == summary_end and summary:
            yield {"is": "summary_end", "version": summary.version}
        if post.seq in unanswered:
            yield {"is": "turn", **_turn(unanswered[post.seq], 0, 0)}
        if post.seq in page.partings:
            yield {"is": "fork", "branches": page.partings[post.seq], "behind": post.seq}


def _turn(turn: TurnEntry | None, step: int, seq: int) -> dict[str, Any]:
    """Return the turn that produced a post; its final state is on the turn's last post."""
    if turn is None:
        return {"turn": 0}
    several, is_last = len(turn.replies) > 1, seq == max(turn.replies, default=0)
    return {
        "turn": turn.turn,
        "step": step if several else 0,
        "state": turn.state if is_last else "finished",
        "error": turn.error if is_last else "",
        "prompt": turn.tokens if is_last else 0,
        "shadow": turn.shadow,
    }


def _post(post: Post, names: Mapping[str, str]) -> dict[str, Any]:
    calls = [_call(each) for each in post.parts if each.type == CALL]
    result = None
    if post.role == TOOL or (not post.message and any(each.type in (RESULT, ERROR) for each in post.parts)):
        text = post.message or "\n".join(each.content for each in post.parts if each.type in (RESULT, ERROR))
        failed = any(each.type == ERROR for each in post.parts)
        result = {"of": names.get(post.result_of or "", ""), "failed": failed, **_text(text)}
    separate = (CALL, RESULT, ERROR) if result else (CALL,)
    return {
        "post": post,
        "at": str(Time(post.created_at)),
        "calls": calls,
        "result": result,
        "attachments": [
            _attachment(each) for each in post.parts if each.type not in separate and not _is_in_message(each, post)
        ],
        "opens": post.seq == post.round,
        "long": len(post.message) > _LONG,
    }


def _is_in_message(part: Part, post: Post) -> bool:
    """Return whether a part's text is empty or already in the message."""
    if part.type in (RESULT, ERROR):
        return not part.content
    return part.type == "text" and part.content.strip() in post.message


def _tool_names(posts: Iterable[Post]) -> dict[str, str]:
    """Return tool names by call ID."""
    calls = (part for post in posts for part in post.calls)
    return {str(each.extra.get("callId")): _call(each)["name"] for each in calls if isinstance(each.extra, Mapping)}


def _call(part: Part) -> dict[str, Any]:
    """Return a call's name and its arguments, indented if they are JSON."""
    data = _json(part.content)
    if not isinstance(data, dict):
        return {"name": "unnamed tool", **_text(part.content), "fold": len(part.content) > _MAX_UNFOLDED}
    arguments = data.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    parsed = _json(text)
    if isinstance(parsed, dict | list):
        text = "" if not parsed else json.dumps(parsed, ensure_ascii=False, indent=1)
    return {"name": str(data.get("name") or "unnamed tool"), **_text(text), "fold": len(text) > _MAX_UNFOLDED}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(text: str) -> dict[str, Any]:
    return {"text": text[:MAX_TEXT], "size": len(text), "more": max(0, len(text) - MAX_TEXT)}


def _attachment(part: Part) -> dict[str, Any]:
    """Return an attachment's kind, size and text, if it has one. The page shows the address of an image only."""
    extra = part.extra if isinstance(part.extra, Mapping) else {}
    name = str(extra.get("filename") or extra.get("name") or "")
    content, kind = part.content, part.type.replace("_", " ")
    if part.type == "opaque" and extra.get("originalType"):
        kind = str(extra["originalType"]).replace("_", " ")
    if content.startswith("data:"):
        head, _, data = content.partition(",")
        size = len(data) * 3 // 4 - data[-2:].count("=") if head.endswith(";base64") else len(data)
        return {"kind": _kind(kind), "details": _details(head[5:].split(";")[0], name, _size(size)), "text": ""}
    if part.type == _IMAGE:
        return {"kind": "image", "details": _details(content, name, "not loaded"), "text": ""}
    if part.type in _BINARY:
        return {"kind": kind, "details": _details(name, _size(len(content.encode()))), "text": "", "more": 0}
    return {"kind": kind, "details": _details(name, f"{len(content):,} characters"), **_text(content)}


def _kind(kind: str) -> str:
    return "image" if kind == "image url" else kind


def _details(*parts: str) -> str:
    return " · ".join(each for each in parts if each)


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
