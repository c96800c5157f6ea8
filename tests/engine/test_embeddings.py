"""Tests of semantic recall: background embedding, time limits, language limits and erasure."""

import asyncio
from pathlib import Path

import pytest
from turn_helpers import cue_on

from cuebook import Ask, Posted
from cuebook.errors import InvalidInput
from hashing_embedder import HashingEmbedder

SAID = ("I adopted a puppy yesterday", "The invoice is paid", "Let us paint the kitchen blue", "Rain again all week")
SAME = {"puppy": "dog", "hound": "dog", "acquire": "adopted"}
ASKED = "acquire hound"


def meaning(**fields: object) -> HashingEmbedder:
    return HashingEmbedder(dimension=256, synonyms=SAME, **fields)


def posts_of(*texts: str, sender: str = "ann") -> list[Posted]:
    return [Posted(sender=sender, message=text, id=f"p{n}") for n, text in enumerate(texts, 1)]


def is_in_database(folder: Path, content: bytes) -> bool:
    return any(content in file.read_bytes() for file in folder.glob("cuebook.db*"))


async def test_a_post_with_the_same_meaning_is_recalled() -> None:
    async with cue_on() as cue:
        await cue.append("c", posts_of(*SAID))
        assert await cue.memory.search(ASKED, conversation="c") == []
    async with cue_on(embedder=meaning()) as cue:
        await cue.append("c", posts_of(*SAID), user="ann")
        assert await cue.settle() == {}
        first, *_ = await cue.memory.search(ASKED, conversation="c")
        assert first.sources == ("p1",)
        assert "meaning 1.00" in first.why
        assert (await cue.memory.search(ASKED, user="ann"))[0].sources == ("p1",)
        assert await cue.memory.search("quantum chromodynamics", conversation="c") == []


async def test_a_single_post_is_recalled_by_meaning() -> None:
    async with cue_on(embedder=meaning()) as cue:
        await cue.append("c", posts_of(SAID[0]), user="ann")
        await cue.settle()
        for owner in ({"conversation": "c"}, {"user": "ann"}):
            assert [hit.sources for hit in await cue.memory.search(ASKED, **owner)] == [("p1",)]
            assert await cue.memory.search("quantum chromodynamics", **owner) == []


async def test_a_message_is_compared_by_each_of_its_sentences() -> None:
    embedder = meaning()
    async with cue_on(embedder=embedder) as cue:
        await cue.append("c", posts_of(*SAID, *(f"Nothing new about train {n}" for n in range(30))), user="ann")
        await cue.settle()
        embedder.asked.clear()
        sentences = "Quantum chromodynamics bores my sister.", "They acquire hound.", "Fjords delight grandparents."
        hits = await cue.memory.search(f"Hi! {' '.join(sentences)}", conversation="c")
        assert hits[0].sources == ("p1",)
        assert set(sentences) < set(embedder.asked)
        assert "Hi!" not in embedder.asked


async def test_posts_are_embedded_once_in_the_background(tmp_path: Path) -> None:
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder, worker=True, work__interval_s=0.05) as cue:
        await cue.append("c", posts_of(*SAID))
        while len(embedder.asked) < len(SAID):  # noqa: ASYNC110  the double tells nobody
            await asyncio.sleep(0.01)
        assert await cue.settle() == {}
    async with cue_on(tmp_path, embedder=embedder) as cue:
        assert await cue.settle() == {}
        assert sorted(embedder.asked) == sorted(f"ann: {text}" for text in SAID)


async def test_assembling_is_repeatable_and_includes_semantic_matches() -> None:
    async with cue_on(embedder=meaning(), budget__window_posts=2, budget__max_short_term=60) as cue:
        await cue.append("c", posts_of(*SAID, *[f"Note {n} about nothing in particular" for n in range(40)]))
        await cue.settle()
        ask = Ask(ASKED, "c")
        first, second = await cue.assemble(ask), await cue.assemble(ask)
        shown = [[(block.kind, block.source, block.text) for block in each.blocks] for each in (first, second)]
        assert shown[0] == shown[1], "only the marker of the recalled text differs"
        assert b"puppy" in b"".join(first.raw_messages)


async def test_a_failing_or_slow_embedder_leaves_full_text_search(caplog: pytest.LogCaptureFixture) -> None:
    embedder = meaning()
    embedder.fails = True
    async with cue_on(embedder=embedder) as cue:
        await cue.append("c", posts_of(*SAID))
        assert await cue.settle() == {"embedding": len(SAID)}
        assert "`fails` is set" in caplog.text
        [hit] = await cue.memory.search("puppy", conversation="c", limit=1)
        assert hit.sources == ("p1",)

    class Slow(HashingEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(30)
            return await super().embed(texts)

    async with cue_on(embedder=Slow(), embedder__timeout_s=0.05) as cue:
        await cue.append("c", posts_of(*SAID))
        assert (await cue.memory.search("puppy", conversation="c"))[0].sources == ("p1",)
        assert "timed out after 0.05 s" in caplog.text


async def test_another_embedding_model_re_embeds_and_never_mixes(tmp_path: Path) -> None:
    async with cue_on(tmp_path, embedder=meaning(name="old")) as cue:
        await cue.append("c", posts_of(*SAID))
        await cue.settle()
    async with cue_on(tmp_path, embedder=meaning(name="new")) as cue:
        assert await cue.memory.search(ASKED, conversation="c") == []
        assert (await cue.memory.search("puppy", conversation="c"))[0].sources == ("p1",)
        assert await cue.settle() == {}
        assert (await cue.memory.search(ASKED, conversation="c"))[0].sources == ("p1",)


async def test_a_deleted_conversation_leaves_no_vector_bytes(tmp_path: Path) -> None:
    embedder = meaning()
    async with cue_on(tmp_path, embedder=embedder) as cue:
        await cue.append("c", posts_of(*SAID))
        await cue.append("other", posts_of("Another matter"))
        await cue.settle()
        [vector] = await embedder.embed([f"ann: {SAID[0]}"])
        assert is_in_database(tmp_path, vector)
        counts = await cue.conversations.delete("c")
        assert counts["vectors"] == len(SAID)
        assert not is_in_database(tmp_path, vector)
        assert await cue.settle() == {}


async def test_texts_in_unsupported_languages_are_not_embedded() -> None:
    embedder = meaning(languages=frozenset({"en"}))
    foreign = (
        "昨天我领养了一只小狗",
        "Ich habe gestern einen Hund bekommen und er ist sehr lieb",
        "Вчера я завёл собаку",
    )
    async with cue_on(embedder=embedder) as cue:
        await cue.append("c", posts_of("I adopted a puppy", *foreign, "def main(): return 0"))
        assert await cue.settle() == {}
        assert embedder.asked == ["ann: I adopted a puppy", "ann: def main(): return 0"]
        await cue.memory.search("小狗", conversation="c")
        await cue.memory.search("Was ist mit dem Hund und der Katze?", conversation="c")
        assert len(embedder.asked) == 2
        assert (await cue.memory.search("小狗", conversation="c"))[0].sources == ("p2",)


async def test_a_long_post_is_recalled_by_any_passage() -> None:
    filler = "Nothing of note happened in the meeting about budgets. " * 40
    async with cue_on(embedder=meaning()) as cue:
        await cue.append("c", posts_of(*SAID[1:], filler + f"\n{'The puppy sleeps. ' * 40}\n" + filler))
        await cue.settle()
        assert (await cue.memory.search("hound sleeping", conversation="c"))[0].sources == ("p4",)


async def test_an_invalid_embedder_is_refused() -> None:
    with pytest.raises(InvalidInput, match="embedder: 7 has no 'name'"):
        async with cue_on(embedder=7):
            pass
