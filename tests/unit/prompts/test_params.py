"""Tests of prompt parameters: their three declaration forms, and how a value becomes text."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.params import MAX_PARAMS, coerce, read_params
from cuebook.records.prompt import Param

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
TYPES = st.sampled_from(["string", "integer", "number", "boolean"])


def fault(call, *given):
    with pytest.raises(InvalidInput) as caught:
        call(*given)
    return caught.value


@pytest.mark.parametrize(
    ("written", "params"),
    [
        (None, ()),
        ([], ()),
        ({}, ()),
        (["$agent_name", "user_name"], (Param(name="agent_name"), Param(name="user_name"))),
        (
            [{"name": "$n", "type": "integer", "default": 3, "description": "how many"}],
            (Param(name="n", type="integer", required=False, default="3", description="how many"),),
        ),
        ([{"name": "n", "required": False}], (Param(name="n", required=False),)),
        ([{"name": "n", "required": "false"}], (Param(name="n", required=False),)),
        (
            [{"name": "on", "type": "boolean", "default": "True"}],
            (Param(name="on", type="boolean", required=False, default="true"),),
        ),
        ([{"name": "n", "kind": "number"}], (Param(name="n", type="number"),)),
        (
            {"agent_name": "string, how the agent calls itself", "user_name?": "string"},
            (
                Param(name="agent_name", description="how the agent calls itself"),
                Param(name="user_name", required=False),
            ),
        ),
        ({"n?": "integer, a, b and c"}, (Param(name="n", type="integer", required=False, description="a, b and c"),)),
        ({"x": "any"}, (Param(name="x"),)),
        ({"tone(enum, how)": ["warm", "dry"]}, (Param(name="tone", description="how (one of warm, dry)"),)),
        ({"tone?(enum)": ["warm", None]}, (Param(name="tone", required=False, description="one of warm"),)),
        ({"n": {"type": "integer", "default": 1}}, (Param(name="n", type="integer", required=False, default="1"),)),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "description": "first", "minLength": 2},
                    "b": {"type": ["integer", "null"]},
                    "c": {"type": "number", "default": 0.5},
                    "d": {"enum": ["x", "y"]},
                },
                "required": ["a", "b", "c"],
            },
            (
                Param(name="a", description="first"),
                Param(name="b", type="integer", required=False),
                Param(name="c", type="number", required=False, default="0.5"),
                Param(name="d", required=False, description="one of x, y"),
            ),
        ),
        ({"type": "object"}, ()),
    ],
)
def test_params_are_parsed_from_every_form(written, params):
    assert read_params(written) == params


@pytest.mark.parametrize(
    ("written", "why", "where"),
    [
        ("a", "expected a list", "params"),
        (3, "expected a list", "params"),
        ([3], "expected a name", "params[0]"),
        (["a", "$a"], "declared twice", "params.a"),
        (["1a"], "'1a' is not a valid parameter name", "params[0]"),
        (["a-b"], "'a-b' is not a valid parameter name", "params[0]"),
        (["$$a"], "'$a' is not a valid parameter name", "params[0]"),
        (["ａ"], "is not a valid parameter name", "params[0]"),
        (["a\n"], "is not a valid parameter name", "params[0]"),
        (["a" * 65], "is not a valid parameter name", "params[0]"),
        ([{}], "needs a name", "params[0]"),
        ([{"name": "a", "typ": "string"}], "unknown field 'typ'", "params[0]"),
        ([{"name": "a", "type": "date"}], "'date' is not a type", "params[0]"),
        ([{"name": "a", "type": ["string", "integer"]}], "type list is not a type", "params[0]"),
        ([{"name": "a", "required": "maybe"}], "true or false", "params[0]"),
        ([{"name": "a", "description": 3}], "expected a string", "params[0]"),
        ([{"name": "a", "type": "integer", "default": "x"}], "'a' must be integer", "a"),
        ([{"name": "a", "enum": "x"}], "a list", "params[0]"),
        ({"tags(array)": "string"}, "'array' has no text form", "params.tags"),
        ({"who": {"name": "string", "age": "integer"}}, "unknown field 'age'", "params.who"),
        ({"a": ["x"]}, "expected `type, description`", "params.a"),
        ({3: "string"}, "type int is not a valid parameter name", "params"),
        ({"a": "strin"}, "'strin' is not a type", "params.a"),
        ({"properties": {"a": 3}}, "expected an object", "params.properties.a"),
        ({"properties": {"a": {"type": "array"}}}, "'array' is not a type", "params.properties.a"),
        ({"properties": {}, "required": ["b"]}, "'b'", "params.properties"),
        ({"properties": {}, "required": "b"}, "a list of names", "params.properties"),
        ([f"p{number}" for number in range(MAX_PARAMS + 1)], "at most", "params"),
    ],
)
def test_invalid_declarations_are_rejected_by_name(written, why, where):
    error = fault(read_params, written)
    assert why in str(error)
    assert error.where == where


PARAMS = st.builds(Param, name=NAMES, type=TYPES, required=st.booleans(), description=st.text())


@given(st.lists(PARAMS, unique_by=lambda param: param.name))
def test_params_written_as_objects_round_trip(params):
    assert read_params([msgspec.structs.asdict(param) for param in params]) == tuple(params)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "", ""),
        ("string", "$x {{y}}", "$x {{y}}"),
        ("string", 5, "5"),
        ("string", 2.5, "2.5"),
        ("string", True, "true"),
        ("integer", 5, "5"),
        ("integer", 5.0, "5"),
        ("integer", "-007", "-007"),
        ("integer", 10**50, str(10**50)),
        ("number", 5, "5"),
        ("number", 1e300, "1e+300"),
        ("number", "3.10", "3.10"),
        ("number", ".5", ".5"),
        ("number", "1e5", "1e5"),
        ("boolean", True, "true"),
        ("boolean", "False", "false"),
    ],
)
def test_values_have_one_text_form(kind, value, text):
    assert coerce([Param(name="a", type=kind)], {"a": value}) == {"a": text}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", ["x"]),
        ("string", {"x": 1}),
        ("string", b"x"),
        ("string", math.nan),
        ("string", "\ud800"),
        ("integer", 2.5),
        ("integer", "3.5"),
        ("integer", True),
        ("integer", ""),
        ("integer", " 5"),
        ("integer", "5\n"),
        ("integer", "٣"),
        ("integer", "9" * 5000),
        pytest.param("integer", 10**5000, id="huge"),
        ("number", math.inf),
        ("number", "Infinity"),
        ("number", "1_000"),
        ("number", False),
        ("boolean", 1),
        ("boolean", "yes"),
    ],
)
def test_values_of_another_type_are_rejected_by_name(kind, value):
    error = fault(coerce, [Param(name="b"), Param(name="a", type=kind)], {"b": "x", "a": value})
    assert error.where == "a"
    assert "'a'" in str(error)
    assert len(str(error)) < 200


def test_all_missing_and_unknown_names_are_reported():
    params = [Param(name="a"), Param(name="b"), Param(name="c", required=False)]
    missing = fault(coerce, params, {"c": 1})
    assert (missing.where, str(missing)) == ("a", "Missing parameter: 'a', 'b'. Give it a value.")
    unknown = fault(coerce, params, {"x": 1, "$y": 2})
    assert (unknown.where, str(unknown)) == ("x", "Unknown parameter: 'x', 'y'. Declared: a, b, c")
    assert "Declared: none" in str(fault(coerce, [], {"x": 1}))


def test_defaults_replace_missing_and_null_values():
    params = [Param(name="a", default="d"), Param(name="b", required=False), Param(name="c")]
    assert coerce(params, {"$c": "x", "a": None}) == {"a": "d", "b": "", "c": "x"}
    assert fault(coerce, params, {"c": None}).where == "c"


def test_a_duplicate_name_is_rejected():
    assert fault(coerce, [Param(name="a")], {"a": 1, "$a": 2}).where == "a"


@given(TYPES, st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_a_values_text_parses_to_the_same_type(kind, value):
    params = [Param(name="a", type=kind)]
    try:
        values = coerce(params, {"a": value})
    except InvalidInput:
        return
    assert coerce(params, values) == values
