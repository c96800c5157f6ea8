"""An open step: it keeps what comes, renews its lease while it speaks, and closes exactly once however it ends."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from cuebook.engine.desk import Desk
from cuebook.errors import BackendError, LeaseLost
from cuebook.ports.store import Closing, Lease
from cuebook.records.conversation import ASSISTANT, Draft, Part
from cuebook.records.openai_messages import Said, read_message
from cuebook.records.turn import TurnState, Usage


class Step:
    """A step between `open` and `close`. Leaving the context without `finish` closes it as failed or interrupted, with what had come."""

    def __init__(self, desk: Desk, lease: Lease, *, reply_id: str, speaker: str = ASSISTANT) -> None:
        self._desk = desk
        self.lease = lease
        self._reply_id = reply_id
        self._speaker = speaker
        self.text: list[str] = []
        self.parts: tuple[Part, ...] = ()
        self._beat: asyncio.Task[None] | None = None
        self._closed = False
        self.lost: LeaseLost | None = None
        self.on_lost: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        self._beat = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_beat()
        if self._closed:
            return
        state: TurnState = "failed" if isinstance(error, Exception) else "interrupted"
        closing = asyncio.ensure_future(self._close(state, error=_say(error)))
        with suppress(LeaseLost):
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:
                await closing
                raise

    def hear(self, text: str) -> None:
        """Take a piece of the answer."""
        self.text.append(text)
        self._desk.failpoint("stream.piece")

    async def finish(
        self,
        *,
        wire: bytes | None = None,
        said: Said | None = None,
        usage: Usage | None = None,
        waiting: bool = False,
        metadata: dict[str, Any] | None = None,
        state: TurnState = "finished",
        error: str = "",
        silent: bool = False,
        others: tuple[bytes, ...] = (),
    ) -> int:
        """Store the whole answer; from here on it is durable. Answers with the reply's seq. Raises LeaseLost."""
        await self._stop_beat()
        self._desk.failpoint("stream.ended")
        return await self._close(
            state, wire=wire, said=said, usage=usage, waiting=waiting, metadata=metadata, error=error, silent=silent,
            others=others,
        )  # fmt: skip

    def draft(self, state: TurnState, *, wire: bytes | None = None, said: Said | None = None) -> Draft | None:
        """Give the reply as it stands, None where nothing was said."""
        said = said or Said(ASSISTANT, None, "".join(self.text), self.parts)
        if not said.message and not said.parts:
            return None
        text = "".join(character for character in said.message if character != "\x00")
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self._desk.writer.draft(
            Said(said.role, said.name, text, said.parts),
            id=self._reply_id,
            sender=self._speaker,
            recipient="user",
            now=self._desk.clock.now(),
            state="complete" if state == "finished" else "interrupted",
            wire=wire,
            size=1,
        )

    async def _close(
        self,
        state: TurnState,
        *,
        wire: bytes | None = None,
        said: Said | None = None,
        usage: Usage | None = None,
        waiting: bool = False,
        metadata: dict[str, Any] | None = None,
        error: str = "",
        silent: bool = False,
        others: tuple[bytes, ...] = (),
    ) -> int:
        self._closed = True
        reply = self.draft(state, wire=wire, said=said)
        if silent and reply is not None:
            reply = _unsearchable(reply)
        closing = Closing(
            state=state,
            now=self._desk.clock.now(),
            reply=reply,
            waiting=waiting,
            usage=usage,
            error=error,
            metadata=metadata or {},
            others=tuple(self._other(each, number) for number, each in enumerate(others, 1)),
        )
        seq = await self._desk.store.close(self.lease, closing)
        self._desk.stirred()
        return seq

    def _other(self, wire: bytes, number: int) -> Draft:
        """Give a further choice the model gave (`n`): kept beside the reply, found by nothing until a client goes on with it."""
        said = read_message(wire)
        return self._desk.writer.draft(
            said,
            id=f"{self._reply_id}-{number + 1}",
            sender=self._speaker,
            recipient="user",
            now=self._desk.clock.now(),
            wire=wire,
            size=1,
        )

    async def _renew(self) -> None:
        desk = self._desk
        while True:
            await asyncio.sleep(min(desk.checkpoint_s, desk.lease_s / 3))
            try:
                await desk.store.checkpoint(
                    self.lease, self.draft("interrupted"), now=desk.clock.now(), lease_s=desk.lease_s
                )
            except LeaseLost as lost:
                self.lost = lost
                self.on_lost()
                return
            except BackendError:
                continue  # the next beat tries again; the lease outlasts several

    async def _stop_beat(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            with suppress(asyncio.CancelledError):
                await self._beat
            self._beat = None


def _unsearchable(reply: Draft) -> Draft:
    fields = {name: getattr(reply, name) for name in reply.__struct_fields__}
    return Draft(**(fields | {"key": ""}))


def _say(error: BaseException | None) -> str:
    if error is None:
        return "the answer was not finished"
    if isinstance(error, Exception):
        return str(error) or type(error).__name__
    return "the caller went away"
