"""Tests of prompt sync on the command line, through a server with API keys, and on the inspector page."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from commands import cuebook
from msgspec.structs import replace

from conftest import Live, config
from cuebook import BlockingCuebook, Cuebook


class Hub(Live):
    """A server with API keys, and the address of a space."""

    def __init__(self, database: Path) -> None:
        settings = replace(config(store=str(database)), folder=str(database.parent))
        with BlockingCuebook.open(settings, worker=False) as cue:
            made = {"editor": cue.keys.new("editor", user="ann"), "viewer": cue.keys.new("viewer", user="bob")}
            made["other tenant"] = cue.of("other").keys.new("editor", user="eve")
        self.keys = {name: each.token for name, each in made.items()}
        super().__init__(Cuebook.open(settings))
        self.address = f"klp://127.0.0.1:{self.port}/team"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    live = Hub(tmp_path / "hub.db")
    yield live
    live.stop()


def project(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "cuebook.toml").write_text('[store]\nsynchronous = "OFF"\n')
    return folder


def fingerprint(folder: Path) -> str:
    done = cuebook("prompt", "sync", "--status", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    key: str = json.loads(done.stdout)["fingerprint"]
    return key


@pytest.mark.slow
def test_a_server_is_the_hub_of_two_projects(tmp_path: Path, hub: Hub) -> None:
    ann, bob = project(tmp_path, "ann"), project(tmp_path, "bob")
    cuebook("prompt", "new", "greet", "--text", "Hello.", "--sync", cwd=ann)
    denied = cuebook("prompt", "sync", hub.address, cwd=ann)
    assert denied.returncode != 0
    assert "requires an API key. Set the environment variable" in denied.stderr
    done = cuebook("prompt", "sync", hub.address, cwd=ann, KLP_API_KEY=hub.keys["editor"])
    assert (done.returncode, "greet    published   1.0.0" in done.stdout) == (0, True), done.stderr
    unknown = cuebook("prompt", "sync", hub.address, cwd=bob, KLP_API_KEY=hub.keys["viewer"])
    assert unknown.returncode != 0
    assert f"Unknown signer of project 'ann': {fingerprint(ann)}" in unknown.stderr
    trust = ("--trust", fingerprint(ann))
    planned = cuebook("prompt", "sync", hub.address, *trust, "--dry-run", cwd=bob, KLP_API_KEY=hub.keys["viewer"])
    assert "planned change" in planned.stdout
    assert "new from ann" in planned.stdout
    done = cuebook("prompt", "sync", hub.address, *trust, cwd=bob, KLP_API_KEY=hub.keys["viewer"])
    assert done.returncode == 0, done.stderr
    assert "Not published" in done.stderr
    assert "role editor" in done.stderr
    cuebook("prompt", "new", "bye", "--text", "Bye.", "--sync", cwd=bob)
    done = cuebook("prompt", "sync", hub.address, cwd=bob, KLP_API_KEY=hub.keys["viewer"])
    assert "published" not in done.stdout
    denied = cuebook("prompt", "sync", hub.address, cwd=bob, KLP_API_KEY="cb_wrong")
    assert "rejected the API key. Check the environment variable" in denied.stderr
    assert cuebook("prompt", "show", "greet", "--json", cwd=bob).stdout.count('"Hello."') == 1
    with httpx.Client(base_url=hub.url, headers={"authorization": f"Bearer {hub.keys['other tenant']}"}) as client:
        assert client.get("/klp/v1/team").json() == {"projects": []}
    with httpx.Client(base_url=hub.url, headers={"authorization": f"Bearer {hub.keys['viewer']}"}) as client:
        assert client.get("/klp/v1/team").json() == {"projects": ["ann"]}
        assert client.get("/klp/v1/team/ann/metadata/1.root.json").status_code == 200
        assert client.get("/klp/v1/team/ann/metadata/9.root.json").status_code == 404
        assert client.get("/klp/v1/team/ann/..%2f..%2fkey").status_code == 400
        assert client.put("/klp/v1/team/ann", content=b"").status_code == 403
    assert httpx.get(f"{hub.url}/klp/v1/team").status_code == 401


@pytest.mark.slow
def test_a_conflict_is_shown_with_the_way_to_resolve_it(tmp_path: Path) -> None:
    stick = (tmp_path / "stick").as_uri()
    ann, bob = project(tmp_path, "ann"), project(tmp_path, "bob")
    cuebook("prompt", "new", "greet", "--text", "Hello.", "--sync", cwd=ann)
    cuebook("prompt", "sync", stick, cwd=ann)
    cuebook("prompt", "sync", stick, "--trust", fingerprint(ann), cwd=bob)
    for folder in (ann, bob):
        cuebook("prompt", "new", "greet", "--text", f"Hello, {folder.name}.", cwd=folder)
    cuebook("prompt", "sync", stick, "--trust", fingerprint(bob), cwd=ann)
    planned = cuebook("prompt", "sync", stick, "--dry-run", cwd=bob)
    assert ("conflict with ann" in planned.stdout, "prompt merge" in planned.stdout) == (True, False)
    done = cuebook("prompt", "sync", stick, cwd=bob)
    assert "conflict with ann" in done.stdout
    assert done.returncode == 1
    for way in ("merge greet main --into sync/ann --theirs", "merge greet sync/ann --theirs"):
        assert f"cuebook prompt {way}\n" in done.stdout
    shown = cuebook("prompt", "sync", "--status", cwd=bob).stdout
    assert "conflict: greet and greet@sync/ann differ in body" in shown
    assert f"ann, key {fingerprint(ann)}, last sync" in shown
    assert cuebook("prompt", "diff", "greet", "greet@sync/ann", cwd=bob).returncode == 0
    assert cuebook("prompt", "merge", "greet", "sync/ann", cwd=bob).returncode == 1
    assert cuebook("prompt", "merge", "greet", "sync/ann", "--theirs", cwd=bob).returncode == 0
    assert "merged with ann" in cuebook("prompt", "sync", stick, cwd=bob).stdout
    assert "conflict:" not in cuebook("prompt", "sync", "--status", cwd=bob).stdout


def test_files_follow_a_sync(tmp_path: Path) -> None:
    stick = (tmp_path / "stick").as_uri()
    ann, bob = project(tmp_path, "ann"), project(tmp_path, "bob")
    for folder in (ann, bob):
        (folder / "prompts").mkdir()
    (ann / "prompts/greet.md").write_text("---\nname: greet\nsync: true\n---\nHello.\n")
    (bob / "cuebook.toml").write_text(f'[sync]\nhub = "{stick}"\nkeys = "{fingerprint(ann)}"\n')
    cuebook("prompt", "sync", stick, cwd=ann)
    done = cuebook("prompt", "sync", cwd=bob)
    assert done.returncode == 0, done.stderr
    assert "Hello." in (bob / "prompts/default/greet.md").read_text()
    assert cuebook("prompt", "drift", cwd=bob).returncode == 0
    assert cuebook("prompt", "sync", cwd=ann).stderr.startswith("cuebook: No location.")


def test_a_bundle_moves_a_project(tmp_path: Path) -> None:
    ann, bob = project(tmp_path, "ann"), project(tmp_path, "bob")
    cuebook("prompt", "new", "greet", "--text", "Hello.", cwd=ann)
    assert "wrote team.bundle: 1 version" in cuebook("prompt", "bundle", "team.bundle", cwd=ann).stdout
    file = str(ann / "team.bundle")
    assert "Unknown signer of the bundle" in cuebook("prompt", "unbundle", file, cwd=bob).stderr
    trust = ("--trust", fingerprint(ann))
    assert "would import 1 version" in cuebook("prompt", "unbundle", file, *trust, "--dry-run", cwd=bob).stdout
    assert "imported 1 version" in cuebook("prompt", "unbundle", file, *trust, cwd=bob).stdout
    assert "imported 0 versions" in cuebook("prompt", "unbundle", file, cwd=bob).stdout
    for folder in (ann, bob):
        cuebook("prompt", "new", "greet", "--text", f"Hello, {folder.name}.", cwd=folder)
    cuebook("prompt", "bundle", "team.bundle", cwd=ann)
    assert cuebook("prompt", "unbundle", file, "--dry-run", cwd=bob).returncode == 0
    done = cuebook("prompt", "unbundle", file, cwd=bob)
    assert (done.returncode, "cuebook prompt merge greet sync/ann --theirs" in done.stdout) == (1, True)
    assert cuebook("prompt", "unbundle", file, cwd=bob).returncode == 0
    assert "cannot be written" in cuebook("prompt", "bundle", ".", cwd=ann).stderr


def test_a_key_is_rotated(tmp_path: Path) -> None:
    ann = project(tmp_path, "ann")
    before = fingerprint(ann)
    assert before not in cuebook("prompt", "sync", "--rotate-key", cwd=ann).stdout
    after = fingerprint(ann)
    assert after != before
    for options in (("--dry-run",), ("--status",), ("file:///stick",)):
        refused = cuebook("prompt", "sync", "--rotate-key", *options, cwd=ann)
        assert (refused.returncode, "Use it alone, then sync." in refused.stderr) == (1, True)
    assert fingerprint(ann) == after
    cuebook("prompt", "sync", (tmp_path / "stick").as_uri(), cwd=ann)
    cuebook("prompt", "sync", "--rotate-key", cwd=ann)
    assert f"not published yet; others see {after}" in cuebook("prompt", "sync", "--status", cwd=ann).stdout


def test_a_sync_without_changes_says_where_the_prompts_are(tmp_path: Path) -> None:
    ann = project(tmp_path, "ann")
    cuebook("prompt", "new", "greet", "--text", "Hello.", "--sync", cwd=ann)
    for name in ("stick", "other"):
        place = (tmp_path / name).as_uri()
        done = cuebook("prompt", "sync", place, cwd=ann)
        assert (tmp_path / name / "ann/metadata/1.root.json").exists()
    assert f"no changes; published at {place}" in done.stdout


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://prompts.example.com/klp/v1/team", "is not encrypted"),
        ("klp://prompts.example.com", "Unknown address"),
        ("ftp://prompts.example.com/team", "Unknown address"),
        ("file://server/share", "is not a folder"),
        ("klp://prompts.example.com:99999/team", "the port is not a number"),
        ("klp://prompts.example.com/../team", "is not a valid"),
    ],
)
def test_an_invalid_address_is_refused(tmp_path: Path, address: str, message: str) -> None:
    done = cuebook("prompt", "sync", address, cwd=project(tmp_path, "ann"))
    assert done.returncode == 1, done
    assert message in done.stderr


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    ann = project(tmp_path, "ann")
    address = (ann / "cuebook.toml").as_uri()
    assert f"Not a folder: {address}" in cuebook("prompt", "sync", address, cwd=ann).stderr


def test_a_server_without_tls_is_named(tmp_path: Path, hub: Hub) -> None:
    done = cuebook("prompt", "sync", f"https://127.0.0.1:{hub.port}/klp/v1/team", cwd=project(tmp_path, "ann"))
    assert "the server does not use TLS" in done.stderr


def test_a_skipped_prompt_is_shown_with_the_command_that_syncs_it(tmp_path: Path) -> None:
    stick = (tmp_path / "stick").as_uri()
    ann, bob = project(tmp_path, "ann"), project(tmp_path, "bob")
    cuebook("prompt", "new", "greet", "--text", "Hello.", "--sync", cwd=ann)
    cuebook("prompt", "new", "greet", "--text", "Hello.", cwd=bob)
    cuebook("prompt", "sync", stick, cwd=ann)
    done = cuebook("prompt", "sync", stick, "--trust", fingerprint(ann), cwd=bob)
    assert "greet: to sync it, run `cuebook prompt new greet --sync`" in done.stdout
    assert cuebook("prompt", "new", "greet", "--sync", cwd=bob).returncode == 0
    assert "merged with ann" in cuebook("prompt", "sync", stick, cwd=bob).stdout


def test_the_page_shows_the_last_sync_and_the_keys(tmp_path: Path, hub: Hub) -> None:
    ann = project(tmp_path, "ann")
    cuebook("prompt", "new", "greet", "--text", "Hello.", "--sync", cwd=ann)
    cuebook("prompt", "sync", hub.address, cwd=ann, KLP_API_KEY=hub.keys["editor"])
    bob = project(tmp_path, "bob")
    cuebook("prompt", "new", "greet", "--text", "Hi.", "--sync", cwd=bob)
    cuebook("prompt", "sync", hub.address, "--trust", fingerprint(ann), cwd=bob, KLP_API_KEY=hub.keys["editor"])
    live = Live(Cuebook.open(bob))
    try:
        page = httpx.get(f"{live.url}/page/prompts").text
        status = httpx.get(f"{live.url}/api/sync").json()
    finally:
        live.stop()
    assert f"<code>{fingerprint(ann)}</code>" in page
    assert "<code>cuebook prompt merge greet sync/ann --theirs</code>" in page
    assert hub.address in page
    assert [(each["project"], each["fingerprint"]) for each in status["peers"]] == [("ann", fingerprint(ann))]
    assert "Prompt sync" not in httpx.get(f"{hub.url}/page/prompts", cookies={"cuebook_key": hub.keys["viewer"]}).text
