"""Tests of semantic recall of memories: background embedding, access and erasure of vectors."""

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path

import pytest
from turn_helpers import cue_on

from cuebook import Ask, Posted
from cuebook.errors import BackendError
from cuebook.interfaces.store import MemoryQuery, PlaceChange
from cuebook.records.memory import Dense, Memory, Place, Scope
from cuebook.storage.vectors import NewVectors
from cuebook.testing import FrozenClock
from hashing_embedder import HashingEmbedder

SAME = {"puppy": "dog", "hound": "dog", "acquire": "adopted"}
ASKED = "acquire hound"
ANN = Place("user", "ann")


def meaning(**fields: object) -> HashingEmbedder:
    return HashingEmbedder(**({"dimension": 256, "synonyms": SAME} | fields))


async def put_memories(cue, *texts, user="ann"):
    for n, text in enumerate(texts):
        await cue.memory.put_knowledge("domain", f"matter {n}", text, user=user)


def vectors(path: Path, like: str = "p%") -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path / "cuebook.db")) as connection:
        return connection.execute(
            "SELECT scope, model FROM vector WHERE scope LIKE ? ORDER BY 1, 2", (like,)
        ).fetchall()


def is_in_database(folder: Path, content: bytes) -> bool:
    return any(content in file.read_bytes() for file in folder.glob("cuebook.db*"))


def texts(hits):
    return [hit.text.partition(": ")[2] for hit in hits]


async def search(cue, query=ASKED, *, user="ann", scopes=("user",), **fields):
    return await cue.memory.search(query, user=user, scopes=list(scopes) if scopes else None, **fields)


async def test_an_authorized_user_recalls_a_memory_by_meaning(tmp_path):
    async with cue_on(tmp_path, embedder=meaning(), memory__user=True) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday", "Paid the invoice")
        await put_memories(cue, "Adopted a puppy too", user="bob")
        assert await search(cue) == [], "nothing is embedded yet, and no word matches"
        assert await cue.settle() == {}
        [hit] = await search(cue)
        assert (texts([hit]), hit.scope, "meaning 1.00" in hit.why) == (["Adopted a puppy on Sunday"], "user", True)
        assert await search(cue, "quantum chromodynamics") == []
        assert await search(cue, user="cid") == []
        window = await cue.assemble(Ask(ASKED, "new", user="ann"))
        blocks = [block.text for block in window.blocks if block.source.startswith("memory:")]
        assert any("puppy on Sunday" in text for text in blocks)
        assert not any("too" in text for text in blocks)


async def test_a_single_memory_is_recalled_by_meaning():
    async with cue_on(embedder=meaning()) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday")
        await cue.settle()
        assert texts(await search(cue)) == ["Adopted a puppy on Sunday"]


async def test_each_text_is_embedded_once_and_a_use_embeds_nothing(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder) as cue:
        memory = await cue.memory.put_knowledge("domain", "pet", "Adopted a puppy", user="ann")
        await cue.settle()
        await cue.memory.use_knowledge(memory.id)
        await cue.memory.put_knowledge("domain", "pet", "Adopted a puppy", user="ann")
        await cue.settle()
        assert embedder.asked == ["pet: Adopted a puppy"]
    async with cue_on(tmp_path, embedder=embedder) as cue:
        assert await cue.settle() == {}
        assert embedder.asked == ["pet: Adopted a puppy"]


async def test_memories_of_many_users_are_embedded_in_batches():
    class Counting(HashingEmbedder):
        calls = 0

        async def embed(self, texts):
            self.calls += 1
            return await super().embed(texts)

    embedder = Counting(dimension=256, synonyms=SAME)
    async with cue_on(embedder=embedder) as cue:
        for n in range(60):
            await put_memories(cue, "Adopted a puppy", f"Number {n}", user=f"u{n}")
        await put_memories(cue, *[f"Note {n}" for n in range(70)])
        assert await cue.settle() == {}
        assert (len(embedder.asked), embedder.calls) == (190, 7)
        assert texts(await search(cue, user="u7")) == ["Adopted a puppy"]


async def test_a_corrected_or_removed_memory_loses_its_vector_in_every_process(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder) as cue, cue_on(tmp_path, embedder=embedder) as other:
        memory = await cue.memory.put_knowledge("domain", "pet", "Adopted a puppy", user="ann")
        await cue.memory.put_knowledge("domain", "bill", "Paid the invoice", user="ann")
        await cue.settle()
        for each in (cue, other):
            assert texts(await search(each)) == ["Adopted a puppy"]
        [old] = await embedder.embed(["pet: Adopted a puppy"])
        assert is_in_database(tmp_path, old)
        await cue.memory.update(memory.id, "Bought a canary", erase=True, user="ann")
        for each in (cue, other):
            assert await search(each) == []
        await cue.settle()
        assert len(vectors(tmp_path)) == 2
        for each in (cue, other):
            assert texts(await search(each, "canary bought", user="ann")) == ["Bought a canary"]
        await cue.memory.delete(memory.id, user="ann")
        assert len(vectors(tmp_path)) == 1
        assert await search(other, "canary bought") == []
        assert not is_in_database(tmp_path, old)


async def test_a_forgotten_user_leaves_no_memory_vector(tmp_path):
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder, memory__user=True, memory__persona=True) as cue:
        await cue.ask(Ask("I am allergic to nuts.", "c1", user="ann"))
        await put_memories(cue, "Adopted a puppy on Sunday")
        await put_memories(cue, "Paid the invoice", user="bob")
        assert await cue.settle() == {}
        mine = [scope for scope, _ in vectors(tmp_path, "%") if "ann" in scope or scope.startswith("c")]
        assert len({scope for scope in mine if scope.startswith("p")}) == 2, "the user's memories and a persona's"
        embedded = await embedder.embed([*embedder.asked])
        receipt = await cue.memory.forget(user="ann")
        assert receipt.state == "done"
        assert [scope for scope, _ in vectors(tmp_path, "%")] == ["puser\x1fbob"]
        [his] = await embedder.embed(["matter 0: Paid the invoice"])
        assert [is_in_database(tmp_path, each) for each in embedded if each != his] == [False] * len(
            [e for e in embedded if e != his]
        )
        assert not is_in_database(tmp_path, b"user\x1fann")
        assert await cue.settle() == {}
        await put_memories(cue, "Adopted a puppy again")
        await cue.settle()
        assert texts(await search(cue)) == ["Adopted a puppy again"], "a returning user starts empty"


async def test_a_memory_forgotten_during_embedding_gets_no_vector(tmp_path):
    class Meanwhile(HashingEmbedder):
        cue = None

        async def embed(self, texts):
            embedded = await super().embed(texts)
            if self.cue is not None and len(self.asked) == 1:
                await self.cue.memory.forget(user="ann")
                await put_memories(self.cue, "Paid the invoice")
            return embedded

    embedder = Meanwhile(dimension=256, synonyms=SAME)
    async with cue_on(tmp_path, embedder=embedder) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday")
        embedder.cue = cue
        assert await cue.settle() == {}
        assert embedder.asked == ["matter 0: Adopted a puppy on Sunday", "matter 0: Paid the invoice"]
        assert len(vectors(tmp_path)) == 1
        assert texts(await search(cue, "invoice paid")) == ["Paid the invoice"]


async def test_a_late_embedding_is_discarded_if_the_text_changed(tmp_path):
    async with cue_on(tmp_path, embedder=meaning()) as cue:
        memory = await cue.memory.put_knowledge("domain", "pet", "Adopted a puppy", user="ann")
        store = cue.services.store.vectors
        [due] = await store.places_due("m")
        [(number, _, _)] = await store.memory_texts(Scope(), ANN, after=due.upto, limit=9)
        rows = ((number, 0, bytes(16)),)
        late = NewVectors(model="m", after=0, upto=due.said, rows=rows, now=1.0)
        await cue.memory.update(memory.id, "Bought a canary", user="ann")
        assert await store.keep_of_place(Scope(), ANN, late)
        assert vectors(tmp_path) == []
        assert [each.upto for each in await store.places_due("m")] == [due.said], "the new text is due"
        assert not await store.keep_of_place(Scope(), ANN, late)
        assert not await store.keep_of_place(Scope("others"), ANN, late)


async def test_another_embedding_model_re_embeds_posts_and_memories(tmp_path):
    async with cue_on(tmp_path, embedder=meaning(name="old")) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday")
        await cue.append("c", [Posted(sender="ann", message="I adopted a puppy", id="p1")])
        await cue.settle()
        assert texts(await search(cue)) == ["Adopted a puppy on Sunday"]
    for changed in ({"name": "new"}, {"name": "new", "dimension": 128}):
        embedder = meaning(**changed)
        async with cue_on(tmp_path, embedder=embedder) as cue:
            assert await search(cue) == await cue.memory.search(ASKED, conversation="c") == []
            assert texts(await search(cue, "Sunday puppy")) == ["Adopted a puppy on Sunday"]
            assert (await cue.memory.search("puppy", conversation="c"))[0].sources == ("p1",)
            assert await cue.settle() == {}
            assert {"ann: I adopted a puppy", "matter 0: Adopted a puppy on Sunday"} < set(embedder.asked)
            assert texts(await search(cue)) == ["Adopted a puppy on Sunday"]
            assert (await cue.memory.search(ASKED, conversation="c"))[0].sources == ("p1",)


async def test_a_vector_of_another_size_is_refused_without_loss(tmp_path, caplog):
    class Grown(HashingEmbedder):
        size = 256

        async def embed(self, texts):
            return [vector[: 4 * self.size] for vector in await super().embed(texts)]

    embedder = Grown(dimension=256, synonyms=SAME)
    async with cue_on(tmp_path, embedder=embedder) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday")
        await cue.settle()
        embedder.size = 128
        await put_memories(cue, "Paid the invoice", user="bob")
        assert await cue.settle() == {"embedding": 1}
        assert "Embedder hashing returned vectors of dimension 128 instead of 256" in caplog.text
        assert len(vectors(tmp_path)) == 1
        assert texts(await search(cue, "puppy Sunday")) == ["Adopted a puppy on Sunday"], "recalled by its words"
        assert texts(await search(cue, "invoice paid", user="bob")) == ["Paid the invoice"]
    embedder.size = 256
    async with cue_on(tmp_path, embedder=embedder) as cue:
        assert await cue.settle() == {}
        assert len(vectors(tmp_path)) == 2


async def test_memories_in_unsupported_languages_are_not_embedded():
    embedder = meaning(languages=frozenset({"en"}))
    async with cue_on(embedder=embedder) as cue:
        await put_memories(
            cue, "Adopted a puppy", "昨天我领养了一只小狗", "Ich habe gestern einen Hund bekommen und er ist lieb"
        )
        assert await cue.settle() == {}
        assert embedder.asked == ["matter 0: Adopted a puppy"]
        assert texts(await search(cue, "小狗")) == ["昨天我领养了一只小狗"]
    free = meaning()
    async with cue_on(embedder=free) as cue:
        await put_memories(cue, "Adopted a puppy", "昨天我领养了一只小狗")
        await cue.settle()
        assert len(free.asked) == 2


async def test_an_ended_memory_is_recalled_only_as_of_its_validity():
    clock = FrozenClock()
    async with cue_on(embedder=meaning(), clock=clock) as cue:
        await cue.memory.put_knowledge("domain", "pet", "Adopted a puppy", user="ann")
        moment = clock.now() + 1
        clock.advance(86_400)
        await cue.memory.put_knowledge("domain", "pet", "Bought a canary", user="ann")
        await cue.settle()
        assert await search(cue) == []
        assert texts(await search(cue, as_of=moment)) == ["Adopted a puppy"]
        assert texts(await search(cue, "adopted a puppy", as_of=moment)) == ["Adopted a puppy"]


async def test_ended_memories_do_not_displace_current_ones():
    """1,200 memories are current and 400 ended ones match more words, with and without vectors."""
    async with cue_on() as cue:
        store = cue.services.store
        ended = [_memory(n, "lamp lamp harbour", valid_to=2.0) for n in range(400)]
        holding = [_memory(n, f"note {n} of the winter garden") for n in range(1000, 2200)]
        current = _memory(9000, "the lamp by the old harbour wall, as was said on the first day")
        change = PlaceChange(place=ANN, generation=0, memories=(*ended, *holding, current))
        await store.memories.save(Scope(), change, now=1.0)
        results = await store.memories.find(Scope(), [ANN], MemoryQuery(text="lamp harbour", limit=24))
        assert [each.id for each in results.memories if each.no in results.found] == [current.id]
        past = await store.memories.find(Scope(), [ANN], MemoryQuery(text="lamp harbour", limit=24, at=1.5))
        assert len(past.found) == 24
        rows = await store.vectors.memory_texts(Scope(), ANN, after=0, limit=9999)
        numbers = {number: text for number, _, text in rows}
        unit = {True: _numbers(1.0), False: _numbers(0.0)}
        rows = tuple((number, 0, unit["lamp" in text]) for number, text in numbers.items())
        embedded = NewVectors(model="m", after=0, upto=max(numbers), rows=rows, now=1.0)
        assert await store.vectors.keep_of_place(Scope(), ANN, embedded)
        dense = Dense("m", _numbers(1.0), 0.5)
        near = await store.memories.find(Scope(), [ANN], MemoryQuery(text="", dense=dense, limit=3))
        by_no = {each.no: each for each in near.memories}
        assert [by_no[no].id for no in near.found][:1] == [current.id]
        assert near.cosines[near.found[0]] == pytest.approx(1.0)


def _memory(n: int, text: str, **fields: object) -> Memory:
    return Memory(
        id=f"{n:016x}", kind=ANN.kind, owner=ANN.id, category="facts", text=text, written=True, valid_from=1.0, **fields
    )


def _numbers(x: float) -> bytes:
    return array("f", (x, (1 - x * x) ** 0.5)).tobytes()


async def test_a_fact_of_user_and_persona_is_recalled_once(tmp_path):
    async with cue_on(tmp_path, memory__user=True, memory__persona=True) as cue:
        await cue.ask(Ask("I am allergic to nuts.", "c1", user="ann"))
        await cue.settle()
        page = await cue.memory.list(user="ann")
        assert sorted(each.scope for each in page.items) == ["persona", "user"]
        hits = await search(cue, "Who is allergic to nuts?", scopes=("user", "persona"))
        memory_hits = [hit for hit in hits if hit.kind == "item"]
        assert [hit.scope for hit in memory_hits] == ["persona"], "the narrowest owner wins"
        for name in ("c2", "c2"):
            reply = await cue.ask(Ask("What am I allergic to?", name, user="ann"))
            blocks = [block.text for block in reply.window.blocks if block.source.startswith("memory:")]
            assert sum("allergic to nuts" in text for text in blocks) == 1
        persona_memories = [each for each in page if each.scope == "persona"]
        await cue.memory.delete(persona_memories[0].id, user="ann")
        hits = await search(cue, "Who is allergic to nuts?", scopes=("user", "persona"))
        assert [hit.scope for hit in hits if hit.kind == "item"] == ["user"]


async def test_a_failing_embedder_falls_back_to_words(caplog):
    embedder = meaning()
    async with cue_on(embedder=embedder) as cue:
        await put_memories(cue, "Adopted a puppy on Sunday")
        embedder.fails = True
        assert await cue.settle() == {"embedding": 1}
        assert "`fails` is set" in caplog.text
        assert texts(await search(cue, "puppy")) == ["Adopted a puppy on Sunday"]
        with pytest.raises(BackendError):
            await embedder.embed(["x"])


async def test_search_omits_memories_that_match_by_chance(tmp_path):
    async with cue_on(tmp_path, memory__user=True) as cue:
        await put_memories(cue, "The oven in the bakery needs a new fuse", "The bakery closes at six", "Rents a garage")
        [oven] = await search(cue, "Which fuse does the oven in the bakery need?")
        assert texts([oven]) == ["The oven in the bakery needs a new fuse"]
        assert oven.why.startswith("relevant: ")
        assert "shares fuse" in oven.why
        every = await search(cue, "Which fuse does the oven in the bakery need?", min_share=0.0)
        assert texts(every) == ["The oven in the bakery needs a new fuse", "The bakery closes at six"]
        assert await search(cue, "Who won the cup final?", min_share=0.0) == []


async def test_search_finds_what_is_known_about_the_user(tmp_path):
    async with cue_on(tmp_path, memory__user=True) as cue:
        await put_memories(cue, "Allergic to nuts", "Lives in Oslo")
        await put_memories(cue, "Lives in Rome", user="bob")
        known = await search(cue, "What do you know about me?")
        assert set(texts(known)) == {"Allergic to nuts", "Lives in Oslo"}
        assert {hit.why for hit in known} == {"relevant: the question is about the user"}
        for _ in range(5):  # the most certain one does not hide the others
            await cue.memory.add("Allergic to nuts, and to pollen", user="ann")
        assert len(await search(cue, "What do you know about me?", min_share=0.25)) == 3
        await cue.memory.put_knowledge("domain", "printer", "It is on floor 3")
        [first] = await search(cue, "What do you know about me?", limit=1, scopes=None)
        assert first.text == "Allergic to nuts, and to pollen", "health first, and nothing of the project"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Ledgerline", [0, 1, 2]),  # a word of all memories: they match by chance, so all are found
        ("What is the topic of Ledgerline's locker and its dentist?", [1, 2]),  # two subjects
        ("Where does the old train to the coast stop?", []),  # one everyday word
        ("Which locker is for the Saturday code?", [1]),  # the day on which all were stored
        ("Which Dentist?", [2]),
    ],
)
async def test_the_words_that_make_a_memory_relevant(tmp_path, query, expected):
    stated = ["Ledgerline is old", "The locker of Ledgerline has the code 4711", "Ledgerline pays the dentist"]
    saturday = FrozenClock(1_700_308_800.0)
    async with cue_on(tmp_path, memory__user=True, clock=saturday) as cue:
        for text in stated:
            await cue.memory.add(text, user="ann")
        hits = await search(cue, query)
        assert sorted(stated.index(hit.text) for hit in hits) == expected
        if query == "Which Dentist?":
            assert hits[0].why.startswith("relevant: shares dentist (chance 0.062)")
