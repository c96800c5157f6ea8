"""Replies of models that select experiences: the fifteen odd ones the original system was measured with, and more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.selection_reply import read_reply

OFFERED = ("exp-1", "exp-2", "exp-3")
FENCE = "```"

#: The original read 8 of these wrong: it selected what was denied, and missed what was wrapped.
ODD = [
    ('{"exp-1": true, "exp-2": false}', ("exp-1",)),
    ('["exp-1"]', ("exp-1",)),
    (f'{FENCE}json\n{{"exp-1": true, "exp-2": false}}\n{FENCE}', ("exp-1",)),
    (f'{FENCE}json {{"exp-1":true,"exp-2":false}}{FENCE}', ("exp-1",)),
    ('{"exp-1": true, "exp-2": false,}', ("exp-1",)),
    ('{"exp-1": "false", "exp-2": "true"}', ("exp-2",)),
    ('{"exp-1": {"relevant": false}, "exp-2": {"relevant": true, "reason": "files"}}', ("exp-2",)),
    ('"exp-1" is relevant, but "exp-2" is not.', ("exp-1",)),
    ('{"selected": ["exp-1"]}', ("exp-1",)),
    ("exp-1", ("exp-1",)),
    ("exp-1, exp-3", ("exp-1", "exp-3")),
    ('["exp-1", "exp-1", "exp-2", "exp-1"]', ("exp-1", "exp-2")),
    ('{"exp-9": true, "exp-1": true}', ("exp-1",)),
    ("{}", ()),
    ("I cannot answer that.", None),
]

MORE = [
    ("", None),
    ("[]", ()),
    ("null", None),
    ("None of them.", ()),
    ('{"selected": []}', ()),
    ('{"exp-1": false, "exp-2": false, "exp-3": false}', ()),
    ("{'exp-1': True, 'exp-2': False}", ("exp-1",)),
    ("{exp-1: true, exp-2: no}", ("exp-1",)),
    ('{"exp-1": true, "exp-2": tr', ("exp-1",)),
    ('["exp-1", "exp-2"', ("exp-1", "exp-2")),
    ('{"exp-1": 1, "exp-2": 0, "exp-3": 0.9}', ("exp-1", "exp-3")),
    ('{"exp-1": null, "exp-2": "yes", "exp-3": "no"}', ("exp-2",)),
    ('{"exp-1": "not relevant", "exp-2": "irrelevant", "exp-3": "relevant: it is about files"}', ("exp-3",)),
    ('[{"id": "exp-1", "relevant": true}, {"id": "exp-2", "relevant": false}]', ("exp-1",)),
    ('{"experiences": [{"exp_id": "exp-2", "score": 0.9}, {"exp_id": "exp-3", "score": 0.1}]}', ("exp-2",)),
    ('{"selected": ["exp-2"], "rejected": ["exp-1", "exp-3"]}', ("exp-2",)),
    ('{"selected": {"exp-1": true, "exp-2": false}}', ("exp-1",)),
    ('{"result": "exp-1, exp-3"}', ("exp-1", "exp-3")),
    ('{"exp-1": [true, "files"], "exp-2": [false, "no chart"]}', ("exp-1",)),
    ('{"reasoning": "exp-3 is about charts", "selected": ["exp-1"]}', ("exp-1",)),
    ('Sure! Here it is:\n\n{"exp-2": true}\n\nexp-1 is about something else.', ("exp-2",)),
    ('<think>exp-1 looks good, exp-2 too</think>{"exp-2": true, "exp-1": false}', ("exp-2",)),
    ("- exp-1: true\n- exp-2: false\n- exp-3: false", ("exp-1",)),
    ("1. **exp-1** – yes\n2. **exp-2** – no", ("exp-1",)),
    ("exp-1 yes, exp-2 no, exp-3 yes", ("exp-1", "exp-3")),
    ("exp-1 and exp-2 are not relevant. exp-3 is.", ("exp-3",)),
    ("Neither exp-1 nor exp-2 applies.", ()),
    ("I would use exp-2, not exp-1.", ("exp-2",)),
    ("Only exp-2.", ("exp-2",)),
    ("The user does not mention a chart, but exp-3 fits.", ("exp-3",)),
    ("exp-1 isn't needed; exp-2 is useful here", ("exp-2",)),
    ("First I thought exp-1 applies. But exp-1 does not apply.", ()),
    ("EXP-1", ("exp-1",)),
    ("exp-10 is relevant", None),
    ('["Experience (ID: exp-2)"]', ("exp-2",)),
    ('["exp-4"]', ()),
    ('{"exp-4": true}', ()),
    ('// chosen\n{"exp-1": true /* files */}', ("exp-1",)),
    ("[" * 5000, ()),
    ('{"a":' * 5000, None),
    ("{“exp-1”: true, “exp-2”: false}", ("exp-1",)),
    ('{"irrelevant": ["exp-1", "exp-2"]}', ()),
    ("x" * 300_000, None),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "selected"), ODD)
def test_the_fifteen_odd_replies_read_right(reply: str, selected: tuple[str, ...] | None) -> None:
    assert read_reply(reply, OFFERED) == selected


@pytest.mark.parametrize(("reply", "selected"), MORE)
def test_replies_read_right(reply: str, selected: tuple[str, ...] | None) -> None:
    assert read_reply(reply, OFFERED) == selected


@given(st.text(alphabet='{}[]",:`\n exp-123truefalsnot.', max_size=200))
def test_whatever_is_said_only_what_was_offered_is_selected_and_each_once(reply: str) -> None:
    found = read_reply(reply, OFFERED)
    assert found is None or (set(found) <= set(OFFERED) and len(set(found)) == len(found))


@given(st.text(max_size=300))
def test_no_text_is_too_odd(reply: str) -> None:
    found = read_reply(reply, OFFERED)
    assert found is None or set(found) <= set(OFFERED)


@given(st.lists(st.sampled_from(OFFERED), unique=True))
def test_what_is_asked_for_is_read_as_it_stands(selected: list[str]) -> None:
    reply = "{" + ", ".join(f'"{name}": {str(name in selected).lower()}' for name in OFFERED) + "}"
    assert set(read_reply(reply, OFFERED) or ()) == set(selected)


def test_ids_of_odd_signs_are_found_as_they_stand() -> None:
    offered = ("a.b(c)*", "über uns", "a")
    assert read_reply('{"a.b(c)*": true, "a": false}', offered) == ("a.b(c)*",)
    assert read_reply("über uns", offered) == ("über uns",)
