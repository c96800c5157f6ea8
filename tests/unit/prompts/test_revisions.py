"""Property tests of revisions, which projects exchange: round trips, and merges that do not depend on the order."""

from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.inherit import merge_versions
from cuebook.prompts.revisions import Revision, ancestors, common_versions, merge, path_to, read_revision, revision_of
from cuebook.records.prompt import Version

SECTIONS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["one", "two\n\nthree", "four"]), max_size=3)
VERSIONS = st.builds(
    lambda sections, tags, metadata: Version(slug="greet", sections=sections, tags=tags, metadata=metadata, sync=True),
    SECTIONS,
    st.sampled_from([(), ("x",), ("x", "y")]),
    st.dictionaries(st.sampled_from(["model", "style"]), st.sampled_from(["p", "q"]), max_size=2),
)


def pool_of(*revisions: Revision) -> dict[str, Revision]:
    return {each.id: each for each in revisions}


@given(VERSIONS, VERSIONS, VERSIONS)
def test_a_merge_does_not_depend_on_the_order(base: Version, ours: Version, theirs: Version) -> None:
    first = revision_of(base, [], 1.0)
    one, other = revision_of(ours, [first.id], 2.0), revision_of(theirs, [first.id], 3.0)
    pool = pool_of(first, one, other)
    merged, conflicts = merge(one, other, pool)
    assert (merged, conflicts) == merge(other, one, pool)
    assert (merged is None) == bool(conflicts)
    if merged is not None:
        assert read_revision(merged.payload) == merged
        assert set(merged.parents) == {one.id, other.id}


@given(VERSIONS, VERSIONS, VERSIONS)
def test_a_preferred_side_decides_only_conflicts(base: Version, ours: Version, theirs: Version) -> None:
    (fields, conflicts), (chosen, _) = (
        merge_versions(base, ours, theirs, prefer_theirs=each) for each in (False, True)
    )
    names = {each["section"] for each in conflicts}
    for kind in ("sections", "metadata"):
        for name in {*fields[kind], *chosen[kind]}:
            expected = getattr(theirs, kind) if name in names else fields[kind]
            assert chosen[kind].get(name) == expected.get(name)
    assert chosen["tags"] == (theirs.tags if "tags" in names else fields["tags"])


def test_histories_without_a_common_revision_have_the_newest_equal_version_as_base() -> None:
    def history(*bodies: str, at: float) -> list[Revision]:
        revisions: list[Revision] = []
        for number, body in enumerate(bodies):
            version = Version(slug="greet", sections={"a": body}, semver=f"1.0.{number}", sync=True)
            revisions.append(revision_of(version, [each.id for each in revisions[-1:]], at + number))
        return revisions

    one, other = history("1", "2", "3", at=1.0), history("1", "2", "4", at=9.0)
    pool = pool_of(*one, *other)
    assert common_versions(one[-1], other[-1], pool) == [one[1]]
    assert common_versions(other[-1], one[-1], pool) == [other[1]]


@given(VERSIONS, VERSIONS)
def test_a_side_without_changes_takes_the_other(base: Version, theirs: Version) -> None:
    first = revision_of(base, [], 1.0)
    one, other = revision_of(base, [first.id], 2.0), revision_of(theirs, [first.id], 3.0)
    merged, _ = merge(one, other, pool_of(first, one, other))
    assert merged is not None
    assert merged.version.sections == theirs.sections
    assert merged.version.metadata == theirs.metadata


def test_the_way_to_a_merge() -> None:
    def text(body: str) -> Version:
        return Version(slug="greet", sections={"a": body}, sync=True)

    first = revision_of(text("1"), [], 1.0)
    left, right = revision_of(text("2"), [first.id], 2.0), revision_of(text("3"), [first.id], 3.0)
    top = revision_of(text("4"), [left.id, right.id], 4.0)
    pool = pool_of(first, left, right, top)
    assert list(ancestors(top.id, pool)) in ([first.id, *each, top.id] for each in (top.parents, top.parents[::-1]))
    assert [each.id for each in path_to(top.id, pool, after=left.id)] == [top.id]
    assert [each.id for each in path_to(top.id, pool, after=first.id)] == [first.id, top.parents[0], top.id][1:]
    assert common_versions(left, right, pool) == [first]
    assert common_versions(left, top, pool) == [left]
