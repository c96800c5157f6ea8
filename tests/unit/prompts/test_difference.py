"""Tests of version differences and of the semantic version bump they require."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import (
    Difference,
    FieldDifference,
    ParamDifference,
    SectionDifference,
    bump,
    check_semver,
    difference,
    next_semver,
)
from cuebook.prompts.digest import digest_of
from cuebook.records.prompt import Param, Version

TEXTS = st.sampled_from(["", "a", "a\nb", "a\r\nb", "b"])
VERSIONS = st.builds(
    Version,
    slug=st.just("a"),
    sections=st.dictionaries(st.sampled_from("xyz"), TEXTS),
    override_sections=st.dictionaries(st.sampled_from("xy"), TEXTS),
    params=st.lists(
        st.builds(
            Param,
            name=st.sampled_from("ab"),
            type=st.sampled_from(["string", "integer"]),
            default=st.sampled_from([None, "1"]),
            required=st.booleans(),
        ),
        max_size=2,
        unique_by=lambda param: param.name,
    ).map(tuple),
    engine=st.sampled_from(["dollar", "braces"]),
    metadata=st.sampled_from([{}, {"k": 1}, {"k": True}, {"k": 1.0}]),
    inherits=st.sampled_from([None, "b"]),
    tags=st.sampled_from([(), ("t",)]),
)
BASE = Version(
    slug="a",
    sections={"x": "one\ntwo", "y": "three"},
    params=(Param(name="p"), Param(name="q", type="integer", default="1")),
)
P, Q = BASE.params


def changed(**fields):
    return msgspec.structs.replace(BASE, **fields)


@given(VERSIONS)
def test_a_version_does_not_differ_from_itself(version):
    assert difference(version, version) == Difference()
    assert bump(difference(version, version)) == "none"


@given(VERSIONS, VERSIONS)
def test_a_bump_is_none_only_for_equal_digests(one, other):
    assert (bump(difference(one, other)) == "none") == (digest_of(one) == digest_of(other))


@given(VERSIONS, VERSIONS)
def test_differences_are_symmetric(one, other):
    there, back = difference(one, other), difference(other, one)
    assert {(each.name, each.after, each.before) for each in there.params} == {
        (each.name, each.before, each.after) for each in back.params
    }
    turned = {"added": "removed", "removed": "added", "changed": "changed"}
    assert {(each.name, each.override, turned[each.kind]) for each in there.sections} == {
        (each.name, each.override, each.kind) for each in back.sections
    }


def test_changed_sections_are_reported_with_their_lines():
    after = changed(sections={"x": "one\nTWO", "z": "new\nlines"}, override_sections={"y": "over"})
    assert difference(BASE, after).sections == (
        SectionDifference("x", "changed", False, ("@@ -1,2 +1,2 @@", " one", "-two", "+TWO")),
        SectionDifference("y", "removed", False, ("-three",)),
        SectionDifference("z", "added", False, ("+new", "+lines")),
        SectionDifference("y", "added", True, ("+over",)),
    )


def test_changed_params_are_reported_before_and_after():
    loose = msgspec.structs.replace(P, required=False)
    fresh = Param(name="r")
    found = difference(BASE, changed(params=(fresh, loose))).params
    assert found == (
        ParamDifference("p", "changed", P, loose),
        ParamDifference("q", "removed", Q, None),
        ParamDifference("r", "added", None, fresh),
    )
    assert [each.kind for each in found] == ["changed", "removed", "added"]


def test_other_changed_fields_are_reported_with_both_values():
    after = changed(
        sections={"y": "three", "x": "one\ntwo"}, engine="none", metadata={"k": 1}, tags=("t",), branch="exp"
    )
    assert difference(BASE, after).fields == (
        FieldDifference("order", ("x", "y"), ("y", "x")),
        FieldDifference("engine", "dollar", "none"),
        FieldDifference("metadata", {}, {"k": 1}),
        FieldDifference("tags", (), ("t",)),
    )


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, "none"),
        ({"tags": ("t",), "author": "me", "description": "d", "sync": True}, "none"),
        ({"sections": {"x": "one\r\ntwo", "y": "three"}}, "none"),
        ({"sections": {"x": "one", "y": "three"}}, "patch"),
        ({"sections": {"y": "three", "x": "one\ntwo"}}, "patch"),
        ({"metadata": {"context_weights": {"task_coding": 1}}}, "patch"),
        ({"params": (P, msgspec.structs.replace(Q, default="2"))}, "patch"),
        ({"params": (msgspec.structs.replace(P, description="who"), Q)}, "patch"),
        ({"params": (Q, P)}, "none"),
        ({"sections": {**BASE.sections, "z": ""}}, "minor"),
        ({"sections": {"x": "one\ntwo"}}, "minor"),
        ({"override_sections": {"y": "no"}}, "minor"),
        ({"params": (P, Q, Param(name="r", required=False))}, "minor"),
        ({"params": (P, Q, Param(name="r", default="x"))}, "minor"),
        ({"params": (msgspec.structs.replace(P, required=False), Q)}, "minor"),
        ({"params": (P, msgspec.structs.replace(Q, type="number"))}, "minor"),
        ({"params": (P, msgspec.structs.replace(Q, type="string"))}, "minor"),
        ({"inherits": "base"}, "minor"),
        ({"engine": "none"}, "minor"),
        ({"type": "system"}, "minor"),
        ({"params": (P,)}, "major"),
        ({"params": (P, msgspec.structs.replace(Q, name="r"))}, "major"),
        ({"params": (P, Q, Param(name="r"))}, "major"),
        ({"params": (P, msgspec.structs.replace(Q, default=None))}, "major"),
        ({"params": (msgspec.structs.replace(P, type="boolean"), Q)}, "major"),
        ({"params": (P, Q, Param(name="r")), "sections": {}}, "major"),
    ],
    ids=str,
)
def test_the_required_bump_of_a_change(fields, asked):
    assert bump(difference(BASE, changed(**fields))) == asked


@pytest.mark.parametrize(
    ("semver", "none", "patch", "minor", "major"),
    [
        ("1.2.3", "1.2.3", "1.2.4", "1.3.0", "2.0.0"),
        ("0.0.0", "0.0.0", "0.0.1", "0.1.0", "1.0.0"),
        ("1.9.9", "1.9.9", "1.9.10", "1.10.0", "2.0.0"),
        ("1.2.0-draft.experiment", "1.2.0-draft.experiment", "1.2.0", "1.2.0", "2.0.0"),
        ("2.0.0-rc.1", "2.0.0-rc.1", "2.0.0", "2.0.0", "2.0.0"),
        ("1.2.3-rc.1+b.7", "1.2.3-rc.1+b.7", "1.2.3", "1.3.0", "2.0.0"),
        ("1.2.3+build-5", "1.2.3+build-5", "1.2.4", "1.3.0", "2.0.0"),
    ],
)
def test_next_semver(semver, none, patch, minor, major):
    asked = {"none": none, "patch": patch, "minor": minor, "major": major}
    assert {by: next_semver(semver, by) for by in asked} == asked


@pytest.mark.parametrize(
    "semver",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3\n", "1.²3.3", "1.2." + "9" * 99, 1.2],
    ids=repr,
)
def test_invalid_semantic_versions_are_rejected(semver):
    with pytest.raises(InvalidInput, match="not a semantic version") as caught:
        check_semver(semver)
    assert caught.value.where == "semver"


@given(
    st.from_regex(
        r"(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})(-[a-z]{1,4}(\.[1-9])?)?", fullmatch=True
    ).filter(str.isascii)
)
def test_next_semver_is_valid_and_higher(semver):
    core = tuple(map(int, semver.partition("-")[0].split(".")))
    ladder = [tuple(map(int, check_semver(next_semver(semver, by)).split("."))) for by in ("patch", "minor", "major")]
    assert sorted(ladder) == ladder
    assert ladder[0] >= core
    assert "-" in semver or ladder[0] > core
