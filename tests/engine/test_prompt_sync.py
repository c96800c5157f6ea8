"""Tests of prompt sync between two projects through a folder: versions, merges, conflicts, keys and bundles."""

import shutil
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.errors import Conflict, InvalidInput, NotFound, SyncRefused, UnknownSigner
from empty_database import write_empty_database, write_key

SETTINGS = {"store.synchronous": "OFF", "prompts.autopush": False}


@asynccontextmanager
async def project(root: Path, name: str, **settings: Any) -> AsyncIterator[Cuebook]:
    (root / name / ".cuebook").mkdir(parents=True, exist_ok=True)
    (root / name / "cuebook.toml").touch()
    write_empty_database(root / name / ".cuebook/cuebook.db")
    write_key(root / name / ".cuebook/cuebook.db")
    async with Cuebook.open(root / name, arguments=SETTINGS | settings, worker=False) as cue:
        yield cue


@pytest.fixture
async def ann(tmp_path: Path) -> AsyncIterator[Cuebook]:
    async with project(tmp_path, "ann") as cue:
        yield cue


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[Cuebook]:
    async with project(tmp_path, "bob") as cue:
        yield cue


@pytest.fixture
def stick(tmp_path: Path) -> str:
    return (tmp_path / "stick").as_uri()


async def key_of(cue: Cuebook) -> str:
    return (await cue.prompt_sync.status()).fingerprint


async def exchange(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    """Let both projects publish, and trust each other."""
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick, trust=await key_of(ann))
    await ann.prompt_sync.sync(stick, trust=await key_of(bob))


async def write(cue: Cuebook, slug: str = "greet", *, force: bool = False, **sections: str) -> None:
    await cue.prompts.save(slug, sections, sync=True, author="ann", force=force)


async def texts(cue: Cuebook, slug: str = "greet", branch: str | None = None) -> dict[str, str]:
    return dict((await cue.prompts.get(slug, branch=branch)).sections)


async def changes(cue: Cuebook, place: str, **options: Any) -> list[tuple[str, str]]:
    return [(each.slug, each.change) for each in (await cue.prompt_sync.sync(place, **options)).items]


async def test_versions_keep_their_identity(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await ann.prompts.save("greet", {"body": "Hello!"}, description="Greets.", tags=["a"], metadata={"x": 1})
    assert await changes(ann, stick) == [("greet", "published")]
    assert await changes(bob, stick, trust=await key_of(ann)) == [("greet", "new")]
    ours, theirs = [[await cue.prompts.show("greet", version=number) for number in (1, 2)] for cue in (ann, bob)]
    assert ours == theirs
    assert (ours[1].semver, ours[1].author, ours[1].metadata) == ("1.0.1", "", {"x": 1})


async def test_both_directions(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await write(bob, "bye", body="Bye.")
    await exchange(ann, bob, stick)
    assert await texts(bob) == {"body": "Hello."}
    assert await texts(ann, "bye") == {"body": "Bye."}
    await write(bob, body="Hello, you.")
    await bob.prompt_sync.sync(stick)
    assert await changes(ann, stick) == [("greet", "updated")]
    assert await texts(ann) == {"body": "Hello, you."}
    assert await changes(ann, stick) == await changes(bob, stick) == []


async def test_prompts_without_the_flag_stay_local(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await ann.prompts.save("draft", {"body": "Not yet."})
    await ann.prompts.save("late", {"body": "A private draft."})
    await ann.prompts.save("late", {"body": "Public."}, sync=True)
    await write(ann, body="Hello.")
    await bob.prompts.save("greet", {"body": "My own."})
    await ann.prompt_sync.sync(stick)
    assert await changes(bob, stick, trust=await key_of(ann)) == [("greet", "skipped"), ("late", "new")]
    assert await texts(bob) == {"body": "My own."}
    assert [each.number for each in await bob.prompts.versions("late")] == [1]
    with pytest.raises(NotFound):
        await bob.prompts.get("draft")


async def test_sections_merge(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, head="Hello.", body="How are you?")
    await exchange(ann, bob, stick)
    await write(ann, head="Hello!", body="How are you?")
    await write(bob, head="Hello.", body="How do you do?")
    await ann.prompt_sync.sync(stick)
    assert await changes(bob, stick) == [("greet", "merged"), ("greet", "published")]
    assert await changes(ann, stick) == [("greet", "updated")]
    merged = {"head": "Hello!", "body": "How do you do?"}
    assert await texts(ann) == await texts(bob) == merged
    assert await changes(ann, stick) == await changes(bob, stick) == []


async def test_a_conflict_becomes_a_branch_on_both_sides(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.", end="Bye.")
    await exchange(ann, bob, stick)
    await write(ann, body="Hello, Ann.", end="Bye.")
    await write(bob, body="Hello, Bob.", end="Bye.")
    await ann.prompt_sync.sync(stick)
    assert ("greet", "conflict") in await changes(bob, stick)
    assert await changes(ann, stick) == [("greet", "conflict")]
    assert await texts(ann) == {"body": "Hello, Ann.", "end": "Bye."}
    assert await texts(ann, branch="sync/bob") == {"body": "Hello, Bob.", "end": "Bye."}
    assert await texts(bob, branch="sync/ann") == {"body": "Hello, Ann.", "end": "Bye."}
    for cue, other in ((ann, "bob"), (bob, "ann")):
        [conflict] = (await cue.prompt_sync.status()).conflicts
        assert (conflict.slug, conflict.branch, conflict.sections) == ("greet", f"sync/{other}", ("body",))
    assert await changes(ann, stick) == [("greet", "conflict")]
    assert len(await ann.prompts.versions("greet", branch="sync/bob")) == 1


@pytest.mark.parametrize("way", ["theirs", "ours", "third"])
async def test_an_edit_resolves_a_conflict(ann: Cuebook, bob: Cuebook, stick: str, way: str) -> None:
    await write(ann, body="Hello.", end="Bye.")
    await exchange(ann, bob, stick)
    await write(ann, body="Hello, Ann.", end="Bye!")
    await write(bob, body="Hello, Bob.", end="Bye.")
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    text = {"theirs": "Hello, Ann.", "ours": "Hello, Bob.", "third": "Hello, all."}[way]
    if way != "ours":
        await write(bob, body=text, end="Bye.")
    if way != "theirs":
        await bob.prompts.save("greet", {"body": text, "end": "Bye!"}, branch="sync/ann")
    assert ("greet", "merged") in await changes(bob, stick)
    await ann.prompt_sync.sync(stick)
    assert await texts(ann) == await texts(bob) == {"body": text, "end": "Bye!"}
    for cue in (ann, bob):
        assert (await cue.prompt_sync.status()).conflicts == ()
        assert await changes(cue, stick) == []


async def test_a_merge_keeps_changes_without_conflict(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await exchange(ann, bob, stick)
    await ann.prompts.save("greet", {"body": "Hello, Ann."}, description="Greets.", params=["name"], metadata={"a": 1})
    await bob.prompts.save("greet", {"body": "Hello, Bob."}, tags=["kind"], metadata={"b": 2})
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    await bob.prompts.merge("greet", "main", into="sync/ann", theirs=True)
    assert ("greet", "merged") in await changes(bob, stick)
    await ann.prompt_sync.sync(stick)
    for cue in (ann, bob):
        version = await cue.prompts.get("greet")
        assert (version.sections, version.description, version.tags) == ({"body": "Hello, Bob."}, "Greets.", ("kind",))
        assert ([each.name for each in version.params], version.metadata) == (["name"], {"a": 1, "b": 2})


@pytest.mark.parametrize("way", ["theirs", "ours"])
async def test_a_merge_resolves_a_conflict(ann: Cuebook, bob: Cuebook, stick: str, way: str) -> None:
    await write(ann, body="Hello.", end="Bye.")
    await exchange(ann, bob, stick)
    await write(ann, body="Hello, Ann.", end="Bye!")
    await write(bob, body="Hello, Bob.", end="Bye.")
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    if way == "theirs":
        await bob.prompts.merge("greet", "sync/ann", theirs=True)
    else:
        await bob.prompts.merge("greet", "main", into="sync/ann", theirs=True)
    assert ("greet", "merged") in await changes(bob, stick)
    await ann.prompt_sync.sync(stick)
    text = {"theirs": "Hello, Ann.", "ours": "Hello, Bob."}[way]
    assert await texts(ann) == await texts(bob) == {"body": text, "end": "Bye!"}


async def test_a_branch_of_another_project_is_not_selected(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await exchange(ann, bob, stick)
    await write(ann, body="Hello, Ann.")
    await write(bob, body="Hello, Bob.")
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    variants = (await bob.prompts.select("greet")).variants
    assert [each.branch for each in variants] == ["main"]


async def test_equal_prompts_of_two_projects_are_one(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await write(bob, body="Hello.")
    await exchange(ann, bob, stick)
    await write(ann, body="Hello!")
    await ann.prompt_sync.sync(stick)
    assert await changes(bob, stick) == [("greet", "updated")]
    assert len(await bob.prompts.versions("greet")) == 2


async def test_a_parent_must_be_synced(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await ann.prompts.save("base", {"body": "Be kind."})
    await ann.prompts.save("child", {"end": "Bye."}, inherits="base", sync=True)
    with pytest.raises(InvalidInput, match="'child' inherits 'base', which is not synced"):
        await ann.prompt_sync.sync(stick)
    await ann.prompts.save("base", {"body": "Be kind!"}, sync=True)
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick, trust=await key_of(ann))
    assert (await bob.prompts.render("child", {})).text == "Be kind!\n\nBye."


async def test_a_synced_prompt_does_not_inherit_a_local_one(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await bob.prompts.save("par", {"body": "My own."})
    await write(ann, "par", body="Be kind.")
    await ann.prompts.save("chi", {"end": "Bye."}, inherits="par", sync=True)
    await ann.prompt_sync.sync(stick)
    for _ in range(2):
        with pytest.raises(InvalidInput, match="'chi' inherits 'par', which is not synced here"):
            await bob.prompt_sync.sync(stick, trust=await key_of(ann))
    with pytest.raises(NotFound):
        await bob.prompts.get("chi")
    await write(bob, "par", body="Be kind.")
    await bob.prompt_sync.sync(stick, trust=await key_of(ann))
    assert (await bob.prompts.render("chi", {})).text == "Be kind.\n\nBye."


async def test_a_resolution_of_a_third_project_is_taken_first(tmp_path: Path, stick: str) -> None:
    async with project(tmp_path, "ann") as ann, project(tmp_path, "bob") as bob, project(tmp_path, "carl") as carl:
        projects = (ann, bob, carl)
        keys = " ".join([await key_of(each) for each in projects])
        await write(ann, body="Hello.")
        for each in (*projects, *projects):
            await each.prompt_sync.sync(stick, trust=keys)
        await write(ann, body="Hello, Ann.")
        await write(bob, body="Hello, Bob.")
        await ann.prompt_sync.sync(stick)
        await bob.prompt_sync.sync(stick)
        await carl.prompt_sync.sync(stick)
        await carl.prompts.merge("greet", "sync/bob", theirs=True)
        await carl.prompt_sync.sync(stick)
        assert await changes(ann, stick) == [("greet", "updated")]
        assert (await ann.prompt_sync.status()).conflicts == ()


async def test_a_sync_shows_the_stored_semantic_version(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await exchange(ann, bob, stick)
    await bob.prompts.fork("greet", "trial")
    await bob.prompts.save("greet", {"body": "Hi."}, branch="trial")
    await write(ann, body="Hello!")
    await ann.prompt_sync.sync(stick)
    [item] = (await bob.prompt_sync.sync(stick)).items
    assert item.semver == (await bob.prompts.get("greet")).semver == "1.0.2"


async def test_a_renamed_project_finds_its_former_name(tmp_path: Path, stick: str) -> None:
    async with project(tmp_path, "ann") as ann:
        await ann.prompt_sync.sync(stick)
    async with project(tmp_path, "ann", **{"sync.name": "anna"}) as ann:
        with pytest.raises(Conflict, match="Add 'ann' to sync"):
            await ann.prompt_sync.sync(stick)
    async with project(tmp_path, "ann", **{"sync.name": "anna", "sync.blocked": "ann"}) as ann:
        assert (await ann.prompt_sync.sync(stick)).published


async def test_a_dry_run_changes_nothing(ann: Cuebook, bob: Cuebook, stick: str, tmp_path: Path) -> None:
    await write(ann, body="Hello.")
    await ann.prompt_sync.sync(stick)
    assert await changes(bob, stick, trust=await key_of(ann), dry_run=True) == [("greet", "new")]
    with pytest.raises(NotFound):
        await bob.prompts.get("greet")
    assert (await bob.prompt_sync.status()).last_sync is None
    assert [each.name for each in (tmp_path / "stick").iterdir()] == ["ann"]
    with pytest.raises(UnknownSigner):
        await bob.prompt_sync.sync(stick)


async def test_a_rotated_key_is_accepted(ann: Cuebook, bob: Cuebook, stick: str, tmp_path: Path) -> None:
    await write(ann, body="Hello.")
    first = await key_of(ann)
    await exchange(ann, bob, stick)
    second = (await ann.prompt_sync.rotate_key()).fingerprint
    assert first != second
    await write(ann, body="Hello!")
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    assert await texts(bob) == {"body": "Hello!"}
    assert [each.fingerprint for each in (await bob.prompt_sync.status()).peers] == [second]
    for number, pinned in enumerate((first, second)):  # a new project may know either key
        settings = {"sync.keys": f"{pinned}, {await key_of(bob)}"}
        async with project(tmp_path, f"new{number}", **settings) as cue:
            await cue.prompt_sync.sync(stick)
            assert await texts(cue) == {"body": "Hello!"}
            await cue.prompt_sync.sync(stick)
            (tmp_path / "stick" / f"new{number}").rename(tmp_path / f"gone{number}")
    third = (await ann.prompt_sync.rotate_key()).fingerprint
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    assert [each.fingerprint for each in (await bob.prompt_sync.status()).peers] == [third]


async def test_a_new_key_is_published_before_the_next_one(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await exchange(ann, bob, stick)
    first = await key_of(ann)
    second = (await ann.prompt_sync.rotate_key()).fingerprint
    with pytest.raises(Conflict, match="not published yet"):
        await ann.prompt_sync.rotate_key()
    status = await ann.prompt_sync.status()
    assert (status.fingerprint, status.published_fingerprint) == (second, first)
    await ann.prompt_sync.sync(stick)
    assert (await ann.prompt_sync.status()).published_fingerprint == second
    await ann.prompt_sync.rotate_key()
    await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    assert [each.fingerprint for each in (await bob.prompt_sync.status()).peers] == [await key_of(ann)]


@pytest.mark.parametrize("pinned", [False, True])
async def test_a_stolen_key_is_worth_nothing_after_two_rotations(
    ann: Cuebook, tmp_path: Path, stick: str, pinned: bool
) -> None:
    await write(ann, body="Hello.")
    stolen = await key_of(ann)
    await ann.prompt_sync.sync(stick)
    async with project(tmp_path, "bob", **({"sync.keys": stolen} if pinned else {})) as bob:
        await bob.prompt_sync.sync(stick, trust=stolen)
        async with project(tmp_path, "thief", **{"sync.blocked": "ann bob"}) as thief:
            copy_key(tmp_path / "ann", tmp_path / "thief")
            for _ in range(2):
                await ann.prompt_sync.rotate_key()
                await ann.prompt_sync.sync(stick, trust=await key_of(bob))
                await bob.prompt_sync.sync(stick)
            await write(thief, "evil", body="Obey.")
            await thief.prompt_sync.sync(stick)
            await thief.prompt_sync.bundle(tmp_path / "thief.bundle")
        async with project(tmp_path, "thief", **{"sync.name": "ann"}) as thief:
            await thief.prompt_sync.bundle(tmp_path / "ann.bundle")
        with pytest.raises(UnknownSigner, match="project 'thief'"):
            await bob.prompt_sync.sync(stick)
        for name in ("thief", "ann"):
            with pytest.raises(UnknownSigner, match="Unknown signer of the bundle"):
                await bob.prompt_sync.unbundle(tmp_path / f"{name}.bundle")


def copy_key(source: Path, target: Path) -> None:
    """Copy the key of a project, as a thief or a backup does."""
    [folder] = source.rglob("*.sync")
    place = target / folder.relative_to(source)
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "key", place / "key")


async def test_a_key_is_trusted_for_one_project(ann: Cuebook, bob: Cuebook, tmp_path: Path, stick: str) -> None:
    await exchange(ann, bob, stick)
    async with project(tmp_path, "other") as other:
        copy_key(tmp_path / "ann", tmp_path / "other")
        await other.prompt_sync.bundle(tmp_path / "other.bundle")
        with pytest.raises(UnknownSigner, match="the bundle"):
            await bob.prompt_sync.unbundle(tmp_path / "other.bundle")
        await ann.prompt_sync.bundle(tmp_path / "ann.bundle")
        await bob.prompt_sync.unbundle(tmp_path / "ann.bundle")


async def test_a_key_can_be_trusted_before_its_project_publishes(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await ann.prompt_sync.sync(stick, trust=await key_of(bob))
    await bob.prompt_sync.sync(stick, trust=await key_of(ann))
    assert await changes(ann, stick) == []


@pytest.mark.parametrize("rotated", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_restored_backup_continues_from_what_it_published(
    bob: Cuebook, tmp_path: Path, stick: str, rotated: bool
) -> None:
    async with project(tmp_path, "ann") as ann:
        await write(ann, head="Hello.", body="How are you?")
        await exchange(ann, bob, stick)
    shutil.copytree(tmp_path / "ann", tmp_path / "backup")
    async with project(tmp_path, "ann") as ann:
        if rotated:
            await ann.prompt_sync.rotate_key()
        for end in ("?!", "??", "!!"):
            await write(ann, head="Hello.", body=f"How are you{end}")
            await ann.prompt_sync.sync(stick)
            await bob.prompt_sync.sync(stick)
    shutil.rmtree(tmp_path / "ann")
    (tmp_path / "backup").rename(tmp_path / "ann")
    async with project(tmp_path, "ann") as ann:
        await write(ann, head="Hello!", body="How are you?")
        result = await ann.prompt_sync.sync(stick)
        assert "had a newer state of this project" in result.notice
        assert result.published
        assert await bob.prompt_sync.sync(stick)
        assert await texts(ann) == await texts(bob) == {"head": "Hello!", "body": "How are you!!"}
        assert (await ann.prompt_sync.sync(stick)).notice == ""
        await ann.prompt_sync.rotate_key()
        await ann.prompt_sync.sync(stick)
        await bob.prompt_sync.sync(stick)


async def test_a_restored_database_gets_the_published_versions(bob: Cuebook, tmp_path: Path, stick: str) -> None:
    async with project(tmp_path, "ann") as ann:
        await write(ann, body="Hello.")
        await exchange(ann, bob, stick)
    database = tmp_path / "ann/.cuebook/cuebook.db"
    shutil.copy(database, tmp_path / "backup.db")
    async with project(tmp_path, "ann") as ann:
        await write(ann, body="Hello!")
        await ann.prompt_sync.sync(stick)
    shutil.copy(tmp_path / "backup.db", database)
    async with project(tmp_path, "ann") as ann:
        assert ("greet", "updated") in await changes(ann, stick)
        assert await texts(ann) == {"body": "Hello!"}
        await write(ann, body="Hello, you.")
        await ann.prompt_sync.sync(stick)
    await bob.prompt_sync.sync(stick)
    assert await texts(bob) == {"body": "Hello, you."}


async def test_a_backup_with_a_replaced_key_is_refused(tmp_path: Path, stick: str) -> None:
    async with project(tmp_path, "ann") as ann:
        await ann.prompt_sync.sync(stick)
    shutil.copytree(tmp_path / "ann", tmp_path / "backup")
    async with project(tmp_path, "ann") as ann:
        for _ in range(2):
            await ann.prompt_sync.rotate_key()
            await ann.prompt_sync.sync(stick)
    shutil.rmtree(tmp_path / "ann")
    (tmp_path / "backup").rename(tmp_path / "ann")
    async with project(tmp_path, "ann") as ann:
        with pytest.raises(Conflict, match="has newer keys than this copy of it"):
            await ann.prompt_sync.sync(stick)


async def test_a_location_with_replaced_keys_is_updated(ann: Cuebook, tmp_path: Path, stick: str) -> None:
    other = (tmp_path / "other").as_uri()
    await write(ann, body="Hello.")
    await ann.prompt_sync.sync(other)
    for _ in range(2):
        await ann.prompt_sync.rotate_key()
        await ann.prompt_sync.sync(stick)
    assert (await ann.prompt_sync.sync(other)).published
    async with project(tmp_path, "bob", **{"sync.keys": await key_of(ann)}) as bob:
        assert await changes(bob, other) == [("greet", "new")]


@pytest.mark.parametrize("path", ["targets/photo.jpg", "IMG_1.JPG"])
async def test_a_folder_of_another_program_is_not_a_repository(
    bob: Cuebook, tmp_path: Path, stick: str, path: str
) -> None:
    file = tmp_path / "stick/bob" / path
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(Conflict, match=r"The name 'bob' in file:.* is taken"):
        await bob.prompt_sync.sync(stick)
    assert file.read_text() == "mine"


async def test_an_own_repository_without_its_root_is_refused(ann: Cuebook, tmp_path: Path, stick: str) -> None:
    await ann.prompt_sync.sync(stick)
    (tmp_path / "stick/ann/metadata/1.root.json").unlink()
    with pytest.raises(Conflict, match=r"The name 'ann' in file:.* is taken"):
        await ann.prompt_sync.sync(stick)


async def test_a_replaced_version_with_a_secret_stays_here(ann: Cuebook, bob: Cuebook, stick: str) -> None:
    await write(ann, body="Hello.")
    await exchange(ann, bob, stick)
    await write(ann, force=True, body="Hello. Use ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8.")
    with pytest.raises(SyncRefused, match="contains a secret"):
        await ann.prompt_sync.sync(stick)
    await write(ann, body="Hello, you.")
    await ann.prompt_sync.sync(stick)
    assert await changes(bob, stick) == [("greet", "updated")]
    assert len(await bob.prompts.versions("greet")) == 2
    assert await texts(bob) == {"body": "Hello, you."}


async def test_a_location_has_other_folders_too(ann: Cuebook, bob: Cuebook, stick: str, tmp_path: Path) -> None:
    (tmp_path / "stick/My photos").mkdir(parents=True)
    await exchange(ann, bob, stick)
    with pytest.raises(InvalidInput, match="usb' does not exist"):
        await ann.prompt_sync.sync((tmp_path / "usb/prompts").as_uri())
    assert not (tmp_path / "usb").exists()


async def test_a_project_has_the_name_of_its_folder(tmp_path: Path) -> None:
    for folder, name in (("Jörg Müller", "jorg-muller"), ("工作", "project"), ("a.b", "a-b")):
        async with project(tmp_path, folder) as cue:
            assert (await cue.prompt_sync.status()).project == name


async def test_the_key_is_private(ann: Cuebook, stick: str, tmp_path: Path) -> None:
    await ann.prompt_sync.sync(stick)
    [key] = (tmp_path / "ann").rglob("*.sync/key")
    assert key.stat().st_mode & 0o777 == 0o600
    assert not [each for each in (tmp_path / "stick").rglob("*") if each.name == "key"]


async def test_a_name_has_one_owner(ann: Cuebook, tmp_path: Path, stick: str) -> None:
    await ann.prompt_sync.sync(stick)
    async with project(tmp_path, "other", **{"sync.name": "ann"}) as cue:
        with pytest.raises(Conflict, match=r"The name 'ann' in file:.* is taken"):
            await cue.prompt_sync.sync(stick)


async def test_a_blocked_project_is_ignored(ann: Cuebook, tmp_path: Path, stick: str) -> None:
    await write(ann, body="Hello.")
    await ann.prompt_sync.sync(stick)
    async with project(tmp_path, "cas", **{"sync.blocked": "ann"}) as cue:
        assert await changes(cue, stick) == []


async def test_a_bundle_carries_a_project(ann: Cuebook, bob: Cuebook, tmp_path: Path) -> None:
    await ann.prompts.save("greet", {"body": "Hello."})
    await ann.prompts.fork("greet", "trial")
    await ann.prompts.save("greet", {"body": "Hi."}, branch="trial")
    for name, text in (("personas/kind.json", '{"id": "kind"}'), ("config/metaprompt-presets.json", "{}")):
        (tmp_path / "ann" / name).parent.mkdir()
        (tmp_path / "ann" / name).write_text(text)
    file = tmp_path / "ann.bundle"
    made = await ann.prompt_sync.bundle(file)
    assert (made.project, made.versions, made.files) == ("ann", 3, ("1 persona", "presets"))
    with pytest.raises(UnknownSigner):
        await bob.prompt_sync.unbundle(file)
    assert await bob.prompts.list() == await bob.prompts.list(prefix="none")
    done = await bob.prompt_sync.unbundle(file, trust=made.fingerprint)
    assert done.versions == 3
    assert await texts(bob, branch="trial") == {"body": "Hi."}
    assert (tmp_path / "bob/personas/kind.json").read_text() == '{"id": "kind"}'
    assert (await bob.prompt_sync.unbundle(file)).versions == 0
    (tmp_path / "bob/personas/kind.json").write_text("{}")
    with pytest.raises(Conflict, match="Move it out of this folder"):
        await bob.prompt_sync.unbundle(file)
    (tmp_path / "bob/personas/kind.json").rename(tmp_path / "kind.json")
    done = await bob.prompt_sync.unbundle(file)
    assert str(done).startswith("0 versions and 1 persona, signed by ann")
    assert str(made).startswith("3 versions, 1 persona and presets, signed by ann")


async def test_a_bundled_prompt_merges_with_its_origin(ann: Cuebook, bob: Cuebook, tmp_path: Path, stick: str) -> None:
    await write(ann, head="Hello.", body="How are you?")
    await write(ann, head="Hello.", body="How do you do?")
    key = (await ann.prompt_sync.bundle(tmp_path / "ann.bundle")).fingerprint
    await bob.prompt_sync.unbundle(tmp_path / "ann.bundle", trust=key)
    await write(bob, head="Hello.", body="How is it?")
    await write(ann, head="Hello!", body="How do you do?")
    await exchange(ann, bob, stick)
    assert await texts(ann) == await texts(bob) == {"head": "Hello!", "body": "How is it?"}


async def test_a_bundle_replaces_no_text(ann: Cuebook, bob: Cuebook, tmp_path: Path) -> None:
    file, later = tmp_path / "ann.bundle", tmp_path / "later.bundle"
    for slug in ("greet", "bye"):
        await ann.prompts.save(slug, {"body": "Hello.", "end": "Bye."})
    await ann.prompts.fork("greet", "trial")
    key = (await ann.prompt_sync.bundle(file)).fingerprint
    await bob.prompt_sync.unbundle(file, trust=key)
    for cue, text in ((ann, "Hello, Ann."), (bob, "Hello, Bob.")):
        for branch in ("main", "trial"):
            await cue.prompts.save("greet", {"body": text, "end": "Bye."}, branch=branch)
    await ann.prompts.save("bye", {"body": "Hello.", "end": "Bye!"})
    await ann.prompt_sync.bundle(later)
    planned = await bob.prompt_sync.unbundle(later, dry_run=True)
    done = await bob.prompt_sync.unbundle(later)
    assert done.conflicts == planned.conflicts == {"greet@main": "sync/ann", "greet@trial": "sync/ann/trial"}
    assert await texts(bob, "bye") == {"body": "Hello.", "end": "Bye!"}
    for branch, other in (("main", "sync/ann"), ("trial", "sync/ann/trial")):
        assert (await texts(bob, branch=branch))["body"] == "Hello, Bob."
        assert (await texts(bob, branch=other))["body"] == "Hello, Ann."
        await bob.prompts.merge("greet", other, into=branch, theirs=True)
        assert (await texts(bob, branch=branch))["body"] == "Hello, Ann."
    again = await bob.prompt_sync.unbundle(later)
    assert (again.versions, again.conflicts) == (0, {})


async def test_a_conflict_of_a_bundle_is_resolved_once(ann: Cuebook, bob: Cuebook, tmp_path: Path) -> None:
    file = tmp_path / "ann.bundle"
    await write(ann, body="Hello, Ann.")
    await write(bob, body="Hello, Bob.")
    key = (await ann.prompt_sync.bundle(str(file))).fingerprint
    assert (await bob.prompt_sync.unbundle(str(file), trust=key)).conflicts == {"greet@main": "sync/ann"}
    await bob.prompts.merge("greet", "main", into="sync/ann", theirs=True)
    assert (await bob.prompt_sync.unbundle(file)).conflicts == {}
    await write(ann, body="Hello, all.")
    await ann.prompt_sync.bundle(file)
    assert (await bob.prompt_sync.unbundle(file)).conflicts == {"greet@main": "sync/ann"}


@pytest.mark.slow
async def test_a_bundle_can_be_larger_than_a_prompt(ann: Cuebook, bob: Cuebook, tmp_path: Path) -> None:
    for number in range(8):
        await write(ann, f"long-{number}", body="word " * 100_000)
    key = (await ann.prompt_sync.bundle(tmp_path / "ann.bundle")).fingerprint
    assert (await bob.prompt_sync.unbundle(tmp_path / "ann.bundle", trust=key)).versions == 8


async def test_a_bundle_is_written_like_other_files(ann: Cuebook, tmp_path: Path) -> None:
    await write(ann, body="Hello.")
    for place in (tmp_path, tmp_path / "missing/ann.bundle", ""):
        with pytest.raises(InvalidInput, match="cannot be written"):
            await ann.prompt_sync.bundle(place)
    (tmp_path / "link").symlink_to(tmp_path / "ann.bundle")
    await ann.prompt_sync.bundle(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert zipfile.is_zipfile(tmp_path / "ann.bundle")


async def test_a_secret_is_not_bundled(ann: Cuebook, tmp_path: Path) -> None:
    await ann.prompts.save("leak", {"body": "Use ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8."}, force=True)
    await ann.prompts.fork("leak", "trial")
    await ann.prompts.save("leak", {"body": "Use no token."})
    with pytest.raises(SyncRefused, match="Prompt 'leak', branch 'trial', version 1 contains a secret"):
        await ann.prompt_sync.bundle(tmp_path / "ann.bundle")
    await ann.prompts.save("leak", {"body": "Use no token here."}, branch="trial")
    assert (await ann.prompt_sync.bundle(tmp_path / "ann.bundle")).versions == 2


async def test_a_changed_bundle_is_refused(ann: Cuebook, bob: Cuebook, tmp_path: Path) -> None:
    await write(ann, body="Hello.")
    file = tmp_path / "ann.bundle"
    made = await ann.prompt_sync.bundle(file)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises((InvalidInput, SyncRefused)):
        await bob.prompt_sync.unbundle(file, trust=made.fingerprint)
    assert len(await bob.prompts.list()) == 0
