"""Tests of the plugin for Hermes: its own loader and manager, against a running server."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.memory_manager import MemoryManager
from pages import PAGE
from plugins.memory import discover_memory_providers, load_memory_provider

CUEBOOK = [sys.executable, "-m", "cuebook"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a server with an empty database; yield its address."""
    folder = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    subprocess.run([*CUEBOOK, "init", str(folder / "project")], check=True, capture_output=True)
    command = [*CUEBOOK, "-C", str(folder / "project"), "serve", "--port", str(port)]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        root = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                call(root, "/api/conversations")
                break
            except urllib.error.URLError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
        yield root
        server.terminate()


@pytest.fixture
def home(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the plugin into a home of Hermes."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    command = [*CUEBOOK, "hermes", "install", "--url", url, "--user", tmp_path.name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "hermes config set memory.provider cuebook" in done.stdout
    sys.modules.pop("_hermes_user_memory.cuebook", None)
    return tmp_path


def manager(home: Path, session: str, **context: str) -> MemoryManager:
    """Start Hermes' memory with the plugin."""
    provider = load_memory_provider("cuebook")
    assert provider is not None
    made = MemoryManager()
    made.add_provider(provider)
    made.initialize_all(session, hermes_home=str(home), platform="cli", **context)
    return made


def call(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=10) as response:  # noqa: S310  # our own server
        return json.load(response)


def said(question: str, answer: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def test_hermes_discovers_the_plugin(home: Path) -> None:
    assert ("cuebook", True) in [(name, available) for name, _, available in discover_memory_providers()]
    (home / "cuebook.json").unlink()
    provider = load_memory_provider("cuebook")
    assert provider is not None
    assert not provider.is_available()
    assert "cuebook hermes install" in provider.unavailable_reason()
    provider.save_config({"url": "http://127.0.0.1:1", "user": "", "api_key": "x"}, str(home))
    assert json.loads((home / "cuebook.json").read_text()) == {"url": "http://127.0.0.1:1"}


def conversation(user: str, session: str) -> str:
    """Return the path of a session's conversation."""
    return f"/api/conversations/hermes%2F{user}%2F{session}"


def test_a_session_is_stored_checkpointed_and_recalled(home: Path, url: str) -> None:
    user, first = home.name, f"{home.name}-1"
    hermes = manager(home, first)
    assert "cuebook_search" in hermes.build_system_prompt()
    tool = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "read"}}]}
    transcript = [{"role": "system", "content": "You are Hermes."}, *said("The ferry leaves at 9:45.", "Noted.")]
    hermes.sync_all(*(each["content"] for each in transcript[1:]), session_id=first, messages=transcript)
    transcript += [
        {"role": "user", "content": [{"type": "text", "text": "Read my ticket."}]},
        tool,
        {"role": "tool", "tool_call_id": "c1", "content": "Seat 4C, deck 2."},
        *said("The ferry leaves at 9:45.", "Noted.")[1:],
    ]
    assert hermes.flush_pending(30)

    compressed = hermes.on_pre_compress(transcript)
    assert "cuebook_search" in compressed
    assert hermes.on_pre_compress(transcript) == compressed, "a checkpoint may be repeated"
    posts = call(url, f"{conversation(user, first)}/posts?userId={user}")["items"]
    assert [each["message"] for each in posts] == [
        "The ferry leaves at 9:45.", "Noted.", "Read my ticket.", "Seat 4C, deck 2.", "Noted."
    ]  # fmt: skip

    assert hermes.prefetch_all("When does the ferry leave?", session_id=first) == "", "the session's own messages"
    hermes.on_session_switch(f"{first}b", parent_session_id=first, reason="compression")
    recalled = hermes.prefetch_all("When does the ferry leave?", session_id=f"{first}b")
    assert "9:45" in recalled
    assert hermes.prefetch_all("Explain quantum chromodynamics.", session_id=f"{first}b") == ""
    found = json.loads(hermes.handle_tool_call("cuebook_search", {"query": "Which seat?"}))
    assert any("Seat 4C" in each for each in found["results"])
    assert json.loads(hermes.handle_tool_call("cuebook_remember", {"text": "I prefer the aisle."}))["stored"]
    hermes.on_session_end([*said("See you tomorrow.", "Bye.")])
    hermes.shutdown_all()
    last = call(url, f"{conversation(user, first + 'b')}/posts?userId={user}")["items"]
    assert [each["message"] for each in last] == ["See you tomorrow.", "Bye."]


def test_a_new_process_repeats_nothing(home: Path, url: str) -> None:
    name = f"{home.name}-2"
    for _ in range(2):
        hermes = manager(home, name)
        hermes.on_session_end(said("hello", "hi"))
    assert len(call(url, f"{conversation(home.name, name)}/posts?userId={home.name}")["items"]) == 2


def test_two_users_of_a_platform_may_have_sessions_of_the_same_name(home: Path, url: str) -> None:
    (home / "cuebook.json").write_text(json.dumps({"url": url}))
    for user in ("ann", "bob"):
        manager(home, "lounge", user_id=user).on_session_end(said(f"I am {user}.", "Hello."))
    for user in ("ann", "bob"):
        posts = call(url, f"{conversation(user, 'lounge')}/posts?userId={user}")["items"]
        assert [each["message"] for each in posts] == [f"I am {user}.", "Hello."]


def test_writes_of_hermes_own_memory_are_repeated(home: Path, url: str) -> None:
    hermes = manager(home, f"{home.name}-3")
    hermes.on_memory_write("add", "user", "Likes tea.")
    hermes.on_memory_write("replace", "user", "Likes coffee.", {"previous_content": "Likes tea."})
    hermes.on_memory_write("add", "memory", "Uses Linux.")
    hermes.on_memory_write("remove", "memory", "", {"previous_content": "Uses Linux."})
    memories = call(url, f"/api/memories?userId={home.name}")["items"]
    assert [each["text"] for each in memories] == ["Likes coffee."]


def test_a_failed_checkpoint_stops_the_compression(home: Path) -> None:
    hermes = manager(home, "s", user_id="ann")
    provider = hermes.get_provider("cuebook")
    assert provider is not None
    provider._settings["url"] = "http://127.0.0.1:1"  # noqa: SLF001  # a server that does not run
    with pytest.raises(OSError, match="refused"):
        provider.on_pre_compress(said("a", "b"), require_checkpoint=True)
    assert provider.on_pre_compress(said("a", "b")) == ""
    assert "refused" in json.loads(hermes.handle_tool_call("cuebook_search", {"query": "x"}))["error"]


def test_other_contexts_write_nothing(home: Path, url: str) -> None:
    hermes = manager(home, f"{home.name}-4", agent_context="cron")
    hermes.on_session_end(said("You are a scheduled job.", "Done."))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        call(url, f"{conversation(home.name, home.name + '-4')}/posts?userId={home.name}")


def test_the_documentation_names_the_commands() -> None:
    section = PAGE.read_text("utf-8").partition("\n## Hermes\n")[2].partition("\n## ")[0]
    assert "cuebook hermes install" in section
    assert os.environ.get("CUEBOOK_API_KEY") is None
