"""Tests of work outside the event loop: what a child process computes, and that it is replaced when it dies."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from functools import partial

import pytest

from cuebook import Cuebook, Posted
from cuebook.app.conversations import draft_posts
from cuebook.engine.core.drafts import PostFactory
from cuebook.engine.core.offload import LARGE, Offload
from cuebook.engine.jobs import compaction, delivery
from cuebook.errors import BackendError, TooLarge
from cuebook.memory.owner_memories import merge_into_place
from cuebook.records.redaction import Redactor
from cuebook.window.tokens import counter

pytestmark = pytest.mark.anyio


def draft_in_child(writer: PostFactory, text: str) -> partial[object]:
    numbered = [(0, "p1", Posted(sender="ann", message=text))]
    return partial(draft_posts, writer, numbered, user="ann", persona=None, now=0.0, zone=None)


@pytest.mark.slow
async def test_what_a_child_computes_can_be_sent_to_it() -> None:
    for name in ("estimate", "o200k"):
        writer = PostFactory(counter(name), Redactor(b"key"), 100)
        again = pickle.loads(pickle.dumps(writer))  # noqa: S301
        assert again.count("A short text.") == writer.count("A short text.")
        assert again.clean("password: hunter2") == writer.clean("password: hunter2")
    for function in (compaction.by_quotes, delivery._items_to_deliver, merge_into_place):  # noqa: SLF001
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301


async def test_long_work_runs_in_a_thread_and_short_work_at_once() -> None:
    offload, loop_thread = Offload(), threading.get_ident()
    assert await offload.run(10, threading.get_ident) == loop_thread
    assert await offload.run(LARGE + 1, threading.get_ident) != loop_thread
    assert await offload.compute(threading.get_ident) != loop_thread


@pytest.mark.slow
async def test_child_computes_fails_and_is_replaced_when_it_dies() -> None:
    offload, writer = Offload(), PostFactory(counter("estimate"), Redactor(b"key"), 100)
    async with offload.child_process():
        first = await offload.compute(os.getpid)
        assert first != os.getpid()
        [draft] = await offload.compute(draft_in_child(writer, "password: hunter2"))
        assert draft == draft_posts(writer, [(0, "p1", Posted(sender="ann", message="password: hunter2"))],
                                    user="ann", persona=None, now=0.0, zone=None)[0]  # fmt: skip
        with pytest.raises(TooLarge) as caught:
            await offload.compute(draft_in_child(writer, "x" * 101))
        assert caught.value.where == "posts[0].message"
        os.kill(first, signal.SIGKILL)
        second = await offload.compute(os.getpid)
        assert second not in (first, os.getpid())
        with pytest.raises(BackendError):
            await offload.compute(os.abort)
        running = asyncio.create_task(offload.compute(signal.pause))
        await asyncio.sleep(0)
    assert not multiprocessing.active_children()
    with pytest.raises((BackendError, RuntimeError)):  # its process ended
        await running


@pytest.mark.slow
async def test_long_posts_and_their_memories_are_the_same_through_a_child(tmp_path) -> None:
    posts = [Posted(sender="ann", message=f"I moved to Oslo on day {n}. " * 20, created_at=1e9 + n) for n in range(150)]
    stored = []
    for child in (False, True):
        async with Cuebook.open(arguments={"store.url": str(tmp_path / f"{child}.db")}, worker=False) as cue:
            context = cue.services.offload.child_process()
            if child:
                await context.__aenter__()
            await cue.append("c1", posts, user="ann")
            await cue.settle()
            stored.append([
                [(post.message, post.tokens) for post in await cue.conversations.posts("c1", user="ann")],
                [each.text for each in (await cue.memory.list(user="ann")).items],
            ])  # fmt: skip
            if child:
                await context.__aexit__(None, None, None)
    assert stored[0] == stored[1]
