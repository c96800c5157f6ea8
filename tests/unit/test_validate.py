"""Tests of the document validator: the path and the message of each problem."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from cuebook import Ask, Part, Posted
from cuebook.errors import InvalidInput
from cuebook.memory.rolling import read_compaction
from cuebook.prompts.presets import read_presets
from cuebook.validate import Document, Name, check, check_known, check_unique, format_value, refuse, unknown, validate


class Window(Document, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=1_000)] = 10
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5


class Item(Document, frozen=True, kw_only=True, forbid_unknown_fields=False):
    id: Name
    prompt_keys: tuple[str, ...] = ()
    color: Literal["red", "green"] = "red"


class Whole(Document, frozen=True, kw_only=True):
    IGNORED: ClassVar[frozenset[str]] = frozenset({"legacy"})

    name: Annotated[str, Meta(max_length=5)] = ""
    enabled: bool = False
    window: Window | None = None
    items: Annotated[tuple[Item, ...], Meta(max_length=3)] = ()
    numbers: Mapping[str, float] = {}
    text_or_list: str | tuple[str, ...] = ""
    code: Annotated[str, Meta(pattern="^[a-z]*$", description="a code of small letters")] = ""
    picture: bytes = b""


def faults_of(document: object) -> list[str]:
    return [str(each) for each in validate(document, Whole)[1]]


def test_a_valid_document_becomes_a_struct():
    document = {
        "$schema": "whole.json",
        "_comment": "for readers",
        "legacy": 5,
        "name": "Ada",
        "enabled": True,
        "window": {"size": 5.0, "share": 1},
        "items": [{"id": "a", "promptKeys": ["k"], "of": "another program"}, {"id": "b", "color": None}],
        "numbers": {"x": 1},
        "textOrList": ["a"],
        "code": None,
        "picture": b"x",
    }
    assert validate(document, Whole) == (
        Whole(
            name="Ada",
            enabled=True,
            window=Window(size=5, share=1.0),
            items=(Item(id="a", prompt_keys=("k",)), Item(id="b")),
            numbers={"x": 1.0},
            text_or_list=("a",),
            picture=b"x",
        ),
        [],
    )
    assert validate({}, Whole) == (Whole(), [])


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (None, "expected an object, got null"),
        ([], "expected an object, got a list"),
        ({"nam": 1}, "nam: unknown field 'nam'. Did you mean 'name'?"),
        ({5: 1}, "5: unknown field '5'. Available: name, enabled, window, items, numbers, textOrList, code, picture."),
        ({"name": 5}, "name: expected a string, got 5"),
        ({"name": "too long"}, "name: has 8 characters. The limit is 5."),
        ({"enabled": "yes"}, "enabled: expected true or false, got 'yes'"),
        ({"enabled": 1}, "enabled: expected true or false, got 1"),
        ({"window": "wide"}, "window: expected an object, got 'wide'"),
        ({"window": {"size": 0}}, "window.size: expected a whole number from 1 to 1,000, got 0"),
        ({"window": {"size": 2.5}}, "window.size: expected a whole number from 1 to 1,000, got 2.5"),
        ({"window": {"size": True}}, "window.size: expected a whole number from 1 to 1,000, got true"),
        ({"window": {"size": "5"}}, "window.size: expected a whole number from 1 to 1,000, got '5'"),
        ({"window": {"size": 10**400}}, "window.size: expected a whole number from 1 to 1,000, got 1000"),
        ({"window": {"share": 0}}, "window.share: expected a number above 0 up to 1, got 0"),
        ({"window": {"share": math.nan}}, "window.share: expected a number above 0 up to 1, got nan"),
        ({"window": {"share": 10**400}}, "window.share: expected a number above 0 up to 1, got 1000"),
        ({"numbers": {"x": math.inf}}, "numbers.x: expected a number, got inf"),
        ({"numbers": {5: 1}}, "numbers: expected string keys, got 5"),
        ({"items": {}}, "items: expected a list, got an object"),
        ({"items": [{"id": "a"}] * 4}, "items: has 4 entries. The limit is 3."),
        ({"items": [{"id": "a"}, {}]}, "items[1].id: missing. Expected a name of visible characters."),
        ({"items": [{"id": " "}]}, "items[0].id: empty. Expected a name of visible characters."),
        ({"items": [{"id": "a\u200bb"}]}, "items[0].id: expected a name of visible characters, got 'a\\u200bb'"),
        ({"items": [{"id": "a", "promptKeys": ["k", 7]}]}, "items[0].promptKeys[1]: expected a string, got 7"),
        ({"items": [{"id": "a", "promptKey": []}]}, "items[0].promptKey: unknown field 'promptKey'. Did you mean"),
        ({"items": [{"id": "a", "color": "gren"}]}, "items[0].color: unknown value 'gren'. Did you mean 'green'?"),
        ({"items": [{"id": "a", "color": 5}]}, "items[0].color: expected one of green, red, got 5"),
        ({"textOrList": 5}, "textOrList: expected a string or a list, got 5"),
        ({"code": "A"}, "code: expected a code of small letters, got 'A'"),
        ({"picture": "x"}, "picture: expected bytes, got 'x'"),
    ],
)
def test_a_problem_has_its_path_and_says_what_to_write(document: object, fault: str):
    [found] = faults_of(document)
    assert found.startswith(fault)


def test_every_problem_is_reported_and_the_rest_is_parsed():
    value, faults = validate({"nam": 1, "enabled": 5, "name": "Ada", "items": [{"id": "a"}, 7]}, Whole)
    assert [each.path for each in faults] == ["nam", "enabled", "items[1]"]
    assert value == Whole(name="Ada", items=(Item(id="a"),))
    assert validate({"color": "red"}, Item)[0] is None


def test_a_struct_is_validated_by_attribute_names():
    class Call(Struct, frozen=True):
        token_budget: Annotated[int, Meta(ge=1)] | None = None

    assert check(Call(5), Call) == Call(5)
    with pytest.raises(InvalidInput, match=r"^given\.token_budget: expected a whole number from 1, got '5'"):
        check(Call("5"), Call, "given")  # type: ignore[arg-type]


def test_an_error_names_file_first_problem_and_count():
    _, faults = validate({"nam": 1, "enabled": 5}, Whole)
    with pytest.raises(InvalidInput) as refused:
        refuse(faults, file="whole.json")
    assert str(refused.value) == "whole.json: nam: unknown field 'nam'. Did you mean 'name'? (and 1 more fault)"
    assert refused.value.where == "nam"
    refuse([])


def test_names_must_exist_and_ids_must_be_unique():
    assert unknown("key", "z", ()) == "unknown key 'z'. Available: none."
    assert unknown("key", "z", [str(each) for each in range(14)]).endswith("10, 11 and 2 more.")
    [fault] = check_known("profile", [("a", "ada"), ("b", "bob")], ["ada", "bert"])
    assert str(fault) == "b: unknown profile 'bob'. Available: ada, bert."
    [fault] = check_unique("items", ["a", "b", "a"])
    assert str(fault) == "items[2].id: duplicate id 'a'. Use a different id."
    assert format_value("x" * 100).endswith("…")


def test_typos_in_rules_and_prompt_keys_are_reported():
    """A rule without a condition always applies, so a misspelled condition must be an error."""
    document = {
        "presets": [{"id": "a"}, {"id": "b"}, {"id": "c", "addonPromptKeys": [5]}],
        "rules": [{"id": "r", "presetId": "a", "anyKeyword": ["x"]}],
    }
    with pytest.raises(InvalidInput, match=r"presets\[2\]\.addonPromptKeys\[0\]: expected a string, got 5"):
        read_presets(document, file="presets.json", prompts=())
    document["presets"].pop()
    with pytest.raises(InvalidInput, match=r"anyKeyword: unknown field 'anyKeyword'. Did you mean 'anyKeywords'\?"):
        read_presets(document, file="presets.json", prompts=())
    with pytest.raises(InvalidInput, match=r"profiles\.mine\.tailTurns: unknown field"):
        read_compaction({"memoryCompaction": {"profiles": {"mine": {"tailTurns": 1}}}}, file="presets.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*Whole.__struct_fields__, "id", "size", "color", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_document_is_rejected_or_round_trips(document: object):
    value, faults = validate(document, Whole)
    if faults:
        assert all(str(each) for each in faults)
    else:
        assert validate(msgspec.to_builtins(value, builtin_types=(bytes,)), Whole) == (value, [])


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: Posted(sender="ann", content="Hi"), "Posted has no field 'content'. Did you mean 'message'?"),
        (lambda: Ask(prompt="Hi"), "Ask has no field 'prompt'. Did you mean 'text'?"),
        (lambda: Ask("Hi", conversation_id="c"), "Ask has no field 'conversation_id'. Did you mean 'conversation'?"),
        (lambda: Part(colour="red"), "Part has no field 'colour'. Available: "),
        (Posted, "Missing required argument 'sender'"),
    ],
)
def test_an_unknown_field_of_a_request_is_named(call: Callable[[], object], hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(hint)
