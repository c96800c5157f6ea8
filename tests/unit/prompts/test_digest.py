"""Tests of the version digest: which versions are equal, and that its JSON is canonical (RFC 8785)."""

import hashlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import canonical, digest_of, level, sealed
from cuebook.records.prompt import Param, Version

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(["a", "\n", "\r\n", "\r", "é", "  "]), max_size=8).map("".join)
PARAMS = st.lists(
    st.builds(
        Param, name=st.sampled_from("abcd"), required=st.booleans(), default=st.none() | TEXTS, description=TEXTS
    ),
    max_size=3,
    unique_by=lambda param: param.name,
).map(tuple)
VERSIONS = st.builds(
    Version,
    slug=st.sampled_from(["a", "b"]),
    type=st.sampled_from(["prompt", "system"]),
    sections=st.dictionaries(st.sampled_from(["x", "y", "z"]), TEXTS),
    override_sections=st.dictionaries(st.sampled_from(["x", "y"]), TEXTS),
    params=PARAMS,
    engine=st.sampled_from(["dollar", "braces", "none"]),
    inherits=st.sampled_from([None, "a", "a@main:2"]),
    metadata=st.dictionaries(st.text(max_size=3), JSON, max_size=3),
)
BASE = Version(slug="a", sections={"x": "1", "y": "2"}, params=(Param(name="p"), Param(name="q")), metadata={"k": 1})


def crlf(text):
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def backwards(value):
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(each) for each in value] if isinstance(value, list) else value


@given(VERSIONS)
def test_line_endings_and_key_order_change_no_digest(version):
    other = msgspec.structs.replace(
        version,
        slug="c",
        branch="exp",
        number=7,
        semver="9.9.9",
        sections={name: crlf(text) for name, text in version.sections.items()},
        override_sections={name: crlf(text) for name, text in version.override_sections.items()},
        params=tuple(
            msgspec.structs.replace(
                param,
                description=crlf(param.description),
                default=None if param.default is None else crlf(param.default),
            )
            for param in reversed(version.params)
        ),
        metadata=backwards(version.metadata),
        tags=("x",),
        author="me",
        description="other",
        sync=True,
        created_at=5.0,
    )
    assert digest_of(other) == digest_of(version)


@given(VERSIONS, VERSIONS)
def test_equal_digests_are_equal_content(one, other):
    def content(version):
        version = level(version)
        fields = ("engine", "type", "inherits", "metadata")
        return (
            list(version.sections.items()),
            list(version.override_sections.items()),
            sorted(version.params, key=lambda param: param.name),
            [canonical(getattr(version, field)) for field in fields],
        )

    assert (digest_of(one) == digest_of(other)) == (content(one) == content(other))


@pytest.mark.parametrize(
    "change",
    [
        {"sections": {"y": "2", "x": "1"}},
        {"sections": {"x": "1", "y": "2 "}},
        {"override_sections": {"x": "1"}},
        {"params": (Param(name="p"),)},
        {"params": (Param(name="p", required=False), Param(name="q"))},
        {"params": (Param(name="p", description="who"), Param(name="q"))},
        {"engine": "braces"},
        {"type": "system"},
        {"inherits": "b"},
        {"metadata": {"k": 1, "context_weights": {"task_coding": 0.8}}},
        {"metadata": {"k": True}},
    ],
)
def test_every_effective_field_changes_the_digest(change):
    assert digest_of(msgspec.structs.replace(BASE, **change)) != digest_of(BASE)


def test_the_digest_matches_the_documentation():
    form = {
        "sections": [["x", "1"], ["y", "2"]],
        "override_sections": [],
        "params": [
            {"name": name, "type": "string", "required": True, "default": None, "description": ""} for name in "pq"
        ],
        "engine": "dollar",
        "type": "prompt",
        "inherits": None,
        "metadata": {"k": 1},
    }
    plain = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert digest_of(BASE) == hashlib.sha256(plain).hexdigest()


@given(VERSIONS)
def test_a_sealed_version_has_lf_endings_and_its_digest(version):
    stored = sealed(version)
    assert stored.digest == digest_of(version) == digest_of(stored)
    assert sealed(stored) == stored
    assert "\r" not in "".join([*stored.sections.values(), *stored.override_sections.values()])


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"metadata": {"n": 2**53}}, "metadata"),
        ({"metadata": {"n": math.nan}}, "metadata"),
        ({"metadata": {"n": {1, 2}}}, "metadata"),
        ({"metadata": {3: "x"}}, "metadata"),
        ({"metadata": {"\ud800": "x"}}, "metadata"),
        ({"sections": {"x": "\ud800"}}, "sections"),
        ({"params": (Param(name="p", description="\udfff"),)}, "params"),
    ],
)
def test_values_without_canonical_form_are_rejected_by_field(change, where):
    with pytest.raises(InvalidInput) as caught:
        digest_of(msgspec.structs.replace(BASE, **change))
    assert caught.value.where == where


def test_cyclic_metadata_is_rejected():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="metadata: nested too deeply"):
        digest_of(msgspec.structs.replace(BASE, metadata={"a": deep}))


# RFC 8785, 3.2.2 and 3.2.3 (the example and the order of keys), and numbers of its appendix B.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {
                "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
                "literals": [None, True, False],
            },
            (
                '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
                '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
            ),
        ),
        (
            {
                "\u20ac": "Euro Sign",
                "\r": "Carriage Return",
                "\ufb33": "Hebrew Letter Dalet With Dagesh",
                "1": "One",
                "\U0001f600": "Emoji: Grinning Face",
                "\u0080": "Control",
                "\u00f6": "Latin Small Letter O With Diaeresis",
            },
            (
                '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin Small Letter O With Diaeresis",'
                '"€":"Euro Sign","😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
            ),
        ),
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"),
        (-0.0000033333333333333333, "-0.0000033333333333333333"),
        (1424953923781206.2, "1424953923781206.2"),
    ],
)
def test_canonical_json_is_rfc_8785(value, text):
    assert canonical(value).decode() == text


@given(JSON)
def test_canonical_json_round_trips(value):
    assert json.loads(canonical(value), parse_int=float) == value
    assert canonical(backwards(value)) == canonical(value)
