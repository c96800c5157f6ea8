"""Tests of a model that ends and merges quotes: the audit records each action, and a restore undoes it."""

import json

import pytest
from turn_helpers import cue_on

from cuebook import Ask, Posted
from cuebook.errors import Conflict
from cuebook.records.memory import CATEGORIES
from cuebook.testing import FrozenClock, ScriptedModel

EMPTY = {name: [] for name in (*CATEGORIES, "tags")}
STATED = ("I live in Oslo.", "My dog is called Rex.", "My dog is a brown beagle.", "I am allergic to nuts.")
MERGED = "My dog is called Rex, a brown beagle."
FILLER = [{"role": "user", "content": "Well, well."}] * 24


def document_of(request):
    return json.loads(json.loads(request.messages[1])["content"].partition("INPUT_JSON:\n")[2])


def answer(request):
    """End what "I moved to Berlin." makes untrue, merge the dog's quotes, and try what is not allowed."""
    document = document_of(request)
    ids = {each["text"]: each["id"] for each in document["quotes"]}
    posts = {each["content"]: each["id"] for each in document["new_turns"]}
    moved, said = posts.get("I moved to Berlin."), posts.get("The page says that Ann is not allergic to nuts.")
    if moved is None or STATED[0] not in ids:
        return json.dumps({"summary_markdown": "- Ann talks.", "memory_json": EMPTY})
    ended = [
        {"id": ids[STATED[0]], "sources": [moved], "reason": "Ann moved to Berlin."},
        {"id": ids[STATED[3]], "sources": [said], "reason": "The page says so."},
        {"id": ids[STATED[3]], "sources": [moved], "reason": ""},
        {"id": ids[STATED[3]], "sources": [moved], "reason": "A post that does not speak of nuts."},
        {"id": ids[STATED[3]], "sources": [posts["Am I allergic to nuts?"]], "reason": "A question states nothing."},
    ]
    merged = [
        {"sources": [ids[STATED[1]], ids[STATED[2]]], "text": MERGED, "reason": "Both are about the dog."},
        {"sources": [ids[STATED[3]], ids["I moved to Berlin."]], "text": "Ann is healthy.", "reason": "So it seems."},
    ]
    return json.dumps({"summary_markdown": "- x", "memory_json": EMPTY, "ended": ended, "merged": merged})


async def current(cue):
    """Return the texts of the conversation's current items, and of the user's current memories."""
    items = {each.text for each in (await cue.memory.items("c", user="ann")).items}
    return items, {each.text for each in (await cue.memory.list(user="ann")).items}


@pytest.mark.parametrize("split", [STATED[1], MERGED])
async def test_a_model_ends_and_merges_quotes_and_a_restore_undoes_it(tmp_path, split):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        cue.services.work_model = ScriptedModel(default=answer)
        posts = [{"role": "user", "content": text} for text in STATED]
        page = {"role": "assistant", "content": "The page says that Ann is not allergic to nuts."}
        moved = {"role": "user", "content": "I moved to Berlin."}
        later = [page, moved, {"role": "user", "content": "Am I allergic to nuts?"}]
        await cue.append("c", [*posts, *later], user="ann")
        await cue.settle()  # the user's memories have the quotes before a model reads them
        assert (await current(cue))[1] >= {*STATED}
        await cue.append("c", FILLER, user="ann")
        await cue.settle()
        for texts in await current(cue):
            assert texts >= {STATED[3], MERGED, "I moved to Berlin."}
            assert not texts & set(STATED[:3])
        window = await cue.assemble(Ask("Where do I live?", "c", user="ann"))
        summary = next(block.text for block in window.blocks if block.kind == "summary")
        assert MERGED in summary
        assert STATED[0] not in summary
        records = [each for each in (await cue.audit.list(limit=50)).items if each.event in ("end", "merge", "answer")]
        reasons = {each.event: each.output_summary for each in records}
        assert (reasons["end"], reasons["merge"]) == ("Ann moved to Berlin.", "Both are about the dog.")
        [refused] = [each.input_context["dropped"] for each in records if each.event == "answer"]
        assert [each.partition(" ")[0] for each in refused] == [
            *(f"ended[{place}]" for place in range(1, 5)),
            "merged[1]",
        ]
        ended = {each.text: each.id for each in (await cue.memory.items("c", user="ann", ended=True)).items}
        restored = await cue.memory.restore(f"item:c:{ended[STATED[0]]}", user="ann")
        assert (restored.text, restored.valid_to) == (STATED[0], None)
        places = {each.text: each.id for each in (await cue.memory.list(user="ann", ended=True)).items}
        assert (await cue.memory.restore(places[split], user="ann")).text == split
        for texts in await current(cue):
            assert texts >= {*STATED, "I moved to Berlin."}
            assert MERGED not in texts
        with pytest.raises(Conflict, match="no model ended it"):
            await cue.memory.restore(places[STATED[3]], user="ann")
        await cue.append("c", [{"role": "user", "content": "I moved to Berlin."}, *FILLER], user="ann")
        clock.advance(600)
        await cue.settle()
        assert STATED[0] in (await current(cue))[0], "a model ends nothing that was restored"
        assert [each.event for each in (await cue.audit.list(limit=50)).items].count("restore") == 2 + (split == MERGED)


# ---- several people -------------------------------------------------------------------------------------------------


def terse(request):
    """Return a summary that leaves out what matters."""
    fact = {"text": "The participants talk about tiles.", "sources": [document_of(request)["new_turns"][-1]["id"]]}
    return json.dumps({"summary_markdown": "- They talk about tiles.", "memory_json": EMPTY | {"facts": [fact]}})


@pytest.mark.parametrize("model", [None, terse], ids=["quotes", "model"])
@pytest.mark.parametrize("owner", ["ann", None])
async def test_opposite_statements_of_two_people_stay_under_their_names(tmp_path, model, owner):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        cue.services.work_model = ScriptedModel(default=model) if model else None
        said = [("ann", "I am not allergic to nuts."), ("bob", "I am allergic to nuts."), ("bob", "I never eat fish.")]
        said += [("ann", "I never eat fish.")]
        said += [
            (("bob", "ann")[n % 2], f"The {n} boxes of tiles number {n * 7} came on {n} March.") for n in range(30)
        ]
        if owner:
            await cue.append("team", [Posted(sender="ann", message="Hello.")], user=owner)
            await cue.conversations.participants("team", ["ann", "bob"])
        for n, (who, text) in enumerate(said):
            posts = [Posted(sender=who, message=text), Posted(sender="assistant", message=f"Noted {n}.")]
            await cue.append("team", posts, user=owner)
            if n % 5 == 4:
                clock.advance(100)
                await cue.settle()
        summary = await cue.conversations.summary("team", user=owner)
        assert (summary.made_by == "quotes") == (model is None)
        window = await cue.assemble(Ask("What is for dinner?", "team", user=owner, token_budget=3_000))
        texts = {block.source: block.text for block in window.blocks if block.source.startswith("summary:")}
        own, others = (next(texts[name] for name in texts if name.endswith(":tools") == fenced) for fenced in (0, 1))
        assert "ann: I am not allergic to nuts." in own
        assert "ann: I never eat fish." in own
        assert "I am allergic" not in own, "the system prompt has only the user's own words"
        assert "- participant bob: I am allergic to nuts." in others
        assert "- participant bob: I never eat fish." in others
        items = (await cue.memory.items("team", user=owner)).items
        assert {(each.speaker, each.superseded_by) for each in items if "nuts" in each.text} == {
            ("ann", None), ("bob", None)
        }  # fmt: skip
