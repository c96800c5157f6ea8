"""Tests of the import of prompts from the files of earlier systems (Cortex and others)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.migrate import plan, read_document, slugs
from cuebook.records.prompt import Param, Version

#: The documented array (Cortex), with the fields of POST /api/prompts beside.
ARRAY = [
    {
        "slug": "my-prompt",
        "type": "system",
        "branch": "main",
        "sections": {"identity": "You are helpful.", "constraints": "Be concise."},
        "metadata": {"context_weights": {"task_coding": 0.8, "user_frustrated": 0.5}},
        "tags": ["assistant"],
    },
    {
        "slug": "writer",
        "branch": "trial",
        "inherits": "base",
        "sections": {"identity": "You write.", "constraints": "At length, $name."},
        "overrideSections": ["constraints"],
        "params": ["$name"],
        "semver": "2.0.0-rc.1",
        "author": "ada",
        "description": "Writes",
        "sync": True,
    },
    {"slug": "writer", "sections": {"identity": "You write."}},
    {"slug": "base", "sections": {"identity": "You are an agent."}, "metadata": {}},
]

#: The file that Cortex's program loads.
THREE = {
    "prompts": [
        {"slug": "base", "name": "Base", "type": "persona", "tags": ["core"], "metadata": {"team": "a"}},
        {"slug": "coder", "type": "skill"},
    ],
    "versions": [
        {"slug": "coder", "version": 2, "branch": "main", "content": {"sections": {"identity": "Code well."}}},
        {
            "slug": "coder",
            "version": 1,
            "branch": "main",
            "author": "bob",
            "content": {"sections": {"identity": "Code."}},
        },
        {
            "slug": "base",
            "version": 1,
            "branch": "main",
            "content": {"type": "meta", "sections": {"rules": ["a", "b"]}, "metadata": {"team": "b"}},
            "override_sections": {"tone": "Kind."},
        },
    ],
    "inheritance": [{"child_slug": "coder", "parent_slug": "base"}],
}


def stored(migration, existing=()):
    """Return the versions that a store holds after a migration."""
    return [*existing, *(row.version for row in migration[0])]


def test_the_documented_array_is_imported():
    migration = plan(ARRAY, ())
    assert [(row.version.slug, row.version.branch) for row in migration[0]] == [
        ("my-prompt", "main"),
        ("writer", "main"),
        ("base", "main"),
        ("writer", "trial"),
    ]
    assert replace(migration[0][0].version, digest="", number=0) == Version(
        slug="my-prompt",
        type="system",
        sections={"identity": "You are helpful.", "constraints": "Be concise."},
        metadata={"context_weights": {"task_coding": 0.8, "user_frustrated": 0.5}},
        tags=("assistant",),
    )
    assert replace(migration[0][3].version, digest="", number=0) == Version(
        slug="writer",
        branch="trial",
        semver="2.0.0-rc.1",
        sections={"identity": "You write."},
        override_sections={"constraints": "At length, $name."},
        params=(Param(name="name"),),
        inherits="base",
        author="ada",
        description="Writes",
        sync=True,
    )
    row = migration[0][0]
    assert (row.place, row.version.number) == ("prompts[0]", 1)
    assert [(change.name, change.kind, change.lines) for change in row.change.sections] == [
        ("identity", "added", ("+You are helpful.",)),
        ("constraints", "added", ("+Be concise.",)),
    ]
    assert plan({"prompts": ARRAY}, ()) == migration
    assert slugs(ARRAY) == ("my-prompt", "writer", "base", "default/base")


def test_prompts_versions_and_inheritance_are_imported():
    migration = plan(THREE, ())
    assert [(row.place, row.version.slug, row.version.number) for row in migration[0]] == [
        ("versions[2]", "base", 1),
        ("versions[1]", "coder", 1),
        ("versions[0]", "coder", 2),
    ]
    base, one, two = (row.version for row in migration[0])
    assert replace(base, digest="", number=0) == Version(
        slug="base",
        type="meta",
        sections={"rules": '[\n  "a",\n  "b"\n]'},
        override_sections={"tone": "Kind."},
        metadata={"name": "Base", "team": "b"},
        tags=("core",),
    )
    assert (one.inherits, one.author, one.type, one.semver, two.semver) == ("base", "bob", "skill", "1.0.0", "1.0.1")


@pytest.mark.parametrize("document", [ARRAY, THREE, []])
def test_a_second_import_has_no_effect(document):
    first = plan(document, ())
    again = plan(document, stored(first))
    assert again[0] == ()
    assert [skip.number for skip in again[1] if skip.slug == "coder"] == ([1, 2] if document is THREE else [])
    assert len(again[1]) == len(first[0])


TEXTS = st.sampled_from("abc")


@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
def test_a_history_is_imported_once(texts, before, later):
    def rows(written):
        return [{"slug": "p", "sections": {"body": text}} for text in written]

    there = stored(plan(rows(before), ()))
    after = stored(plan(rows(texts), there), there)
    grown = [
        *after,
        *(Version(slug="p", number=len(after) + 1 + at, sections={"body": text}) for at, text in enumerate(later)),
    ]
    assert plan(rows(texts), after)[0] == ()
    assert plan(rows(texts), grown)[0] == ()
    added = [version.sections["body"] for version in after[len(before) :]]
    assert texts[len(texts) - len(added) :] == added


def test_the_next_version_keeps_the_parent_and_counts_on():
    there = [
        Version(slug="base", number=1, sections={"body": "Hi"}),
        Version(slug="p", number=1, sections={"body": "a"}, inherits="base"),
        Version(slug="p", number=2, sections={"body": "b"}, inherits="base", semver="1.4.0"),
    ]
    [row] = plan([{"slug": "p", "sections": {"body": "c"}}], there)[0]
    assert (row.version.number, row.version.semver, row.version.inherits) == (3, "1.4.1", "base")
    assert [change.lines for change in row.change.sections] == [("@@ -1 +1 @@", "-b", "+c")]
    [row] = plan([{"slug": "p", "inherits": None, "sections": {"body": "c"}}], there)[0]
    assert (row.version.inherits, row.version.semver) == (None, "1.5.0")
    assert plan([{"slug": "p", "sections": {"body": "b"}, "tags": ["new"]}], there)[0] == ()


def broken(**changes):
    """Return an array with an invalid last row."""
    return [*ARRAY[:3], {**ARRAY[3], **changes}]


def three(**changes):
    document = json.loads(json.dumps(THREE))
    for part, change in changes.items():
        document[part][-1] |= change
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (broken(sections="text"), "prompts[3].sections: expected an object, got 'text'"),
        (broken(sections={"a": "\x00"}), "prompts[3].sections.a: contains a NUL character"),
        (broken(sections={"a": "\ud800"}), "prompts[3].sections"),
        (broken(sections={" a": ""}), "prompts[3].sections. a: ' a' is not a valid section name"),
        (broken(override_sections=["x"]), "prompts[3].override_sections[0]: 'x' is not in `sections`"),
        (broken(override_sections={"identity": ""}), "prompts[3].override_sections.identity: also in `sections`"),
        (broken(override_sections={}, overrideSections={}), "prompts[3].overrideSections: duplicate of"),
        (broken(slug="Base"), "prompts[3].slug: 'Base' is not a valid id"),
        (broken(branch="a b"), "prompts[3].branch: 'a b' is not a valid branch name"),
        (broken(semver="1.10"), "prompts[3].semver: '1.10' is not a semantic version"),
        (
            broken(version="1.0.0"),
            "prompts[3].version: expected a whole number from 1 (the semantic version is `semver`), got '1.0.0'",
        ),
        (broken(params=["1a"]), "prompts[3].params[0]: '1a' is not a valid parameter name"),
        (broken(metadata={"context_weights": {"a": True}}), "prompts[3].metadata.context_weights.a: expected a number"),
        (broken(metadata={"a": float("nan")}), "prompts[3].metadata"),
        (broken(id="x"), "prompts[3].id: unknown field 'id'"),
        (broken(inherits="nowhere"), "prompts[3].inherits: base@main:1 inherits 'nowhere', which does not exist"),
        (broken(inherits="writer@trial"), "prompts[3].inherits: circular inheritance"),
        (broken(inherits="a b"), "prompts[3].inherits: 'a b' is not a valid id"),
        ([*ARRAY, ARRAY[0] | {"version": 1}, ARRAY[0] | {"version": 1}], "prompts[5].version: 1 is a duplicate of"),
        ([*ARRAY, "text"], "prompts[4]: expected an object, got 'text'"),
        ("text", "document: expected an object or a list of them, got 'text'"),
        ({"prompts": {}}, "prompts: expected a list, got an object"),
        ({"prompt": []}, "prompt: unknown field 'prompt'. Did you mean 'prompts'?"),
        (three(versions={"version": 0}), "versions[2].version: expected a whole number from 1, got 0"),
        (three(versions={"slug": "coder"}), "versions[2].version: 1 is a duplicate of versions[1]"),
        (three(inheritance={"child_slug": "x"}), "inheritance[0]: x@main is not among the versions"),
        (three(inheritance={"parent_slug": "x"}), "inheritance[0]: coder@main:1 inherits 'x', which does not exist"),
        (three(prompts={"slug": "base"}), "prompts[1].slug: 'base' is a duplicate of prompts[0]"),
        (three(prompts={"x": 1}), "prompts[1].x: unknown field 'x'"),
    ],
)
def test_an_error_in_the_last_row_prevents_the_import(document, message):
    with pytest.raises(InvalidInput) as caught:
        plan(document, ())
    assert str(caught.value).startswith(message)
    assert message.startswith(caught.value.where or "no place")


def test_byte_order_marks_are_accepted_and_duplicate_keys_rejected():
    assert plan(read_document(b"\xef\xbb\xbf[]", name="a.json"), ()) == ((), ())
    with pytest.raises(InvalidInput, match="slug"):
        read_document(b'[{"slug": "a", "slug": "b"}]', name="a.json")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        read_document(b"[{", name="a.json")
