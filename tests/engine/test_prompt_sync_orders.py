"""Property tests of prompt sync: in any order of edits and syncs, projects converge or show a conflict."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cuebook import BlockingCuebook
from cuebook.app.sync.plan import SyncedState, local_prompt, plan_prompt
from cuebook.errors import NotFound
from cuebook.prompts.names import SYNC
from cuebook.prompts.revisions import Revision
from cuebook.records.prompt import MAIN, Version

NAMES = ("ann", "bob")
SIDES = st.sampled_from((0, 1))
TEXTS = st.sampled_from(["Hello.", "Hello!\n\nBye.", "Hi.", ""])
EDIT = st.tuples(st.just("edit"), SIDES, st.sampled_from("abc"), TEXTS)
SYNC_ONE = st.tuples(st.just("sync"), SIDES)
RESOLVE = st.tuples(st.just("resolve"), SIDES, st.booleans())
STEPS = st.lists(st.one_of(EDIT, EDIT, SYNC_ONE, SYNC_ONE, RESOLVE), max_size=14)


class Side:
    """A project without a database: its versions, and what it has published."""

    def __init__(self, name: str, clock: "count[int]") -> None:
        self.name, self._clock = name, clock
        self.versions: list[Version] = []
        self.branches: dict[str, Version] = {}  # of the other projects
        self.state = SyncedState()
        self.published: list[Revision] = []

    def texts(self) -> dict[str, str]:
        return dict(self.versions[-1].sections) if self.versions else {}

    def edit(self, section: str, text: str) -> None:
        self._add(Version(slug="greet", sections=self.texts() | {section: text}, sync=True), float(next(self._clock)))

    def resolve(self, *, ours: bool) -> None:
        """Edit the branches in conflict, or `main`, to the text of the other."""
        for project in self.state.conflicts:
            branch = self.branches[project]
            if ours:
                self.branches[project] = replace(branch, sections=self.texts(), number=branch.number + 1)
            else:
                self._add(replace(branch, branch=MAIN), float(next(self._clock)))

    def _add(self, version: Version, at: float) -> None:
        number = len(self.versions) + 1
        self.versions.append(replace(version, number=number, created_at=at, semver=version.semver))

    def sync(self, *others: "Side") -> int:
        prompt = local_prompt("greet", self.versions, dict(self.branches), self.published, self.state)
        plan = plan_prompt(prompt, {each.name: each.published for each in others if each.published})
        for write in plan.writes:
            if write.version.branch == MAIN:
                assert write.version.number == len(self.versions) + 1
                self._add(write.version, write.at)
            else:
                self.branches[write.version.branch.removeprefix(SYNC)] = write.version
        self.state = SyncedState(numbers=prompt.numbers, conflicts=prompt.conflicts)
        self.published = prompt.revisions
        return len(plan.writes)

    def conflicts(self) -> list[tuple[str, ...]]:
        return [each.sections for each in self.state.conflicts.values()]


@given(STEPS)
def test_two_sides_converge_or_show_the_same_conflict(steps: Sequence[tuple[object, ...]]) -> None:
    clock = count(1)
    sides = [Side(name, clock) for name in NAMES]
    for kind, at, *arguments in steps:
        side, other = sides[int(at)], sides[1 - int(at)]
        if kind == "sync":
            side.sync(other)
        elif kind == "edit":
            side.edit(*arguments)
        else:
            side.resolve(ours=bool(arguments[0]))
    first, second = sides
    for side, other in ((first, second), (second, first), (first, second)):
        side.sync(other)
    assert [first.sync(second), second.sync(first)] == [0, 0]
    event(f"conflicts: {bool(first.conflicts())}")
    assert first.conflicts() == second.conflicts()
    if not first.conflicts():
        assert first.texts() == second.texts()


@given(
    st.lists(st.tuples(st.sampled_from(["edit", "sync", "resolve"]), st.integers(0, 2), st.sampled_from("abc"), TEXTS))
)
def test_three_sides_come_to_rest_and_converge_without_a_conflict(steps: Sequence[tuple[str, int, str, str]]) -> None:
    clock = count(1)
    sides = [Side(name, clock) for name in (*NAMES, "carl")]

    def sync(side: Side) -> int:
        return side.sync(*(each for each in sides if each is not side))

    for kind, at, section, text in steps:
        if kind == "sync":
            sync(sides[at])
        elif kind == "edit":
            sides[at].edit(section, text)
        else:
            sides[at].resolve(ours=not text)
    for _ in range(6):
        writes = [sync(each) for each in sides]
    assert writes == [0, 0, 0]
    if not any(each.conflicts() for each in sides):
        assert sides[0].texts() == sides[1].texts() == sides[2].texts()


def test_opposite_resolutions_are_a_conflict_again() -> None:
    clock = count(1)
    first, second = sides = [Side(name, clock) for name in NAMES]
    first.edit("a", "Hello.")
    second.sync(first)
    for side, text in zip(sides, ("Hi, Ann.", "Hi, Bob."), strict=True):
        side.edit("a", text)
    for side, other in ((first, second), (second, first), (first, second)):
        side.sync(other)
    for side in sides:
        side.resolve(ours=True)
    published = second.published
    second.sync(first)
    now, second.published = second.published, published
    first.sync(second)  # at the same time: neither has seen the other's resolution
    second.published = now
    for side, other in ((first, second), (second, first)):
        side.sync(other)
    assert first.conflicts() == second.conflicts() == [("a",)]
    assert (first.texts(), second.texts()) == ({"a": "Hi, Ann."}, {"a": "Hi, Bob."})
    second.resolve(ours=False)
    for side, other in ((second, first), (first, second)):
        side.sync(other)
    assert first.conflicts() == second.conflicts() == []
    assert first.texts() == second.texts() == {"a": "Hi, Ann."}


class Projects:
    """Two projects with databases that share a folder."""

    def __init__(self, root: Path) -> None:
        self.stick = (root / "stick").as_uri()
        self.cues = []
        for name in NAMES:
            (root / name).mkdir()
            (root / name / "cuebook.toml").touch()
            options = {"store.synchronous": "OFF", "prompts.autopush": False}
            self.cues.append(BlockingCuebook.open(root / name, arguments=options, worker=False))

    def texts(self, at: int, branch: str | None = None) -> dict[str, str]:
        try:
            return dict(self.cues[at].prompts.get("greet", branch=branch).sections)
        except NotFound:
            return {}

    def save(self, at: int, texts: dict[str, str], branch: str | None = None) -> None:
        self.cues[at].prompts.save("greet", texts, branch=branch, sync=True)

    def conflicts(self, at: int) -> list[tuple[str, tuple[str, ...]]]:
        return [(each.slug, each.sections) for each in self.cues[at].prompt_sync.status().conflicts]

    def resolve(self, at: int, *, ours: bool) -> None:
        if self.conflicts(at):
            branch = f"{SYNC}{NAMES[1 - at]}"
            texts = self.texts(at, None if ours else branch)
            self.save(at, texts, branch if ours else None)

    def sync(self, at: int) -> list[object]:
        changes = self.cues[at].prompt_sync.sync(self.stick).items
        return [each for each in changes if each.change != "conflict"]

    def check(self, steps: Sequence[tuple[object, ...]]) -> None:
        keys = [each.prompt_sync.status().fingerprint for each in self.cues]
        for at in (0, 1):
            self.cues[at].prompt_sync.sync(self.stick, trust=keys[1 - at])
        for kind, at, *arguments in steps:
            if kind == "sync":
                self.sync(int(at))
            elif kind == "edit":
                section, text = arguments
                self.save(int(at), self.texts(int(at)) | {str(section): str(text)})
            else:
                self.resolve(int(at), ours=bool(arguments[0]))
        for at in (0, 1, 0):
            self.sync(at)
        assert [self.sync(0), self.sync(1)] == [[], []]
        assert self.conflicts(0) == self.conflicts(1)
        if not self.conflicts(0):
            assert self.texts(0) == self.texts(1)


def run(steps: Sequence[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        projects = Projects(Path(folder))
        with projects.cues[0], projects.cues[1]:
            projects.check(steps)


@settings(max_examples=3, derandomize=True, deadline=None)
@given(STEPS)
def test_two_databases_converge_or_show_the_same_conflict(steps: Sequence[tuple[object, ...]]) -> None:
    run(steps)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_two_databases_converge_in_many_orders(steps: Sequence[tuple[object, ...]]) -> None:
    run(steps)
