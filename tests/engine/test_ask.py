"""Tests of a turn made by `ask`: durability, waiting, cancellation and idempotency keys."""

import asyncio
import json
import time

import pytest
from turn_helpers import NAME, Halting, all_texts, count_tokens, cue_on, path

from cuebook import Ask, Busy, Cuebook, NotFound
from cuebook.engine.turn.chat import read_ask
from cuebook.engine.turn.turn import open_step
from cuebook.errors import BackendError, Conflict, InvalidInput, KeyReused, LeaseLost, UpstreamError
from cuebook.providers.clock_and_ids import SystemClock
from cuebook.records.answer import to_wire
from cuebook.records.conversation import Part
from cuebook.records.memory import NO_MODEL_LABEL, Scope
from cuebook.records.turn import Usage
from cuebook.testing import FrozenClock, LoadedDice, Script, ScriptedModel


@pytest.fixture
def model():
    return ScriptedModel(default="Noted.")


@pytest.fixture
async def cue(tmp_path, model):
    async with cue_on(tmp_path, model=model) as handle:
        yield handle


async def state_of(cue: Cuebook, n: int = 1, name: str = NAME) -> tuple[str, str]:
    turn = await cue.turns.get(name, n)
    return turn.state, turn.steps[-1].error


async def chunks_of(cue, ask):
    return [chunk async for chunk in cue.stream(ask)]


# ---- faults of the database -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("failpoint", ["close.begin:raise", "close.stored:raise", "commit.after:raise@2"])
async def test_an_answer_is_stored_although_its_first_write_fails(tmp_path, monkeypatch, model, failpoint):
    monkeypatch.setenv("CUEBOOK_FAILPOINT", failpoint)
    async with cue_on(tmp_path, model=model) as cue:
        assert (await cue.ask(Ask("hi", NAME))).text == "Noted."
        assert await path(cue) == ["hi", "Noted."]
        assert await state_of(cue) == ("finished", "")


# ---- order ----------------------------------------------------------------------------------------------------------


async def test_chunks_are_ordered_and_the_answer_is_durable_first(cue, model):
    model.say(Script(text="Hello **there**.", size=6))
    kinds = []
    async for chunk in cue.stream(Ask("hi", NAME)):
        kinds.append(chunk.type)
        if chunk.type == "METADATA_UPDATE":
            assert await path(cue) == ["hi"], "the query is durable before the model is called"
        if chunk.type == "final_response":
            assert await path(cue) == ["hi", "Hello **there**."]
            assert (chunk.text, chunk.plain) == ("Hello **there**.", "Hello there.")
        assert chunk.turn == 1
    assert kinds == ["METADATA_UPDATE", "text_delta", "text_delta", "text_delta", "final_response"]


async def test_a_reply_describes_its_turn(cue):
    first = await cue.ask(Ask("hi", NAME, mode="chat"))
    assert first.metadata["turn"] == first.turn == 1
    assert first.metadata["mode"] == "chat"
    assert first.metadata["window"]["stablePrefixRatio"] == 1.0
    assert first.metadata["rollingSummary"]["profileId"] == "standard"
    second = await cue.ask(Ask("again", NAME))
    assert (await cue.conversations.get(NAME)).metadata["mode"] == "chat"
    assert (
        second.metadata["window"]["tokens"] == second.window.tokens >= count_tokens(second.window, cue.services.count)
    )
    record = to_wire(await cue.turns.show(NAME, 2))
    assert record["window"]["stablePrefixRatio"] == second.metadata["window"]["stablePrefixRatio"]


async def test_stable_ratio_is_the_share_of_common_prefix_bytes(tmp_path, model):
    """Expect the longest common prefix with the previous turn's messages, divided by this turn's bytes."""
    async with cue_on(tmp_path, model=model) as cue:
        before = None
        for n in range(6):
            text = f"number {n} {'x' * 7 * n}"
            reply = await cue.ask(Ask(text, NAME))
            now = b"".join(reply.window.raw_messages)
            if before is not None:
                same = next(
                    (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
                )
                assert reply.window.stable_prefix_ratio == round(same / len(now), 6)
                remembered = (await cue.assemble(Ask("the same", NAME))).stable_prefix_ratio
                cue.services.caches.windows.clear()
                assert (await cue.assemble(Ask("the same", NAME))).stable_prefix_ratio == remembered
            before = now


async def test_assemble_stores_nothing_and_is_repeatable(cue):
    await cue.ask(Ask("hi", NAME))
    before = await cue.services.store.conversation(Scope(), NAME)
    one, two = [await cue.assemble(Ask("and the password: hunter2!xyz?", NAME)) for _ in range(2)]
    assert one == two
    assert await cue.services.store.conversation(Scope(), NAME) == before
    assert b"hunter2!xyz" in one.raw_messages[-1], "the message is sent unchanged"
    assert "hunter2" not in "".join(block.text for block in one.blocks)
    assert (await cue.assemble(Ask("who?", "unknown"))).raw_messages == (b'{"role":"user","content":"who?"}',)
    with pytest.raises(NotFound):
        await cue.conversations.get("unknown")


async def test_a_secret_reaches_the_model_but_not_the_store(cue, model, tmp_path):
    await cue.ask(
        Ask(
            "my password: hunter2!xyz",
            NAME,
            attachments=(Part("plan", "token=ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"),),
        )
    )
    assert b"hunter2!xyz" in model.requests[0].messages[-1]
    assert b"ghp_Zx9" in model.requests[0].messages[-1]
    assert b"hunter2" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert (await cue.turns.replay(NAME, 1)).verdict == "identical"
    await cue.ask(Ask("what was it?", NAME))
    assert b"[[secret:" in b"".join(model.requests[1].messages), "only the live request contains it"


@pytest.mark.parametrize(
    ("ask", "where"),
    [
        (Ask("nul \x00", NAME), "text"),
        (Ask("half \ud800", NAME), "text"),
        (Ask("", NAME), "message"),
        (Ask("x", NAME, token_budget=0), "token_budget"),
        (Ask("x", NAME, token_budget=3), "tokenBudget"),
        (Ask("x" * 3_000_000, NAME), "message"),
    ],
)
async def test_an_invalid_request_is_refused_and_stores_nothing(cue, ask, where):
    with pytest.raises(InvalidInput) as refused:
        await cue.ask(ask)
    assert refused.value.where == where
    with pytest.raises(NotFound):
        await cue.conversations.get(NAME)


async def test_a_refused_budget_error_names_the_smallest_valid_budget(cue):
    await cue.ask(Ask("hi " * 50, NAME))
    with pytest.raises(InvalidInput, match="Allow at least") as refused:
        await cue.ask(Ask("long " * 200, NAME, token_budget=5))
    least = int(str(refused.value).rsplit(" ", 1)[1])
    with pytest.raises(InvalidInput):
        await cue.ask(Ask("long " * 200, NAME, token_budget=least - 1))
    reply = await cue.ask(Ask("long " * 200, NAME, token_budget=least))
    assert count_tokens(reply.window, cue.services.count) <= reply.window.tokens <= least


# ---- how an answer can end ------------------------------------------------------------------------------------------


async def test_a_failed_model_call_keeps_the_query(cue, model):
    model.say(UpstreamError("overloaded", status=503))
    with pytest.raises(UpstreamError):
        await cue.ask(Ask("hi", NAME))
    assert await path(cue) == ["hi"]
    assert await state_of(cue) == ("failed", "overloaded")


async def test_a_model_that_fails_midway_keeps_the_partial_answer(cue, model):
    model.say(Script(text="half an ans", error=TimeoutError("too slow")))
    with pytest.raises(TimeoutError):
        await cue.ask(Ask("hi", NAME))
    assert await path(cue) == ["hi", "half an ans…"]
    assert await state_of(cue) == ("failed", "too slow")


async def test_an_answer_that_breaks_off_is_interrupted(cue, model):
    model.say(Script(text="half an ans", half=True))
    with pytest.raises(BackendError, match="Incomplete answer"):
        await cue.ask(Ask("hi", NAME))
    assert await path(cue) == ["hi", "half an ans…"]
    assert (await state_of(cue))[0] == "interrupted"
    rounds = await cue.conversations.rounds(NAME)
    assert [each.state for each in rounds] == ["failed"], "rounds call this state failed"


async def test_a_secret_in_an_error_is_not_stored(cue, model, tmp_path):
    model.say(UpstreamError("bad key ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"))
    with pytest.raises(UpstreamError):
        await cue.ask(Ask("hi", NAME))
    assert b"ghp_Zx9" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("stop", [1, 2, 4])
async def test_a_caller_who_stops_reading_keeps_the_partial_answer(cue, model, stop):
    model.say(Script(text="a long answer", size=4))
    chunks = cue.stream(Ask("hi", NAME))
    received = [await anext(chunks) for _ in range(stop)]
    await chunks.aclose()
    text = "".join(chunk.text for chunk in received)
    assert await path(cue) == (["hi", f"{text}…"] if text else ["hi"])
    assert (await state_of(cue))[0] == "interrupted"
    assert (await cue.ask(Ask("again", NAME))).turn == 2, "nobody waits for a lease"
    assert model.cancelled == (stop > 1)


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2])
async def test_a_cancelled_caller_leaves_no_lease(cue, model, after):
    model.say(Script(text="a long answer " * 5, size=2, delay=0.02))
    asking = asyncio.create_task(cue.ask(Ask("hi", NAME)))
    await asyncio.sleep(after)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    try:
        assert (await cue.services.store.conversation(Scope(), NAME)).lease_until == 0
    except NotFound:
        return  # it had not started
    assert (await state_of(cue))[0] == "interrupted"
    assert (await cue.ask(Ask("again", NAME))).turn == 2


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_caller_cancelled_repeatedly_leaves_no_lease(cue, times):
    store, opening = cue.services.store, asyncio.Event()

    class Slow:
        """A store with slow writes."""

        def __getattr__(self, name):
            return getattr(store, name)

        async def open(self, *args):
            opening.set()
            await asyncio.sleep(0.05)
            return await store.open(*args)

        async def close(self, *args):
            await asyncio.sleep(0.05)
            return await store.close(*args)

    cue.services.store = Slow()
    asking = asyncio.create_task(cue.ask(Ask("hello", NAME)))
    await opening.wait()
    for _ in range(times):
        asking.cancel()
        await asyncio.sleep(0.015)
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await cue.services.store.conversation(Scope(), NAME)).lease_until == 0
    assert (await cue.turns.get(NAME, 1)).state == "interrupted"


async def test_a_heartbeat_stores_a_slow_answer(tmp_path):
    model = Halting(Script(text="slowly but surely", size=3))
    async with cue_on(tmp_path, model=model, work__checkpoint_s=0.05) as cue:
        asking = asyncio.create_task(cue.ask(Ask("hi", NAME)))
        await model.reached.wait()
        async with asyncio.timeout(60):
            while not (turn := await cue.turns.get(NAME, 1)).partial:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        assert turn.state == "running"
        assert "slowly but surely".startswith(turn.partial)
        model.proceed.set()
        await asking
        assert await path(cue) == ["hi", "slowly but surely"]


async def test_a_lease_is_renewed_while_the_model_thinks(tmp_path):
    class Ticking(FrozenClock):
        def now(self):
            return asyncio.get_running_loop().time() + 1e9

    model = ScriptedModel(Script(text="done", delay=0.3))
    async with cue_on(tmp_path, model=model, clock=Ticking(), work__lease_s=0.3) as cue:
        assert (await cue.ask(Ask("hi", NAME))).text == "done"
        assert await state_of(cue) == ("finished", "")


async def test_a_turn_that_lost_its_lease_fails_and_stores_nothing(tmp_path):
    slow = ScriptedModel(Script(text="first to speak, last to be heard " * 90, size=2, delay=0.03))
    late = FrozenClock()
    late.advance(1000)  # for other processes, this one stalled for longer than its lease
    async with cue_on(tmp_path, model=slow, work__checkpoint_s=0.04) as mine:
        asking = asyncio.create_task(mine.ask(Ask("one", NAME)))
        while not slow.requests:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
        async with cue_on(tmp_path, model=ScriptedModel("other"), clock=late, dice=Other()) as theirs:
            assert (await theirs.ask(Ask("two", NAME))).text == "other"
        with pytest.raises(LeaseLost):
            await asking
        texts = await path(mine)
        assert [texts[0], *texts[-2:]] == ["one", "two", "other"]
        assert len(texts) in (3, 4)
        assert (await state_of(mine))[0] == "interrupted"
        assert slow.cancelled == 1, "the model's stream is not read to its end"


class Other(LoadedDice):
    def new_id(self, prefix):
        return f"other-{super().new_id(prefix)}"


# ---- waiting --------------------------------------------------------------------------------------------------------


async def test_parallel_asks_run_one_after_another(cue, model):
    replies = await asyncio.gather(*(cue.ask(Ask(f"n{n}", NAME)) for n in range(30)))
    assert [reply.turn for reply in replies] == list(range(1, 31)), "turns run in the order of the calls"
    posts = await cue.services.store.posts(Scope(), NAME)
    assert [post.seq for post in posts] == list(range(1, 61))
    assert [post.parent for post in posts] == list(range(60))
    assert {post.message for post in posts[1::2]} == {"Noted."}
    assert all(len(request.messages) == 2 * n + 1 for n, request in enumerate(model.requests)), (
        "each turn sees all earlier ones"
    )


async def test_asks_of_different_conversations_do_not_wait(tmp_path):
    class Together(ScriptedModel):
        """Answer nobody before everybody has asked."""

        async def stream(self, request):
            async for piece in super().stream(request):
                if len(self.requests) == 20:
                    everybody.set()
                await everybody.wait()
                yield piece

    everybody = asyncio.Event()
    async with cue_on(tmp_path, model=Together(default="ok")) as cue:
        replies = await asyncio.gather(*(cue.ask(Ask("hi", f"c{n}")) for n in range(20)))
        assert [reply.text for reply in replies] == ["ok"] * 20


async def test_the_conversation_queue_is_bounded(tmp_path):
    gate = asyncio.Event()

    class Waiting(ScriptedModel):
        async def stream(self, request):
            await gate.wait()
            async for piece in super().stream(request):
                yield piece

    async with cue_on(tmp_path, model=Waiting(default="ok")) as cue:
        asks = [asyncio.create_task(cue.ask(Ask(f"n{n}", NAME))) for n in range(65)]
        queue = cue.services.queue
        while sum(queue._waiting.values()) < 65:  # noqa: ASYNC110, SLF001  nothing signals it
            await asyncio.sleep(0.01)
        with pytest.raises(Busy) as refused:
            await cue.ask(Ask("the 65th that waits", NAME))
        assert refused.value.retry_after > 0
        gate.set()
        await asyncio.gather(*asks)
        assert (await cue.ask(Ask("later", NAME))).turn == 66


async def test_a_cancelled_waiter_leaves_the_queue(tmp_path):
    model = Halting("slow", default="ok")
    async with cue_on(tmp_path, model=model) as cue:
        first = asyncio.create_task(cue.ask(Ask("a", NAME)))
        await model.reached.wait()
        second = asyncio.create_task(cue.ask(Ask("b", NAME)))
        third = asyncio.create_task(cue.ask(Ask("c", NAME)))
        await asyncio.sleep(0.02)
        second.cancel()
        model.proceed.set()
        assert [(await first).turn, (await third).turn] == [1, 2]
        assert await path(cue) == ["a", "slow", "c", "ok"]


async def test_two_processes_on_one_database_take_turns(tmp_path):
    slow = ScriptedModel(default=Script(text="mine", delay=0.05))
    async with (
        cue_on(tmp_path, model=slow) as mine,
        cue_on(tmp_path, model=ScriptedModel(default="theirs"), dice=Other()) as theirs,
    ):
        replies = await asyncio.gather(*((mine, theirs)[n % 2].ask(Ask(f"n{n}", NAME)) for n in range(12)))
        assert sorted(reply.turn for reply in replies) == list(range(1, 13))
        texts = await path(mine)
        assert len(texts) == 24
        assert texts[1::2].count("mine") == texts[1::2].count("theirs") == 6
        for n in range(1, 13):
            assert (await mine.turns.replay(NAME, n)).verdict == "identical"


async def test_a_turn_waits_for_another_processes_turn(tmp_path):
    slow = ScriptedModel(Script(text="mine", delay=0.5))
    async with cue_on(tmp_path, model=slow) as mine, cue_on(tmp_path, dice=Other()) as theirs:
        first = asyncio.create_task(mine.ask(Ask("a", NAME)))
        while not slow.requests:  # noqa: ASYNC110 - the double tells nobody
            await asyncio.sleep(0.01)
        assert (await theirs.ask(Ask("b", NAME))).turn == 2
        assert (await first).turn == 1


async def test_a_lease_from_a_wrong_clock_expires_in_time(tmp_path):
    clock = FrozenClock(time.time() + 10_000_000)
    async with cue_on(tmp_path, clock=clock) as wrong:
        lost = await open_step(wrong.services, read_ask(wrong.services, Ask("a", NAME)))
        assert lost.lease.until > clock.now()
        async with cue_on(tmp_path, clock=SystemClock(), dice=Other(), work__lease_s=0.5) as right:
            async with asyncio.timeout(60):
                assert (await right.ask(Ask("b", NAME))).turn == 2
            assert await state_of(right) == ("interrupted", "the answering process ended")


async def test_posts_appended_during_a_turn_stay_before_the_answer(tmp_path):
    model = Halting("answer")
    async with cue_on(tmp_path, model=model) as cue:
        asking = asyncio.create_task(cue.ask(Ask("query", NAME)))
        await model.reached.wait()
        await cue.append(NAME, [{"role": "user", "content": "by the way"}])
        model.proceed.set()
        await asking
        assert sorted(await path(cue)) == ["answer", "by the way", "query"]
        assert [post.seq for post in await cue.conversations.posts(NAME)] == [1, 2, 3]


async def test_a_store_that_always_conflicts_raises_an_error(cue):
    store = cue.services.store

    class Moving:
        def __getattr__(self, name):
            return getattr(store, name)

        async def open(self, scope, opening):
            raise Conflict("moved")

    cue.services.store = Moving()
    with pytest.raises(Conflict, match="too many concurrent changes"):
        await cue.ask(Ask("hi", NAME))
    cue.services.store = store


# ---- idempotency keys -----------------------------------------------------------------------------------------------


async def test_an_idempotency_key_is_answered_once(tmp_path):
    model = ScriptedModel(default=Script(text="only once", delay=0.02))
    async with cue_on(tmp_path, model=model) as cue:
        ask = Ask("hi", NAME, idempotency_key="k1")
        replies = await asyncio.gather(*(cue.ask(ask) for _ in range(20)))
        assert {(reply.text, reply.turn) for reply in replies} == {("only once", 1)}
        assert len(model.requests) == 1
        assert await all_texts(cue) == ["hi", "only once"]
        with pytest.raises(KeyReused):
            await cue.ask(Ask("other", NAME, idempotency_key="k1"))
    async with cue_on(tmp_path, model=model) as cue:
        assert [chunk.type for chunk in await chunks_of(cue, ask)] == [
            "METADATA_UPDATE",
            "text_delta",
            "final_response",
        ]
        assert len(model.requests) == 1, "also after a restart"


async def test_an_idempotency_key_expires_after_two_days(tmp_path):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        assert (await cue.ask(Ask("hi", NAME, idempotency_key="k"))).turn == 1
        clock.advance(47 * 3600)
        await cue.work()
        with pytest.raises(KeyReused):
            await cue.ask(Ask("something else", NAME, idempotency_key="k"))
        clock.advance(2 * 3600)
        await cue.work()
        assert (await cue.ask(Ask("something else", NAME, idempotency_key="k"))).turn == 2


async def test_two_processes_answer_an_idempotency_key_once(tmp_path):
    models = [ScriptedModel(default=Script(text=text, delay=0.03)) for text in ("one", "two")]
    async with cue_on(tmp_path, model=models[0]) as mine, cue_on(tmp_path, model=models[1], dice=Other()) as theirs:
        ask = Ask("hi", NAME, idempotency_key="k1")
        replies = await asyncio.gather(*((mine, theirs)[n % 2].ask(ask) for n in range(10)))
        assert len({reply.text for reply in replies}) == 1
        assert sum(len(model.requests) for model in models) == 1


async def test_a_failed_request_is_answered_when_repeated_with_its_idempotency_key(cue, model):
    model.say(UpstreamError("overloaded"))
    ask = Ask("hi", NAME, idempotency_key="k1")
    with pytest.raises(BackendError, match="overloaded"):
        await cue.ask(ask)
    model.say("hello")
    replies = [await cue.ask(ask) for _ in range(2)]
    assert [(reply.text, reply.turn) for reply in replies] == [("hello", 2)] * 2
    assert len(model.requests) == 2


async def test_an_idempotency_key_belongs_to_its_user(cue, model):
    one = await cue.ask(Ask("hi", "a", user="ann", idempotency_key="k1"))
    two = await cue.ask(Ask("hello", "b", user="bob", idempotency_key="k1"))
    assert (one.conversation, two.conversation, len(model.requests)) == ("a", "b", 2)


# ---- without a model ------------------------------------------------------------------------------------------------


async def test_without_a_model_the_answer_is_never_remembered(tmp_path):
    async with Cuebook.open(await _bare(tmp_path), clock=FrozenClock(), dice=LoadedDice(), worker=False) as cue:
        await cue.append(NAME, [{"role": "user", "content": "The key to the shed hangs behind the blue door."}])
        reply = await cue.ask(Ask("Where does the key to the shed hang?", NAME))
        assert reply.text.startswith(NO_MODEL_LABEL)
        assert "blue door" in reply.text
        for n in range(30):
            await cue.ask(Ask(f"And where does key {n} hang?", NAME))
        await cue.settle()
        hits = await cue.memory.search("recalled memory model configured", conversation=NAME)
        assert not [hit for hit in hits if hit.text.startswith(NO_MODEL_LABEL)]
        assert not [item for item in await cue.memory.items(NAME) if "no model" in item.text]
        summary = await cue.services.store.summary(Scope(), NAME)
        assert "no model" not in summary.markdown + json.dumps(summary.memory_json)
        window = await cue.assemble(Ask("Where does the key hang?", NAME, token_budget=500))
        memories = [block.text for block in window.blocks if block.kind == "memory"]
        assert not [text for text in memories if NO_MODEL_LABEL in text]


async def _bare(folder):
    from turn_helpers import config

    return config(folder)


async def test_a_user_message_that_says_recalled_is_remembered(cue):
    await cue.append(NAME, [{"role": "user", "content": f"{NO_MODEL_LABEL} is what it says on the zebra box"}])
    assert await cue.memory.search("zebra", conversation=NAME)


async def test_a_user_outside_the_conversation_sees_nothing(cue):
    await cue.ask(Ask("mine", NAME, user="ann"))
    for ask in (Ask("hi", NAME, user="bob"),):
        with pytest.raises(NotFound):
            await cue.ask(ask)
    assert await cue.services.store.posts(Scope(user="ann"), NAME)


@pytest.mark.parametrize("count", ["12", 12.5, True])
async def test_a_model_without_token_counts_does_not_stop_its_conversation(cue, model, count):
    model.say(Script(text="one", usage=Usage(input=count)), Script(text="two", usage=Usage(input=7)))
    await cue.ask(Ask("a", NAME))
    await cue.ask(Ask("b", NAME))
    assert [turn.steps[0].usage for turn in await cue.turns.list(NAME)] == [None, Usage(input=7)]


async def test_an_old_message_is_recalled_at_any_token_budget(cue):
    rain = [{"role": "user", "content": f"It rained on the tulips on day {n} of the week. " * 8} for n in range(60)]
    await cue.append(NAME, [{"role": "user", "content": "The spare key hangs behind the barometer."}, *rain])
    for budget in range(1000, 1120, 10):  # the newest posts that fit may leave little room, but there are older ones
        window = await cue.assemble(Ask("Where does the spare key hang?", NAME, token_budget=budget))
        assert [block for block in window.blocks if block.kind == "memory" and "barometer" in block.text], budget
        assert window.tokens <= budget
