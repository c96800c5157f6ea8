"""Tests of how a model's reply that selects experiences is parsed: required forms, common defects, and hostile text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.experience import read_reply

OFFERED = ("exp-1", "exp-2", "exp-3")
FENCE = "```"

#: The original system parsed 8 of these wrong: it selected denied ids and missed wrapped ids.
ODD = [
    ('{"exp-1": true, "exp-2": false}', ("exp-1",)),
    ('["exp-1"]', ("exp-1",)),
    (f'{FENCE}json\n{{"exp-1": true, "exp-2": false}}\n{FENCE}', ("exp-1",)),
    (f'{FENCE}json {{"exp-1":true,"exp-2":false}}{FENCE}', ("exp-1",)),
    ('{"exp-1": true, "exp-2": false,}', ("exp-1",)),
    ('{"exp-1": "false", "exp-2": "true"}', ("exp-2",)),
    ('{"exp-1": {"relevant": false}, "exp-2": {"relevant": true, "reason": "files"}}', ("exp-2",)),
    ('{"exp-1": {"chosen": true, "why": "files"}, "exp-2": {"chosen": false}}', ("exp-1",)),
    ('"exp-1" is relevant, but "exp-2" is not.', ("exp-1",)),
    ('{"selected": ["exp-1"]}', ("exp-1",)),
    ("exp-1", ("exp-1",)),
    ("exp-1, exp-3", ("exp-1", "exp-3")),
    ('["exp-1", "exp-1", "exp-2", "exp-1"]', ("exp-1", "exp-2")),
    ('{"exp-9": true, "exp-1": true}', ("exp-1",)),
    ("{}", ()),
    ("I cannot answer that.", None),
]

JSON = [
    ('{"exp-3": true, "exp-2": false, "exp-1": true}', ("exp-3", "exp-1")),
    ('["exp-3", "exp-1"]', ("exp-3", "exp-1")),
    ('["EXP-1"]', ("exp-1",)),
    ('{"exp-1": 1, "exp-2": 0, "exp-3": null}', ("exp-1",)),
    ('{"exp-1": "yes", "exp-2": "not relevant", "exp-3": "irrelevant"}', ("exp-1",)),
    ('[{"id": "exp-1", "relevant": true}, {"id": "exp-2", "Relevant": false}, {"id": "exp-3"}]', ("exp-1", "exp-3")),
    ('{"experiences": [{"exp_id": "exp-2", "score": 0.9}, {"exp_id": "exp-3", "score": 0.1}]}', ("exp-2",)),
    ('{"selected": ["exp-2"], "rejected": ["exp-1"], "not_selected": ["exp-3"]}', ("exp-2",)),
    ('{"reasoning": "exp-3 is about charts", "selected": ["exp-1"]}', ("exp-1",)),
    ('{"reasoning": "exp-3 is about charts", "selected": []}', ()),
    ('{"selected": "exp-1, exp-3"}', ("exp-1", "exp-3")),
    ("[3, 1, 7]", ("exp-3", "exp-1")),
    ('{"1": false, "2": true}', ("exp-2",)),
    ('{"selected": ["2"], "score": 1}', ("exp-2",)),
    (f"{FENCE}\n[2]\n{FENCE}", ("exp-2",)),
    ('{"exp-1": false, "exp-2": false, "exp-3": false}', ()),
    ("[]", ()),
    ('["exp-4"]', ()),
    ('{"exp-4": true}', ()),
    ('{"error": "cannot answer"}', None),
    ('<think>exp-1 looks good, exp-2 too</think>{"exp-2": true, "exp-1": false}', ("exp-2",)),
    ('Sure! I compared [1] and [2]:\n\n{"exp-2": true}\n\nexp-1 is about something else.', ("exp-2",)),
    (f'{"I think. " * 1_000}{FENCE}\n{{"exp-2": true}}\n{FENCE}', ("exp-2",)),
]

BROKEN = [
    ("{'exp-1': True, 'exp-2': False}", ("exp-1",)),
    ("['exp-1', 'exp-3',]", ("exp-1", "exp-3")),
    ("{exp-1: true, exp-2: no}", ("exp-1",)),
    ("{“exp-1”: true, “exp-2”: false}", ("exp-1",)),
    ('{"exp-1" true "exp-2" false}', ("exp-1",)),
    ('{"exp-1": true, "exp-2": tr', ("exp-1",)),
    ('["exp-1", "exp-2"', ("exp-1", "exp-2")),
    ('// chosen\n{"exp-1": true, /* files */ "exp-2": false # charts\n}', ("exp-1",)),
    ('See https://example.com {"exp-1": true,}', ("exp-1",)),
    (f"{FENCE}json\n{{'exp-1': true, 'exp-2': \"false\",}}\n{FENCE}\nexp-3 does not fit.", ("exp-1",)),
    ('{"exp-1": true,}\n{"exp-2": false}', ("exp-1",)),
]

PROSE = [
    ("None of them.", ()),
    ("- exp-1: true\n- exp-2: false\n- exp-3: false", ("exp-1",)),
    ("1. **exp-1** – yes\n2. **exp-2** – no", ("exp-1",)),
    ("exp-1 yes, exp-2 no, exp-3 yes", ("exp-1", "exp-3")),
    ("exp-1 and exp-2 are not relevant. exp-3 is.", ("exp-3",)),
    ("exp-1, exp-2 and exp-3 are not relevant.", ()),
    ("Not relevant: exp-1, exp-2", ()),
    ("Neither exp-1 nor exp-2 applies.", ()),
    ("None of exp-1, exp-2 or exp-3 fits.", ()),
    ("I would use exp-2, not exp-1.", ("exp-2",)),
    ("exp-2 rather than exp-1", ("exp-2",)),
    ("The user does not mention a chart, but exp-3 fits.", ("exp-3",)),
    ("exp-1 isn't needed; exp-2 is useful here", ("exp-2",)),
    ("First I thought exp-1 applies. But exp-1 does not apply.", ()),
    ("exp-10 is relevant", None),
    ("", None),
]  # fmt: skip

HOSTILE = ["[", '{"a":', "/{])“", '["', '{"a" ', "{ 1#", "(", "'", "/*", f"{FENCE}json{{", "exp-1 not ", "exp-1, ", "x"]


@pytest.mark.parametrize(("reply", "selected"), ODD)
def test_the_fifteen_odd_replies_are_parsed(reply: str, selected: tuple[str, ...] | None) -> None:
    assert read_reply(reply, OFFERED) == selected


@pytest.mark.parametrize(("reply", "selected"), JSON)
def test_valid_json_is_parsed(reply: str, selected: tuple[str, ...] | None) -> None:
    assert read_reply(reply, OFFERED) == selected


@pytest.mark.parametrize(("reply", "selected"), BROKEN)
def test_broken_json_is_repaired(reply: str, selected: tuple[str, ...]) -> None:
    assert read_reply(reply, OFFERED) == selected


@pytest.mark.parametrize(("reply", "selected"), PROSE)
def test_prose_is_parsed(reply: str, selected: tuple[str, ...] | None) -> None:
    assert read_reply(reply, OFFERED) == selected


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("length", [900, 1_900, 300_000])
@pytest.mark.timeout(60)  # json-repair alone takes minutes for some of these
def test_hostile_replies_are_parsed_quickly(piece: str, length: int) -> None:
    found = read_reply(piece * (length // len(piece)), OFFERED)
    assert found is None or set(found) <= {"exp-1"}


@pytest.mark.parametrize("shape", ['"{}": {}', '{{\n    "id": "{}",\n    "relevant": {}\n  }}'])
def test_verdicts_of_long_broken_json_are_read_by_regex(shape: str) -> None:
    offered = [f"exp-{number}" for number in range(99)]
    entries = ",\n  ".join(shape.format(name, json.dumps(name == "exp-50")) for name in offered)
    assert read_reply(f"{{\n  {entries},\n}}", offered) == ("exp-50",)


@given(
    st.text() | st.lists(st.sampled_from([*'{}[]",:`\n ', "true", "false", "not ", *OFFERED, "ſ", "İ"])).map("".join),
    st.lists(st.sampled_from([*OFFERED, "s", "i", "a.b(c)*", "ſ"]) | st.text(max_size=5)),
)
def test_only_offered_ids_are_selected_and_each_once(reply: str, offered: list[str]) -> None:
    found = read_reply(reply, offered)
    assert found is None or (set(found) <= set(offered) and len(set(found)) == len(found))


@given(st.permutations(OFFERED), st.sets(st.sampled_from(OFFERED)))
def test_an_object_of_verdicts_selects_in_its_order(names: list[str], selected: set[str]) -> None:
    expected = tuple(name for name in names if name in selected)
    assert read_reply(json.dumps({name: name in selected for name in names}), OFFERED) == expected
    assert read_reply(json.dumps([name for name in names if name in selected]), OFFERED) == expected


def test_ids_with_special_characters_are_found() -> None:
    offered = ("a.b(c)*", "über uns", "a", "A")
    assert read_reply('{"a.b(c)*": true, "a": false, "A": true}', offered) == ("a.b(c)*", "A")
    assert read_reply("über uns", offered) == ("über uns",)
