"""The prompt book as a Python developer uses it."""

import asyncio
import time

import pytest
from stage import book_on

from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.records.prompt import Version

KIND = {"identity": "Welcome $user_name, I'm $agent_name.", "limits": "Be concise."}
PARAMS = ["$agent_name", {"name": "user_name", "default": "friend"}]


@pytest.fixture
async def book(tmp_path):
    async with book_on(tmp_path) as opened:
        yield opened


async def test_a_prompt_is_written_rendered_and_compared(book):
    first = await book.prompts.save("persona/kind_helper", KIND, params=PARAMS, description="kind")
    assert (first.number, first.semver) == (1, "1.0.0")
    rendered = await book.prompts.render("persona/kind_helper", {"agent_name": "Ada"})
    assert rendered.text == "Welcome friend, I'm Ada.\n\nBe concise."
    assert rendered.digest == first.digest
    second = await book.prompts.save("persona/kind_helper", {**KIND, "limits": "Be brief. It costs $5."})
    assert (second.number, second.semver, second.params, second.description) == (2, "1.0.1", first.params, "kind")
    third = await book.prompts.save("persona/kind_helper", {**KIND, "style": "Use $tone."}, params=[*PARAMS, "tone"])
    assert third.semver == "2.0.0", "a parameter that is newly needed breaks who renders it"
    with pytest.raises(InvalidInput, match="tone") as missing:
        await book.prompts.render("persona/kind_helper", {"agent_name": "Ada"})
    assert missing.value.where == "tone"
    old = await book.prompts.render(
        "persona/kind_helper", {"$agent_name": "Ada", "user_name": "$agent_name"}, version=2
    )
    assert old.text == "Welcome $agent_name, I'm Ada.\n\nBe brief. It costs $5."
    change = await book.prompts.diff("persona/kind_helper", 1, 2)
    assert [each.name for each in change.sections] == ["limits"]


async def test_children_follow_their_parent_unless_pinned(book):
    await book.prompts.save("system/base", {"rules": "Be true.", "tone": "Warm."})
    await book.prompts.save("persona/a", {"rules": "Be quick."}, inherits="system/base")
    await book.prompts.save("persona/b", {}, override_sections={"tone": "Cold."}, inherits="system/base@main:1")
    assert (await book.prompts.render("persona/a")).text == "Be true.\n\nBe quick.\n\nWarm."
    await book.prompts.save("system/base", {"rules": "Be very true.", "tone": "Warm."})
    assert (await book.prompts.render("persona/a")).text == "Be very true.\n\nBe quick.\n\nWarm."
    pinned = await book.prompts.render("persona/b")
    assert pinned.text == "Be true.\n\nCold."
    assert pinned.lineage == ("prompt:system/base@main:1", "prompt:persona/b@main:1")
    await book.prompts.save("persona/a", {"rules": "Alone."}, inherits=None)
    assert (await book.prompts.render("persona/a")).text == "Alone."


async def test_rings_missing_parents_and_odd_names_are_refused_and_nothing_is_written(book):
    await book.prompts.save("a", {"body": "x"})
    await book.prompts.save("b", {"body": "x"}, inherits="a")
    with pytest.raises(InvalidInput, match=r"a.*b.*a"):
        await book.prompts.save("a", {"body": "y"}, inherits="b")
    with pytest.raises(InvalidInput, match="gone"):
        await book.prompts.save("c", {"body": "y"}, inherits="gone")
    for odd in ("../etc", "a//b", "%2e%2e/a", "con", "a\x00", "Ä", "", "a/../b", "а"):
        with pytest.raises(InvalidInput):
            await book.prompts.save(odd, {"body": "y"})
    with pytest.raises(InvalidInput, match=r"sections\.body"):
        await book.prompts.save("d", {"body": "NUL \x00"})
    assert [each.slug for each in (await book.prompts.page()).items] == ["a", "b"]
    assert len(await book.prompts.versions("a")) == 1


async def test_default_is_looked_through(book):
    await book.prompts.save("default/agent_init", {"body": "Begin."})
    assert (await book.prompts.render("agent_init")).slug == "default/agent_init"
    with pytest.raises(NotFound, match="prompt list"):
        await book.prompts.get("nobody")


async def test_a_writer_who_saw_an_older_head_is_told(book):
    await book.prompts.save("a", {"body": "one"})
    await book.prompts.save("a", {"body": "two"}, base=1)
    with pytest.raises(Conflict, match="head is 2"):
        await book.prompts.save("a", {"body": "mine"}, base=1)


async def test_branches_are_forked_merged_and_labelled(book):
    await book.prompts.save("a", {"one": "1", "two": "2"})
    await book.prompts.fork("a", "try")
    await book.prompts.save("a", {"one": "1!", "two": "2"}, branch="try")
    await book.prompts.save("a", {"one": "1", "two": "2?"})
    stored, merged = await book.prompts.merge("a", "try")
    assert (stored.number, dict(merged.sections)) == (3, {"one": "1!", "two": "2?"})
    await book.prompts.save("a", {"one": "other", "two": "2"}, branch="try")
    await book.prompts.save("a", {"one": "mine", "two": "2?"})
    stored, merged = await book.prompts.merge("a", "try")
    assert stored is None
    assert [each.section for each in merged.conflicts] == ["one"]
    assert len(await book.prompts.versions("a", branch="main")) == 4
    await book.prompts.label("a", "production", version=3, by="ann")
    family = await book.prompts.family("a")
    assert [(each.name, each.number, each.moved_by) for each in family.labels] == [("production", 3, "ann")]


async def test_variants_are_chosen_and_learn(book):
    weights = {"task_coding": 1.0}
    await book.prompts.save("a", {"body": "plain"})
    await book.prompts.fork("a", "code")
    await book.prompts.save("a", {"body": "code"}, branch="code", metadata={"context_weights": weights})
    chosen = await book.prompts.select("a", {"task_coding": 1.0}, epsilon=0.0)
    assert (chosen.selected.branch, chosen.selected.total_score, chosen.propensity) == ("code", 0.75, 1.0)
    assert (await book.prompts.select("a", {}, epsilon=0.0)).selected.branch == "main"
    await asyncio.gather(*(book.prompts.observe("a", sentiment=1.0, outcome="success") for _ in range(16)))
    assert (await book.prompts.family("a")).branch("main").weight == pytest.approx(1 - 0.5 * 0.9**16, abs=1e-9)
    one, other = [await book.prompts.select("a", {}, strategy="thompson", seed=n) for n in (7, 7)]
    assert one == other
    assert sum(each.propensity for each in one.variants) == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(InvalidInput, match="sentiment"):
        await book.prompts.observe("a", sentiment=7.0)
    with pytest.raises(InvalidInput, match="strategy"):
        await book.prompts.select("a", strategy="guess")


async def test_a_rollback_is_what_is_rendered_next_and_is_cleared(book):
    await book.prompts.save("a", {"body": "good"})
    await book.prompts.save("a", {"body": "bad"})
    branch = await book.prompts.roll_back("a", reason="worse", by="ann")
    assert (branch.head, branch.active, branch.rolled_back) == (2, 1, (2,))
    assert (await book.prompts.render("a")).text == "good"
    with pytest.raises(InvalidInput, match="no version 0"):
        await book.prompts.roll_back("a", reason="worse")
    assert (await book.prompts.clear("a", 2)).rolled_back == ()
    assert [each.kind for each in await book.prompts.events("a")] == ["clear", "rollback", "write", "write"]
    third = await book.prompts.save("a", {"body": "better"})
    assert third.number == 3
    assert (await book.prompts.render("a")).text == "better"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"signals": {"task_coding": float("nan")}}, "task_coding"),
        ({"signals": {"made_up": float("inf")}}, "made_up"),
        ({"signals": {"task_coding": 2.0}}, "task_coding"),
        ({"signals": {f"s{n}": 1.0 for n in range(101)}}, "The limit is 100"),
        ({"propensity": float("nan")}, "propensity"),
        ({"propensity": 0.0}, "propensity"),
        ({"propensity": 1.5}, "propensity"),
        ({"sentiment": float("nan")}, "sentiment"),
    ],
)
async def test_an_observation_that_would_spoil_the_others_is_refused_and_changes_nothing(tmp_path, said, named):
    async with book_on(tmp_path, prompts__rollback="guarded") as book:
        await book.prompts.save("a", {"body": "one"})
        await book.prompts.save("a", {"body": "two"})
        with pytest.raises(InvalidInput, match=named):
            await book.prompts.observe("a", **{"sentiment": 0.5, **said})
        [branch] = (await book.prompts.family("a")).branches
        assert (branch.observations, branch.weight) == (0, 0.5)
        assert (await book.prompts.observe("a", sentiment=0.5, corrections=10**15)).score == 0.25
        await book.work()


async def test_a_version_is_named_by_its_label(book):
    await book.prompts.save("a", {"body": "one"})
    await book.prompts.save("a", {"body": "two"})
    await book.prompts.label("a", "production", version=1)
    assert (await book.prompts.get("a", label="production")).number == 1
    assert (await book.prompts.render("a", label="production")).text == "one"
    assert (await book.prompts.label("a", "stable", label="production")).number == 1
    assert (await book.prompts.fork("a", "old", label="stable")).sections == {"body": "one"}
    await book.prompts.observe("a", sentiment=1.0, label="production")
    assert (await book.prompts.family("a")).branch("main").observations == 0, "it was said of another version"
    with pytest.raises(NotFound, match=r"Unknown label 'gone' of prompt .* Available: production, stable"):
        await book.prompts.get("a", label="gone")
    with pytest.raises(NotFound, match=r"Unknown branch 'gone' .* Available: main, old\. Labels: production, stable"):
        await book.prompts.get("a", branch="gone")
    with pytest.raises(InvalidInput, match="Omit them"):
        await book.prompts.get("a", label="production", version=2)
    with pytest.raises(Conflict, match="label 'production'"):
        await book.prompts.fork("a", "production")
    with pytest.raises(Conflict, match="branch 'old'"):
        await book.prompts.label("a", "old")


async def test_a_section_is_merged_or_overrides(book):
    with pytest.raises(InvalidInput, match="also defined in sections") as both:
        await book.prompts.save("a", {"tone": "x"}, override_sections={"tone": "y"})
    assert both.value.where == "overrideSections.tone"


async def test_a_version_beyond_all_numbers_is_not_found(book):
    await book.prompts.save("a", {"body": "one"})
    await book.prompts.save("a", {"body": "two"})
    for number in (0, -1, 3, 2**70):
        with pytest.raises(NotFound, match="1 to 2"):
            await book.prompts.get("a", version=number)
    with pytest.raises(NotFound, match="1 to 2"):
        await book.prompts.roll_back("a", to=2**70, reason="x")
    with pytest.raises(InvalidInput, match="no version -1"):
        await book.prompts.roll_back("a", to=-1, reason="x")


async def test_a_render_may_stand_in_the_audit(book):
    await book.prompts.save("a", {"body": "Be $tone."}, params=["tone"])
    assert (await book.prompts.render("a", {"tone": "kind"})).audit_seq is None
    made = await book.prompts.render("a", {"tone": "kind"}, log=True, by="ann")
    record = await book.audit.get(made.audit_seq)
    assert (record.event, record.agent, record.prompt_id) == ("render", "ann", "a")
    assert (await book.audit.replay(made.audit_seq)).verdict == "identical"


async def test_large_texts_are_compared_beside_the_loop(book):
    lines = [f"line {n}" for n in range(60_000)]
    await book.prompts.save("a", {"body": "\n".join(lines)})
    task = asyncio.create_task(book.prompts.save("a", {"body": "\n".join(lines[::-1])}))
    longest = 0.0
    while not task.done():
        began = time.thread_time()  # CPU time of the loop's thread
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - began)
    assert (await task).semver == "1.0.1"
    assert longest < 0.5


async def test_an_id_with_and_without_default_is_one_prompt(tmp_path):
    async with book_on(tmp_path) as book:
        await book.prompts.save("default/a", {"body": "One."})
        again = await book.prompts.save("a", {"body": "Two."})
        assert (again.slug, again.number) == ("default/a", 2)
        assert (await book.prompts.get("a")).sections == {"body": "Two."}
        await book.prompts.save("b", {"body": "One."})
        assert (await book.prompts.save("default/b", {"body": "Two."})).slug == "b"
        assert (await book.prompts.get("default/b")).number == 2
        for slugs in (["a"], ["c", "default/c"]):
            with pytest.raises(InvalidInput, match="are the same prompt, with one file"):
                await book.prompts.store([Version(slug=slug, sections={"body": "x"}) for slug in slugs])
        assert [each.slug for each in (await book.prompts.page()).items] == ["b", "default/a"]
