"""Prompt logs: write each prompt as sent to a readable JSON file, in a background task, and erase logs with their data
(D6).

A conversation has a folder. Its name contains only letters, digits and dashes of the id, and a keyed digest. Each step
writes `ROLE_prompt_log_ROUND_POST.json` and, if a model selected experiences,
`ROLE_experience_selection_log_ROUND_POST.json`: lists of messages, with secrets redacted as in all stored text. ROUND
is the seq of the turn's query, POST that of the reply.

Erasing a conversation removes its folder and the folders that may quote it. Erasing anything else removes all folders,
because any may quote it. A file written during an erasure is removed again.
"""

import asyncio
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.services import Services
from cuebook.engine.turn.step import OpenStep
from cuebook.engine.turn.turn_signals import speaker_in
from cuebook.errors import CuebookError, NotFound
from cuebook.interfaces.store import PathQuery
from cuebook.providers.regular_files import read_regular
from cuebook.records.conversation import keyed_digest
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.logs")

#: Metadata of a folder: its conversation, and whether it quotes other conversations.
INDEX = "conversation.json"
#: Most queued prompts. Further ones are dropped and logged.
MOST = 64
#: Characters of a folder's name from an id, and of the digest after them.
NAMED, DIGEST = 40, 12
_PRIVATE, _PRIVATE_FOLDER = 0o600, 0o700


class Index(Struct, frozen=True, kw_only=True):
    """Owner of a folder. `no` is the store's number, because a new conversation may reuse an id."""

    tenant: str
    conversation: str
    no: int
    quotes: bool = False


class PromptLog(Struct, frozen=True, kw_only=True):
    """The logged data of a step."""

    index: Index
    name: str  # with {} for the kind of log
    messages: tuple[bytes, ...]
    selection: tuple[bytes, ...]
    epoch: int


class PromptLogs:
    """The prompt logs of a project: written to the first of its folders, erased from all."""

    def __init__(self, folders: Sequence[Path], services: Services) -> None:
        """`services` are the project's own, not a tenant's."""
        self._folder, self._folders = folders[0], folders
        self._services = services
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = ""

    async def settle(self, timeout_s: float) -> None:
        """Wait until all queued logs are written, at most `timeout_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.drain()

    async def drain(self) -> None:
        """Wait until all queued logs are written."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def keep(self, step: OpenStep, reply_seq: int) -> None:
        """Queue the log of a closed step for writing. `reply_seq` is 0 without a reply."""
        if len(self._tasks) >= MOST:
            self._tell(f"Prompt log queue full: {MOST} prompts. This prompt is not logged.")
            return
        lease, plan = step.lease, step.plan
        role = speaker_in(self._services, plan.scene, step.position.ask).role
        post = str(reply_seq) if reply_seq else f"unanswered_{lease.turn}_{lease.step}"
        index = Index(
            tenant=lease.scope.tenant,
            conversation=lease.conversation,
            no=lease.no,
            quotes=any(text.source.startswith("memory:") for text in plan.sheet.volatile),
        )
        prompt_log = PromptLog(
            index=index,
            name=f"{plain_name(role) or 'assistant'}_{{}}_log_{plan.query_seq}_{post}.json",
            messages=plan.window.raw_messages,
            selection=step.decision.prompt.advice_messages,
            epoch=plan.scene.epoch,
        )
        task = asyncio.get_running_loop().create_task(self._keep(prompt_log))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, prompt_log: PromptLog) -> None:
        """Write a log, then remove it if an erasure ran meanwhile, because it may contain erased text."""
        folder = self._folder / folder_of(
            prompt_log.index.tenant, prompt_log.index.conversation, self._services.settings.key
        )
        try:
            written = await asyncio.to_thread(_write, folder, prompt_log)
            try:
                away = await self._outdated(prompt_log, folder, written)
            except CuebookError as error:  # unknown whether it may stay
                self._tell(f"Prompt log removed: {error}")
                away = written
            await asyncio.to_thread(_remove, away)
        except OSError as error:
            self._tell(f"Cannot write prompt logs to {str(self._folder)!r}: {error.strerror or error}")

    async def _outdated(self, prompt_log: PromptLog, folder: Path, written: Sequence[Path]) -> Sequence[Path]:
        """Return the files of a log to remove: none if nothing was erased since its turn opened."""
        scope, path_query = (
            Scope(prompt_log.index.tenant),
            PathQuery(conversation=prompt_log.index.conversation, use_summary=False),
        )
        scene = await self._services.store.scene(scope, path_query)
        if scene.conversation.no != prompt_log.index.no:
            return [folder]
        return () if scene.epoch == prompt_log.epoch else written

    def _tell(self, what: str) -> None:
        """Log an error, unless it is the same as the last one."""
        if what != self._told:
            self._told = what
            log.warning("%s", self._services.writer.clean(what))

    async def erase(self, kinds: Collection[str]) -> bool:
        """Remove logs that may contain erased data. Return whether all are gone."""
        if self._tasks:  # a log in progress removes itself; later ones see the erasure
            await asyncio.wait(list(self._tasks))
        everything = any(kind != "conversation" for kind in kinds)
        try:
            results = [each for folder in self._folders for each in await asyncio.to_thread(_folders, folder)]
            away = [folder for folder, index in results if everything or await self._goes(index)]
            await asyncio.to_thread(_remove, away)
        except OSError as error:
            where, why = error.filename or str(self._folder), error.strerror or error
            log.warning("Cannot remove a prompt log that may contain erased data (%s): %s", why, where)
            return False
        return True

    async def read(self, conversation: str, no: int) -> dict[str, bytes]:
        """Return the logs of a conversation with an id and a number of the store, by file name."""
        await self.drain()
        return await asyncio.to_thread(_read, self._folders, conversation, no)

    async def _goes(self, index: Index | None) -> bool:
        if index is None or index.quotes:
            return True
        try:
            conversation = await self._services.store.conversation(Scope(index.tenant), index.conversation)
        except NotFound:
            return True
        return conversation.no != index.no


# ---- Names ----------------------------------------------------------------------------------------------------------


def plain_name(text: str) -> str:
    """Return a text as a file name: letters a to z, digits and dashes, at most 40."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:NAMED].strip("-")


def folder_of(tenant: str, conversation: str, key: bytes) -> str:
    """Return the folder name of a conversation."""
    digest = keyed_digest(f"{tenant}\0{conversation}".encode("utf-8", "surrogatepass"), key).hex()[:DIGEST]
    return f"{plain_name(conversation) or 'conversation'}-{digest}"


# ---- Files ----------------------------------------------------------------------------------------------------------


def _write(folder: Path, prompt_log: PromptLog) -> list[Path]:
    index = _index(folder)
    if index is not None and index.no != prompt_log.index.no:
        _remove([folder])  # of an erased conversation with the same id
        index = None
    folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
    if index is None or (prompt_log.index.quotes and not index.quotes):
        _put(folder / INDEX, msgspec.json.encode(prompt_log.index))
    written = [folder / prompt_log.name.format("prompt")]
    _put(written[0], _listed(prompt_log.messages))
    if prompt_log.selection:
        written.append(folder / prompt_log.name.format("experience_selection"))
        _put(written[1], _listed(prompt_log.selection))
    return written


def _listed(messages: Sequence[bytes]) -> bytes:
    """Return messages as an indented JSON list."""
    decoded: list[Any] = [msgspec.json.decode(message) for message in messages]
    return json.dumps(decoded, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"


def _put(file: Path, body: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "wb") as opened:
            opened.write(body)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _index(folder: Path) -> Index | None:
    try:
        return msgspec.json.decode(read_regular(folder / INDEX), type=Index)
    except (OSError, msgspec.MsgspecError):
        return None


def _folders(root: Path) -> list[tuple[Path, Index | None]]:
    """Return the folders of conversations. Other content of the directory is left alone."""
    ours = re.compile(rf"[a-z0-9-]+-[0-9a-f]{{{DIGEST}}}")
    try:
        results = [entry for entry in root.iterdir() if ours.fullmatch(entry.name) and entry.is_dir()]
    except FileNotFoundError:
        return []
    return [(folder, _index(folder)) for folder in results if not folder.is_symlink()]


def _read(roots: Sequence[Path], conversation: str, no: int) -> dict[str, bytes]:
    """Return the files of a conversation. Logs that are erased meanwhile are omitted."""
    start = f"{plain_name(conversation) or 'conversation'}-"
    results: dict[str, bytes] = {}
    for folder, index in (each for root in roots for each in _folders(root)):
        if folder.name.startswith(start) and index and (index.conversation, index.no) == (conversation, no):
            for file in sorted(folder.glob("*_log_*.json")):
                with suppress(FileNotFoundError):
                    results[file.name] = read_regular(file)
    return results


def _remove(places: Sequence[Path]) -> None:
    """Remove files and folders after overwriting their bytes. Raises OSError."""
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file() and not file.is_symlink():
                _blank(file)
        with suppress(FileNotFoundError):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()


def _blank(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
        opened.flush()
        os.fsync(opened.fileno())
