"""Tests of Idempotency-Keys: a repeat returns the first answer, also after a crash between write and answer."""

import asyncio

import pytest

from cuebook import Ask, Cuebook, Posted
from cuebook.config import build
from cuebook.errors import BackendError, InvalidInput, KeyReused
from cuebook.testing import FrozenClock, Script, ScriptedModel


def settings(tmp_path):
    return build(arguments={"store.url": str(tmp_path / "cue.db")})


async def put(cue, value="blue", key="k1", **more):
    return await cue.memory.put_knowledge("domain", "color", value, idempotency_key=key, **more)


async def test_a_repeated_request_returns_the_first_answer(tmp_path):
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        first = await put(cue)
        await put(cue, "blue", key="k2")
        assert await put(cue) == first
        [entry] = await cue.memory.list_knowledge()
        assert entry.usage_count == 2


async def test_a_key_of_another_request_is_refused(tmp_path):
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        await put(cue)
        with pytest.raises(KeyReused, match="different request"):
            await put(cue, "green")
        with pytest.raises(InvalidInput, match="Idempotency-Key"):
            await put(cue, key="k" * 300)


async def test_keys_of_users_are_separate(tmp_path):
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        ann, bob = await put(cue, user="ann"), await put(cue, "green", user="bob")
        assert (ann.value, bob.value) == ("blue", "green")


async def test_after_a_crash_before_the_answer_the_write_is_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("CUEBOOK_FAILPOINT", "request.finish:raise")
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        entry = await cue.memory.put_knowledge("domain", "color", "blue")
        with pytest.raises(BackendError, match="failpoint"):
            await cue.memory.use_knowledge(entry.id, idempotency_key="k1")
    monkeypatch.delenv("CUEBOOK_FAILPOINT")
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        assert (await cue.memory.list_knowledge())[0].usage_count == 2
        await cue.memory.use_knowledge(entry.id, idempotency_key="k1")
        await cue.memory.use_knowledge(entry.id, idempotency_key="k1")
        assert (await cue.memory.list_knowledge())[0].usage_count == 2


async def test_concurrent_repeats_write_once(tmp_path):
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        answers = await asyncio.gather(*(put(cue) for _ in range(8)))
        assert len({answer.id for answer in answers}) == 1
        assert (await cue.memory.list_knowledge())[0].usage_count == 1


async def test_a_forget_leaves_no_answer_with_the_text(tmp_path):
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        entry = await put(cue, "The safe opens with quokkaberry.")
        await cue.memory.forget(memories=[entry.id])
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"quokkaberry" not in raw  # four digits would occur in random ids


@pytest.mark.parametrize("point", ["stream.piece", "stream.ended"])
async def test_a_chat_request_is_answered_after_a_crash_of_its_turn(tmp_path, monkeypatch, point):
    ask, clock = Ask("Where does the ferry leave?", "c1", user="ann", idempotency_key="k1"), FrozenClock()
    model = ScriptedModel(default="From pier 4.")
    monkeypatch.setenv("CUEBOOK_FAILPOINT", f"{point}:raise")
    async with Cuebook.open(settings(tmp_path), model=model, clock=clock, worker=False) as cue:
        with pytest.raises(BackendError):
            await cue.ask(ask)
    monkeypatch.delenv("CUEBOOK_FAILPOINT")
    clock.advance(60)  # the lease of the crashed turn has expired
    async with Cuebook.open(settings(tmp_path), model=model, clock=clock, worker=False) as cue:
        first, again = await cue.ask(ask), await cue.ask(ask)
        assert (first.text, again.text, again.turn) == ("From pier 4.", "From pier 4.", first.turn)
        assert [post.message for post in await cue.conversations.posts("c1")] == [ask.text, "From pier 4."]
        assert str(model.requests[-1].messages).count(ask.text) == 1


async def test_a_late_retry_is_answered_beside_the_newer_messages(tmp_path):
    ask = Ask("My key is sk-proj-abcdefghijklmnopqrstuvwxyz123456. Where is pier 4?", "c1", idempotency_key="k1")
    model = ScriptedModel(Script(text="From", half=True), "By the mill.", "By the lock.")
    async with Cuebook.open(settings(tmp_path), model=model, worker=False) as cue:
        with pytest.raises(BackendError):
            await cue.ask(ask)
        assert (await cue.ask(Ask("And pier 5?", "c1"))).text == "By the mill."
        path = await cue.conversations.posts("c1")
        assert "sk-proj" not in path[0].message
        retried = await cue.ask(ask)
        assert (retried.text, (await cue.ask(ask)).turn) == ("By the lock.", retried.turn)
        assert await cue.conversations.posts("c1") == path
        sent = str(model.requests[-1].messages)
        assert (sent.count(ask.text), sent.count("pier 5")) == (1, 0)


async def test_a_repeated_reset_adds_one_reflection(tmp_path):
    async with Cuebook.open(settings(tmp_path), model=ScriptedModel(default="Noted."), worker=False) as cue:
        await cue.ask(Ask("Hello", "c"))
        first = await cue.mind.reset("c", idempotency_key="k1")
        assert await cue.mind.reset("c", idempotency_key="k1") == first
        assert len((await cue.mind.show("c")).reflections) == 1
        with pytest.raises(KeyReused, match="different request"):
            await cue.mind.run("c", "gmi_engagement_boost", idempotency_key="k1")


async def test_repeated_feedback_returns_the_first_answer(tmp_path):
    async with Cuebook.open(settings(tmp_path), model=ScriptedModel(default="Noted."), worker=False) as cue:
        await cue.ask(Ask("Hello", "c"))
        first = await cue.turns.feedback("c", 1, thumb="down", idempotency_key="k1")
        await cue.turns.feedback("c", 1, thumb="up")
        assert await cue.turns.feedback("c", 1, thumb="down", idempotency_key="k1") == first
        assert (await cue.turns.show("c", 1)).observation["sentiment"] == 1.0


async def test_a_repeated_compression_stores_one_summary(tmp_path, monkeypatch):
    values = {"older_than": "p2", "summary": "They chose the blue boat.", "idempotency_key": "k1"}
    monkeypatch.setenv("CUEBOOK_FAILPOINT", "request.finish:raise")
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        await cue.append("c", [Posted(sender="ann", message=f"Boat {n}", id=f"p{n}") for n in range(4)])
        with pytest.raises(BackendError, match="failpoint"):
            await cue.conversations.compress("c", **values)
    monkeypatch.delenv("CUEBOOK_FAILPOINT")
    async with Cuebook.open(settings(tmp_path), worker=False) as cue:
        made = await cue.conversations.compress("c", **values)
        assert made == await cue.conversations.compress("c", **values)
        assert (made.version, made.upto_seq) == (1, 2)
