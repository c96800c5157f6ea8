"""Tests of prompt sync against an attacker who changes what a folder or a server stores: each attack is refused."""

import json
import shutil
import time
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from conftest import Live, config
from cuebook import BlockingCuebook, Cuebook
from cuebook.app.sync.repository import seal, signers_of, write_repository
from cuebook.errors import SyncRefused
from cuebook.testing import FrozenClock
from parsers import long_archive

SETTINGS = {"store.synchronous": "OFF", "prompts.autopush": False}
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def opened(folder: Path, **options: Any) -> BlockingCuebook:
    folder.mkdir(exist_ok=True)
    (folder / "cuebook.toml").touch()
    return BlockingCuebook.open(folder, arguments=SETTINGS, worker=False, **options)


class Field:
    """Two projects that trust each other, and the files of the space in which they publish."""

    def __init__(self, folder: Path, location: str, space: Path) -> None:
        self.folder, self.location, self.space = folder, location, space
        self.ann, self.bob = opened(folder / "ann"), opened(folder / "bob")
        with self.ann, self.bob:
            self.write("Hello.")
            self.ann.prompt_sync.sync(location)
            self.bob.prompt_sync.sync(location, trust=self.ann.prompt_sync.status().fingerprint)
            self.ann.prompt_sync.sync(location, trust=self.bob.prompt_sync.status().fingerprint)
            shutil.copytree(space, folder / "old")
            self.write("Hello!")
            self.ann.prompt_sync.sync(location)
            self.bob.prompt_sync.sync(location)
            self.write("Hello, you.")
            self.ann.prompt_sync.sync(location)
        shutil.copytree(space, folder / "good")

    def write(self, text: str) -> None:
        self.ann.prompts.save("greet", {"body": text}, sync=True)

    @property
    def keys(self) -> Path:
        """The folder of Ann's keys."""
        [folder] = (self.folder / "ann").rglob("*.sync")
        return folder

    def restore(self) -> None:
        shutil.rmtree(self.space)
        shutil.copytree(self.folder / "good", self.space)

    def publish(self, files: dict[str, bytes], *, keys: Path | None = None, name: str = "ann", days: int = 90) -> None:
        """Publish files in the space with a key, by default Ann's, as a malicious or broken program would."""
        target = self.space / name
        expires = days * 86_400.0
        write_repository(target, files, signers_of(keys or self.keys), project=name, now=time.time(), expires_s=expires)

    def state(self) -> dict[str, bytes]:
        """Return all files that a refused sync must not change; the database's content is compared separately."""
        state = {each: each.read_bytes() for each in self.space.rglob("*") if each.is_file()}
        [own] = (self.folder / "bob").rglob("*.sync")
        state |= {each: each.read_bytes() for each in own.rglob("*") if each.is_file()}
        return {str(path): data for path, data in state.items()}


@pytest.fixture(scope="module", params=["file", "http"])
def field(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("sync")
    if request.param == "file":
        yield Field(folder, (folder / "space").as_uri(), folder / "space")
        return
    database = folder / "hub/hub.db"
    live = Live(Cuebook.open(replace(config(store=str(database)), folder=str(folder))))
    try:
        yield Field(folder, f"klp://127.0.0.1:{live.port}/team", Path(f"{database}.sync/hub/team"))
    finally:
        live.stop()


Attack = Callable[[Field], None]


def envelope(field: Field, body: str, *, slug: str = "greet", parents: tuple[str, ...] = ()) -> bytes:
    """Return a signed revision that Cuebook itself would not publish."""
    file = f"---\ncuebook: 1\nname: {slug}\nsync: true\n---\n{body}\n"
    payload = json.dumps({"createdAt": 1.0, "file": file, "parents": parents}).encode()
    return seal([payload], signers_of(field.keys))


def newest(field: Field, role: str) -> Path:
    files = (field.space / "ann/metadata").glob(f"*.{role}.json")
    return max(files, key=lambda each: int(each.name.split(".")[0]))


def bad_metadata_signature(field: Field) -> None:
    file = field.space / "ann/metadata/timestamp.json"
    document = json.loads(file.read_bytes())
    document["signed"]["version"] += 1
    file.write_text(json.dumps(document))


def bad_version_signature(field: Field) -> None:
    [signed] = json.loads(envelope(field, "Hi."))
    signed["payload"] = b64encode(b'{"file": "forged"}').decode()
    field.publish({"prompts/greet.json": json.dumps([signed]).encode()})


def stolen_name(field: Field) -> None:
    shutil.rmtree(field.space / "ann")
    field.publish({"prompts/greet.json": envelope(field, "Hi.")}, keys=other_keys(field))


def unknown_signer(field: Field) -> None:
    field.publish({}, keys=other_keys(field), name="eve")


def other_keys(field: Field) -> Path:
    folder = field.folder / "eve"
    folder.mkdir(exist_ok=True)
    return folder


def rollback(field: Field) -> None:
    shutil.rmtree(field.space)
    shutil.copytree(field.folder / "old", field.space)


def removed_project(field: Field) -> None:
    shutil.rmtree(field.space / "ann")


def freeze(field: Field) -> None:
    """Publish metadata that expired: what a reader sees if an attacker withholds newer files."""
    clock = FrozenClock(time.time() - 100 * 86_400)
    write_repository(
        field.space / "ann", {}, signers_of(field.keys), project="ann", now=clock.now(), expires_s=90 * 86_400.0
    )


def mixed_snapshot(field: Field) -> None:
    old = max((field.folder / "old/ann/metadata").glob("*.snapshot.json"))
    shutil.copy(old, newest(field, "snapshot"))


def mixed_prompt(field: Field) -> None:
    [old] = (field.folder / "old/ann/targets/prompts").iterdir()
    for file in (field.space / "ann/targets/prompts").iterdir():
        shutil.copy(old, file)


def escaping_file(field: Field) -> None:
    field.publish({"prompts/greet.json": envelope(field, "Hi."), "prompts/../../../../up.json": b"[]"})


def escaping_prompt(field: Field) -> None:
    field.publish({"prompts/greet.json": envelope(field, "Hi.", slug="../../up")})


def another_prompt(field: Field) -> None:
    field.publish({"prompts/greet.json": envelope(field, "Hi.", slug="other")})


def link_to_a_file(field: Field) -> None:
    secret = field.folder / "secret.json"
    secret.write_text("{}")
    (field.space / "ann/metadata/timestamp.json").unlink()
    (field.space / "ann/metadata/timestamp.json").symlink_to(secret)


def bad_project_name(field: Field) -> None:
    (field.space / "Eve ../metadata").mkdir(parents=True)


def large_prompt(field: Field) -> None:
    field.publish({"prompts/greet.json": b"[" + b" " * 5_000_000 + b"]"})


def large_metadata(field: Field) -> None:
    with (field.space / "ann/metadata/timestamp.json").open("ab") as file:
        file.truncate(6_000_000)


def secret(field: Field) -> None:
    field.publish({"prompts/greet.json": envelope(field, f"Use the token {SECRET}.")})


ATTACKS: list[tuple[Attack, str]] = [
    (bad_metadata_signature, "bad-signature"),
    (bad_version_signature, "bad-signature"),
    (stolen_name, "bad-signature"),
    (unknown_signer, "unknown-signer"),
    (rollback, "rollback"),
    (removed_project, "rollback"),
    (freeze, "expired"),
    (mixed_snapshot, "mix-and-match"),
    (mixed_prompt, "mix-and-match"),
    (escaping_file, "path"),
    (escaping_prompt, "path"),
    (another_prompt, "path"),
    (link_to_a_file, "path"),
    (bad_project_name, "path"),
    (large_prompt, "oversize"),
    (large_metadata, "oversize"),
    (secret, "secret"),
]


@pytest.mark.parametrize(("attack", "reason"), ATTACKS, ids=[each.__name__ for each, _ in ATTACKS])
def test_an_attack_is_refused_and_nothing_is_written(field: Field, attack: Attack, reason: str) -> None:
    field.bob = opened(field.folder / "bob")
    try:
        attack(field)
        before = field.state()
        with field.bob:
            versions = field.bob.prompts.versions("greet")
            with pytest.raises(SyncRefused) as refused:
                field.bob.prompt_sync.sync(field.location)
            if field.location.startswith("klp:") and attack in (link_to_a_file, large_metadata):
                reason = "hub"  # the server refuses to send it
            assert refused.value.reason == reason, refused.value
            if reason in ("bad-signature", "expired", "mix-and-match", "rollback"):
                advice = "which has a new key: SHA256:" if attack is stolen_name else "sync.blocked"
                assert (advice in str(refused.value), "signed by 0/1" in str(refused.value)) == (True, False)
            if attack is large_metadata:
                assert "ann/metadata/timestamp.json: exceeds 4,194,304 bytes" in str(refused.value)
            assert field.state() == before
            assert field.bob.prompts.versions("greet") == versions
            record = field.bob.audit.tail(1)[0]
        assert (record.event, record.input_context["reason"]) == ("sync", reason)
        assert record.input_context["result"] == "refused"
    finally:
        field.restore()


def test_an_honest_space_is_accepted(field: Field) -> None:
    with opened(field.folder / "bob") as bob:
        result = bob.prompt_sync.sync(field.location, dry_run=True)
        records = bob.audit.find(event="sync").records
    assert [(each.slug, each.change, each.semver) for each in result.items] == [("greet", "updated", "1.0.2")]
    assert [each.input_context["result"] for each in records][-2:] == ["accepted"] * 2


def link_beside_a_file(own: Path, victim: Path) -> None:
    (own / "metadata/.timestamp.json.new").symlink_to(victim / "notes")


def link_in_place_of_a_file(own: Path, victim: Path) -> None:
    (own / "metadata/timestamp.json").unlink()
    (own / "metadata/timestamp.json").symlink_to(victim / "notes")


def link_to_a_folder(own: Path, victim: Path) -> None:
    shutil.rmtree(own / "targets", ignore_errors=True)
    (own / "targets").symlink_to(victim)


def link_to_a_project(own: Path, victim: Path) -> None:
    own.rename(victim / "bob")
    own.symlink_to(victim / "bob")


@pytest.mark.parametrize("link", [link_beside_a_file, link_in_place_of_a_file, link_to_a_folder, link_to_a_project])
def test_a_sync_does_not_follow_a_link(field: Field, link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    shutil.copytree(field.folder / "bob", tmp_path / "bob")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/notes").write_text("mine")
    link(field.space / "bob", tmp_path / "victim")
    before = {each: each.read_bytes() for each in (tmp_path / "victim").rglob("*") if each.is_file()}
    try:
        with opened(tmp_path / "bob") as bob, pytest.raises(SyncRefused) as refused:
            bob.prompt_sync.sync(field.location)
    finally:
        field.restore()
    assert refused.value.reason == ("path" if field.location.startswith("file:") else "hub"), refused.value
    assert {each: each.read_bytes() for each in (tmp_path / "victim").rglob("*") if each.is_file()} == before


def test_a_restored_project_continues_from_what_it_published(field: Field, tmp_path: Path) -> None:
    for name in ("new", "restored"):
        shutil.copytree(field.folder / "bob", tmp_path / name / "bob")
    try:
        with opened(tmp_path / "new/bob") as bob:
            bob.prompts.save("later", {"body": "Later."}, sync=True)
            bob.prompt_sync.sync(field.location)
        with opened(tmp_path / "restored/bob") as bob:
            assert "had a newer state of this project" in bob.prompt_sync.sync(field.location).notice
            assert bob.prompts.get("later").sections == {"body": "Later."}
            bob.prompts.save("later", {"body": "Still later."})
            bob.prompt_sync.sync(field.location)
        with opened(tmp_path / "new/bob") as bob:  # a second copy of a project is treated alike
            assert "had a newer state of this project" in bob.prompt_sync.sync(field.location).notice
    finally:
        field.restore()


def test_endless_data_of_a_server_is_refused(field: Field) -> None:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = self.path.removeprefix("/klp/v1/team/")
            exists = (field.space / file).exists()
            self.send_response(200 if exists else 404)
            self.end_headers()
            data = (field.space / file).read_bytes() if file and exists else b'{"projects": ["ann"]}'
            with suppress(OSError):  # the client hangs up
                self.wfile.write(data)
                while file.endswith("timestamp.json"):
                    self.wfile.write(b" " * 100_000)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server, opened(field.folder / "bob") as bob:
        Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(SyncRefused) as refused:
                bob.prompt_sync.sync(f"klp://127.0.0.1:{server.server_port}/team")
        finally:
            server.shutdown()
    assert refused.value.reason == "oversize"


def test_a_prompt_with_a_secret_is_not_published(field: Field, tmp_path: Path) -> None:
    with opened(tmp_path / "cas") as cas:
        cas.prompts.save("greet", {"body": f"Use the token {SECRET}."}, sync=True, force=True)
        with pytest.raises(SyncRefused, match=r"Prompt 'greet' .* contains a secret"):
            cas.prompt_sync.sync(field.location)
    assert not (field.space / "cas").exists()


def archive(method: int = zipfile.ZIP_DEFLATED, /, **files: bytes) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", method) as opened_archive:
        for name, data in files.items():
            opened_archive.writestr(name, data)
    return stream.getvalue()


def wrong_offset() -> bytes:
    """Return an archive whose directory lies before its first byte."""
    data = bytearray(archive(**{"metadata/a.json": b"{}"}))
    data[-6:-2] = b"\xff\xff\x00\x00"
    return bytes(data)


UPLOADS: dict[str, tuple[bytes, str]] = {
    "no archive": (b"no zip", "Not a bundle"),
    "no archive, larger than other requests": (b"no zip" * 2_000_000, "Not a bundle"),
    "parent folder": (archive(**{"../../up.json": b"{}"}), "is not a file of a repository"),
    "absolute path": (archive(**{"/etc/up.json": b"{}"}), "is not a file of a repository"),
    "zip bomb": (archive(**{"metadata/a.json": b" " * 70_000_000}), "has more than"),
    "long list of files": (long_archive(100_000), "Not a bundle of prompts (its list of files has 4,700,000 bytes)"),
    "bad metadata": (archive(**{"metadata/1.root.json": b"{}"}), "no valid root metadata"),
    "empty archive": (archive(), "no valid root metadata"),
    "damaged content": (
        archive(zipfile.ZIP_LZMA, **{"metadata/a.json": b"{}"}).replace(b"\x5d\x00\x00", b"\xff\xff\xff"),
        "Not a bundle",
    ),
    "wrong offset": (wrong_offset(), "Not a bundle"),
}


@pytest.mark.parametrize(("data", "message"), UPLOADS.values(), ids=UPLOADS)
def test_a_server_refuses_a_bad_upload(field: Field, data: bytes, message: str) -> None:
    if field.location.startswith("file"):
        pytest.skip("a folder has no server")
    before = field.state()
    port = field.location.split(":")[2].split("/")[0]
    answer = httpx.put(f"http://127.0.0.1:{port}/klp/v1/team/eve", content=data)
    assert answer.status_code == 400
    assert message in answer.json()["detail"]
    assert field.state() == before
