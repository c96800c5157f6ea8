"""The audit as an operator uses it: who was told what, that nobody changed it, and each render again."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from stage import NAME, cue_on

from cuebook import Ask
from cuebook.errors import InvalidInput, NotFound
from cuebook.providers.clock_and_ids import SystemDice

HELPER = {"id": "helper", "name": "Ada", "prompts": {"persona": "persona/kind"}}
FILE = "logs/prompts_audit.jsonl"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(HELPER))
    return tmp_path


async def told(cue, turns=2):
    await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"], author="ann")
    for n in range(turns):
        said = f"hello {n}, my key is sk-abcdefghijklmnopqrstuvwxyz012345"
        await cue.ask(Ask(said, NAME, user="zoe", persona="helper"))


async def test_each_render_answer_and_change_is_a_record(place):
    async with cue_on(place) as cue:
        await told(cue)
        await cue.prompts.observe("persona/kind", sentiment=1.0, user="zoe")
        records = await cue.audit.records()
        assert [each.event for each in records] == ["write", "render", "answer", "render", "answer", "observe"]
        assert [each.seq for each in records] == [1, 2, 3, 4, 5, 6]
        render = records[1]
        assert (render.agent, render.prompt_id, render.version, render.turn) == ("helper", "persona/kind", "1.0.0", 1)
        assert render.texts["interpolated_text"].text == "Be kind to zoe."
        assert json.loads(render.texts["input_context"].text) == {"user_name": "zoe"}
        assert "zoe" not in render.interpolated_text, "the chain holds a commitment alone"
        assert records[2].render_id == render.render_id
        assert records[2].texts["output_summary"].text == "Noted."
        assert (await cue.audit.verify()).ok
        assert [(await cue.audit.replay(seq)).verdict for seq in (2, 4)] == ["identical", "identical"]
        with pytest.raises(InvalidInput, match="has no prompt"):
            await cue.audit.replay(1)
        with pytest.raises(NotFound, match="audit tail"):
            await cue.audit.replay(99)
        assert [each.seq for each in await cue.audit.tail(2)] == [5, 6]


async def test_the_mirror_holds_what_the_table_holds_and_no_secret(place):
    async with cue_on(place) as cue:
        await told(cue)
    lines = (place / FILE).read_text().splitlines()
    first = json.loads(lines[1])
    assert list(first)[:7] == [
        "timestamp", "agent", "prompt_id", "version", "input_context", "interpolated_text", "output_summary",
    ]  # fmt: skip
    assert first["interpolated_text"] == "Be kind to zoe."
    assert len(lines) == 5
    assert "sk-abcdef" not in (place / FILE).read_text()


async def test_a_torn_line_of_the_mirror_is_written_again(place):
    async with cue_on(place) as cue:
        await told(cue)
    whole = (place / FILE).read_bytes()
    (place / FILE).write_bytes(whole[:-40])
    async with cue_on(place, dice=SystemDice()) as cue:
        await cue.prompts.save("other", {"body": "x"})
    lines = (place / FILE).read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:5]) == whole
    assert json.loads(lines[5])["prompt_id"] == "other"


@pytest.mark.parametrize(
    ("damage", "first", "reason"),
    [
        (
            "UPDATE audit_record SET body = replace(CAST(body AS TEXT), 'persona/kind', 'persona/mean') WHERE seq = 2",
            2,
            "",
        ),
        ("DELETE FROM audit_record WHERE seq = 3", 3, ""),
        ("DELETE FROM audit_record WHERE seq = 5", 5, "truncated"),
        ("UPDATE audit_record SET texts = replace(CAST(texts AS TEXT), 'zoe', 'bob') WHERE seq = 4", 4, ""),
    ],
)
async def test_what_somebody_changed_is_found(place, damage, first, reason):
    async with cue_on(place) as cue:
        await told(cue)
    with closing(sqlite3.connect(next(place.rglob("*.db")))) as file:
        file.execute(damage)
        file.execute("UPDATE audit_record SET body = CAST(body AS BLOB), texts = CAST(texts AS BLOB)")
        file.commit()
    async with cue_on(place, dice=SystemDice()) as cue:
        verdict = await cue.audit.verify()
        assert (verdict.ok, verdict.first_bad) == (False, first)
        assert reason in verdict.reason


async def test_a_conversation_without_prompts_of_the_book_leaves_no_record(tmp_path):
    async with cue_on(tmp_path) as cue:
        await cue.ask(Ask("hello", NAME))
        assert await cue.audit.records() == []
    assert not (tmp_path / "logs").exists()


async def test_a_mirror_that_cannot_be_written_holds_nothing_up(place, caplog):
    (place / "logs").write_text("a file where the folder should be")
    async with cue_on(place) as cue:
        await told(cue)
        await cue.work()
        assert (await cue.audit.verify()).ok
    assert "prompts_audit.jsonl" in caplog.text
    (place / "logs").unlink()
    async with cue_on(place, dice=SystemDice()) as cue:
        await cue.work()
        assert (await cue.audit.verify()).signed == 5
    assert len((place / FILE).read_text().splitlines()) == 5


async def changes(cue, count):
    for n in range(count):
        await cue.prompts.save("p", {"body": f"text {n} {len(await cue.audit.records())}"})


async def test_two_books_on_one_file_write_each_record_into_the_mirror_once(place):
    async with cue_on(place, dice=SystemDice()) as one, cue_on(place, dice=SystemDice()) as other:
        for _ in range(5):
            await asyncio.gather(changes(one, 2), changes(other, 2))
            await asyncio.gather(one.work(), other.work())
    async with cue_on(place, dice=SystemDice()) as cue:
        verdict = await cue.audit.verify_mirror(place / FILE)
        assert (verdict.ok, verdict.records) == (True, 20)


async def test_a_mirror_that_is_removed_while_a_book_is_open_is_written_anew(place):
    async with cue_on(place) as cue:
        await changes(cue, 3)
        await cue.work()
        (place / FILE).unlink()
        await changes(cue, 2)
        await cue.work()
        verdict = await cue.audit.verify_mirror(place / FILE)
        assert (verdict.ok, verdict.records) == (True, 5)


@pytest.mark.parametrize("torn", [b"x" * 3_000_000, b'{"timestamp": "20'])
async def test_a_torn_line_of_any_length_goes(place, torn):
    async with cue_on(place) as cue:
        await changes(cue, 3)
    whole = (place / FILE).read_bytes()
    (place / FILE).write_bytes(whole + torn)
    async with cue_on(place, dice=SystemDice()) as cue:
        await changes(cue, 1)
    lines = (place / FILE).read_bytes().splitlines(keepends=True)
    assert (b"".join(lines[:3]), len(lines)) == (whole, 4)


@pytest.mark.parametrize("damage", ["another book's", "a line that was made up"])
async def test_a_mirror_that_ends_with_what_the_table_has_not_is_left_as_it_is(place, tmp_path_factory, caplog, damage):
    async with cue_on(place) as cue:
        await changes(cue, 3)
    whole = (place / FILE).read_bytes()
    if damage == "another book's":
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        async with cue_on(elsewhere, dice=SystemDice()) as cue:
            await cue.prompts.save("other", {"body": "x"})
        (place / FILE).write_bytes((elsewhere / FILE).read_bytes())
    else:
        made_up = json.loads(whole.splitlines()[-1]) | {"seq": 500}
        (place / FILE).write_bytes(whole + json.dumps(made_up).encode() + b"\n")
    damaged = (place / FILE).read_bytes()
    async with cue_on(place, dice=SystemDice()) as cue:
        await changes(cue, 1)
        await cue.work()
        assert "Move the file elsewhere" in caplog.text
        assert (place / FILE).read_bytes() == damaged
        (place / FILE).rename(place / "proof.jsonl")
        await cue.work()
        verdict = await cue.audit.verify_mirror(place / FILE)
        assert (verdict.ok, verdict.records) == (True, 4)


async def test_a_line_of_the_mirror_that_was_edited_stays_and_is_found(place):
    async with cue_on(place) as cue:
        await changes(cue, 3)
    (place / FILE).write_bytes((place / FILE).read_bytes().replace(b'"p"', b'"q"', 1))
    async with cue_on(place, dice=SystemDice()) as cue:
        await changes(cue, 1)
        await cue.work()
        verdict = await cue.audit.verify_mirror(place / FILE)
        assert (verdict.ok, verdict.records, verdict.first_bad) == (False, 4, 1)


@pytest.mark.parametrize(
    ("damage", "first"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"zoe", b"bob"), *lines[2:]], 2),
        (lambda lines: [*lines[:2], *lines[3:]], 3),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: lines[:3], None),
        (lambda lines: [], None),
        (lambda lines: [*lines[:4], lines[4][:30]], None),
    ],
    ids=["edited", "left out", "swapped", "cut", "emptied", "torn"],
)
async def test_the_mirror_is_checked_too_and_its_end_written_anew(place, damage, first):
    async with cue_on(place) as cue:
        await told(cue)
    whole = (place / FILE).read_bytes()
    (place / FILE).write_bytes(b"".join(damage(whole.splitlines(keepends=True))))
    async with cue_on(place, dice=SystemDice()) as cue:
        found = await cue.audit.verify()
        assert (found.ok, found.first_bad) == (first is None, first)
        assert first is None or ("in prompts_audit.jsonl: " in found.reason and "is intact" in found.reason)
    assert first is not None or (place / FILE).read_bytes() == whole


async def test_without_its_mirror_the_table_is_checked_alone(place):
    async with cue_on(place) as cue:
        await told(cue)
    (place / FILE).unlink()
    (place / FILE).mkdir()
    async with cue_on(place, dice=SystemDice()) as cue:
        assert (await cue.audit.verify()).ok


async def test_a_cut_table_is_found_by_its_mirror_though_its_checkpoints_are_gone(place):
    async with cue_on(place) as cue:
        await told(cue)
    with closing(sqlite3.connect(next(place.rglob("*.db")))) as database, database:
        database.execute("DELETE FROM audit_record WHERE seq > 3")
        database.execute("DELETE FROM audit_checkpoint WHERE size > 3")
    for more in (0, 2):
        async with cue_on(place, dice=SystemDice()) as cue:
            await changes(cue, more)
            found = await cue.audit.verify()
        assert (found.ok, found.first_bad) == (False, 4)
        assert "truncated" in found.reason


async def test_a_record_names_the_number_of_the_version_that_was_written(place):
    async with cue_on(place) as cue:
        await changes(cue, 2)
        await cue.prompts.fork("p", "trial")
        told_of = [(each.event, each.selection) for each in await cue.audit.records()]
    assert told_of == [
        ("write", {"branch": "main", "number": 1}),
        ("write", {"branch": "main", "number": 2}),
        ("branch", {"branch": "trial", "number": 1}),
    ]
