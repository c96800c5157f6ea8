"""Tests of erasure: what a forget request deletes, and its signed receipt."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import aclosing, closing, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from turn_helpers import Halting, cue_on

from cuebook import Ask, Cuebook, InvalidInput, NotFound, Part, Posted
from cuebook.app.conversations import Conversations
from cuebook.errors import LeaseLost
from cuebook.interfaces.store import PlaceChange
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.answer import Page
from cuebook.records.memory import Memory, Place, Scope, Source
from cuebook.storage.store import Store
from cuebook.testing import FrozenClock, ScriptedModel
from storage.audit import audit

CANARY = "Zanzibarquokka"
DAY = 86_400.0


def occurrences(folder: Path, words: str = CANARY) -> dict[str, int]:
    """Return the files that contain one of the words in any case, with the number of occurrences."""
    needle = words.lower().encode()
    counts = {
        str(file.relative_to(folder)): file.read_bytes().lower().count(needle)
        for file in folder.rglob("*")
        if file.is_file()
    }
    return {name: count for name, count in counts.items() if count}


def open_database(folder: Path, *, model=None, clock=None, **settings):
    return cue_on(
        folder, model=model or ScriptedModel(default=f"{CANARY} is fine."), clock=clock, dice=SystemDice(), **settings
    )


async def add_prompted_persona(folder: Path) -> None:
    """Add a persona with a managed prompt, so that the audit and its mirror contain the texts."""
    (folder / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "prompts": {"persona": "persona/kind"}}
    (folder / "personas" / "helper.json").write_text(json.dumps(helper))
    async with open_database(folder) as cue:
        await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"])


async def store_canary(cue: Cuebook, name: str = "c", *, user: str | None = "ann", posts: int = 30) -> None:
    """Store the canary in posts, parts, wire data, attachments, summary, items and a partial answer."""
    messages = [
        Posted(
            sender=(user or "user") if n % 2 == 0 else "assistant",
            message=f"My house in {CANARY} has {n} rooms and a garden; I like {CANARY} tea number {n}.",
            parts=(Part("text", f"{CANARY} attached {n}", {"name": CANARY}),) if n % 7 == 0 else (),
        )
        for n in range(posts)
    ]
    await cue.append(name, messages, user=user)
    await cue.append(name, [{"role": "user", "content": f"{CANARY} " * 900, "x_extra": CANARY}], user=user)
    files = (Part("file", CANARY, {"name": CANARY}),)
    await cue.ask(Ask(f"What of {CANARY}?", name, user=user, attachments=files, idempotency_key=f"k-{name}"))
    await cue.settle()
    await cue.ask(Ask(f"And my house in {CANARY}?", name, user=user))
    async with aclosing(cue.stream(Ask(f"Broken off {CANARY}", name, user=user))) as chunks:
        async for chunk in chunks:
            if chunk.type == "text_delta":
                break


# ---- forgetting a conversation --------------------------------------------------------------------------------------


async def test_forgetting_a_conversation_deletes_every_byte_and_signs_a_receipt(tmp_path):
    await add_prompted_persona(tmp_path)
    async with open_database(tmp_path) as cue:
        await store_canary(cue)
        await cue.ask(Ask(f"{CANARY}, who are you?", "c", user="ann", persona="helper"))
        await cue.settle()
        assert await cue.conversations.summary("c")
        assert {"logs/prompts_audit.jsonl"} < set(occurrences(tmp_path))
        receipt = await cue.memory.forget(conversation="c", reason="asked by mail")
        assert occurrences(tmp_path) == {}
        assert (receipt.state, receipt.kind, receipt.reason) == ("done", "conversation", "asked by mail")
        assert receipt.counts["conversations"] == 1
        assert receipt.counts["posts"] > 30
        assert receipt.counts["auditTexts"] > 0
        assert cue.memory.verify_receipt(receipt, name="c").ok
        assert not cue.memory.verify_receipt(receipt, name="d").ok
        for wrong in ({"counts": {"posts": 0}}, {"asked": ()}, {"origin": "00" * 32}, {"state": "pending"}):
            fields = {name: getattr(receipt, name) for name in receipt.__struct_fields__} | wrong
            assert not cue.memory.verify_receipt(type(receipt)(**fields)).ok, wrong
        with pytest.raises(NotFound):
            await cue.conversations.get("c")
        verdict = await cue.audit.verify()
        assert verdict.ok
        assert verdict.erased > 0
        assert (await cue.audit.verify_mirror(tmp_path / "logs/prompts_audit.jsonl")).erased == verdict.erased
    assert occurrences(tmp_path) == {}
    assert audit(str(tmp_path / "cuebook.db"), integrity=True) == []


async def test_forgetting_twice_returns_a_receipt_of_zeros(tmp_path):
    async with open_database(tmp_path) as cue:
        await store_canary(cue)
        first, second = await asyncio.gather(cue.memory.forget(conversation="c"), cue.memory.forget(conversation="c"))
        assert {first.state, second.state} == {"done"}
        assert sorted((first.counts.get("posts", 0) > 0, second.counts.get("posts", 0) > 0)) == [False, True]
        third = await cue.memory.forget(conversation="c")
        assert sum(third.counts.values()) == 0
        assert (await cue.memory.receipts())[0].id == third.id
        with pytest.raises(NotFound):
            await cue.conversations.delete("c")


async def test_a_conversation_recreated_with_its_id_is_new(tmp_path):
    async with open_database(tmp_path, model=ScriptedModel(default="Noted.")) as cue:
        await store_canary(cue)
        await cue.memory.forget(conversation="c")
        reply = await cue.ask(Ask("hello", "c", user="ann"))
        assert reply.turn == 1
        assert occurrences(tmp_path) == {}


async def test_another_users_conversation_counts_nothing(tmp_path):
    async with open_database(tmp_path) as cue:
        await store_canary(cue)
        receipt = await cue.memory.forget(conversation="c", by="bob")
        assert sum(receipt.counts.values()) == 0
        assert await cue.conversations.get("c")


async def test_a_forget_request_names_exactly_one_target(tmp_path):
    async with open_database(tmp_path) as cue:
        for target in ({}, {"user": "ann", "conversation": "c"}, {"user": ""}, {"memories": ["x"] * 10_001}):
            with pytest.raises(InvalidInput):
                await cue.memory.forget(**target)


# ---- forgetting a user ----------------------------------------------------------------------------------------------


async def store_shared_conversation(cue: Cuebook) -> None:
    """Store a conversation of bob in which ann takes part."""
    posts = [
        Posted(id="b1", sender="bob", message="Our boat is called Marigold."),
        Posted(id="x1", sender="assistant", message="A fine name."),
        Posted(id="a1", sender="ann", message=f"My secret garden is in {CANARY} by the old mill."),
        Posted(id="x2", sender="assistant", message=f"So your garden is in {CANARY}."),
        Posted(id="b2", sender="bob", message="I live in Bergen."),
        Posted(id="x3", sender="assistant", message=f"And ann's secret garden is in {CANARY} by the old mill, right?"),
        Posted(id="b3", sender="bob", message="The boat needs new paint."),
    ]
    await cue.append("shared", posts, user="bob")
    more = [Posted(sender="bob" if n % 2 == 0 else "assistant", message=f"Plank {n} is dry.") for n in range(24)]
    await cue.append("shared", more, user="bob")
    await cue.ask(Ask("How is the boat?", "shared", user="bob"))
    await cue.settle()


async def test_forgetting_a_user_deletes_transcripts_and_words_elsewhere(tmp_path):
    await add_prompted_persona(tmp_path)
    async with open_database(tmp_path, model=ScriptedModel(default="Well.")) as cue:
        await store_canary(cue)
        await store_canary(cue, "c2")
        await store_shared_conversation(cue)
        await cue.ask(Ask(f"{CANARY}!", "c2", user="ann", persona="helper"))
        await cue.settle()
        assert CANARY in (await cue.conversations.summary("shared")).markdown
        await cue.documents.put([{"space": ["agent"], "key": "k", "value": {"is": CANARY}}], user="ann")
        receipt = await cue.memory.forget(user="ann")
        assert occurrences(tmp_path) == {}
        assert receipt.counts["conversations"] == 2
        assert cue.memory.verify_receipt(receipt, name="ann").ok
        assert {each.id for each in (await cue.conversations.list()).items} == {"shared"}
        posts = {each.id: each for each in await cue.conversations.posts("shared")}
        assert [posts[name].state for name in ("b1", "a1", "x2", "b2", "x3")] == [
            "complete", "erased", "erased", "complete", "erased",
        ]  # fmt: skip
        assert (posts["a1"].message, posts["a1"].sender) == ("[erased]", "erased")
        assert posts["b2"].message == "I live in Bergen."
        assert await cue.conversations.summary("shared") is None
        replay = await cue.turns.replay("shared", 1)
        assert replay.verdict == "erased"
        assert (await cue.audit.verify()).ok
        await cue.settle()
        summary = await cue.services.store.summary(Scope(), "shared")
        assert summary, "derived again from the remaining posts"
        assert "Marigold" in summary.markdown or "Bergen" in summary.markdown
        assert all("erased" not in each.text for each in await cue.memory.items("shared"))
        reply = await cue.ask(Ask("What is our boat called?", "shared", user="bob"))
        assert (await cue.turns.replay("shared", reply.turn)).verdict == "identical"
        assert reply.window.tokens <= reply.window.budget
        assert "ann" not in (await cue.conversations.get("shared")).participants
    assert occurrences(tmp_path) == {}
    assert audit(str(tmp_path / "cuebook.db"), integrity=True) == []


async def test_a_users_words_leave_others_long_posts_and_attachments(tmp_path):
    async with open_database(tmp_path, model=ScriptedModel(default="Well.")) as cue:
        long = Posted(sender="ann", message=f"{CANARY} " * 4000, parts=(Part("text", CANARY * 600, {"n": CANARY}),))
        for n in range(6):
            posts = [
                Posted(sender="bob", message=f"Plain words of mine, number {k} of {n}. " * (k * 9)) for k in range(9)
            ]
            await cue.append(f"s{n}", [*posts, long, *posts], user="bob")
        before = {n: (await cue.conversations.get(f"s{n}")).last_seq for n in range(6)}
        await cue.memory.forget(user="ann")
        assert occurrences(tmp_path) == {}
        assert before == {n: (await cue.conversations.get(f"s{n}")).last_seq for n in range(6)}
    assert audit(str(tmp_path / "cuebook.db"), integrity=True) == []


async def test_observations_of_a_forgotten_user_name_nobody(tmp_path):
    await add_prompted_persona(tmp_path)
    async with open_database(tmp_path) as cue:
        await cue.prompts.observe("persona/kind", sentiment=1.0, user=CANARY, conversation=f"talk-{CANARY}")
        assert occurrences(tmp_path)
        receipt = await cue.memory.forget(user=CANARY)
        assert receipt.counts["observations"] == 1
        [observation] = await cue.services.prompts.observations(Scope(), "persona/kind")
        assert observation.user.startswith("erased-")


# ---- concurrent work ------------------------------------------------------------------------------------------------


async def wait_for_checkpoint(cue: Cuebook, name: str, number: int) -> None:
    """Wait until a running turn has stored a part of its answer."""
    while True:
        with suppress(NotFound):
            if (await cue.turns.get(name, number)).partial:
                return
        await asyncio.sleep(0.01)


async def test_a_running_answer_of_a_forgotten_conversation_is_not_stored(tmp_path):
    model = Halting(f"{CANARY} " * 40)
    async with open_database(tmp_path, model=model, work__checkpoint_s=0.05) as cue:
        await cue.append("c", [Posted(sender="ann", message=f"I like {CANARY}.")], user="ann")
        reading = asyncio.create_task(cue.ask(Ask(f"What of {CANARY}?", "c", user="ann")))
        await wait_for_checkpoint(cue, "c", 1)
        receipt = await cue.memory.forget(user="ann")
        assert receipt.state == "done"
        model.proceed.set()
        with pytest.raises(LeaseLost, match="Conversation 'c' was deleted while turn 1 was running"):
            await reading
        assert occurrences(tmp_path) == {}
        with pytest.raises(NotFound):
            await cue.conversations.get("c")


async def test_a_running_answer_containing_forgotten_words_is_not_stored(tmp_path):
    model = Halting("Well.", f"ann's garden is in {CANARY}. " * 10, default="Fine.")
    model.proceed.set()
    async with open_database(tmp_path, model=model, work__checkpoint_s=0.05) as cue:
        await store_shared_conversation(cue)
        model.proceed.clear()
        number = len(await cue.turns.list("shared")) + 1
        reading = asyncio.create_task(cue.ask(Ask("Where is ann's garden?", "shared", user="bob")))
        await wait_for_checkpoint(cue, "shared", number)
        await cue.memory.forget(user="ann")
        model.proceed.set()
        with pytest.raises(LeaseLost):
            await reading
        assert occurrences(tmp_path) == {}
        turns = await cue.turns.list("shared")
        assert turns[-1].state == "interrupted"
        assert (await cue.ask(Ask("And the boat?", "shared", user="bob"))).text == "Fine."


@pytest.mark.parametrize("what", ["conversation", "words"])
async def test_a_pass_that_read_forgotten_posts_is_refused(tmp_path, what):
    waiting, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"

        async def stream(self, request):
            waiting.set()
            await go_on.wait()
            for piece in ():
                yield piece

        async def aclose(self):
            pass

    async with open_database(tmp_path, model=Slow(), work__model="model") as cue:
        cue.services.settings = replace(cue.services.settings, work_patience_s=30.0)
        posts = [Posted(sender="ann" if n == 3 else "bob", message=f"I like {CANARY} number {n}." if n == 3 else "Yes.")
                for n in range(40)]  # fmt: skip
        await cue.append("c", posts, user="bob")
        working = asyncio.create_task(cue.work())
        await waiting.wait()
        if what == "conversation":
            await cue.memory.forget(conversation="c")
            await cue.append("c", [Posted(sender="bob", message="New words.") for _ in range(40)], user="bob")
        else:
            await cue.memory.forget(user="ann")
        go_on.set()
        await working
        assert await cue.conversations.summary("c") is None
        assert occurrences(tmp_path) == {}


async def test_a_reading_process_keeps_the_receipt_pending(tmp_path):
    async with open_database(tmp_path) as cue:
        await store_canary(cue)
        with closing(sqlite3.connect(tmp_path / "cuebook.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM post").fetchone()
            receipt = await cue.memory.forget(conversation="c")
            assert (receipt.state, receipt.signature) == ("pending", "")
            assert not cue.memory.verify_receipt(receipt).ok
            assert occurrences(tmp_path), "the reader still needs it"
            assert (await cue.settle(timeout=1))["forget"] == 1
            assert (await cue.memory.receipt(receipt.id)).state == "pending"
        assert await cue.settle() == {}
        signed = await cue.memory.receipt(receipt.id)
        assert signed.state == "done"
        assert cue.memory.verify_receipt(signed, name="c").ok
        assert occurrences(tmp_path) == {}


@pytest.mark.slow
async def test_a_large_file_is_rewritten_before_the_receipt_is_signed(tmp_path):
    async with open_database(tmp_path) as cue:
        await store_canary(cue)
        with closing(sqlite3.connect(tmp_path / "cuebook.db")) as other, other:
            other.execute("CREATE TABLE other AS SELECT zeroblob(70000000) AS body")
        receipt = await cue.memory.forget(conversation="c")
        assert receipt.state == "pending"
        assert await cue.settle(timeout=120) == {}
        assert cue.memory.verify_receipt(await cue.memory.receipt(receipt.id), name="c").ok
        assert occurrences(tmp_path) == {}


READER = """
import sys, time
from cuebook import BlockingCuebook, Ask
from cuebook.config import build
with BlockingCuebook.open(build(arguments={"store.url": "cuebook.db"}, folder=sys.argv[1]), worker=False) as cue:
    print(len(cue.assemble(Ask("What do I like?", "c", user="bob")).messages), flush=True)
    sys.stdin.readline()
    print("CANARY" in str(cue.assemble(Ask("What do I like?", "c", user="bob")).messages), flush=True)
""".replace("CANARY", CANARY)


@pytest.mark.slow
async def test_another_process_drops_its_cached_data(tmp_path):
    async with open_database(tmp_path) as cue:
        ask_and_settle = [
            Posted(sender="ann" if n % 3 == 0 else "bob", message=f"I like {CANARY} {n}.") for n in range(99)
        ]
        await cue.append("c", [each for each in ask_and_settle if each.sender == "bob"][:1], user="bob")
        await cue.append("c", ask_and_settle, user="bob")
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", READER, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert int(await other.stdout.readline()) > 10
        await cue.memory.forget(user="ann")
        posts = await cue.conversations.posts("c")
        assert sum(each.state == "erased" for each in posts) == 33
        out, _ = await other.communicate(b"\n")
        assert out.strip() == b"True", "bob likes it too: his own words stay"
        assert all(CANARY not in each.message for each in posts if each.state == "erased")


# ---- memories -------------------------------------------------------------------------------------------------------


async def ask_and_settle(cue, clock, text, conversation, **ask):
    reply = await cue.ask(Ask(text, conversation, **({"user": "ann"} | ask)))
    clock.advance(60)
    await cue.settle()
    return reply


async def memory_texts(cue, **owner):
    return [each.text for each in (await cue.memory.list(**(owner or {"user": "ann"}))).items]


def open_with_memory(folder, clock, **settings):
    return open_database(
        folder, clock=clock, model=ScriptedModel(default="Noted."), **({"memory__user": True} | settings)
    )


async def test_a_memory_without_other_sources_is_deleted_with_its_conversation(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, f"I live in {CANARY}.", "c1")
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c2")
        reply = await ask_and_settle(cue, clock, "Where do I live?", "c3")
        assert CANARY in str(reply.window.raw_messages)
        receipt = await cue.memory.forget(conversation="c1")
        assert receipt.counts["memories"] == 1
        assert await memory_texts(cue) == ["I am allergic to nuts."]
        assert occurrences(tmp_path) == {}
        assert (await cue.turns.replay("c3", 1)).verdict == "erased"
        await cue.settle()
        assert await memory_texts(cue) == ["I am allergic to nuts."]


async def test_a_memory_with_other_sources_is_derived_again(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        await ask_and_settle(cue, clock, "I live in Oslo.", "c2")
        await cue.memory.forget(conversation="c1")
        await cue.settle()
        [memory] = (await cue.memory.list(user="ann")).items
        assert (memory.text, {each.conversation_id for each in memory.sources}) == ("I live in Oslo.", {"c2"})


async def test_a_memory_superseded_by_a_forgotten_one_is_current_again(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        clock.advance(DAY)
        await ask_and_settle(cue, clock, f"My rent is 950 euros now, says {CANARY}.", "c2")
        old = (await cue.memory.list(user="ann")).items[0]
        assert (old.text, old.superseded_by is not None) == ("My rent is 900 euros.", True)
        await cue.memory.forget(conversation="c2")
        await cue.settle()
        [old] = (await cue.memory.list(user="ann")).items
        assert (old.text, old.superseded_by) == ("My rent is 900 euros.", None)
        assert occurrences(tmp_path) == {}


@pytest.mark.slow
async def test_a_memory_forgotten_by_id_returns_only_if_repeated(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        memory = next(each for each in (await cue.memory.list(user="ann")).items if "Oslo" in each.text)
        assert (await cue.memory.forget(memories=[memory.id], by="bob")).counts.get("memories", 0) == 0
        receipt = await cue.memory.forget(memories=[f"memory:{memory.id}"], by="ann")
        assert receipt.counts["memories"] == 1
        assert await memory_texts(cue) == ["I am allergic to nuts."]
        for n in range(40):
            await ask_and_settle(cue, clock, f"The invoice number {n} is over {n * 17} euros.", "c1")
        assert "I live in Oslo." not in await memory_texts(cue)
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        assert "I live in Oslo." in await memory_texts(cue)


async def test_forgetting_a_user_deletes_user_and_persona_memories(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock, memory__persona=True) as cue:
        await ask_and_settle(cue, clock, f"I live in {CANARY}.", "c1")
        await ask_and_settle(cue, clock, "I live in Bergen.", "c2", user="bob")
        await cue.memory.forget(user="ann")
        assert await memory_texts(cue, user="ann") == []
        assert set(await memory_texts(cue, user="bob")) == {"I live in Bergen."}
        assert occurrences(tmp_path) == {}
        with closing(sqlite3.connect(tmp_path / "cuebook.db")) as connection:
            assert {
                owner.partition("\x1f")[2] or owner for (owner,) in connection.execute("SELECT owner FROM place")
            } == {"bob"}


async def test_forgetting_a_persona_deletes_its_memories_permanently(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock, memory__persona=True, memory__user=False) as cue:
        persona = cue.services.settings.default_persona
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        await cue.ask(Ask("I live in Oslo.", "c1", user="ann"))
        await ask_and_settle(cue, clock, "I live in Bergen.", "c2", user="bob")
        assert sum((await cue.memory.forget(persona="nobody")).counts.values()) == 0
        receipt = await cue.memory.forget(persona=persona, by="ann")
        assert receipt.counts["memories"] == 2
        await ask_and_settle(cue, clock, "What do you know of me?", "c1")
        assert await memory_texts(cue, user="ann") == []
        assert (await cue.conversations.get("c1")).turns == 3


async def test_a_delivery_that_read_before_the_forget_is_refused(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.ask(Ask(f"I live in {CANARY}.", "c1", user="ann"))
        read = await cue.services.store.memories.delivering(Scope(), "c1", limit=50)
        assert read is not None
        generation, _ = await cue.services.store.memories.place(Scope(), Place("user", "ann"))
        await cue.memory.forget(user="ann")
        await cue.ask(Ask("hello", "c1", user="ann"))
        owner = Place("user", "ann")
        memory = Memory(
            id="f" * 16,
            kind=owner.kind,
            owner=owner.id,
            category="facts",
            text=CANARY,
            sources=(Source("c1", read.posts[0].id),),
        )
        change = PlaceChange(place=owner, generation=generation, memories=(memory,))
        assert await cue.services.store.memories.deliver(Scope(), read, [change], now=clock.now()) is False
        await cue.settle()
        assert occurrences(tmp_path) == {}


# ---- retention ------------------------------------------------------------------------------------------------------


async def test_retention_forgets_old_conversations(tmp_path):
    clock = FrozenClock()
    async with open_database(tmp_path, clock=clock, retention__conversations_days=30) as cue:
        await store_canary(cue)
        clock.advance(20 * DAY)
        await cue.ask(Ask("hello", "young", user="ann"))
        await cue.work()
        assert len((await cue.conversations.list()).items) == 2
        clock.advance(11 * DAY)
        await cue.work()
        assert {each.id for each in (await cue.conversations.list()).items} == {"young"}
        [receipt] = await cue.memory.receipts()
        assert (receipt.reason, receipt.state, receipt.counts["conversations"]) == ("retention", "done", 1)
        assert await cue.settle() == {}


async def test_retention_forgets_unused_memories(tmp_path):
    clock = FrozenClock()
    async with open_with_memory(tmp_path, clock, retention__memories_days=30) as cue:
        await ask_and_settle(cue, clock, f"I live in {CANARY}.", "c1")
        await cue.memory.put_knowledge("domain", "api.rate", "100 a minute")
        await cue.memory.put_knowledge("user_preference", "tone", "short", user="ann")
        clock.advance(20 * DAY)
        tone = next(each for each in (await cue.memory.list(user="ann")).items if each.key == "tone")
        await cue.memory.use_knowledge(tone.id, user="ann")
        clock.advance(11 * DAY)
        assert await cue.settle() == {}
        assert await memory_texts(cue) == ["short"]
        assert await cue.memory.list_knowledge() == Page(items=()), "also the project's own memories"
        [receipt] = [each for each in await cue.memory.receipts() if each.kind == "memory"]
        assert (receipt.reason, receipt.state, receipt.counts["memories"]) == ("retention", "done", 2)
        assert cue.memory.verify_receipt(receipt).ok
        assert CANARY in (await cue.conversations.posts("c1"))[0].message, (
            "posts stay: they have a setting of their own"
        )
        await ask_and_settle(cue, clock, "What do you know of me?", "c1")
        assert f"I live in {CANARY}." not in await memory_texts(cue), "earlier posts do not restore the memory"


async def test_a_user_may_forget_only_themselves(tmp_path):
    async with open_database(tmp_path, model=ScriptedModel(default="Well.")) as cue:
        await store_canary(cue)
        receipt = await cue.memory.forget(user="ann", by="bob")
        assert sum(receipt.counts.values()) == 0
        assert await cue.conversations.get("c")
        with pytest.raises(NotFound, match="Unknown receipt"):
            await cue.memory.receipt(receipt.id, user="ann")
        assert await cue.memory.receipt(receipt.id, user="bob") == receipt


class Interrupting:
    """A store in which a conversation is deleted just before its posts are read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def posts_in(self, scope: Scope, conversation: str, *rest: object) -> object:
        """Delete the conversation if it is ann's, and read its posts."""
        if conversation == "ann":
            await self._store.delete(scope, conversation)
        return await self._store.posts_in(scope, conversation, *rest)


async def test_a_list_leaves_out_a_conversation_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    async with open_database(tmp_path) as cue:
        for name in ("bob", "ann", "eve"):
            await cue.append(name, [Posted(sender=name, message="I like tea.")], user=name)
        listed = await Conversations(replace(cue.services, store=Interrupting(cue.services.store))).list()
        assert [each.id for each in listed.items] == ["eve", "bob"]
