"""The vault at the doors: `cuebook vault`, settings and environment, and what HTTP gives and never gives."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from commands import Here, cuebook, write_messages
from upstream import Upstream

from conftest import Live
from cuebook.cli import main as cli
from cuebook.config import Config, SecretsConfig, Settings, StoreConfig, UpstreamConfig
from cuebook.testing.doubles import ScriptedModel

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"
TOKEN = re.compile(r"\[\[secret:[a-z_]+#[0-9a-f]{16}\]\]")


@pytest.fixture
def vault(here: Here, tmp_path: Path) -> Path:
    """A project whose vault is on, and its key."""
    key = tmp_path / "keys" / "vault.key"
    assert str(key) in here("vault", "key", str(key))
    switch(here, key)
    return key


def switch(here: Here, key: Path | None) -> None:
    on = f'[secrets]\nvault = true\nvault_key_file = "{key}"\n' if key else ""
    (here.folder / "cuebook.toml").write_text(on)


def tell(here: Here, name: str = "c1") -> None:
    file = write_messages(here.folder.parent, ("user", f"use {SECRET}"), ("assistant", "Noted."))
    here("conversation", "import", file, "--conversation", name)


def test_secrets_are_counted_listed_and_revealed_on_demand(here: Here, vault: Path) -> None:
    assert "it keeps nothing" in here("vault", "show")
    assert here("vault", "list") == "the vault keeps nothing\n"
    tell(here)
    shown = here.json("vault", "show")
    assert re.fullmatch("[0-9a-f]{8}", shown.pop("key"))
    assert shown == {
        "on": True, "secrets": 1, "posts": 1, "conversations": 1, "families": {"github_token": 1}, "unreadable": 0,
    }  # fmt: skip
    assert here.json("vault", "list") == {"items": [{"conversation": "c1", "userId": None, "secrets": 1, "posts": 1}]}
    texts = [here(*each) for each in (("vault", "show"), ("vault", "list"), ("conversation", "show", "c1"))]
    texts.append(here("conversation", "export", "c1"))
    assert not [text for text in texts if SECRET in text]
    [item] = here.json("vault", "reveal", "c1")["items"]
    assert (item["values"], bool(TOKEN.fullmatch(item["token"]))) == ([SECRET], True)
    assert SECRET in here("vault", "reveal", "c1").replace("\n", "").replace(" ", "")
    last = here.json("audit", "tail")["items"][-1]
    assert (last["event"], last["agent"]) == ("revealed", "cli")
    assert "no conversation 'nope'" in here("vault", "reveal", "nope", code=1)


def test_a_key_is_rotated_and_the_settings_must_follow(here: Here, vault: Path, tmp_path: Path) -> None:
    tell(here)
    new = tmp_path / "keys" / "new.key"
    assert "cannot be read" in here("vault", "rotate", "--to", str(new), code=1)
    here("vault", "key", str(new))
    assert ": 1; set secrets.vault_key_file" in here("vault", "rotate", "--to", str(new))
    said = here("vault", "show", code=1)
    assert "is sealed with key" in said
    assert str(vault) in said
    switch(here, new)
    assert here.json("vault", "reveal", "c1")["items"][0]["values"] == [SECRET]


def test_a_lost_key_is_no_dead_end(here: Here, vault: Path) -> None:
    tell(here)
    vault.unlink()
    assert "cannot be read" in here("vault", "show", code=1)
    assert "cannot be read" in here("conversation", "list", code=1)
    assert "nothing was given up" in here("vault", "clear", code=1)
    assert "given up of every conversation: 1" in here("vault", "clear", "--yes")
    switch(here, None)
    assert "off" in here("vault", "show")
    assert TOKEN.search(here("conversation", "show", "c1"))


def test_the_key_is_made_outside_the_stores_folder_and_never_over_another(here: Here, tmp_path: Path) -> None:
    inside = here.folder / ".cuebook" / "vault.key"
    assert "folder of the store" in here("vault", "key", str(inside), code=1)
    assert not inside.exists()
    file = tmp_path / "a.key"
    here("vault", "key", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "is there already" in here("vault", "key", str(file), code=1)
    roundabout = file.parent / "x" / ".." / "other.key"
    assert f'vault_key_file = "{file.parent.resolve() / "other.key"}"' in here("vault", "key", str(roundabout))
    assert re.fullmatch("[0-9a-f]{64}", here.json("vault", "key")["key"])


def test_the_real_command_reads_the_key_from_its_environment_and_says_what_is_missing(tmp_path: Path) -> None:
    assert cli.run(["init", str(tmp_path / "book")]) == 0
    made = cuebook("vault", "key", cwd=tmp_path)
    key = made.stdout.strip()
    assert "CUEBOOK_VAULT_KEY" in made.stderr
    given = {"CUEBOOK_VAULT_KEY": key, "CUEBOOK_SECRETS_VAULT": "true"}
    book = tmp_path / "book"
    told = cuebook("chat", "--conversation", "c", cwd=book, said=f"use {SECRET}\n", **given)
    assert told.returncode == 0, told.stderr
    assert json.loads(cuebook("vault", "show", "--json", cwd=book, **given).stdout)["secrets"] >= 1
    missing = cuebook("vault", "show", cwd=book, CUEBOOK_SECRETS_VAULT="true")
    assert missing.returncode == 1
    assert "CUEBOOK_VAULT_KEY" in missing.stderr
    assert "vault" in cuebook("doctor", cwd=book, CUEBOOK_SECRETS_VAULT="true").stdout
    wrong = cuebook("vault", "show", cwd=book, CUEBOOK_SECRETS_VAULT="true", CUEBOOK_VAULT_KEY="ab" * 32)
    assert (wrong.returncode, "is sealed with key" in wrong.stderr) == (1, True)
    assert "ab" * 32 not in wrong.stderr
    unset = cuebook("conversation", "show", "c", cwd=book)
    assert (unset.returncode, SECRET in unset.stdout, bool(TOKEN.search(unset.stdout))) == (0, False, True)
    assert not [file for file in book.rglob("*") if file.is_file() and key.encode() in file.read_bytes()]


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def settings(folder: Path, upstream: str = "") -> Config:
    return Config(
        settings=Settings(
            store=StoreConfig(url=str(folder / "store" / "book.db"), synchronous="OFF"),
            upstream=UpstreamConfig(url=upstream),
            secrets=SecretsConfig(vault=True, vault_key_file=str(folder / "vault.key")),
        )
    )


def test_over_http_the_model_reads_the_secret_and_no_route_gives_it(
    tmp_path: Path, serve_live: Callable[..., Live], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["vault", "key", str(tmp_path / "vault.key")]) == 0
    model = ScriptedModel(default="Fine.")
    live = serve_live(settings(tmp_path), model=model)
    with httpx.Client(base_url=live.url, timeout=20) as client:
        for text in (f"use {SECRET}", "so?"):
            said = {"message": text, "conversationId": "c", "userId": "ann"}
            assert client.post("/api/chat", json=said).status_code == 200
        assert SECRET in json.loads(model.requests[-1].messages[-3])["content"]
        asked = {"message": "and?", "conversationId": "c", "userId": "ann"}
        answers = [client.post("/api/assemble", json=asked)]
        parts = ("", "/posts", "/rounds", "/turns", "/turns/2", "/turns/2/replay", "/items", "/session")
        answers += [client.get(f"/api/conversations/c{part}", params={"userId": "ann"}) for part in parts]
        answers.append(client.post("/api/memories/search", json={"query": "use token", "userId": "ann"}))
        answers += [client.get("/api/audit")]
        assert [answer.url for answer in answers if answer.status_code != 200] == []
        assert not [answer.url for answer in answers if SECRET in answer.text]
        assert (
            client.get("/api/conversations/c/turns/2/replay", params={"userId": "ann"}).json()["verdict"] == "identical"
        )
        assert client.delete("/api/conversations/c", params={"userId": "ann"}).status_code < 300
    assert live.ask_book(live.book.vault.census).secrets == 0


def test_a_client_that_lets_the_server_keep_its_history_loses_nothing(
    tmp_path: Path, serve_live: Callable[..., Live], upstream: Upstream
) -> None:
    assert cli.run(["vault", "key", str(tmp_path / "vault.key")]) == 0
    live = serve_live(settings(tmp_path, upstream.url))
    headers = {"X-Conversation-Id": "c", "X-History": "server"}
    with httpx.Client(base_url=live.url, timeout=20, headers=headers) as client:
        for text in (f"use {SECRET}", "so?"):
            body = {"model": "plain", "messages": [{"role": "user", "content": text}]}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
    assert upstream.last.fields["messages"][0] == {"role": "user", "content": f"use {SECRET}"}
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert files
    assert not [file.name for file in files if SECRET.encode() in file.read_bytes()]
