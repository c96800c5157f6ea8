"""What a change of a prompt costs: held against books that had the other version all along."""

import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from stage import NAME, Client, cue_on, on, system, told

from cuebook import Ask
from cuebook.errors import InvalidInput, NotFound
from cuebook.testing.upstream import ScriptedUpstream

SHORT = "You are $agent_name."
LONG = SHORT + " Be kind, and tell what you know of harbours." * 20
PLACES = ("Vlieland", "Harlingen", "Texel", "Terschelling", "Ameland")


def asks(count=14, budget=900):
    """Give queries that come back to what was said long before."""
    return [
        Ask(f"At {at} o'clock the ferry number {at} to {PLACES[at % 5]} leaves the harbour of {PLACES[(at + 2) % 5]}. "
            + "The sea is calm today and the crew is in a good mood. " * (1 + at % 3),
            NAME, persona="helper", user="ann", token_budget=budget)
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture
def place(tmp_path):
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada."}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    return tmp_path


def same_key(place):
    """Settings of books that fence what they recall with the same marks, so that it weighs the same."""
    (place / "key").write_text("7" * 64)
    return {"secrets__key_file": str(place / "key")}


async def talk(place, name, body, questions):
    """Hold a conversation under a persona's text; gives its windows."""
    folder = place / name
    folder.mkdir()
    (folder / "personas").symlink_to(place / "personas")
    async with cue_on(folder, **same_key(place)) as cue:
        await cue.prompts.save("persona/helper", {"body": body}, params=["agent_name"])
        return [(await cue.ask(each)).window for each in questions]


def shown(window):
    """Give what of a window may be left out, each with its tokens: posts, and what is recalled."""
    posts = {("post", block.seq): block.tokens for block in window.blocks if block.seq}
    full = {block.source for block in window.blocks if block.seq and block.form == "full"}
    recalled = {("memory", block.source): block.tokens for block in window.blocks if block.kind == "memory"}
    return posts, recalled, full


def gone(one, other):
    (posts, recalled, _), (posts_now, recalled_now, full) = shown(one), shown(other)
    left = {key: tokens for key, tokens in posts.items() if key not in posts_now}
    left |= {key: tokens for key, tokens in recalled.items() if key not in recalled_now and key[1] not in full}
    return left


def moved(found):
    return {each.kind: (each.turns, each.total, each.tokens) for each in found}


def expected(pairs):
    turns, total, tokens = Counter(), Counter(), Counter()
    for one, other in pairs:
        left = gone(one, other)
        turns.update({kind for kind, _ in left})
        for (kind, _), many in left.items():
            total[kind] += 1
            tokens[kind] += many
    return {kind: (turns[kind], total[kind], tokens[kind]) for kind in turns}


@pytest.mark.parametrize("budget", [600, 900, 1300])
async def test_the_numbers_are_those_of_windows_assembled_with_the_other_version(place, budget):
    questions = asks(16, budget)
    plain, kind = [await talk(place, name, body, questions) for name, body in (("short", SHORT), ("long", LONG))]
    truth, back = expected(zip(plain, kind, strict=True)), expected(zip(kind, plain, strict=True))
    assert truth["post"][0] > 1
    async with cue_on(place / "short", **same_key(place)) as cue:
        await cue.prompts.save("persona/helper", {"body": LONG})
        found = await cue.prompts.impact("persona/helper", 1)
        assert (found.turns, found.reproduced, found.refused, found.missed) == (16, 16, 0, ())
        assert moved(found.left_out) == truth
        assert moved(found.let_in) == back
        assert found.left_out_turns == sum(bool(gone(*pair)) for pair in zip(plain, kind, strict=True))
        assert found.share == found.left_out_turns / 16
        assert found.window.before == round(sum(each.tokens for each in plain) / 16)
        assert found.window.after == round(sum(each.tokens for each in kind) / 16)
        told = [json.loads(each.messages[0])["content"] for each in (plain[0], kind[0])]
        assert (found.prompt.before, found.prompt.after) == tuple(map(cue.desk.count, told))
        assert found.prefix_kept < 0.2, "all behind the persona is other than what a cache holds"
        await cue.turns.replay(NAME, 16)
        back_again = await cue.prompts.impact("persona/helper", 2, 1)
        assert moved(back_again.let_in) == truth
        assert moved(back_again.left_out) == back
        assert back_again.prompt.change == -found.prompt.change
        assert (await cue.conversations.get(NAME)).turns == 16, "nothing was stored"


async def test_memories_that_are_pushed_out_are_counted(place):
    facts = [f"Ferry {at} goes to {PLACES[at % 5]}." for at in range(10)]
    between = ["We talk about the weather, the crew and the price of fresh fish. " * 6] * 14
    questions = [
        Ask(text, NAME, persona="helper", user="ann", token_budget=1500)
        for text in (*facts, *between, *(f"Which ferry goes to {name}?" for name in PLACES))
    ]
    long = SHORT + " Be kind, and tell what you know of harbours." * 96
    plain, kind = [await talk(place, name, body, questions) for name, body in (("short", SHORT), ("long", long))]
    truth = expected(zip(plain, kind, strict=True))
    assert truth["memory"][1] > 3
    async with cue_on(place / "short", **same_key(place)) as cue:
        await cue.prompts.save("persona/helper", {"body": long})
        found = await cue.prompts.impact("persona/helper", 1, 2, turns=29)
        assert (found.turns, found.reproduced) == (29, 29)
        assert moved(found.left_out) == truth
        assert found.left_out[0].kind == "memory"
        memory = found.left_out[0]
        mean = f"{memory.mean:.1f}".removesuffix(".0")
        said = f"{found.prompt.change:+,} tokens; leaves out {mean} memor{'y' if mean == '1' else 'ies'} in "
        assert found.summary.startswith(said), found.summary


async def test_only_the_newest_turns_are_measured_of_all_conversations(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for at in range(6):
            await cue.ask(Ask("hello", f"c{at % 3}", persona="helper"))
            cue.desk.clock.advance(60)
        await cue.ask(Ask("hello", "other", persona="assistant"))
        await cue.prompts.save("persona/helper", {"body": LONG})
        assert (await cue.prompts.impact("persona/helper", 1, turns=4)).turns == 4
        every = await cue.prompts.impact("persona/helper", 1)
        assert (every.turns, every.looked_at) == (6, 7)
        assert every.summary == f"{every.prompt.change:+,} tokens; leaves out nothing in the last 6 turns"
        same = await cue.prompts.impact("persona/helper", 1, 1)
        assert (same.prompt.change, same.prefix_kept) == (0, 1.0)
        with pytest.raises(InvalidInput, match="turns: 0"):
            await cue.prompts.impact("persona/helper", 1, turns=0)
        with pytest.raises(NotFound, match="Unknown version 9"):
            await cue.prompts.impact("persona/helper", 9)


async def test_a_prompt_no_turn_used_has_its_tokens_alone(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("unused", {"body": "One two three."})
        await cue.prompts.save("unused", {"body": "One two three four five six."})
        found = await cue.prompts.impact("unused", 1)
        assert (found.turns, found.share, found.summary) == (0, 0.0, "+4 tokens; no turn is recorded")
        await cue.ask(Ask("hello", NAME))
        assert (await cue.prompts.impact("unused", 1)).summary == "+4 tokens; none of the last 1 turn used it"


async def test_what_inherits_a_prompt_is_concerned_unless_it_is_pinned(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("base/manners", {"body": "Be kind."})
        await cue.prompts.save("base/middle", {"more": "Be brief."}, inherits="base/manners")
        await cue.prompts.save("persona/helper", {"own": SHORT}, params=["agent_name"], inherits="base/middle")
        for each in asks(8, 600):
            await cue.ask(each)
        await cue.prompts.save("base/manners", {"body": "Be kind, and say so." * 20})
        found = await cue.prompts.impact("base/manners", 1)
        assert (found.turns, found.reproduced) == (8, 8)
        assert found.left_out_turns > 0
        texts = [f"{body}\n\nBe brief.\n\nYou are Ada." for body in ("Be kind.", "Be kind, and say so." * 20)]
        assert (found.prompt.before, found.prompt.after) == tuple(map(cue.desk.count, texts))
        assert (await cue.prompts.impact("base/middle", 1, 1)).turns == 8
        await cue.prompts.save("persona/helper", {"own": SHORT}, params=["agent_name"], inherits="base/manners@main:1")
        await cue.ask(Ask("and now?", "pinned", persona="helper"))
        assert (await cue.prompts.impact("base/manners", 1)).turns == 8


async def test_a_branch_is_measured_where_it_or_the_other_spoke(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(8, 600):
            await cue.ask(each)
        await cue.prompts.fork("persona/helper", "trial")
        await cue.prompts.save("persona/helper", {"body": LONG}, branch="trial")
        assert (await cue.prompts.impact("persona/helper", 1, 2, branch="trial")).turns == 0
        await cue.prompts.save("persona/helper", {"body": LONG})
        assert (await cue.prompts.impact("persona/helper", 1)).turns == 8


async def test_a_version_that_does_not_fit_or_cannot_be_said_is_told(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(4, 400):
            await cue.ask(each)
        await cue.prompts.save("persona/helper", {"body": LONG * 3})
        found = await cue.prompts.impact("persona/helper", 1)
        assert (found.turns, found.refused, found.share, found.window.after) == (4, 4, 1.0, 0)
        assert "does not fit 100 % of the last 4 turns: they would fail" in found.summary
        back = await cue.prompts.impact("persona/helper", 2, 1)
        assert (back.turns, [(each.turns, each.reason) for each in back.missed]) == (
            0, [(4, "its window does not hold the version before either")],
        )  # fmt: skip
        await cue.prompts.save("persona/helper", {"body": "You are $whom."}, params=["whom"])
        found = await cue.prompts.impact("persona/helper", 1)
        assert (found.prompt.after, sum(each.turns for each in found.unsaid)) == (0, 4)
        assert "whom" in found.unsaid[0].reason
        assert "cannot be rendered in 4 turns" in found.summary


async def test_a_turn_whose_posts_were_erased_is_not_measured_and_is_told(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(5, 2000):
            await cue.ask(each)
        await cue.prompts.save("persona/helper", {"body": LONG})
    with closing(sqlite3.connect(place / "cuebook.db")) as file:
        file.execute("DELETE FROM post WHERE seq = 5")  # the third query: three windows held it
        file.commit()
    async with cue_on(place) as cue:
        found = await cue.prompts.impact("persona/helper", 1)
        assert (found.turns, [(each.turns, each.reason) for each in found.missed]) == (2, [(3, "erased")])
        assert found.summary.endswith("; 3 turns not measured (3 erased)")


async def test_windows_of_a_client_with_its_own_system_text_and_tools_come_out_as_they_were(place):
    upstream = ScriptedUpstream()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    async with cue_on(place, upstream=upstream, budget__context=900, budget__reply=200, model__name="m") as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        client = Client(cue, upstream)
        client.history.append(system("Answer in Dutch."))
        for each in asks(9):
            await client.say(each.text, model="helper", tools=tools)
        await cue.prompts.save("persona/helper", {"body": LONG})
        found = await cue.prompts.impact("persona/helper", 1)
        assert (found.turns, found.reproduced) == (9, 9)
        assert found.left_out_turns > 0
        assert 0 < found.window.change < found.prompt.change


async def test_turns_with_memories_come_out_as_they_were_sent(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await cue.prompts.save("persona/assistant", {"body": SHORT}, params=["agent_name"])
        for number, text in enumerate(
            ("I live in Oslo.", "I am allergic to nuts.", "Where do I live, and what must I not eat?")
        ):
            reply = await told(cue, clock, text, f"c{number}")
        assert sum(each.source.startswith("memory:") for each in reply.window.blocks) == 2
        await cue.prompts.save("persona/assistant", {"body": LONG})
        found = await cue.prompts.impact("persona/assistant", 1)
        assert (found.turns, found.reproduced) == (3, 3)
