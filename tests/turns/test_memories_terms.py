"""What was said reaches the places its own turn allowed, and only the words of the one who owns the place."""

import asyncio
import json

import pytest
from msgspec.structs import replace
from stage import Client, bot, on, told, user

from cuebook import Ask
from cuebook.app.book import Call
from cuebook.engine.deliver import deliver
from cuebook.memory.scopes import persona_place
from cuebook.records.memory import Place, Scope
from cuebook.records.persona import Persona
from cuebook.testing.upstream import ScriptedUpstream, completion

ON = {"longTermMemory": {"scopes": {"user": True}}}
OFF = {"longTermMemory": {"scopes": {"user": False}}}
SHARES = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}


async def appended(book, clock, conversation, *posts, **fields):
    await book.append(conversation, list(posts), **({"user": "ann"} | fields))
    clock.advance(60)
    await book.settle()


async def texts(book, **whose):
    return [each.text async for each in book.memories.export(**(whose or {"user": "ann"}))]


async def condense(book, clock, conversation):
    said = [user(f"Locker number {n} is in corridor {n * 3}.") for n in range(40)]
    await appended(book, clock, conversation, *said)
    clock.advance(7200)
    await book.settle()
    assert await book.memory.summary(conversation, user="ann") is not None


async def test_an_opt_in_holds_from_its_turn_on(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as book:
        await told(book, clock, "I am allergic to nuts.", "c1")
        await told(book, clock, "I live in Oslo.", "c1", memory_control=ON)
        await told(book, clock, "I work as a baker.", "c1")
        assert await texts(book) == ["I live in Oslo.", "I work as a baker."]
        await condense(book, clock, "c1")
        assert not [each for each in await texts(book) if "nuts" in each], "a pass reads it again"


async def test_each_scope_has_terms_of_its_own(tmp_path, clock):
    persona = {"longTermMemory": {"scopes": {"user": False, "persona": True}}}
    async with on(tmp_path, clock, memory__user=False) as book:
        await told(book, clock, "I am allergic to nuts.", "c1", memory_control=persona)
        await told(book, clock, "I live in Oslo.", "c1", memory_control=ON)
        await told(book, clock, "I work as a baker.", "c1", memory_control=OFF)
        held = [each async for each in book.memories.export(user="ann")]
        kinds = {text: {each.place.kind for each in held if each.text == text} for text in {e.text for e in held}}
        assert kinds == {
            "I am allergic to nuts.": {"persona"},
            "I live in Oslo.": {"user", "persona"},
            "I work as a baker.": {"persona"},
        }


async def test_a_category_is_allowed_by_the_turn_it_was_said_in(tmp_path, clock):
    likes = {"longTermMemory": {"allowedCategories": ["preferences"]}}
    every = {"longTermMemory": {"allowedCategories": None}}
    async with on(tmp_path, clock) as book:
        await told(book, clock, "I live in Oslo.", "c1", memory_control=likes)
        await told(book, clock, "I work as a baker.", "c1", memory_control=every)
        said = await texts(book)
        assert "I live in Oslo." not in said


async def test_posts_stored_before_an_opt_in_stay_and_after_it_go(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as book:
        await appended(book, clock, "c1", user("I am allergic to nuts."))
        await told(book, clock, "Hello.", "c1", memory_control=ON)
        await appended(book, clock, "c1", user("I live in Oslo."))
        await told(book, clock, "Hello again.", "c1", memory_control=OFF)
        await appended(book, clock, "c1", user("I work as a baker."))
        assert await texts(book) == ["I live in Oslo."]


async def test_what_is_switched_off_before_it_is_delivered_stays(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await book.ask(Ask("I live in Oslo.", "c1", user="ann"))
        await book.ask(Ask("Forget it.", "c1", user="ann", memory_control={"longTermMemory": {"enabled": False}}))
        await book.settle()
        assert await texts(book) == []


async def test_a_keys_defaults_hold_for_what_is_said_with_it(tmp_path, clock):
    upstream = ScriptedUpstream()
    async with on(tmp_path, clock, memory__user=False, upstream=upstream) as book:
        await told(book, clock, "I am allergic to nuts.", "c1")
        await told(book, clock, "I live in Oslo.", "c1", authenticated=True)
        assert set(await texts(book)) == {"I live in Oslo."}
        history = [user("I work as a baker."), bot("Noted."), user("My locker number is 12.")]
        body = b'{"model": "m", "messages": ' + json.dumps(history).encode() + b"}"
        upstream.say(completion("Noted."))
        call = Call(body=body, headers={}, user="ann", conversation="c2", authenticated=True)
        assert [piece async for piece in book.relay(call)]
        clock.advance(60)
        await book.settle()
        said = set(await texts(book))
        assert {"I work as a baker.", "My locker number is 12."} <= said, "a turn brings a history under its terms"


async def test_each_organization_is_told_what_was_shared_with_it(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as book:
        for name, text in (("acme", "We decided to ship on Monday."), ("umb", "We decided to sell the boat.")):
            await book.ask(Ask(text, "c1", user="ann", organization=name, memory_control=SHARES))
        clock.advance(60)
        await book.settle()
        assert await texts(book, organization="acme") == ["We decided to ship on Monday."]
        assert await texts(book, organization="umb") == ["We decided to sell the boat."]


async def test_a_post_beside_a_shared_turn_is_not_shared(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as book:
        await told(book, clock, "We decided to ship.", "c1", organization="acme", memory_control=SHARES)
        await appended(book, clock, "c1", user("We decided to sell the boat."))
        assert await texts(book, organization="acme") == ["We decided to ship."]


async def test_a_persona_knows_what_was_said_to_it(tmp_path, clock):
    personas = [Persona(id="coach"), Persona(id="banker")]
    async with on(tmp_path, clock, memory__user=False, memory__persona=True) as book:
        book.desk.personas.update({each.id: each for each in personas})
        await told(book, clock, "I run every day.", "c1", persona="coach")
        await told(book, clock, "I live in Oslo.", "c1", persona="banker")
        held = {each.text: each.place async for each in book.memories.export()}
        assert held["I live in Oslo."] == persona_place("ann", "banker")


async def test_what_another_said_is_not_the_users_once_they_are_alone_again(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await told(book, clock, "Hello all.", "group")
        await book.conversations.participants("group", ["ann", "bob"])
        await book.ask(Ask("I am allergic to nuts.", "group", user="bob"))
        await book.append("group", [user("I live in Rome.", name="Robert")], user="bob")
        await book.conversations.participants("group", ["ann"])
        await told(book, clock, "I live in Oslo.", "group")
        await appended(book, clock, "group", user("I work as a baker.", name="Robert"), user("I have a dog."))
        assert await texts(book) == ["I live in Oslo.", "I have a dog."]
        await condense(book, clock, "group")
        assert not [each for each in await texts(book) if "nuts" in each or "Rome" in each]


@pytest.mark.parametrize("speaks", [True, False])
async def test_a_user_is_alone_again_where_the_only_other_was_forgotten(tmp_path, clock, speaks):
    async with on(tmp_path, clock) as book:
        await appended(book, clock, "c1", user("I live in Oslo.", name="Annie"))
        await book.conversations.participants("c1", ["ann", "bob"])
        if speaks:
            await book.append("c1", [user("I am allergic to nuts.")], user="bob")
        await book.memory.forget(user="bob")
        await appended(book, clock, "c1", user("I work as a baker.", name="Annie"))
        assert sorted(await texts(book)) == ["I live in Oslo.", "I work as a baker."]


async def test_the_name_a_user_begins_under_is_theirs_where_nobody_else_takes_part(tmp_path, clock):
    upstream = ScriptedUpstream()
    async with on(tmp_path, clock, upstream=upstream) as book:
        client = Client(book, upstream, who="ann")
        await client.say(user("I live in Oslo.", name="Annie"))
        await client.say("I moved to Berlin.")
        await client.say(user("I work as a baker.", name="Annie"))
        await client.say(user("I am allergic to nuts.", name="Planner"))
        clock.advance(60)
        await book.settle()
        held = [each async for each in book.memories.export(user="ann")]
        assert [(each.text, each.valid_to is None) for each in held] == [
            ("I live in Oslo.", False), ("I moved to Berlin.", True), ("I work as a baker.", True),
        ]  # fmt: skip


async def test_a_question_and_its_answer_are_one_memory_though_delivered_apart(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await appended(book, clock, "c1", user("Hello."), bot("Shall I note that your budget is 4,000 euros?"))
        await appended(book, clock, "c1", user("Yes, please."))
        held = [each async for each in book.memories.export(user="ann")]
        assert [len(each.sources) for each in held] == [2]
        assert "4,000" in held[0].text


class Between:
    """A store's memories where something is done between what a delivery reads and what it writes."""

    def __init__(self, inner, then):
        self._inner, self._then = inner, then

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def deliver(self, *given, **named):
        then, self._then = self._then, None
        if then is not None:
            await then()
        return await self._inner.deliver(*given, **named)


def between(book, then):
    class Store:
        memories = Between(book.desk.store.memories, then)

        def __getattr__(self, name):
            return getattr(book.desk.store, name)

    return replace(book.desk, store=Store())


async def test_a_kill_switch_thrown_while_it_is_delivered_is_heeded(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as book:
        about = {"organization": "acme", "memory_control": SHARES}
        await book.ask(Ask("We decided to ship.", "c1", user="ann", **about))

        async def forbid():
            await book.organizations.change("acme", {"memory": {"longTermMemory": {"allowWrites": False}}})

        await deliver(between(book, forbid), Scope(), "c1")
        assert await texts(book, organization="acme") == []
        assert await book.desk.store.memories.undelivered() == []


async def test_a_policy_changed_while_it_is_delivered_is_heeded(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await book.ask(Ask("I live in Oslo.", "c1", user="ann"))

        async def forbid():
            await book.ask(Ask("Stop.", "c1", user="ann", memory_control={"longTermMemory": {"enabled": False}}))

        await deliver(between(book, forbid), Scope(), "c1")
        await book.settle()
        assert await texts(book) == []


async def test_a_head_moved_while_it_is_delivered_is_heeded(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await told(book, clock, "Hello.", "c1")
        start = (await book.conversations.posts("c1"))[-1].id
        await book.ask(Ask("I live in Oslo.", "c1", user="ann"))

        async def move():
            await book.conversations.move_head("c1", start)

        await deliver(between(book, move), Scope(), "c1")
        assert await texts(book) == []


async def test_two_who_deliver_the_same_at_once_write_it_once(tmp_path, clock):
    async with on(tmp_path, clock) as one, on(tmp_path, clock) as two:
        await one.ask(Ask("I live in Oslo.", "c1", user="ann"))

        async def first():
            await deliver(two.desk, Scope(), "c1")

        await deliver(between(one, first), Scope(), "c1")
        [memory] = [each async for each in one.memories.export(user="ann")]
        assert (len(memory.sources), memory.confidence) == (1, 0.5)


async def test_a_delivery_cut_off_between_its_places_is_made_whole_again(tmp_path, clock):
    async with on(tmp_path, clock, memory__persona=True) as book:
        await book.ask(Ask("I live in Oslo.", "c1", user="ann"))

        async def die():
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await deliver(between(book, die), Scope(), "c1")
        assert await texts(book) == []
    async with on(tmp_path, clock, memory__persona=True) as book:
        await book.settle()
        places = {each.place.kind for each in [each async for each in book.memories.export(user="ann")]}
        assert places == {"user", "persona"}


async def test_a_user_has_the_places_of_every_persona_they_ever_spoke_with(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False, memory__persona=True) as book:
        book.desk.personas["coach"] = Persona(id="coach")
        await told(book, clock, "I run every day.", "c1", persona="coach")
        await told(book, clock, "I live in Rome.", "c2", persona="coach", user="bob")
    async with on(tmp_path, clock, memory__persona=True) as book:
        assert "coach" not in book.desk.personas
        assert await texts(book) == ["I run every day."]
        places = await book.memories.places(user="ann")
        assert places == [Place("user", "ann"), *sorted(each for each in places[1:])]
        assert persona_place("ann", "coach") in places
        hits = await book.memory.search("Who runs every day?", user="ann", scopes=["persona"])
        assert [hit.text for hit in hits] == ["I run every day."]
