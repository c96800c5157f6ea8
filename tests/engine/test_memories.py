"""Tests of cross-conversation memories: who gets them, deduplication, history and sinks."""

import asyncio
import json
import random

import pytest
from turn_helpers import ask_and_settle, cue_on, open_with_memory

from cuebook import Ask
from cuebook.app.turns.explanation import told_of, window_lines
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import MemoryQuery
from cuebook.providers.file_sink import FileSink
from cuebook.records.answer import Page, to_wire
from cuebook.records.key import LongTermMemoryChange, OrganizationMemoryChange
from cuebook.records.memory import Place, Scope
from cuebook.testing import ScriptedModel

DAY = 86_400.0


def memory_blocks(reply):
    return [block.text for block in reply.window.blocks if block.source.startswith("memory:")]


async def texts(cue, *, ended=False, **owner):
    page = await cue.memory.list(ended=ended, **(owner or {"user": "ann"}))
    return [each.text for each in page.items]


async def test_a_users_memory_reaches_only_their_next_conversation(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        reply = await ask_and_settle(cue, clock, "What am I allergic to?", "c2")
        assert any("allergic to nuts" in text for text in memory_blocks(reply))
        retrieval = reply.metadata["longTermMemoryRetrieval"]
        assert retrieval["didRetrieve"]
        assert retrieval["hits"][0]["scope"] == "user"
        assert reply.metadata["longTermMemoryPolicy"]["scopes"]["user"] is True
        assert memory_blocks(await ask_and_settle(cue, clock, "What am I allergic to?", "c3", user="bob")) == []
        assert memory_blocks(await ask_and_settle(cue, clock, "What am I allergic to?", "c4", user=None)) == []
        window = await cue.assemble(Ask("What am I allergic to?", "c5", user="ann"))
        assert any("allergic" in block.text for block in window.blocks), (
            "also in a conversation that does not exist yet"
        )


async def test_by_default_nothing_leaves_a_conversation(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__user=False) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        assert await texts(cue) == []
        asks = {"longTermMemory": {"scopes": {"user": True}}}
        await ask_and_settle(cue, clock, "I live in Oslo.", "c2", memory_control=asks)
        assert await texts(cue) == ["I live in Oslo."]
        await ask_and_settle(cue, clock, "I work as a baker.", "c2")
        assert await texts(cue) == ["I live in Oslo.", "I work as a baker."], "the conversation keeps its policy"


async def test_opting_out_on_the_first_turn_persists(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1", memory_control={"longTermMemory": {"enabled": False}})
        reply = await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        assert await texts(cue) == []
        assert reply.metadata["longTermMemoryPolicy"]["enabled"] is False
        with pytest.raises(InvalidInput, match="unknown field 'scope'"):
            await cue.ask(Ask("x", "c2", memory_control={"longTermMemory": {"scope": {}}}))


async def test_a_repeat_adds_a_source_and_a_change_supersedes(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c2")
        [memory] = (await cue.memory.list(user="ann")).items
        assert {each.conversation_id for each in memory.sources} == {"c1", "c2"}
        assert memory.confidence == pytest.approx(0.6), (
            "0.5 and a repeat; its place in the second conversation's window is no use"
        )
        before = clock.now()
        clock.advance(DAY)
        await ask_and_settle(cue, clock, "My rent is 950 euros now.", "c3")
        old, new = (await cue.memory.list(user="ann")).items
        assert (old.text, new.supersedes, old.superseded_by) == ("My rent is 900 euros.", old.id, new.id)
        assert (old.valid_to, new.valid_to) == (None, None)
        [hit, *_] = await cue.memory.search("How high is the rent?", user="ann", scopes=["user"], as_of=before)
        assert (hit.kind, hit.text) == ("item", "My rent is 900 euros.")
        [hit, earlier, *_] = await cue.memory.search("How high is the rent?", user="ann", scopes=["user"])
        assert (hit.kind, hit.text, hit.newer) == ("item", "My rent is 950 euros now.", None)
        assert (earlier.text, earlier.newer, earlier.ended_at) == (old.text, new.id, None)
        assert not await cue.memory.search("rent", user="ann", as_of=before - 30 * DAY)
        hits = await cue.memory.search("What did I say yesterday?", user="ann", as_of=before + DAY)
        assert "My rent is 900 euros." in [hit.text for hit in hits if hit.kind == "post"]


@pytest.mark.parametrize("earlier_statements", [[], ["I live in Oslo."], ["I live in Oslo.", "I have a dog."]])
async def test_a_single_memory_is_recalled_by_a_longer_question(tmp_path, clock, earlier_statements):
    async with open_with_memory(tmp_path, clock) as cue:
        for n, text in enumerate([*earlier_statements, "I moved to Berlin."]):
            await ask_and_settle(cue, clock, text, f"c{n}")
        for as_of in (None, clock.now()):
            for question in ("Berlin", "Who lives in Oslo or moved to Berlin?", "What do you know of Berlin?"):
                results = await cue.memory.search(question, user="ann", as_of=as_of)
                assert "I moved to Berlin." in [hit.text for hit in results if hit.kind == "item"], question
            for question in ("When does the train from Hamburg to Berlin leave?", "Who is allergic to nuts?"):
                assert not await cue.memory.search(question, user="ann", as_of=as_of), question


async def test_a_conversation_cannot_retract_anothers_statement(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        for n in range(12):
            await ask_and_settle(cue, clock, f"The invoice number {n} is over {n * 17} euros.", "c2")
        assert "I am allergic to nuts." in await texts(cue)


async def test_durable_memories_stay_between_reviews_then_refresh(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__review_every=3) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        reviews = []
        for n in range(5):
            reply = await ask_and_settle(cue, clock, f"Tell me something else, number {n}.", "c2")
            retrieval = reply.metadata["longTermMemoryRetrieval"]
            reviews.append((retrieval["reviewReason"], any("nuts" in text for text in memory_blocks(reply))))
        assert reviews == [("first", True), ("kept", True), ("kept", True), ("review", True), ("kept", True)]


async def test_a_persona_memory_is_known_to_that_persona_only(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__user=False, memory__persona=True) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        owners = {(each.scope, each.user_id, each.persona_id) for each in await cue.memory.list(user="ann")}
        assert owners == {("persona", "ann", cue.services.settings.default_persona)}
        assert memory_blocks(await ask_and_settle(cue, clock, "Where do I live?", "c2"))


async def test_an_organization_gets_only_memories_shared_by_authorized_users(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__user=False) as cue:
        shares = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}
        reads = {"longTermMemory": {"scopes": {"organization": True}}}
        about = {"organization": "acme", "memory_control": shares}
        await ask_and_settle(cue, clock, "We decided to ship on Friday.", "c1", **about, may_publish=False)
        assert await texts(cue, organization="acme") == []
        await ask_and_settle(cue, clock, "We decided to ship on Monday. I prefer short answers.", "c2", **about)
        assert await texts(cue, organization="acme") == ["We decided to ship on Monday."]
        reply = await ask_and_settle(
            cue, clock, "When did we decide to ship?", "c3", user="bob", organization="acme", memory_control=reads
        )
        assert any("Monday" in text for text in memory_blocks(reply))
        assert not memory_blocks(await ask_and_settle(cue, clock, "When did we decide to ship?", "c3", user="bob")), (
            "named in each turn"
        )
        assert "acme" not in str((await cue.conversations.get("c2")).metadata)


async def test_assistant_and_tool_statements_stay_in_the_conversation(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.append(
            "c1",
            [
                {"role": "user", "content": "Look at the page."},
                {"role": "assistant", "content": "Your sister lives in Madrid."},
                {"role": "user", "content": "Thanks. I live in Oslo."},
            ],
            user="ann",
        )
        clock.advance(60)
        await cue.settle()
        assert await texts(cue) == ["I live in Oslo."]


async def test_private_memories_are_withheld_where_others_read_along(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        await ask_and_settle(cue, clock, "Hello all.", "group")
        await cue.conversations.participants("group", ["ann", "bob"])
        assert memory_blocks(await ask_and_settle(cue, clock, "What am I allergic to?", "group")) == []


async def test_parallel_workers_deliver_a_memory_once(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as one, open_with_memory(tmp_path, clock) as two:
        for n in range(6):
            await one.ask(Ask(f"My locker number is {n}{n}{n}. I live in Oslo.", f"c{n}", user="ann"))
        await asyncio.gather(*(cue.work() for cue in (one, two) * 4))
        memories = (await two.memory.list(user="ann")).items
        [oslo] = [each for each in memories if "Oslo" in each.text]
        assert len(oslo.sources) == 6
        assert await one.services.store.due_pairs("deliveries_due") == []


async def test_an_erasing_correction_deletes_the_wrong_text(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        with pytest.raises(NotFound):
            await cue.memory.update(memory.id, "x", user="bob")
        fixed = await cue.memory.update(memory.id, "I am allergic to hazelnuts.", erase=True, user="ann")
        assert fixed.id == memory.id
        assert await texts(cue, ended=True, user="ann") == ["I am allergic to hazelnuts."]
        assert (await cue.memory.get(fixed.id, user="ann")).sources == memory.sources
        assert any(
            "hazelnuts" in each
            for each in memory_blocks(await ask_and_settle(cue, clock, "What am I allergic to?", "c2"))
        )
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c3")
        assert len({each.id for each in (await cue.memory.list(user="ann")).items}) == 2, "a later statement is another"


async def test_a_correction_ends_the_old_text_and_keeps_it_in_the_history(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        for text in ("I am allergic to hazelnuts.", "I am allergic to walnuts."):
            fixed = await cue.memory.update(memory.id, text, user="ann")
        assert (fixed.id, fixed.valid_to, fixed.corrected) == (memory.id, None, True)
        assert await texts(cue, user="ann") == ["I am allergic to walnuts."]
        versions = (await cue.memory.history(memory.id, user="ann")).items
        assert [each.text for each in versions] == [
            "I am allergic to walnuts.", "I am allergic to hazelnuts.", "I am allergic to nuts.",
        ]  # fmt: skip
        assert versions[0].valid_from == versions[1].valid_to > versions[1].valid_from == versions[2].valid_to
        blocks = memory_blocks(await ask_and_settle(cue, clock, "What am I allergic to?", "c2"))
        assert "walnuts" in str(blocks)
        assert "hazelnuts" not in str(blocks)
        await cue.conversations.append("c1", [{"role": "user", "content": "Hello again."}], user="ann")
        await cue.settle()
        assert await texts(cue, user="ann") == ["I am allergic to walnuts."], "its post does not restore the old text"
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c3")
        assert "I am allergic to nuts." in await texts(cue, user="ann"), "a later statement is another memory"


@pytest.mark.parametrize("way", ["erase", "memory", "conversation", "user"])
async def test_earlier_versions_of_a_corrected_memory_are_erased_with_it(tmp_path, clock, way):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to zanzibarquokkas.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        await cue.memory.update(memory.id, "I am allergic to borneoquolls.", user="ann")
        await cue.memory.update(memory.id, "I am allergic to nuts.", user="ann")
        assert len((await cue.memory.history(memory.id, user="ann")).items) == 3
        if way == "erase":
            await cue.memory.update(memory.id, "I am allergic to peanuts.", erase=True, user="ann")
        elif way == "memory":
            await cue.memory.delete(memory.id, user="ann")
        else:
            await cue.memory.forget(**{way: "c1" if way == "conversation" else "ann"})
        left = await texts(cue, ended=True, user="ann")
        assert not any("quoll" in each or "quokka" in each for each in left), left


async def test_only_standing_and_relevant_memories_enter_a_prompt(tmp_path, clock):
    facts = (
        "My name is Ines.", "I am allergic to penicillin.", "Please never suggest gyms to me.",
        "My kayak is stored in Bergen.", "My sister Wilma plays the oboe.", "I drive a green Twingo to work.",
        "We decided to paint the fence in June.", "My landlord is called Ruiz.", "I work as a baker in Oslo.",
    )  # fmt: skip
    standing, kayak = set(facts[:3]), facts[3]
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.conversations.append("c1", [{"role": "user", "content": "\n".join(facts)}], user="ann")
        await cue.settle()

        async def entering(question):
            window = await cue.assemble(Ask(question, "c2", user="ann"))
            return {block.text.partition("] ")[2] for block in window.blocks if block.source.startswith("memory:")}

        assert await entering("Write a haiku about rust.") == standing
        assert await entering("How do you make a good sourdough starter work?") == standing
        assert await entering("Where did I store my kayak?") == {*standing, kayak}
        both = await entering("Thanks, that was a good tip! Where is the kayak, and who is Wilma?")
        assert both == {*standing, kayak, facts[4]}
        await cue.ask(Ask("Where did I store my kayak?", "c2", user="ann"))
        told = list(told_of(to_wire(await cue.turns.show("c2", 1))))
        assert any(line.startswith("recalled: ") and "standing: health" in line for line in told)
        assert any("kayak" in line and "(chance 0" in line for line in told)


async def standing_in_a_haiku(cue, **settings):
    """Return the texts of the memories in a stored turn's prompt, and its lines about those that were left out."""
    reply = await cue.ask(Ask("Write a haiku about rust.", "c1", user="ann", **settings))
    shown = await cue.turns.show("c1", reply.turn)
    lines = [*window_lines(to_wire(shown)["window"])]
    return [text.partition("] ")[2] for text in memory_blocks(reply)], [
        each for each in lines if "left out: memory" in each
    ]


FOODS = "nuts milk eggs soy wheat fish celery mustard sesame lupin squid figs kiwi plums rye oats corn crab pork leek"


async def test_no_allergy_is_missing_from_a_prompt(tmp_path, clock):
    foods = FOODS.split()
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.memory.add("Never write to me after nine in the evening.", user="ann")
        for food in foods:
            await cue.memory.add(f"Allergic to {food} and everything that contains {food}.", user="ann")
        shown, left_out = await standing_in_a_haiku(cue)
        assert len(shown) == len(foods) + 1
        assert not left_out
        await cue.append("c1", [{"role": "user", "content": f"Note: {shown[0]}"}], user="ann")
        window = await cue.assemble(Ask("Write a haiku about rust.", "c1", user="ann"))
        assert sum(shown[0] in block.text for block in window.blocks) == 1


async def test_a_turn_names_each_standing_memory_without_room(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        ids = [(await cue.memory.add(f"Allergic to {food}.", user="ann")).id for food in FOODS.split()]
        ids.append((await cue.memory.add("Call me by my first name, Ines.", user="ann")).id)
        shown, left_out = await standing_in_a_haiku(cue, token_budget=500)
        assert 0 < len(shown) < len(ids)
        assert len(shown) + len(left_out) == len(ids)
        assert all("standing memories" in each and any(f"memory:{id_}," in each for id_ in ids) for each in left_out)


async def test_other_standing_memories_take_at_most_150_tokens(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        for name in FOODS.split():
            await cue.memory.add(f"People in the club of {name} and friends call me {name.title()}.", user="ann")
        shown, left_out = await standing_in_a_haiku(cue)
        assert 4 < len(shown) < 14
        assert len(shown) + len(left_out) == len(FOODS.split())
        assert all("other standing memories may use at most 150 tokens" in each for each in left_out)


async def test_a_turn_counts_standing_memories_that_are_not_read(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        for number in range(103):
            await cue.memory.add(f"Allergic to substance {number}.", user="ann")
        shown, left_out = await standing_in_a_haiku(cue)
        assert len(shown) + len(left_out) == 101
        assert any("3 more standing memories are not read" in each for each in left_out)


async def test_confidence_rises_only_by_repeats_and_answers(tmp_path, clock):
    model = ScriptedModel(default="Noted.")
    async with open_with_memory(tmp_path, clock, model=model) as cue:
        await ask_and_settle(cue, clock, "My name is Ines and my rent is 900 euros.", "c1")
        for number in range(5):
            reply = await ask_and_settle(cue, clock, "How high is my rent?", f"d{number}")
            assert memory_blocks(reply)
        [memory] = (await cue.memory.list(user="ann")).items
        assert (memory.confidence, memory.usage_count) == (0.5, 0)
        model.say("It is 900.")
        await ask_and_settle(cue, clock, "How high is my rent?", "e")
        [memory] = (await cue.memory.list(user="ann")).items
        assert (memory.confidence, memory.usage_count) == (0.55, 1)


async def test_an_organizations_memory_is_not_read_by_default_if_it_says_so(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__organization=True) as cue:
        shares = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}
        about = {"organization": "acme", "memory_control": shares}
        await ask_and_settle(cue, clock, "We decided to ship on Monday.", "c1", **about)
        of: dict = {"user": "bob", "organization": "acme"}
        assert memory_blocks(await ask_and_settle(cue, clock, "When did we decide to ship?", "c2", **of))
        change = LongTermMemoryChange(default_retrieval_enabled=False)
        await cue.organizations.change("acme", OrganizationMemoryChange(long_term_memory=change))
        assert not memory_blocks(await ask_and_settle(cue, clock, "When did we decide to ship?", "c3", **of))
        of["memory_control"] = {"longTermMemory": {"scopes": {"organization": True}}}
        assert memory_blocks(await ask_and_settle(cue, clock, "When did we decide to ship?", "c4", **of))


async def test_knowledge_without_a_user_is_found_in_turns_and_searches(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        entry = await cue.memory.put_knowledge("domain", "api.rate", "100 calls a minute")
        reply = await ask_and_settle(cue, clock, "How many calls does the api allow?", "c1", user=None)
        assert [each["memoryId"] for each in reply.metadata["longTermMemoryRetrieval"]["hits"]] == [entry.id]
        for owner in ({}, {"user": "ann"}, {"conversation": "c1"}):
            hits = await cue.memory.search("api calls", **owner)
            assert entry.id in [hit.memory_id for hit in hits], owner
        assert (await cue.memory.get(entry.id)).id == entry.id


async def test_an_erasing_correction_leaves_no_old_text_in_the_key(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        memory = await cue.memory.add("Prefers tea.", user="ann")
        fixed = await cue.memory.update(memory.id, "Prefers coffee.", erase=True, user="ann")
        assert (fixed.id, fixed.key, fixed.text) == (memory.id, "Prefers coffee.", "Prefers coffee.")
        assert (await cue.memory.get(memory.id)).content == "Prefers coffee."


async def test_knowledge_is_unique_by_category_and_key_and_decays_once(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        put = cue.memory.put_knowledge
        first = await put("domain", "api.rate", "100 a minute")
        repeat = await put("domain", "api.rate", "100 a  Minute")
        assert (first.confidence, repeat.confidence, repeat.usage_count, repeat.id) == (0.5, 0.6, 2, first.id)
        assert (await cue.memory.use_knowledge(first.id)).confidence == 0.65
        other = await put("domain", "api.rate", "200 a minute")
        assert (other.id, other.confidence) == (first.id, 0.5)
        assert [each.value for each in await cue.memory.list_knowledge()] == ["200 a minute"]
        assert [each.value for each in await cue.memory.list_knowledge(query="rate")] == ["200 a minute"]
        assert (await put("domain", "api.rate", "ann's", user="ann")).id != first.id
        clock.advance(35 * DAY)
        assert [(await cue.memory.decay_knowledge()).lost for _ in range(3)] == [2, 0, 0]
        clock.advance(200 * DAY)
        assert (await cue.memory.decay_knowledge()).gone == 2
        assert await cue.memory.list_knowledge() == Page(items=())
        for wrong in (("nonsense", "k", "v"), ("domain", "", "v"), ("domain", "k", " "), ("domain", "k" * 300, "v")):
            with pytest.raises(InvalidInput):
                await put(*wrong)


async def test_concurrent_repeats_all_count(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await asyncio.gather(*(cue.memory.put_knowledge("domain", "k", "v") for _ in range(6)))
        [entry] = await cue.memory.list_knowledge()
        assert (entry.usage_count, entry.confidence) == (6, pytest.approx(1.0))


async def test_other_users_memories_do_not_affect_recall(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        dice, put = random.Random(4), cue.memory.put_knowledge
        await put("domain", "harbour", "the lamp burns at night", user="ann")
        for n in range(300):
            await put("domain", f"harbour {dice.random()}", "the lamp burns at night", user=f"u{n}")
        hits = await cue.memory.search("harbour lamp", user="ann", scopes=["user"])
        assert [hit.scope for hit in hits] == ["user"]
        results = await cue.services.store.memories.find(
            _scope(), [Place("user", "ann")], MemoryQuery(text="lamp", limit=5)
        )
        assert len(results.memories) == len(results.found) == 1


def _scope():
    from cuebook.records.memory import Scope

    return Scope()


# ---- sinks ----------------------------------------------------------------------------------------------------------


class ListSink:
    """A sink that stores its items and fails on demand."""

    name = "shelf"

    def __init__(self):
        self.received, self.fails = [], 0

    async def keep(self, passed):
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device")
        self.received.append(passed)


async def compact(cue, clock, conversation, *, first=0):
    messages = [
        {"role": "user", "content": f"Locker number {n} is in corridor {n * 3}."} for n in range(first, first + 30)
    ]
    await cue.append(conversation, messages, user="ann")
    clock.advance(7200)
    return await cue.settle()


async def test_a_sink_gets_each_pass_once_and_retries_after_failure(tmp_path, clock):
    sink = ListSink()
    async with cue_on(tmp_path, clock=clock, sinks=[sink], memory__sink="logs/rolling.jsonl") as cue:
        sink.fails = 3
        assert set(await compact(cue, clock, "c1")) <= {"sink"}
        for _ in range(3):
            await cue.settle()
        assert await cue.settle() == {}
        await compact(cue, clock, "c1", first=30)
        await cue.settle()
        versions = [each.summary.version for each in sink.received]
        assert versions == sorted(set(versions)) != []
        [whole, *items] = sink.received[-1].rows()
        assert (whole["type"], whole["collection"], whole["category"]) == (
            "rolling_memory", "agentos-rolling-memory", "conversation_memory",
        )  # fmt: skip
        assert {each["type"] for each in items} == {"rolling_memory_item"}
        assert all(each["sources"] for each in items)


async def test_a_file_gets_each_pass_once_despite_a_crash(tmp_path, clock):
    file = tmp_path / "logs" / "rolling.jsonl"
    settings = {"memory__sink": str(file), "clock": clock}
    async with cue_on(tmp_path, **settings) as cue:
        await compact(cue, clock, "c1")
    whole = file.read_bytes()
    assert json.loads(whole.splitlines()[0])["passId"] == "c1:1:1"
    file.write_bytes(whole + whole.splitlines(keepends=True)[0][:40])  # torn by a crash
    async with cue_on(tmp_path, **settings) as cue:
        no = (await cue.services.store.conversation(Scope(), "c1")).no
        values = {"tenant": "default", "no": no, "version": 1, "sink": "file:rolling.jsonl"}
        # as if it had died before crossing the pass off
        await cue.services.store.database.write(lambda transaction: transaction.run("outbox_insert", **values).rowcount)
        await cue.settle()
        assert file.read_bytes() == whole


async def test_a_recreated_conversation_is_new_to_a_sink(tmp_path, clock):
    file = tmp_path / "rolling.jsonl"
    async with cue_on(tmp_path, clock=clock, memory__sink=str(file)) as cue:
        await compact(cue, clock, "c1")
        await cue.conversations.delete("c1")
        await compact(cue, clock, "c1")
        passes = {json.loads(line)["passId"] for line in file.read_text().splitlines()}
        assert {each.rsplit(":", 2)[0] for each in passes} == {"c1"}
        assert len({each.rsplit(":", 2)[1] for each in passes}) == 2


async def test_two_processes_write_a_pass_to_one_file_once(tmp_path, clock):
    file = tmp_path / "rolling.jsonl"
    async with cue_on(tmp_path, clock=clock, sinks=[sink := ListSink()]) as cue:
        await compact(cue, clock, "c1")
    await asyncio.gather(*(FileSink(file).keep(sink.received[0]) for _ in range(6)))
    assert len(file.read_text().splitlines()) == len(sink.received[0].rows())


async def test_a_broken_sink_does_not_block_the_others(tmp_path, clock, caplog):
    class Broken(ListSink):
        name = "broken"

        async def keep(self, passed):
            raise RuntimeError("not what anybody thought of")

    async with cue_on(tmp_path, clock=clock, sinks=[Broken(), sink := ListSink()], memory__user=True) as cue:
        due = await compact(cue, clock, "c1")
        assert set(due) == {"sink"}
        assert sink.received
        assert (await cue.audit.verify()).ok
    assert "failed for sink broken" in caplog.text


async def test_two_sinks_with_one_name_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="duplicate name 'shelf'"):
        async with cue_on(tmp_path, sinks=[ListSink(), ListSink()]):
            pass


async def test_a_corrected_text_that_is_added_again_stays_one_memory(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        added = await cue.memory.add("Prefers tea.", user="ann")
        await cue.memory.update(added.id, "Prefers coffee.", user="ann")
        again = await cue.memory.add("Prefers coffee.", user="ann")
        [memory] = (await cue.memory.list(user="ann")).items
        assert (again.id, memory.id, memory.text) == (added.id, added.id, "Prefers coffee.")


async def test_a_correction_removes_a_name_that_it_no_longer_contains(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My sister lives in Turku.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        await cue.memory.update(memory.id, "My sister lives in Oulu.", user="ann")
        window = await cue.assemble(Ask("Where does my sister live?", "c2", user="ann"))
        shown = " ".join(block.text for block in window.blocks)
        assert "My sister lives in Oulu." in shown
        assert "Turku" not in shown


async def test_a_question_about_the_user_gets_what_matches_less_than_a_search_requires(tmp_path, clock):
    stated = [
        "My sister Ebba is a nurse in Gothenburg.",
        "I play the cello in an amateur orchestra.",
        "Our cat is called Mimmi.",
    ]
    async with open_with_memory(tmp_path, clock) as cue:
        for n, text in enumerate(stated):
            await ask_and_settle(cue, clock, text, f"c{n}")

        async def entered(question):
            window = await cue.assemble(Ask(question, "other", user="ann"))
            return {text for text in stated if any(text in block.text for block in window.blocks)}

        assert await entered("Does my sister still live nearby with him?") == {stated[0]}
        assert await entered("Does a sister still live nearby with him?") == set()
        for question in ("What do you know about me?", "Was weißt du über mich?", "你知道关于我的什么？"):
            assert await entered(question) == {*stated}
        assert await entered("What do people think about men?") == set()
        await cue.ask(Ask("Who am I?", "other", user="ann"))
        turn = await cue.turns.show("other", 1, user="ann")
        assert "relevant: the question is about the user" in str(list(told_of(to_wire(turn))))


async def test_a_part_of_a_japanese_word_is_no_evidence(tmp_path, clock):
    stated = ["私はアマチュアオーケストラでチェロを弾いています。", "うちの猫の名前はミミで、七歳です。"]
    async with open_with_memory(tmp_path, clock) as cue:
        for n, text in enumerate(stated):
            await ask_and_settle(cue, clock, text, f"c{n}")
        for question, expected in (
            ("エベレストの高さは？", []),
            ("錆についての俳句を書いて。", []),
            ("チェロを弾くのは誰？", [stated[0]]),
            ("ミミは何歳？", [stated[1]]),
        ):
            window = await cue.assemble(Ask(question, "other", user="ann"))
            assert [text for text in stated if any(text in block.text for block in window.blocks)] == expected, question
