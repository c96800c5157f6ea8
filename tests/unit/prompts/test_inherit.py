"""Tests of prompt inheritance: how sections resolve through ancestors, and three-way merges."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.inherit import DEPTH, merge3, resolve, text_of
from cuebook.records.prompt import Param, ResolvedVersion, Version

NAMES = st.sampled_from("vwxyz")
TEXTS = st.sampled_from(["", "a", "b", "a\n\nb", "  "])
SECTIONS = st.dictionaries(NAMES, TEXTS)
EDITED = st.dictionaries(NAMES, st.sampled_from(["a\nb\nc", "A\nb\nc", "a\nb\nC", "a\nc", "", "x"]))
LAYERS = st.lists(
    st.tuples(SECTIONS, SECTIONS, st.lists(NAMES, max_size=3, unique=True)), min_size=1, max_size=5
)  # fmt: skip


def chain_of(layers):
    """Return versions, oldest first, each of which inherits the previous one."""
    return [
        Version(
            slug=f"p{place}",
            number=place + 1,
            sections=sections,
            override_sections=overrides,
            params=tuple(Param(name=name, description=str(place)) for name in names),
            inherits=f"p{place - 1}" if place else None,
            digest=f"d{place}",
        )
        for place, (sections, overrides, names) in enumerate(layers)
    ]


def resolved(versions, **more):
    """Resolve the last version; the others are found as the newest of a slug and branch, or as a pin."""
    known = {}
    for each in versions:
        known[each.slug] = known[f"{each.slug}@{each.branch}"] = each
        known[f"{each.slug}@{each.branch}:{each.number}"] = each
    return resolve(versions[-1], known.get, **more)


def fault(*versions, **more):
    with pytest.raises(InvalidInput) as caught:
        resolved(versions, **more)
    assert caught.value.where == "inherits"
    return str(caught.value)


def test_the_example_of_the_specification_resolves():
    parent = Version(
        slug="base-agent", number=3, sections={"identity": "I am an agent.", "constraints": "Be kind."}, digest="d1"
    )
    child = Version(
        slug="coding-agent",
        number=1,
        sections={"tools": "Use git.", "identity": "I write code."},
        override_sections={"constraints": "Be exact."},
        params=(Param(name="user"),),
        inherits="base-agent",
        digest="d2",
    )
    found = resolved([parent, child])
    assert found == ResolvedVersion(
        version=child,
        sections={"identity": "I am an agent.\n\nI write code.", "constraints": "Be exact.", "tools": "Use git."},
        params=(Param(name="user"),),
        lineage=("prompt:base-agent@main:3", "prompt:coding-agent@main:1"),
    )
    assert list(found.sections) == ["identity", "constraints", "tools"]
    assert text_of(found) == "I am an agent.\n\nI write code.\n\nBe exact.\n\nUse git."
    assert (found.version.engine, found.version.source) == ("dollar", child.source)


@given(LAYERS)
def test_a_resolved_parent_gives_an_equal_child(layers):
    *older, child = chain_of(layers)
    if not older:
        return
    parent = resolved(older)
    flat = Version(slug=older[-1].slug, sections=parent.sections, params=parent.params)
    whole, short = resolved([*older, child]), resolved([flat, child])
    assert list(whole.sections.items()) == list(short.sections.items())
    assert whole.params == short.params
    assert whole.lineage == (*parent.lineage, child.source)


@given(st.lists(SECTIONS, min_size=3, max_size=3))
def test_inheritance_without_overrides_is_associative(texts):
    oldest, middle, child = chain_of([(sections, {}, []) for sections in texts])
    alone = msgspec.structs.replace(middle, inherits=None)
    both = Version(slug="both", sections=resolved([alone, child]).sections, inherits=oldest.slug)
    one, other = resolved([oldest, middle, child]), resolved([oldest, both])
    assert list(one.sections.items()) == list(other.sections.items())


@given(LAYERS)
def test_every_section_resolves_to_its_nearest_text(layers):
    versions = chain_of(layers)
    found = resolved(versions)
    names = dict.fromkeys(
        name for version in versions for part in (version.sections, version.override_sections) for name in part
    )
    assert list(found.sections) == list(names)
    for name, text in found.sections.items():
        said = ""
        for version in versions:
            added = version.sections.get(name, "")
            said = version.override_sections.get(name, "\n\n".join(filter(None, [said, added])))
        assert text == said
    newest = {param.name: param for version in versions for param in version.params}
    assert found.params == tuple(newest.values())


def test_an_empty_override_removes_the_section():
    parent = Version(slug="a", sections={"x": "one", "y": "two"})
    child = Version(slug="b", override_sections={"x": ""}, inherits="a")
    assert text_of(resolved([parent, child])) == "two"


def test_a_missing_parent_is_reported():
    assert fault(Version(slug="a", inherits="b/c@exp")) == "a@main inherits 'b/c@exp', which does not exist"
    middle = Version(slug="b", number=2, inherits="c")
    assert fault(middle, Version(slug="a", inherits="b")) == "b@main:2 inherits 'c', which does not exist"


def test_an_invalid_reference_is_rejected():
    assert "'^'" in fault(Version(slug="a", inherits="b@^1.0"))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_an_inheritance_cycle_is_reported(size):
    versions = [Version(slug=f"p{place}", number=1, inherits=f"p{(place + 1) % size}") for place in range(size)]
    ring = [f"p{place}@main:1" for place in (*range(size), 0)]
    said = fault(*versions[1:], versions[0])
    assert said == f"circular inheritance: {' → '.join(ring)}"


def test_a_draft_that_closes_a_cycle_is_rejected():
    stored = Version(slug="a", number=3)
    between = Version(slug="b", number=1, inherits="a")
    draft = Version(slug="a", inherits="b")
    with pytest.raises(InvalidInput, match="a@main → b@main:1 → a@main:3"):
        resolve(draft, {"a": stored, "b": between}.get)


def test_versions_may_inherit_older_versions_and_branches():
    first = Version(slug="a", number=1, sections={"body": "one"})
    second = Version(slug="a", number=2, sections={"body": "two"}, inherits="a@main:1")
    branch = Version(slug="a", branch="exp", number=1, sections={"body": "three"}, inherits="a@main")
    assert text_of(resolved([first, second, branch])) == "one\n\ntwo\n\nthree"


def test_inheritance_depth_is_counted_in_steps():
    versions = chain_of([({"body": str(place)}, {}, []) for place in range(DEPTH + 2)])
    assert len(resolved(versions[: DEPTH + 1]).lineage) == DEPTH + 1
    said = fault(*versions)
    assert said.startswith("inheritance has more than 8 steps: p9@main:10 → p8@main:9")


def test_a_conflicting_template_engine_is_rejected():
    names = (Param(name="user"),)
    child = Version(slug="b", sections={"body": "{{user}}"}, engine="braces", params=names, inherits="a")
    for text in ("Hi $user", "costs $$user", "{{user}}"):
        said = fault(Version(slug="a", number=1, sections={"body": text}), child)
        assert "engine 'braces', but inherits 'user' from a@main:1, written for 'dollar'" in said
    plain = Version(slug="a", sections={"body": "Pay $5 from $PATH, {{other}}"})
    assert text_of(resolved([plain, child])) == "Pay $5 from $PATH, {{other}}\n\n{{user}}"


@given(EDITED, EDITED)
def test_a_merge_with_an_unchanged_side_is_the_other_side(base, other):
    for ours, theirs in ((other, base), (base, other), (other, other)):
        merged, conflicts = merge3(base, ours, theirs)
        assert list(merged.items()) == list(other.items())
        assert conflicts == []


@given(EDITED, EDITED, EDITED)
def test_a_merge_keeps_the_edits_of_both_sides(base, ours, theirs):
    (merged, conflicts), (turned, others) = merge3(base, ours, theirs), merge3(base, theirs, ours)
    clashes = {clash["section"] for clash in conflicts}
    assert {tuple(each[side] for side in ("section", "base", "ours", "theirs")) for each in conflicts} == {
        tuple(each[side] for side in ("section", "base", "theirs", "ours")) for each in others
    }
    assert {name: text for name, text in merged.items() if name not in clashes} == {
        name: text for name, text in turned.items() if name not in clashes
    }
    for clash in conflicts:
        name = clash["section"]
        assert (clash["base"], clash["ours"], clash["theirs"]) == (base.get(name), ours.get(name), theirs.get(name))
        assert len({clash["base"], clash["ours"], clash["theirs"]}) == 3
        assert merged[name] == (clash["theirs"] if clash["ours"] is None else clash["ours"])
    for name in {*base, *ours, *theirs} - clashes:
        mine, yours, was = ours.get(name), theirs.get(name), base.get(name)
        if was in (mine, yours):
            assert merged.get(name) == (yours if mine == was else mine)
    moves = [
        [name for name in side if name in base] != [name for name in base if name in side] for side in (ours, theirs)
    ]
    lead = theirs if not moves[0] else ours
    shown = [name for name in merged if name in lead]
    assert shown == [name for name in lead if name in merged], "the order of one side is kept"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ({"a": "1"}, {"a": "1", "o": "x"}, {"t": "y", "a": "1"}, {"t": "y", "a": "1", "o": "x"}),
        ({"a": "1"}, {"a": "1", "o": "x"}, {"a": "1", "t": "y"}, {"a": "1", "o": "x", "t": "y"}),
        ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1", "b": "2", "t": "y"}, {"b": "2", "t": "y", "a": "1"}),
        ({"a": "1", "b": "2"}, {"a": "1"}, {"a": "1", "b": "2", "t": "y"}, {"a": "1", "t": "y"}),
        ({"a": "1\n2\n3"}, {"a": "one\n2\n3"}, {"a": "1\n2\nthree"}, {"a": "one\n2\nthree"}),
        ({}, {"a": "same"}, {"a": "same"}, {"a": "same"}),
    ],
)
def test_worked_merges(base, ours, theirs, merged):
    found, conflicts = merge3(base, ours, theirs)
    assert list(found.items()) == list(merged.items())
    assert conflicts == []


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "kept"),
    [
        ("was", "ours", "theirs", "ours"),
        (None, "ours", "theirs", "ours"),
        ("was", None, "theirs", "theirs"),
        ("was", "ours", None, "ours"),
    ],
)
def test_conflicting_changes_are_reported_with_all_texts(base, ours, theirs, kept):
    sides = [{"a": "1"} | ({} if text is None else {"x": text}) for text in (base, ours, theirs)]
    merged, conflicts = merge3(*sides)
    assert conflicts == [{"section": "x", "base": base, "ours": ours, "theirs": theirs}]
    assert merged == {"a": "1", "x": kept}
