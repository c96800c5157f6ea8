"""A scripted OpenAI server for a cluster. Each process calls it under a path of its own: /server-1/v1, /worker-1/v1."""

import asyncio
import json
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Self

import uvicorn

from scripted_answers import DONE, event

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
        config = uvicorn.Config(self, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
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
