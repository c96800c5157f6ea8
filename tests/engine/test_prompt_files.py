"""Tests of prompt files: push, pull and status between disk and database, and invalid files."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cuebook import Cuebook
from cuebook.app.prompts.draft import import_files
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import BackendError, Conflict, CuebookError, InvalidInput, TooLarge

KIND = """\
---
cuebook: 1
name: persona/kind
version: 1.0.0
description: kind
author: ann
input:
  schema:
    user_name: string, who it is
---
<!-- @section identity -->
Welcome $user_name.

<!-- @section limits -->
Be concise.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cuebook.toml").write_text("")
    (tmp_path / "prompts").mkdir()
    return tmp_path


@asynccontextmanager
async def cue_in(project: Path, *, autopush: bool = False) -> AsyncIterator[Cuebook]:
    settings = {"prompts.autopush": autopush, "store.synchronous": "OFF"}
    async with Cuebook.open(project, arguments=settings, worker=False) as cue:
        yield cue


def write(project: Path, path: str, text: str | bytes) -> Path:
    file = project / "prompts" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def texts(project: Path) -> dict[str, bytes]:
    root = project / "prompts"
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()}


async def slugs(cue: Cuebook) -> list[str]:
    return [each.slug for each in (await cue.prompts.page()).items]


def child(name: str, parent: str, text: str = "More.") -> str:
    return f"---\ncuebook: 1\nname: {name}\ninherits: {parent}\n---\n{text}\n"


async def test_files_are_pushed_once_and_parents_first(project: Path) -> None:
    write(project, "default/a.md", child("a", "z"))
    write(project, "default/z.md", "---\ncuebook: 1\nname: z\n---\nBase.\n")
    async with cue_in(project) as cue:
        planned = await cue.prompts.push(dry_run=True)
        assert [(each.slug, each.state, each.version) for each in planned] == [("a", "new", 1), ("z", "new", 1)]
        assert await slugs(cue) == []
        assert "registry.json" not in texts(project)
        assert await cue.prompts.push() == planned
        assert (await cue.prompts.render("a")).text == "Base.\n\nMore."
        assert await cue.prompts.push() == []
        before = texts(project)
        assert await cue.prompts.push() == []
        assert await cue.prompts.drift() == []
    assert texts(project) == before
    listed = json.loads(before["registry.json"])["prompts"]
    assert [(each["id"], each["path"], each["head"]) for each in listed] == [
        ("a", "default/a.md", True),
        ("z", "default/z.md", True),
    ]


async def test_a_round_trip_gives_the_same_bytes(project: Path, tmp_path: Path) -> None:
    write(project, "default/persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        (project / "prompts/default/persona/kind.md").unlink()
        pulled = await cue.prompts.pull()
        assert [(each.path, each.state) for each in pulled] == [("default/persona/kind.md", "missing")]
        assert (project / "prompts/default/persona/kind.md").read_text() == KIND
        await cue.prompts.save("persona/kind", {"identity": "Hello $user_name."})
        await cue.prompts.fork("persona/kind", "trial")
        await cue.prompts.label("persona/kind", "production", version=1)
        await cue.prompts.roll_back("persona/kind", reason="worse")
        await cue.prompts.pull()
        first = texts(project)
        assert await cue.prompts.drift() == []
        assert await cue.prompts.pull() == []
    assert {"default/persona/kind.md", "default/persona/kind@trial.md", "registry.json"} < first.keys()
    assert sum(path.startswith(".objects/sha256/") for path in first) == 1
    copy = tmp_path / "copy"
    shutil.copytree(project / "prompts", copy / "prompts")
    (copy / "cuebook.toml").write_text("")
    async with cue_in(copy) as cue:
        await cue.prompts.push()
        family = await cue.prompts.family("persona/kind")
        assert [(each.name, each.head, each.active) for each in family.branches] == [("main", 2, 1), ("trial", 1, 1)]
        assert [(each.name, each.number) for each in family.labels] == [("production", 1)]
        assert (await cue.prompts.get("persona/kind", version=1)).sections["limits"] == "Be concise."
        assert (await cue.prompts.get("persona/kind", branch="trial")).branched_from == "main:2"
        await cue.prompts.pull()
        assert await cue.prompts.drift() == []
    assert {**texts(copy), "registry.json": b""} == {**first, "registry.json": b""}


async def test_only_edited_files_create_versions(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        for same in (KIND.replace("\n", "\r\n"), KIND.replace("author: ann", "author: ann # me"), KIND + "\n\n"):
            file.write_bytes(same.encode())
            assert await cue.prompts.push() == []
            assert file.read_bytes() == same.encode()
            assert await cue.prompts.pull() == []
            assert file.read_bytes() == same.encode()
        file.write_text(KIND.replace("concise", "brief"))
        [change] = await cue.prompts.push()
        assert (change.state, change.version, change.semver, change.bump) == ("changed", 2, "1.0.1", "patch")
        brief = KIND.replace("concise", "brief").replace("1.0.0", "1.0.1")
        assert file.read_text() == brief, "The file has the semantic version of its text."
        file.write_text(brief.replace("description: kind", "description: very kind"))
        [change] = await cue.prompts.push()
        assert (change.version, change.semver) == (3, "1.0.1")
        assert (await cue.prompts.get("persona/kind")).description == "very kind"
        assert await cue.prompts.drift() == []
        file.write_text(KIND.replace("version: 1.0.0\n", "").replace("concise", "quick"))
        [change] = await cue.prompts.push()
        assert (change.version, change.semver) == (4, "1.0.2")
        assert "version: 1.0.2\n" in file.read_text()
        assert await cue.prompts.push() == []
        versions = await cue.prompts.versions("persona/kind")
        assert len({each.semver for each in versions}) == len({each.digest for each in versions}) == 3


async def test_a_file_without_a_version_gets_one(project: Path) -> None:
    lines = KIND.replace("version: 1.0.0\n", "")
    file = write(project, "default/persona/kind.md", lines)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        assert file.read_text() == KIND.replace("name: persona/kind\nversion", "name: persona/kind\nversion")
        await cue.prompts.save("persona/kind", {"identity": "Hello."})
        await cue.prompts.pull()
        file.write_bytes(file.read_bytes().replace(b"version: 1.1.0\n", b"").replace(b"\n", b"\r\n"))
        assert await cue.prompts.push() == [], "The text is the same."
        assert b"\nversion: 1.1.0\r\n" in file.read_bytes()
        assert await cue.prompts.drift() == []


async def test_two_texts_never_share_a_semantic_version(project: Path) -> None:
    async with cue_in(project) as cue:
        await cue.prompts.save("a", {"body": "one"})
        await cue.prompts.fork("a", "trial")
        main, trial = [await cue.prompts.save("a", {"body": each}, branch=each) for each in ("main", "trial")]
        assert (main.semver, trial.semver) == ("1.0.1", "1.0.2")
        with pytest.raises(Conflict, match=r"version 1\.0\.1 of prompt 'a' is another text"):
            await cue.prompts.save("a", {"body": "other"}, semver="1.0.1")
        assert (await cue.prompts.save("a", {"body": "main"}, branch="trial", semver="1.0.1")).semver == "1.0.1"


async def test_a_rollback_writes_the_restored_text_to_its_file(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project, autopush=True) as cue:
        file.write_text(KIND.replace("concise", "verbose"))
        await cue.prompts.push()
        await cue.prompts.roll_back("persona/kind", reason="worse")
        assert file.read_text() == KIND
        assert await cue.prompts.drift() == []
        file.write_text(KIND.replace("concise", "verbose"))
        [difference] = await cue.prompts.drift()
        assert (difference.state, difference.version) == ("changed", 1)
        file.write_text(KIND.replace("concise", "brief"))
        [change] = await cue.prompts.push()
        assert (change.version, change.semver) == (3, "1.0.2")
        file.write_text(KIND)
        [change] = await cue.prompts.push()
        assert (change.version, change.semver) == (1, "1.0.0")
        branch = (await cue.prompts.family("persona/kind")).branch("main")
        assert branch is not None
        assert (branch.active, branch.head, branch.rolled_back) == (1, 3, (2, 3)), "The file restored version 1."


async def test_an_automatic_rollback_writes_the_restored_text_too(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project, autopush=True) as cue:
        for n in range(40):
            await cue.prompts.observe("persona/kind", sentiment=0.8 + n % 3 / 10, conversation=f"before {n}")
        file.write_text(KIND.replace("concise", "verbose"))
        await cue.prompts.push()
        results = [
            await cue.prompts.observe("persona/kind", sentiment=n % 3 / 10, conversation=f"after {n}")
            for n in range(30)
        ]
        assert sum(each.rolled_back for each in results) == 1
        assert {each.rollback.decision for each in results if each.rollback} == {"wait", "rollback", "none"}
        assert file.read_text() == KIND
        assert await cue.prompts.drift() == []


async def test_a_lost_registry_is_rebuilt_from_front_matter(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project, autopush=True) as cue:
        for word in ("brief", "short"):
            file.write_text(file.read_text().replace("concise", word).replace("brief", word))
            await cue.prompts.push()
        await cue.prompts.roll_back("persona/kind", to=2, reason="worse")
        before = await cue.prompts.versions("persona/kind")
    (project / "prompts/registry.json").unlink()
    shutil.rmtree(project / ".cuebook")
    async with cue_in(project, autopush=True) as cue:
        after = await cue.prompts.versions("persona/kind")
        assert [(each.number, each.semver, each.digest) for each in after] == [
            (each.number, each.semver, each.digest) for each in before
        ]
        branch = (await cue.prompts.family("persona/kind")).branch("main")
        assert branch is not None
        assert (branch.active, branch.head) == (2, 3)
        assert await cue.prompts.drift() == []
    assert (project / "prompts/registry.json").exists()


async def test_pulled_files_are_not_pushed_back(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        await cue.prompts.save("persona/kind", {"identity": "Hello."})
        [drift] = await cue.prompts.drift()
        assert (drift.state, drift.path, drift.version) == ("behind", "default/persona/kind.md", 2)
        assert await cue.prompts.push() == []
        (project / ".cuebook/cuebook.db.prompts").unlink()
        assert await cue.prompts.push() == [], "the history on disk is older"
        assert [each.state for each in await cue.prompts.pull()] == ["behind"]
        assert "Hello." in file.read_text()
        assert await cue.prompts.push() == []


async def test_a_conflict_writes_nothing(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    write(project, "default/other.md", "Other.\n")
    async with cue_in(project) as cue:
        await cue.prompts.push()
        await cue.prompts.save("persona/kind", {"identity": "Hello."})
        file.write_text(KIND.replace("concise", "brief"))
        write(project, "default/other.md", "Another.\n")
        before = texts(project)
        for refused in (cue.prompts.push(), cue.prompts.pull(), cue.prompts.push(dry_run=True)):
            with pytest.raises(
                Conflict, match=r"prompts/default/persona/kind\.md: changed on disk.*persona/kind@main:2"
            ):
                await refused
        assert texts(project) == before
        assert len(await cue.prompts.versions("other")) == 1
        assert {each.state for each in await cue.prompts.drift()} == {"both", "changed"}
        await cue.prompts.push(force=True)
        assert (await cue.prompts.get("persona/kind")).sections["limits"] == "Be brief."
        assert [each.number for each in await cue.prompts.versions("persona/kind")] == [1, 2, 3]
        await cue.prompts.save("persona/kind", {"identity": "Hello again."})
        file.write_text(KIND)
        await cue.prompts.pull(force=True)
        assert "Hello again." in file.read_text()
        assert await cue.prompts.drift() == []


async def test_a_file_without_front_matter_uses_its_registry_entry(project: Path) -> None:
    write(project, "default/persona/kind.md", "Welcome $user_name, I'm $agent_name.\n")
    entry = {
        "id": "persona/kind",
        "version": "1.2.0",
        "description": "Helper",
        "author": "dev@kind.example",
        "tags": ["persona"],
        "params": ["$agent_name", "$user_name"],
        "path": "~/.kos/prompts/default/persona/kind.md",
    }
    write(project, "registry.json", json.dumps([entry]))
    async with cue_in(project) as cue:
        await cue.prompts.push()
        rendered = await cue.prompts.render("persona/kind", {"user_name": "Alex", "agent_name": "kAI"})
        assert (rendered.text, rendered.semver) == ("Welcome Alex, I'm kAI.", "1.2.0")
        assert await cue.prompts.drift() == []
        write(project, "default/persona/kind.md", "Hi $user_name, I'm $agent_name.\n")
        [change] = await cue.prompts.push()
        assert (change.version, change.semver) == (2, "1.2.1")
        assert (await cue.prompts.get("persona/kind")).tags == ("persona",)
        assert await cue.prompts.drift() == []


async def test_a_branch_file_starts_from_main(project: Path) -> None:
    write(project, "default/persona/kind.md", KIND)
    write(project, "default/persona/kind@warm.md", KIND.replace("concise", "warm"))
    async with cue_in(project) as cue:
        await cue.prompts.push()
        version = await cue.prompts.get("persona/kind", branch="warm")
        assert (version.branched_from, version.sections["limits"]) == ("main:1", "Be warm.")
        assert await cue.prompts.push() == []
        assert await cue.prompts.drift() == []


def _link(project: Path) -> None:
    outside = project / "outside.md"
    outside.write_text("Secret.")
    (project / "prompts/default/link.md").symlink_to(outside)


def _link_to_folder(project: Path) -> None:
    (project / "elsewhere").mkdir()
    (project / "prompts/default/linked").symlink_to(project / "elsewhere")


def _dead_link(project: Path) -> None:
    (project / "prompts/default/link.md").symlink_to("nowhere.md")


def _pipe(project: Path) -> None:
    os.mkfifo(project / "prompts/default/pipe.md")


ODD = {
    "a link that leads out": (_link, InvalidInput, "prompts/default/link.md: link to outside of the folder"),
    "a link to a folder": (_link_to_folder, InvalidInput, "prompts/default/linked: link to a folder"),
    "a dead link": (_dead_link, InvalidInput, "prompts/default/link.md: broken link"),
    "a pipe": (_pipe, InvalidInput, "prompts/default/pipe.md: not a regular file"),
    "no UTF-8": (b"caf\xe9\n", InvalidInput, "prompts/default/odd.md: line 1: not UTF-8"),
    "empty": (b"\n\n", InvalidInput, "prompts/default/odd.md: empty"),
    "zeros": (b"\x00" * 4096, InvalidInput, "prompts/default/odd.md: empty"),
    "half written": (b"---\ncuebook: 1\nname: od", InvalidInput, "prompts/default/odd.md: line 1: the front matter"),
    "broken YAML": (b"---\nname: [a\n---\nx\n", InvalidInput, "prompts/default/odd.md: line "),
    "no id": (
        b"---\nname: ../etc\n---\nx\n",
        InvalidInput,
        "prompts/default/odd.md: line 2: name: '../etc' is not a valid id",
    ),
    "two of one id": (
        b"---\nname: persona/kind\n---\nx\n",
        InvalidInput,
        "prompts/default/odd.md and prompts/default/",
    ),
    "no parent": (b"---\ninherits: gone\n---\nx\n", InvalidInput, "default/odd@main:1 inherits 'gone'"),
    "too large": (b"x" * 5_000_000, TooLarge, "prompts/default/odd.md: 5,000,000 bytes"),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_invalid_file_is_named_and_nothing_is_written(project: Path, odd: str) -> None:
    make, error, message = ODD[odd]
    write(project, "default/persona/kind.md", KIND)
    if isinstance(make, bytes):
        write(project, "default/odd.md", make)
    else:
        make(project)
    async with cue_in(project) as cue:
        with pytest.raises(error) as caught:
            await cue.prompts.push()
        assert str(caught.value).startswith(message), caught.value
        assert await slugs(cue) == []
        assert not (project / "prompts/registry.json").exists()


@pytest.mark.parametrize("name", ["Kind Helper.md", "con.md", "a@B.md", "ä.md", "a@1.md"])
async def test_a_wrong_name_is_an_error_naming_it(project: Path, name: str) -> None:
    write(project, f"default/{name}", KIND)
    async with cue_in(project) as cue:
        with pytest.raises(InvalidInput) as caught:
            await cue.prompts.push()
    assert str(caught.value).startswith(f"prompts/default/{name}: ")


async def test_other_files_are_ignored(project: Path) -> None:
    for path in (
        "README.md",
        "default/README.md",
        "default/.kind.md.swp",
        "default/.kind.md",
        "notes.txt",
        ".git/x.md",
    ):
        write(project, path, "\x00 not a prompt")
    async with cue_in(project) as cue:
        assert await cue.prompts.push() == []
        assert await cue.prompts.drift() == []


async def test_an_unreadable_file_is_named(project: Path) -> None:
    file = write(project, "default/a.md", "A.\n")
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("nothing is unreadable to this user")
    async with cue_in(project) as cue:
        with pytest.raises(BackendError, match=r"prompts/default/a\.md: cannot be read"):
            await cue.prompts.push()


async def test_pull_never_writes_through_a_link_or_over_another_prompt(project: Path, tmp_path: Path) -> None:
    async with cue_in(project) as cue:
        await cue.prompts.save("persona/kind", {"body": "Kind."})
        outside = tmp_path / "outside"
        outside.mkdir()
        (project / "prompts/default").symlink_to(outside)
        with pytest.raises(CuebookError, match="prompts/default"):
            await cue.prompts.pull()
        assert list(outside.iterdir()) == []
        (project / "prompts/default").unlink()
        write(project, "default/persona/kind.md", "---\nname: persona/other\n---\nOther.\n")
        with pytest.raises(Conflict, match=r"kind\.md: contains prompt 'persona/other', but is the path"):
            await cue.prompts.pull()
        assert "Other." in (project / "prompts/default/persona/kind.md").read_text()


async def test_a_broken_registry_is_rebuilt_unless_a_file_needs_it(project: Path) -> None:
    write(project, "registry.json", "<<<<<<< ours\n")
    write(project, "default/persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        assert await cue.prompts.drift() == []
        write(project, "registry.json", "{")
        assert [(each.state, each.path) for each in await cue.prompts.drift()] == [("registry", "registry.json")]
        write(project, "default/bare.md", "Bare.\n")
        with pytest.raises(InvalidInput, match=r"prompts/registry\.json.*prompts/default/bare\.md has no front matter"):
            await cue.prompts.push()


async def test_altered_objects_import_no_history(project: Path, tmp_path: Path) -> None:
    write(project, "default/persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        await cue.prompts.save("persona/kind", {"identity": "Hello."})
        await cue.prompts.pull()
    [object_] = [file for file in (project / "prompts/.objects").rglob("*") if file.is_file()]
    object_.write_text(object_.read_text().replace("concise", "evil"))
    async with cue_in(project) as cue:
        assert [(each.state, each.path) for each in await cue.prompts.drift()] == [
            ("registry", object_.relative_to(project / "prompts").as_posix())
        ]
    (project / ".cuebook/cuebook.db").unlink()
    async with cue_in(project) as cue:
        await cue.prompts.push()
        assert [each.number for each in await cue.prompts.versions("persona/kind")] == [1]
        assert (await cue.prompts.get("persona/kind")).sections == {"identity": "Hello."}


async def test_opening_pushes_files_and_survives_invalid_ones(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project, autopush=True) as cue:
        assert await slugs(cue) == ["persona/kind"]
    file.write_text("---\n")
    with caplog.at_level(logging.WARNING, "cuebook.prompts"):
        async with cue_in(project, autopush=True) as cue:
            assert (await cue.prompts.get("persona/kind")).number == 1
    assert "prompts/default/persona/kind.md: line 1" in caplog.text
    async with Cuebook.open(arguments={"prompts.folder": str(project / "prompts")}) as cue:
        assert await slugs(cue) == []


async def test_a_read_only_folder_is_pushed_anyway(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(project, "default/a.md", "A.\n")
    async with cue_in(project) as cue:
        await cue.prompts.push()
        write(project, ".objects", "in the way")
        write(project, "default/a.md", "B.\n")
        with caplog.at_level(logging.WARNING, "cuebook.prompts"):
            assert len(await cue.prompts.push()) == 1
        assert (await cue.prompts.get("default/a")).sections == {"body": "B."}
    assert "the push itself succeeded" in caplog.text


async def test_processes_that_start_together_push_a_change_once(project: Path) -> None:
    file = write(project, "default/persona/kind.md", KIND)
    async with cue_in(project, autopush=True):
        pass
    file.write_text(KIND.replace("concise", "brief"))

    async def start() -> list[int]:
        async with cue_in(project, autopush=True) as cue:
            return [each.number for each in await cue.prompts.versions("persona/kind")]

    assert await asyncio.gather(*(start() for _ in range(5))) == [[1, 2]] * 5


async def test_a_new_project_has_nothing_to_push_twice(tmp_path: Path) -> None:
    init_project(tmp_path / "project")
    before = {path: text for path, text in texts(tmp_path / "project").items() if path.endswith(".md")}
    async with cue_in(tmp_path / "project", autopush=True) as cue:
        assert len(await slugs(cue)) == len(before)
        assert await cue.prompts.pull() == []
        assert await cue.prompts.drift() == []
    assert {path: text for path, text in texts(tmp_path / "project").items() if path.endswith(".md")} == before


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("Be concise.", "Log in with password: hunter2", "sections.limits"),
        ("string, who it is", "string, as in password=hunter2", "params.user_name"),
        ("description: kind", "description: 'password is hunter2'", "description"),
    ],
)
async def test_a_file_with_a_secret_is_pushed_and_imported_only_by_force(
    project: Path, old: str, new: str, where: str
) -> None:
    text = KIND.replace(old, new)
    write(project, "persona/kind.md", text)
    async with cue_in(project) as cue:
        for work in (cue.prompts.push(), import_files(cue.services, [("kind.md", text.encode())])):
            with pytest.raises(InvalidInput, match=f"{where}: contains a secret .*'persona/kind'") as refused:
                await work
            assert "hunter2" not in str(refused.value)
        assert not (await cue.prompts.list()).items
        assert len(await cue.prompts.push(force=True)) == 1
        other = text.replace("persona/kind", "persona/other")
        assert len(await import_files(cue.services, [("other.md", other.encode())], force=True)) == 1


async def test_branches_with_a_secret_can_be_merged(project: Path) -> None:
    write(project, "persona/kind.md", KIND)
    async with cue_in(project) as cue:
        await cue.prompts.push()
        await cue.prompts.fork("persona/kind", "trial")
        await cue.prompts.save("persona/kind", branch="trial", sections={"limits": "password: hunter2"}, force=True)
        merged = await cue.prompts.merge("persona/kind", "trial")
        assert (await cue.prompts.get(merged.slug)).sections["limits"] == "password: hunter2"


async def test_an_opened_project_leaves_out_a_file_with_a_secret(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(project, "persona/kind.md", KIND)
    async with cue_in(project, autopush=True):
        pass
    write(project, "persona/kind.md", KIND.replace("Be concise.", "password: hunter2"))
    with caplog.at_level(logging.WARNING):
        async with cue_in(project, autopush=True) as cue:
            assert (await cue.prompts.get("persona/kind")).sections["limits"] == "Be concise."
    assert "contains a secret" in caplog.text
    assert "hunter2" not in caplog.text
