"""Memories of places recalled by meaning: in other words, embedded behind, and forgotten with their vectors."""

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path

import pytest
from stage import cue_on

from cuebook import Ask, Posted
from cuebook.errors import BackendError
from cuebook.interfaces.memories import MemoryQuery, PlaceChange
from cuebook.interfaces.vectors import EmbeddedPlace
from cuebook.memory.scopes import persona_place
from cuebook.records.memory import Dense, Memory, Place, Scope
from cuebook.testing import FrozenClock
from cuebook.testing.embedder import HashingEmbedder

SAME = {"puppy": "dog", "hound": "dog", "acquire": "adopted"}
ASKED = "acquire hound"
ANN = Place("user", "ann")


def meaning(**fields: object) -> HashingEmbedder:
    return HashingEmbedder(**({"dimension": 256, "synonyms": SAME} | fields))


async def tell(cue, *texts, user="ann"):
    for n, text in enumerate(texts):
        await cue.memories.put("domain", f"matter {n}", text, user=user)


def vectors(path: Path, like: str = "p%") -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path / "cuebook.db")) as connection:
        return connection.execute(
            "SELECT scope, model FROM vector WHERE scope LIKE ? ORDER BY 1, 2", (like,)
        ).fetchall()


def lies_in(folder: Path, content: bytes) -> bool:
    return any(content in file.read_bytes() for file in folder.glob("cuebook.db*"))


def texts(hits):
    return [hit.text.partition(": ")[2] for hit in hits]


async def asked(cue, query=ASKED, *, user="ann", scopes=("user",), **fields):
    return await cue.memory.search(query, user=user, scopes=list(scopes) if scopes else None, **fields)


async def test_a_memory_is_found_in_other_words_by_who_may_know_it_and_says_why(tmp_path):
    async with cue_on(tmp_path, embedder=meaning(), memory__user=True) as cue:
        await tell(cue, "Adopted a puppy on Sunday", "Paid the invoice")
        await tell(cue, "Adopted a puppy too", user="bob")
        assert await asked(cue) == [], "nothing is embedded yet, and no word is the same"
        assert await cue.settle() == {}
        [hit] = await asked(cue)
        assert (texts([hit]), hit.scope, "meaning 1.00" in hit.why) == (["Adopted a puppy on Sunday"], "user", True)
        assert await asked(cue, "quantum chromodynamics") == []
        assert await asked(cue, user="cid") == []
        window = await cue.assemble(Ask(ASKED, "new", user="ann"))
        said = [block.text for block in window.blocks if block.source.startswith("memory:")]
        assert any("puppy on Sunday" in text for text in said)
        assert not any("too" in text for text in said)


async def test_one_memory_alone_is_found_by_meaning():
    async with cue_on(embedder=meaning()) as cue:
        await tell(cue, "Adopted a puppy on Sunday")
        await cue.settle()
        assert texts(await asked(cue)) == ["Adopted a puppy on Sunday"]


async def test_each_text_is_embedded_once_and_a_use_embeds_nothing(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder) as cue:
        kept = await cue.memories.put("domain", "pet", "Adopted a puppy", user="ann")
        await cue.settle()
        await cue.memories.use(kept.id)
        await cue.memories.put("domain", "pet", "Adopted a puppy", user="ann")
        await cue.settle()
        assert embedder.asked == ["pet: Adopted a puppy"]
    async with cue_on(tmp_path, embedder=embedder) as cue:
        assert await cue.settle() == {}
        assert embedder.asked == ["pet: Adopted a puppy"]


async def test_what_many_users_said_is_embedded_in_few_calls():
    class Counting(HashingEmbedder):
        calls = 0

        async def embed(self, texts):
            self.calls += 1
            return await super().embed(texts)

    embedder = Counting(dimension=256, synonyms=SAME)
    async with cue_on(embedder=embedder) as cue:
        for n in range(60):
            await tell(cue, "Adopted a puppy", f"Number {n}", user=f"u{n}")
        await tell(cue, *[f"Note {n}" for n in range(70)])
        assert await cue.settle() == {}
        assert (len(embedder.asked), embedder.calls) == (190, 7)
        assert texts(await asked(cue, user="u7")) == ["Adopted a puppy"]


async def test_what_is_corrected_or_removed_takes_its_vector_along_also_where_another_process_holds_it(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder) as cue, cue_on(tmp_path, embedder=embedder) as other:
        kept = await cue.memories.put("domain", "pet", "Adopted a puppy", user="ann")
        await cue.memories.put("domain", "bill", "Paid the invoice", user="ann")
        await cue.settle()
        for each in (cue, other):
            assert texts(await asked(each)) == ["Adopted a puppy"]
        [old] = await embedder.embed(["pet: Adopted a puppy"])
        assert lies_in(tmp_path, old)
        await cue.memories.correct(kept.id, "Bought a canary", user="ann")
        for each in (cue, other):
            assert await asked(each) == []
        await cue.settle()
        assert len(vectors(tmp_path)) == 2
        for each in (cue, other):
            assert texts(await asked(each, "canary bought", user="ann")) == ["Bought a canary"]
        await cue.memories.remove(kept.id, user="ann")
        assert len(vectors(tmp_path)) == 1
        assert await asked(other, "canary bought") == []
        assert not lies_in(tmp_path, old)


async def test_of_a_forgotten_user_no_vector_of_a_memory_is_left(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder, memory__user=True, memory__persona=True) as cue:
        await cue.ask(Ask("I am allergic to nuts.", "c1", user="ann"))
        await tell(cue, "Adopted a puppy on Sunday")
        await tell(cue, "Paid the invoice", user="bob")
        assert await cue.settle() == {}
        mine = [scope for scope, _ in vectors(tmp_path, "%") if "ann" in scope or scope.startswith("c")]
        assert len({scope for scope in mine if scope.startswith("p")}) == 2, "the user's place and a persona's"
        made = await embedder.embed([*embedder.asked])
        receipt = await cue.memory.forget(user="ann")
        assert receipt.state == "done"
        assert [scope for scope, _ in vectors(tmp_path, "%")] == ["puser\x1fbob"]
        [his] = await embedder.embed(["matter 0: Paid the invoice"])
        assert [lies_in(tmp_path, each) for each in made if each != his] == [False] * len([e for e in made if e != his])
        assert not lies_in(tmp_path, b"user\x1fann")
        assert await cue.settle() == {}
        await tell(cue, "Adopted a puppy again")
        await cue.settle()
        assert texts(await asked(cue)) == ["Adopted a puppy again"], "who comes back begins anew"


async def test_what_is_forgotten_while_it_is_embedded_gets_no_vector(tmp_path):
    class Meanwhile(HashingEmbedder):
        cue = None

        async def embed(self, texts):
            found = await super().embed(texts)
            if self.cue is not None and len(self.asked) == 1:
                await self.cue.memory.forget(user="ann")
                await tell(self.cue, "Paid the invoice")
            return found

    embedder = Meanwhile(dimension=256, synonyms=SAME)
    async with cue_on(tmp_path, embedder=embedder) as cue:
        await tell(cue, "Adopted a puppy on Sunday")
        embedder.cue = cue
        assert await cue.settle() == {}
        assert embedder.asked == ["matter 0: Adopted a puppy on Sunday", "matter 0: Paid the invoice"]
        assert len(vectors(tmp_path)) == 1
        assert texts(await asked(cue, "invoice paid")) == ["Paid the invoice"]


async def test_who_embeds_second_keeps_nothing_and_a_text_that_changed_has_no_vector_of_the_old(tmp_path):
    async with cue_on(tmp_path, embedder=meaning()) as cue:
        kept = await cue.memories.put("domain", "pet", "Adopted a puppy", user="ann")
        store = cue.desk.store.vectors
        [due] = await store.places_due("m")
        [said] = await store.memory_texts(Scope(), ANN, after=due.upto, limit=9)
        rows = ((said.number, 0, bytes(16)),)
        late = EmbeddedPlace(place=ANN, model="m", after=0, upto=due.said, rows=rows, now=1.0)
        await cue.memories.correct(kept.id, "Bought a canary", user="ann")
        assert await store.keep_of_place(Scope(), late)
        assert vectors(tmp_path) == []
        assert [each.upto for each in await store.places_due("m")] == [due.said], "the new text is due"
        assert not await store.keep_of_place(Scope(), late)
        assert not await store.keep_of_place(Scope("others"), late)


async def test_another_model_embeds_posts_and_memories_anew_while_full_text_goes_on(tmp_path):
    async with cue_on(tmp_path, embedder=meaning(name="old")) as cue:
        await tell(cue, "Adopted a puppy on Sunday")
        await cue.append("c", [Posted(sender="ann", message="I adopted a puppy", id="p1")])
        await cue.settle()
        assert texts(await asked(cue)) == ["Adopted a puppy on Sunday"]
    for changed in ({"name": "new"}, {"name": "new", "dimension": 128}):
        embedder = meaning(**changed)
        async with cue_on(tmp_path, embedder=embedder) as cue:
            assert await asked(cue) == await cue.memory.search(ASKED, conversation="c") == []
            assert texts(await asked(cue, "Sunday puppy")) == ["Adopted a puppy on Sunday"]
            assert (await cue.memory.search("puppy", conversation="c"))[0].sources == ("p1",)
            assert await cue.settle() == {}
            assert {"ann: I adopted a puppy", "matter 0: Adopted a puppy on Sunday"} < set(embedder.asked)
            assert texts(await asked(cue)) == ["Adopted a puppy on Sunday"]
            assert (await cue.memory.search(ASKED, conversation="c"))[0].sources == ("p1",)


async def test_a_vector_of_another_size_is_refused_and_nothing_is_lost(tmp_path, caplog):
    class Grown(HashingEmbedder):
        size = 256

        async def embed(self, texts):
            return [vector[: 4 * self.size] for vector in await super().embed(texts)]

    embedder = Grown(dimension=256, synonyms=SAME)
    async with cue_on(tmp_path, embedder=embedder) as cue:
        await tell(cue, "Adopted a puppy on Sunday")
        await cue.settle()
        embedder.size = 128
        await tell(cue, "Paid the invoice", user="bob")
        assert await cue.settle() == {"embedding": 1}
        assert "Embedder hashing returned vectors of dimension 128 instead of 256" in caplog.text
        assert len(vectors(tmp_path)) == 1
        assert texts(await asked(cue, "puppy Sunday")) == ["Adopted a puppy on Sunday"], "by its words"
        assert texts(await asked(cue, "invoice paid", user="bob")) == ["Paid the invoice"]
    embedder.size = 256
    async with cue_on(tmp_path, embedder=embedder) as cue:
        assert await cue.settle() == {}
        assert len(vectors(tmp_path)) == 2


async def test_nobody_asks_an_embedder_about_memories_in_languages_it_does_not_know():
    embedder = meaning(languages=frozenset({"en"}))
    async with cue_on(embedder=embedder) as cue:
        await tell(
            cue, "Adopted a puppy", "昨天我领养了一只小狗", "Ich habe gestern einen Hund bekommen und er ist lieb"
        )
        assert await cue.settle() == {}
        assert embedder.asked == ["matter 0: Adopted a puppy"]
        assert texts(await asked(cue, "小狗")) == ["昨天我领养了一只小狗"]
    free = meaning()
    async with cue_on(embedder=free) as cue:
        await tell(cue, "Adopted a puppy", "昨天我领养了一只小狗")
        await cue.settle()
        assert len(free.asked) == 2


async def test_what_ended_is_found_as_of_a_day_it_held_and_not_today():
    clock = FrozenClock()
    async with cue_on(embedder=meaning(), clock=clock) as cue:
        await cue.memories.put("domain", "pet", "Adopted a puppy", user="ann")
        then = clock.now() + 1
        clock.advance(86_400)
        await cue.memories.put("domain", "pet", "Bought a canary", user="ann")
        await cue.settle()
        assert await asked(cue) == []
        assert texts(await asked(cue, as_of=then)) == ["Adopted a puppy"]
        assert texts(await asked(cue, "adopted a puppy", as_of=then)) == ["Adopted a puppy"]


async def test_what_ended_takes_no_place_from_what_holds_in_a_large_place():
    """1,200 memories hold and 400 ended ones say the words more often; full text alone and vectors alike."""
    async with cue_on() as cue:
        store = cue.desk.store
        ended = [_memory(n, "lamp lamp harbour", valid_to=2.0) for n in range(400)]
        holding = [_memory(n, f"note {n} of the winter garden") for n in range(1000, 2200)]
        held = _memory(9000, "the lamp by the old harbour wall, as was said on the first day")
        change = PlaceChange(place=ANN, generation=0, memories=(*ended, *holding, held))
        await store.memories.save(Scope(), change, now=1.0)
        found = await store.memories.find(Scope(), [ANN], MemoryQuery(text="lamp harbour", limit=24))
        assert [each.id for each in found.memories if each.no in found.found] == [held.id]
        then = await store.memories.find(Scope(), [ANN], MemoryQuery(text="lamp harbour", limit=24, at=1.5))
        assert len(then.found) == 24
        numbers = {
            each.number: each.text for each in await store.vectors.memory_texts(Scope(), ANN, after=0, limit=9999)
        }
        unit = {True: _numbers(1.0), False: _numbers(0.0)}
        rows = tuple((number, 0, unit["lamp" in text]) for number, text in numbers.items())
        embedded = EmbeddedPlace(place=ANN, model="m", after=0, upto=max(numbers), rows=rows, now=1.0)
        assert await store.vectors.keep_of_place(Scope(), embedded)
        dense = Dense("m", _numbers(1.0), 0.5)
        near = await store.memories.find(Scope(), [ANN], MemoryQuery(text="", dense=dense, limit=3))
        by_no = {each.no: each for each in near.memories}
        assert [by_no[no].id for no in near.found][:1] == [held.id]
        assert near.cosines[near.found[0]] == pytest.approx(1.0)


def _memory(n: int, text: str, **fields: object) -> Memory:
    return Memory(id=f"{n:016x}", place=ANN, category="facts", text=text, written=True, valid_from=1.0, **fields)


def _numbers(x: float) -> bytes:
    return array("f", (x, (1 - x * x) ** 0.5)).tobytes()


async def test_the_same_fact_of_a_user_and_of_a_persona_is_said_and_found_once(tmp_path):
    async with cue_on(tmp_path, memory__user=True, memory__persona=True) as cue:
        await cue.ask(Ask("I am allergic to nuts.", "c1", user="ann"))
        await cue.settle()
        page = await cue.memories.page(user="ann")
        assert sorted(each.place.kind for each in page.items) == ["persona", "user"]
        hits = await asked(cue, "Who is allergic to nuts?", scopes=("user", "persona"))
        known = [hit for hit in hits if hit.memory_id.startswith("memory:")]
        assert [hit.scope for hit in known] == ["persona"], "the narrowest place speaks"
        for name in ("c2", "c2"):
            reply = await cue.ask(Ask("What am I allergic to?", name, user="ann"))
            said = [block.text for block in reply.window.blocks if block.source.startswith("memory:")]
            assert sum("allergic to nuts" in text for text in said) == 1
        own = [each for each in page.items if each.place == persona_place("ann", cue.desk.default_persona)]
        await cue.memories.remove(own[0].id, user="ann")
        hits = await asked(cue, "Who is allergic to nuts?", scopes=("user", "persona"))
        assert [hit.scope for hit in hits if hit.memory_id.startswith("memory:")] == ["user"]


async def test_an_embedder_that_fails_leaves_words(caplog):
    embedder = meaning()
    async with cue_on(embedder=embedder) as cue:
        await tell(cue, "Adopted a puppy on Sunday")
        embedder.fails = True
        assert await cue.settle() == {"embedding": 1}
        assert "`fails` is set" in caplog.text
        assert texts(await asked(cue, "puppy")) == ["Adopted a puppy on Sunday"]
        with pytest.raises(BackendError):
            await embedder.embed(["x"])
