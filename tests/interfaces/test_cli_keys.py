"""Tests of the CLI commands for API keys, organizations and participants."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from commands import CommandRunner, write_messages

from cuebook.records.key import id_of


def test_key_is_created_listed_and_revoked(here: CommandRunner, project: Path) -> None:
    made = here.json("key", "new", "--role", "editor", "--user", "ann", "--name", "laptop", "--expires", "30")
    token = made.pop("token")
    assert id_of(token) == made["id"]
    assert (made["role"], made["userId"], made["name"], made["state"]) == ("editor", "ann", "laptop", "valid")
    assert made["expiresAt"] > made["createdAt"]
    assert here.json("key", "list") == {"items": [made]}
    assert "laptop" in here("key", "list")
    assert here("key", "revoke", made["id"]) == f"revoked {made['id']}\n"
    assert [each["state"] for each in here.json("key", "list")["items"]] == ["revoked"]
    secret = token.rpartition("_")[2].encode()
    files = [each for each in project.rglob("*") if each.is_file()]
    assert not [each.name for each in files if secret in each.read_bytes()]
    events = [each["event"] for each in here.json("audit", "tail")["items"]]
    assert [each for each in events if each.startswith("key")] == ["key-new", "key-revoke"]
    assert here.json("audit", "verify")["ok"]


@pytest.mark.slow
def test_a_rotated_key_keeps_its_permissions_and_expires(here: CommandRunner) -> None:
    old = here.json("key", "new", "--role", "editor", "--user", "ann", "--organization", "acme", "--expires", "30")
    new = here.json("key", "rotate", old["id"], "--overlap", "48")
    names = ("role", "userId", "organizations", "name", "tenant", "state")
    assert [new[name] for name in names] == [old[name] for name in names]
    assert new["id"] != old["id"]
    assert new["token"] != old["token"]
    listed = {each["id"]: each["expiresAt"] for each in here.json("key", "list")["items"]}
    begun = datetime.fromisoformat(new["createdAt"])
    assert datetime.fromisoformat(listed[old["id"]]) - begun == timedelta(hours=48)
    assert datetime.fromisoformat(listed[new["id"]]) - begun == timedelta(days=30)
    last = here.json("key", "rotate", new["id"], "--overlap", "0", "--expires", "1")
    assert "is expired" in here("key", "rotate", new["id"], code=1)
    here("key", "revoke", last["id"])
    assert "is revoked" in here("key", "rotate", last["id"], code=1)
    assert "Unknown key 'nope'" in here("key", "rotate", "nope", code=1)
    events = [each["event"] for each in here.json("audit", "tail")["items"]]
    assert events.count("key-rotate") == 2


def test_tenants_have_separate_keys(here: CommandRunner) -> None:
    here.json("key", "new", "--role", "owner", "--tenant", "acme")
    assert here.json("key", "list") == {"items": []}
    [key] = here.json("key", "list", "--tenant", "acme")["items"]
    assert key["tenant"] == "acme"
    for command in (("key", "list"), ("organization", "show", "o"), ("organization", "set", "o", "--no-writes")):
        assert "Unknown tenant 'acne': it has no API keys." in here(*command, "--tenant", "acne", code=1)
    here("organization", "set", "o", "--no-writes", "--tenant", "acme")
    assert "Unknown key" in here("key", "revoke", key["id"], code=1)


def test_invalid_key_options_are_rejected(here: CommandRunner) -> None:
    assert "--role" in here("key", "new", "--role", "king", code=2)
    assert "required for role viewer" in here("key", "new", "--role", "viewer", code=1)
    assert "expires" in here("key", "new", "--role", "owner", "--expires", "0", code=1)
    assert "Unknown key 'nope'" in here("key", "revoke", "nope", code=1)


@pytest.mark.slow
def test_organization_settings_are_shown_and_changed(here: CommandRunner) -> None:
    result = here.json("organization", "show", "acme")["memory"]["longTermMemory"]
    assert result == {
        "enabled": True, "defaultRetrievalEnabled": True, "allowWrites": True, "allowedCategories": None,
    }  # fmt: skip
    here("organization", "set", "acme", "--no-writes", "--category", "facts", "--category", "projects")
    result = here.json("organization", "set", "acme", "--no-retrieval")["memory"]["longTermMemory"]
    assert result == {
        "enabled": True, "defaultRetrievalEnabled": False, "allowWrites": False,
        "allowedCategories": ["facts", "projects"],
    }  # fmt: skip
    assert here.json("organization", "show", "acme")["memory"]["longTermMemory"] == result
    assert (
        here.json("organization", "set", "acme", "--all-categories")["memory"]["longTermMemory"]["allowedCategories"]
        is None
    )
    assert "gossip" in here("organization", "set", "acme", "--category", "gossip", code=1)
    assert "--no-writes" in here("organization", "set", "acme", code=2)
    assert "organization" in [each["event"] for each in here.json("audit", "tail")["items"]]


@pytest.mark.slow
def test_participants_are_listed_and_added(here: CommandRunner, project: Path) -> None:
    talk = write_messages(project, ("user", "Hi."))
    here("conversation", "import", talk, "--conversation", "c1", "--user", "ann")
    assert here("conversation", "participants", "c1") == "ann\n"
    assert here("conversation", "participants", "c1", "bob", "carol") == "ann, bob, carol\n"
    assert here("conversation", "show", "c1", "--user", "bob")
    assert here.json("conversation", "participants", "c1", "--nobody")["participants"] == ["ann"]
    assert "Unknown conversation" in here("conversation", "show", "c1", "--user", "bob", code=1)
    assert "Unknown conversation" in here("conversation", "participants", "c9", "bob", code=1)
    assert "--nobody" in here("conversation", "participants", "c1", "bob", "--nobody", code=2)
