"""Tests of prompt impact: the estimated cost of an edit equals a database that always had it."""

import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from turn_helpers import NAME, Client, ask_and_settle, cue_on, open_with_memory, system

from cuebook import Ask
from cuebook.errors import NotFound
from cuebook.testing.upstream import ScriptedUpstream

SHORT = "You are $agent_name."
LONG = SHORT + " Be kind, and tell what you know of harbours." * 20
PLACES = ("Vlieland", "Harlingen", "Texel", "Terschelling", "Ameland")


def asks(count=14, budget=900):
    """Return queries that refer to earlier topics."""
    return [
        Ask(f"At {at} o'clock the ferry number {at} to {PLACES[at % 5]} leaves the harbour of {PLACES[(at + 2) % 5]}. "
            + "The sea is calm today and the crew is in a good mood. " * (1 + at % 3),
            NAME, persona="helper", user="ann", token_budget=budget)
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture
def project(tmp_path):
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada."}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    return tmp_path


def fixed_key(project):
    """Return settings with fixed fence marks, so that recalled text has the same size."""
    (project / "key").write_text("7" * 64)
    return {"secrets__key_file": str(project / "key")}


async def hold_conversation(project, name, body, questions):
    """Hold a conversation under a persona's text. Return its windows."""
    folder = project / name
    folder.mkdir()
    (folder / "personas").symlink_to(project / "personas")
    async with cue_on(folder, **fixed_key(project)) as cue:
        await cue.prompts.save("persona/helper", {"body": body}, params=["agent_name"])
        return [(await cue.ask(each)).window for each in questions]


def droppable_blocks(window):
    """Return the droppable blocks of a window, posts and recalled ones, with their tokens."""
    posts = {("post", block.seq): block.tokens for block in window.blocks if block.seq}
    full = {block.source for block in window.blocks if block.seq and block.form == "full"}
    recalled = {("memory", block.source): block.tokens for block in window.blocks if block.kind == "memory"}
    return posts, recalled, full


def dropped_between(one, other):
    (posts, recalled, _), (posts_now, recalled_now, full) = droppable_blocks(one), droppable_blocks(other)
    dropped = {key: tokens for key, tokens in posts.items() if key not in posts_now}
    dropped |= {key: tokens for key, tokens in recalled.items() if key not in recalled_now and key[1] not in full}
    return dropped


def effect_counts(effects):
    return {each.kind: (each.turns, each.total, each.tokens) for each in effects}


def expected(pairs):
    turns, total, tokens = Counter(), Counter(), Counter()
    for one, other in pairs:
        dropped = dropped_between(one, other)
        turns.update({kind for kind, _ in dropped})
        for (kind, _), many in dropped.items():
            total[kind] += 1
            tokens[kind] += many
    return {kind: (turns[kind], total[kind], tokens[kind]) for kind in turns}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [500, 750, 950])
async def test_the_estimate_equals_windows_assembled_with_the_other_version(project, budget):
    questions = asks(16, budget)
    plain, kind = [
        await hold_conversation(project, name, body, questions) for name, body in (("short", SHORT), ("long", LONG))
    ]
    truth, back = expected(zip(plain, kind, strict=True)), expected(zip(kind, plain, strict=True))
    assert truth["post"][0] > 1
    async with cue_on(project / "short", **fixed_key(project)) as cue:
        await cue.prompts.save("persona/helper", {"body": LONG})
        impact = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (impact.turns, impact.reproduced, impact.refused, impact.missed) == (16, 16, 0, ())
        assert effect_counts(impact.left_out) == truth
        assert effect_counts(impact.let_in) == back
        turns = sum(bool(dropped_between(*pair)) for pair in zip(plain, kind, strict=True))
        assert impact.share == turns / 16
        assert impact.window.before == round(sum(each.tokens for each in plain) / 16)
        assert impact.window.after == round(sum(each.tokens for each in kind) / 16)
        texts = [each.messages[0]["content"] for each in (plain[0], kind[0])]
        assert (impact.prompt.before, impact.prompt.after) == tuple(map(cue.services.count, texts))
        assert impact.prefix_kept < 0.2, "nothing behind the persona's text can come from the cache"
        await cue.turns.replay(NAME, 16)
        reverse = (await cue.prompts.diff("persona/helper", 2, 1)).impact
        assert effect_counts(reverse.let_in) == truth
        assert effect_counts(reverse.left_out) == back
        assert reverse.prompt.change == -impact.prompt.change
        assert (await cue.conversations.get(NAME)).turns == 16, "nothing was stored"


@pytest.mark.slow
async def test_displaced_memories_are_counted(project):
    facts = [f"Ferry {at} goes to {PLACES[at % 5]}." for at in range(10)]
    between = ["We talk about the weather, the crew and the price of fresh fish. " * 6] * 14
    questions = [
        Ask(text, NAME, persona="helper", user="ann", token_budget=1300)
        for text in (*facts, *between, *(f"Which ferry goes to {name}?" for name in PLACES))
    ]
    long = SHORT + " Be kind, and tell what you know of harbours." * 96
    plain, kind = [
        await hold_conversation(project, name, body, questions) for name, body in (("short", SHORT), ("long", long))
    ]
    truth = expected(zip(plain, kind, strict=True))
    assert truth["memory"][1] > 3
    async with cue_on(project / "short", **fixed_key(project)) as cue:
        await cue.prompts.save("persona/helper", {"body": long})
        impact = (await cue.prompts.diff("persona/helper", 1, 2, turns=29)).impact
        assert (impact.turns, impact.reproduced) == (29, 29)
        assert effect_counts(impact.left_out) == truth
        assert impact.left_out[0].kind == "memory"
        memory = impact.left_out[0]
        mean = f"{memory.mean:.1f}".removesuffix(".0")
        text = f"{impact.prompt.change:+,} tokens; leaves out {mean} memor{'y' if mean == '1' else 'ies'} in "
        assert impact.summary.startswith(text), impact.summary


async def test_only_the_newest_turns_of_all_conversations_are_measured(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for at in range(6):
            await cue.ask(Ask("hello", f"c{at % 3}", persona="helper"))
            cue.services.clock.advance(60)
        await cue.ask(Ask("hello", "other", persona="assistant"))
        await cue.prompts.save("persona/helper", {"body": LONG})
        assert (await cue.prompts.diff("persona/helper", 1, turns=4)).impact.turns == 4
        every = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (every.turns, every.looked_at) == (6, 7)
        assert every.summary == f"{every.prompt.change:+,} tokens; leaves out nothing in the last 6 turns"
        same = (await cue.prompts.diff("persona/helper", 1, 1)).impact
        assert (same.prompt.change, same.prefix_kept) == (0, 1.0)
        assert (await cue.prompts.diff("persona/helper", 1, turns=0)).impact is None
        with pytest.raises(NotFound, match="Unknown version 9"):
            await cue.prompts.diff("persona/helper", 9)


async def test_an_unused_prompt_reports_only_its_tokens(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("unused", {"body": "One two three."})
        await cue.prompts.save("unused", {"body": "One two three four five six."})
        impact = (await cue.prompts.diff("unused", 1)).impact
        assert (impact.turns, impact.share, impact.summary) == (0, 0.0, "+3 tokens; no turn is recorded")
        await cue.ask(Ask("hello", NAME))
        assert (await cue.prompts.diff("unused", 1)).impact.summary == "+3 tokens; none of the last 1 turn used it"


async def test_children_of_a_prompt_are_affected_unless_pinned(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("base/manners", {"body": "Be kind."})
        await cue.prompts.save("base/middle", {"more": "Be brief."}, inherits="base/manners")
        await cue.prompts.save("persona/helper", {"own": SHORT}, params=["agent_name"], inherits="base/middle")
        for each in asks(8, 500):
            await cue.ask(each)
        await cue.prompts.save("base/manners", {"body": "Be kind, and say so." * 20})
        impact = (await cue.prompts.diff("base/manners", 1)).impact
        assert (impact.turns, impact.reproduced) == (8, 8)
        assert impact.left_out
        texts = [f"{body}\n\nBe brief.\n\nYou are Ada." for body in ("Be kind.", "Be kind, and say so." * 20)]
        assert (impact.prompt.before, impact.prompt.after) == tuple(map(cue.services.count, texts))
        assert (await cue.prompts.diff("base/middle", 1, 1)).impact.turns == 8
        await cue.prompts.save("persona/helper", {"own": SHORT}, params=["agent_name"], inherits="base/manners@main:1")
        await cue.ask(Ask("and now?", "pinned", persona="helper"))
        assert (await cue.prompts.diff("base/manners", 1)).impact.turns == 8


async def test_a_branch_is_measured_where_either_version_was_used(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(8, 500):
            await cue.ask(each)
        await cue.prompts.fork("persona/helper", "trial")
        await cue.prompts.save("persona/helper", {"body": LONG}, branch="trial")
        assert (await cue.prompts.diff("persona/helper", 1, 2, branch="trial")).impact.turns == 0
        await cue.prompts.save("persona/helper", {"body": LONG})
        assert (await cue.prompts.diff("persona/helper", 1)).impact.turns == 8


async def test_a_version_that_does_not_fit_or_render_is_reported(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(4, 400):
            await cue.ask(each)
        await cue.prompts.save("persona/helper", {"body": LONG * 3})
        impact = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (impact.turns, impact.refused, impact.share, impact.window.after) == (4, 4, 1.0, 0)
        assert "does not fit 100 % of the last 4 turns: they would fail" in impact.summary
        back = (await cue.prompts.diff("persona/helper", 2, 1)).impact
        assert (back.turns, [(each.turns, each.reason) for each in back.missed]) == (
            0, [(4, "its window does not hold the version before either")],
        )  # fmt: skip
        await cue.prompts.save("persona/helper", {"body": "You are $whom."}, params=["whom"])
        impact = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (impact.prompt.after, sum(each.turns for each in impact.unsaid)) == (0, 4)
        assert "whom" in impact.unsaid[0].reason
        assert "cannot be rendered in 4 turns" in impact.summary


async def test_a_turn_with_erased_posts_is_skipped_and_reported(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        for each in asks(5, 2000):
            await cue.ask(each)
        await cue.prompts.save("persona/helper", {"body": LONG})
    with closing(sqlite3.connect(project / "cuebook.db")) as file:
        file.execute("DELETE FROM post WHERE seq = 5")  # the third query: three windows contain it
        file.commit()
    async with cue_on(project) as cue:
        impact = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (impact.turns, [(each.turns, each.reason) for each in impact.missed]) == (2, [(3, "erased")])
        assert impact.summary.endswith("; 3 turns not measured (3 erased)")


async def test_windows_of_clients_with_own_system_text_and_tools_are_reproduced(project):
    upstream = ScriptedUpstream()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    async with cue_on(project, upstream=upstream, budget__context=750, budget__reply=200, model__name="m") as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT})
        client = Client(cue, upstream)
        client.history.append(system("Answer in Dutch."))
        for each in asks(9):
            await client.say(each.text, model="helper", tools=tools)
        await cue.prompts.save("persona/helper", {"body": LONG})
        impact = (await cue.prompts.diff("persona/helper", 1)).impact
        assert (impact.turns, impact.reproduced) == (9, 9)
        assert impact.left_out
        assert 0 < impact.window.change < impact.prompt.change


async def test_turns_with_memories_are_reproduced_as_sent(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.prompts.save("persona/assistant", {"body": SHORT}, params=["agent_name"])
        for number, text in enumerate(
            ("I live in Oslo.", "I am allergic to nuts.", "Where do I live, and what must I not eat?")
        ):
            reply = await ask_and_settle(cue, clock, text, f"c{number}")
        assert sum(each.source.startswith("memory:") for each in reply.window.blocks) == 2
        await cue.prompts.save("persona/assistant", {"body": LONG})
        impact = (await cue.prompts.diff("persona/assistant", 1)).impact
        assert (impact.turns, impact.reproduced) == (3, 3)
