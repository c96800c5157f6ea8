"""Tests of prompt files: front matter, sections and parameters are parsed and written without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts.digest import digest_of
from cuebook.prompts.files import read_file, read_stated, write_file
from cuebook.prompts.names import check_section
from cuebook.prompts.params import read_params
from cuebook.records.prompt import Param, Version

CHARS = st.characters(exclude_categories=("Cs",), exclude_characters="\x00\r")
LINES = st.sampled_from(
    [
        "",
        " ",
        "---",
        "Be concise.",
        "<!-- @section x -->",
        "<!-- @@verbatim x -->",
        "<!--@section",
        " <!-- @section y -->",
        "$name {{name}}",
    ]
)
TEXT = st.text(CHARS, max_size=30) | st.lists(LINES, max_size=5).map("\n".join)


def is_section(name):
    try:
        check_section(name)
    except InvalidInput:
        return False
    return True


SECTIONS = st.sampled_from(["body", "identity", "constraints", "Output format", "x-", "-- >", "段"]) | st.text(
    max_size=8
).filter(is_section)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True) | st.sampled_from(["properties", "type", "y"])
EXACT = st.integers(-(2**53) + 1, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | EXACT | st.floats(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def params(draw):
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    kinds = {"string": TEXT, "integer": st.integers(), "number": st.floats(-9, 9), "boolean": st.booleans()}
    forms = []
    for name in names:
        kind = draw(st.sampled_from(sorted(kinds)))
        form = {"name": name, "type": kind, "required": draw(st.booleans()), "description": draw(TEXT)}
        forms.append(form | draw(st.just({}) | st.fixed_dictionaries({"default": kinds[kind]})))
    return read_params(forms)


METADATA = st.dictionaries(
    TEXT | st.sampled_from(["config", "model", "context_weights", "extra", "metadata"]), JSON, max_size=3
) | st.fixed_dictionaries(
    {},
    optional={
        "context_weights": st.dictionaries(TEXT, st.floats(-1, 1) | st.integers(-1, 1), max_size=3),
        "extra": st.dictionaries(TEXT | st.sampled_from(["name", "id", "tools"]), JSON, max_size=3),
    },
)


@st.composite
def versions(draw):
    texts = draw(st.dictionaries(SECTIONS, TEXT, max_size=4))
    overrides = draw(st.sets(st.sampled_from(sorted(texts)))) if texts else set()
    return Version(
        slug=draw(st.sampled_from(["persona/kind_helper", "no", "0123", "_meta/1.10", "null"])),
        branch=draw(st.sampled_from(["main", "exp", "yes"])),
        semver=draw(st.sampled_from(["1.0.0", "1.10.0-rc.1+b"])),
        type=draw(st.text(CHARS, min_size=1, max_size=8)),
        sections={name: text for name, text in texts.items() if name not in overrides},
        override_sections={name: text for name, text in texts.items() if name in overrides},
        params=draw(params()),
        engine=draw(st.sampled_from(["dollar", "braces", "none"])),
        inherits=draw(st.sampled_from([None, "base", "a/b@x", "a/b@x:3"])),
        metadata=draw(METADATA),
        tags=tuple(draw(st.lists(TEXT, max_size=3))),
        author=draw(TEXT),
        description=draw(TEXT),
        sync=draw(st.booleans()),
    )


@given(versions())
def test_a_prompt_file_round_trips(version):
    text = write_file(version)
    read = read_file(text, path="x.md")
    assert read == version
    assert digest_of(read) == digest_of(version)
    assert write_file(read) == text
    for other in (text.encode(), text.replace("\n", "\r\n"), "\ufeff" + text, "\n \n" + text):
        assert read_file(other, path="x.md") == version


@given(st.text(st.sampled_from("-\n<!@section> abody:&*{}[]\x00\r\ufeff\t\"'")) | st.text())
def test_any_text_is_parsed_or_rejected_with_a_message(text):
    try:
        version = read_file(text, path="x.md")
    except InvalidInput as error:
        assert str(error).startswith("x.md")  # noqa: PT017  # either is right
    else:
        assert read_file(write_file(version), path="x.md") == version


EXAMPLE = """---
cuebook: 1
name: persona/kind_helper
version: "1.2.0"
description: Helper personality for Kind AI agents
author: dev@kind.ai
tags: [persona, helper]
sync: true
type: system
branch: main
inherits: system/base@main:2
override_sections: [constraints]
engine: dollar
input:
  schema:
    agent_name: string, how the agent calls itself
    user_name?: string
context_weights: {task_coding: 0.80, user_frustrated: .5}
config: {temperature: 0.3, api: 1.10, country: NO, zip: 0123}
model: gpt-5
tests: [tests/kind_helper.yaml]
x-team: {owner: core}
---

Before any marker.

<!-- @section identity -->

Welcome $user_name, I'm $agent_name.

<!-- @section constraints   -->
    Be concise.


"""


def test_the_documented_file_is_parsed():
    assert read_file(EXAMPLE, path="default/persona/kind_helper.md") == Version(
        slug="persona/kind_helper",
        semver="1.2.0",
        type="system",
        sections={"body": "Before any marker.", "identity": "Welcome $user_name, I'm $agent_name."},
        override_sections={"constraints": "    Be concise."},
        params=(
            Param(name="agent_name", description="how the agent calls itself"),
            Param(name="user_name", required=False),
        ),
        inherits="system/base@main:2",
        metadata={
            "context_weights": {"task_coding": 0.8, "user_frustrated": 0.5},
            "config": {"temperature": 0.3, "api": "1.10", "country": "NO", "zip": "0123"},
            "model": "gpt-5",
            "tests": ["tests/kind_helper.yaml"],
            "extra": {"x-team": {"owner": "core"}},
        },
        tags=("persona", "helper"),
        author="dev@kind.ai",
        description="Helper personality for Kind AI agents",
        sync=True,
    )


def test_a_file_without_front_matter_is_one_section():
    text = "Welcome $user_name, I'm $agent_name. How can I help you today?\n"
    assert read_file(text, path="default/agent_init.md") == Version(
        slug="default/agent_init", sections={"body": text.rstrip()}
    )
    assert read_file("", path="a.md") == Version(slug="a")
    assert read_file("a\n\n---\nb: c\n---\n", path="a.md").sections == {"body": "a\n\n---\nb: c\n---"}


def test_field_names_of_the_originals_are_parsed():
    text = "---\nid: persona/a\nparams: [$agent_name, $user_name]\ninherits_from: base\n---\nHi"
    read = read_file(text, path="x.md")
    assert (read.slug, read.inherits, [param.name for param in read.params]) == (
        "persona/a",
        "base",
        ["agent_name", "user_name"],
    )
    assert read_stated(text, path="x.md")[1] == {"name", "params", "inherits"}
    assert read_stated("Hi", path="x.md")[1] == frozenset()


def test_a_json_schema_and_defaults_are_parsed():
    text = (
        "---\ninput:\n  schema:\n    type: object\n    required: [n]\n    properties:\n      n: {type: integer}\n"
        "      s: {type: string, default: 0123}\n      t: {type: string, default: }\n  default: {n: 7}\n---\n"
    )
    assert read_file(text, path="x.md").params == (
        Param(name="n", type="integer", required=False, default="7"),
        Param(name="s", required=False, default="0123"),
        Param(name="t", required=False),
    )


def test_line_endings_and_byte_order_mark_change_no_version():
    windows = b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode()
    assert read_file(windows, path="x.md") == read_file(EXAMPLE, path="x.md")


def front(lines, body="Hi\n"):
    return f"---\n{lines}\n---\n{body}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nname: a\nversion: 1.0.0\n\nYou are", "x.md: line 1: the front matter that begins here is not closed"),
        ("\n\n---\nname: a", "x.md: line 3: the front matter"),
        (front("name: a\nname: b"), "x.md: line 3: 'name' is a duplicate of line 2"),
        (front("name: a\nid: b"), "x.md: line 3: 'id' and 'name' are aliases"),
        (front("name: ../../etc/passwd"), "x.md: line 2: name: '../../etc/passwd' is not a valid id"),
        (front("name: a\nversion: 1.10"), "x.md: line 3: version: '1.10' is not a semantic version"),
        (front("version: [1, 0]"), "x.md: line 2: version: a list is not a semantic version"),
        (front("a: b\nsync: yes"), "x.md: line 3: sync: expected true or false, got 'yes'"),
        (front("tags: {a: b}"), "x.md: line 2: tags: expected a list, got an object"),
        (front("tags: [[a]]"), "x.md: line 2: tags[0]: expected a string, got a list"),
        (front("engine: jinja2"), "x.md: line 2: engine: unknown value 'jinja2'. Available: braces, dollar, none"),
        (front("branch: a/b"), "x.md: line 2: branch: 'a/b' is not a valid branch name"),
        (front("inherits: base@^1.0"), "x.md: line 2: inherits: '^1.0' is not a valid branch name"),
        (front("cuebook: 2"), "x.md: line 2: cuebook: format '2' is unsupported"),
        (front("override_sections: [x]"), "x.md: line 2: override_sections: 'x' is not a section of this file"),
        (front("context_weights:\n  a: 0.5\n  b: high"), "x.md: line 4: context_weights.b: expected a number"),
        (front("context_weights: [a]"), "x.md: line 2: context_weights: expected the names of signals"),
        (front("input:\n  schema:\n    1a: string"), "x.md: line 4: input.schema.1a: '1a' is not a valid parameter"),
        (front("input: {schema: {a: string}, default: {b: c}}"), "line 2: input.default: 'b' is not declared"),
        (front("input:\n  schema: {a: integer}\n  default: {a: x}"), "line 4: 'a' must be integer, got 'x'"),
        (front("input: {a: string}"), "x.md: line 2: input: expected `schema:` and `default:`"),
        (front("metadata: text"), "x.md: line 2: metadata: expected `key: value` lines"),
        (front("model: a\nmetadata: {model: b}"), "x.md: line 2: model: is a duplicate of"),
        (front("metadata: {extra: 1}\nodd: b"), "x.md: line 3: odd: is unknown. Move it into the existing `meta"),
        (front("a: b", "x\n<!-- @section a -->\n<!-- @section a -->"), "x.md: line 6: section 'a' is a duplicate"),
        (front("a: b", "x\n<!-- @section body -->"), "x.md: line 5: section 'body' is a duplicate of line 4"),
        ("a\n<!-- @section -->", "x.md: line 2: write `<!-- @section NAME -->`"),
        ("<!-- @section a", "x.md: line 1: write `<!-- @section NAME -->`"),
        ("<!-- @section " + "n" * 81 + " -->", "x.md: line 1: section: 'nnn"),
        ("a\nb\x00", "x.md: line 2: contains a NUL"),
        (b"a\n\xff", "x.md: line 2: not UTF-8"),
        ("a\n\ud800", "x.md: line 2: contains a lone surrogate"),
    ],
)
def test_errors_name_the_line_and_the_key(text, message):
    with pytest.raises(InvalidInput) as caught:
        read_file(text, path="x.md")
    assert message in str(caught.value)
    assert (caught.value.where or "").startswith("x.md:")


def test_an_invalid_path_is_rejected():
    with pytest.raises(InvalidInput, match="lower case"):
        read_file("Hi", path="default/README.md")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (Version(slug="a", sections={"x": "1"}, override_sections={"x": "2"}), "'x' is in both section lists"),
        (Version(slug="a", sections={"x": "\x00"}), "a: contains a NUL"),
        (Version(slug="a", sections={"x": "\ud800"}), "lone surrogate"),
        (Version(slug="a", metadata={"x": {1, 2}}), r"a\.metadata\.x: set is not a JSON type"),
    ],
)
def test_unwritable_versions_are_rejected(version, message):
    with pytest.raises(InvalidInput, match=message):
        write_file(version)


def test_too_large_files_are_rejected():
    with pytest.raises(TooLarge):
        read_file("x" * (1024 * 1024 + 1), path="x.md")
    with pytest.raises(TooLarge):
        write_file(Version(slug="a", sections={"body": "x" * (1024 * 1024)}))


def test_the_same_version_has_the_same_bytes():
    version = read_file(EXAMPLE, path="x.md")
    assert write_file(version) == (
        """---
cuebook: 1
name: persona/kind_helper
version: 1.2.0
description: Helper personality for Kind AI agents
author: dev@kind.ai
tags: [persona, helper]
sync: true
type: system
inherits: system/base@main:2
override_sections: [constraints]
input:
  schema:
    agent_name: string, how the agent calls itself
    user_name?: string
context_weights:
  task_coding: 0.8
  user_frustrated: 0.5
config:
  temperature: 0.3
  api: '1.10'
  country: 'NO'
  zip: '0123'
model: gpt-5
tests: [tests/kind_helper.yaml]
x-team:
  owner: core
---
<!-- @section body -->
Before any marker.

<!-- @section identity -->
Welcome $user_name, I'm $agent_name.

<!-- @section constraints -->
    Be concise.
"""
    )
