"""A scripted OpenAI server for a cluster. Each process calls it under a path of its own: /server-1/v1, /worker-1/v1."""

import asyncio
import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any, Self

from scripted_answers import DONE, event
from threaded_server import ThreadedServer, body_of

#: Seconds that a summary takes.
SUMMARY_S = 0.5
#: Pieces of a slow answer and of others, and the seconds before each piece.
SLOW, SHORT, PIECE_S = 150, 10, 0.03
CATEGORIES = "facts preferences people projects decisions open_loops todo tags".split()
SUMMARY = json.dumps(
    {"summary_markdown": "They talked about lockers.", "memory_json": {category: [] for category in CATEGORIES}}
)


def answer_of(question: str) -> str:
    """Return the whole answer of a question."""
    return "".join(pieces_of(question))


def pieces_of(question: str) -> list[str]:
    count = SLOW if "slowly" in question else SHORT
    return [f"{question} Answered. ", *(f"word {n} " for n in range(count))]


class ClusterUpstream:
    """The server. `running` lists the questions that each process is being answered, `calls` counts all."""

    def __init__(self) -> None:
        self.running: dict[str, list[str]] = {}
        self.calls: Counter[str] = Counter()  # by process
        self.answered_for: dict[str, set[str]] = {}  # the processes that asked about a conversation
        self.url = ""

    def __enter__(self) -> Self:
        self._server = ThreadedServer(self)
        self.url = self._server.root
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive)
        if scope["method"] != "POST":  # the list of models
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body"})
            return
        process = scope["path"].split("/")[1]
        question = "" if process.startswith("worker") else question_in(json.loads(body)["messages"])
        self.calls[process] += 1
        self.running.setdefault(process, []).append(question)
        if question:
            self.answered_for.setdefault(question.split()[1], set()).add(process)
        answering, leaving = asyncio.ensure_future(self._answer(question, send)), asyncio.ensure_future(receive())
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        leaving.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await answering
        self.running[process].remove(question)

    async def _answer(self, question: str, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if not question:
            await asyncio.sleep(SUMMARY_S)
        for text in pieces_of(question) if question else [SUMMARY]:
            await asyncio.sleep(PIECE_S)
            await send({"type": "http.response.body", "body": event({"content": text}), "more_body": True})
        await send({"type": "http.response.body", "body": event({}, finish="stop") + DONE})


def question_in(messages: list[dict[str, Any]]) -> str:
    """Return the last question of a prompt, in which recalled memories may follow it."""
    return re.findall(r"Question \S+ \d+: [^.]*\?[^.?]*\.", json.dumps(messages, ensure_ascii=False))[-1]
