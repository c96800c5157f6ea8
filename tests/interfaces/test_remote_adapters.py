"""Tests of adapters whose project is the URL of a server: they answer as with a project of their own."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cuebook import BackendError, Conflict, CuebookError, Denied, InvalidInput, NotFound, Part, Posted
from cuebook.integrations.anthropic import CuebookMemoryTool
from cuebook.integrations.connection import Connection
from cuebook.integrations.mem0 import Memory
from cuebook.records.document import DocumentChange

pytestmark = pytest.mark.slow
CUEBOOK = [sys.executable, "-m", "cuebook"]


@contextmanager
def serving(folder: Path, *, with_key: bool = False) -> Iterator[tuple[str, str]]:
    """Run a server of a new project; yield its address and, if asked, an API key."""
    project = str(folder / "project")
    subprocess.run([*CUEBOOK, "init", project], check=True, capture_output=True)
    key = ""
    if with_key:
        new_key = [*CUEBOOK, "-C", project, "key", "new", "--role", "agent", "--name", "bot"]
        made = subprocess.run(new_key, check=True, capture_output=True, text=True)
        key = next(word for word in made.stdout.split() if word.startswith("cue_"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*CUEBOOK, "-C", project, "serve", "--port", str(port)]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/", key
        server.terminate()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a server without keys; yield its address."""
    with serving(tmp_path_factory.mktemp("remote")) as (address, _):
        yield address


class Adapter(Connection):
    """An adapter whose methods are those of the project."""

    def run(self, work):
        return self._run(work)


def test_adapters_work_over_a_server(url):
    with CuebookMemoryTool(url, user="ann/ö") as tool, CuebookMemoryTool(url, user="bob") as other:
        tool.call({"command": "create", "path": "/memories/a b/ü.md", "file_text": "one\n"})
        tool.call({"command": "rename", "old_path": "/memories/a b", "new_path": "/memories/c"})
        assert "/memories/c/ü.md" in tool.call({"command": "view", "path": "/memories"})
        assert "/memories/c" not in other.call({"command": "view", "path": "/memories"})
    with Memory(url) as memory:
        [added] = memory.add("I prefer the aisle seat.", user_id="ann", metadata={"n": 1})["results"]
        assert memory.search("Which seat?", filters={"user_id": "ann"})["results"][0]["id"] == added["id"]
        memory.update(added["id"], "I prefer the window seat.")
        memory.delete_all(user_id="ann")
        assert memory.get_all(filters={"user_id": "ann"}) == {"results": []}


def test_conversations_keep_their_parts_and_documents_their_order(url):
    with Adapter(url) as adapter:
        parts = (Part(type="openai_item", content='{"n": 1}', extra={"a": [1]}), Part(type="text", content="x"))
        posts = [Posted(sender="user", message="hello", parts=parts, created_at=1_700_000_000.5)]
        adapter.run(lambda cue: cue.append("a/b", posts, user="ann"))
        [post] = adapter.run(lambda cue: cue.conversations.posts("a/b", user="ann", last=1))
        assert (post.role, post.message, post.created_at) == ("user", "hello", 1_700_000_000.5)
        assert [(each.type, each.content, each.extra) for each in post.parts] == [
            ("openai_item", '{"n": 1}', {"a": [1]}), ("text", "x", None)
        ]  # fmt: skip
        changes = [DocumentChange(space=("s", "t"), key=str(n), value={"n": n}, new=True) for n in range(5)]
        assert adapter.run(lambda cue: cue.documents.put(changes)) == 0
        page = adapter.run(lambda cue: cue.documents.list(("s",), back=True, limit=2))
        rest = adapter.run(lambda cue: cue.documents.list(("s",), back=True, limit=9, cursor=page.next))
        assert [each.value["n"] for each in (*page, *rest)] == [4, 3, 2, 1, 0]
        assert list(adapter.run(lambda cue: cue.documents.spaces(("s",))).spaces) == [("s", "t")]
        adapter.run(lambda cue: cue.settle(conversation="a/b"))


def test_errors_of_the_server_are_those_of_the_project(url):
    with Adapter(url) as adapter:
        change = DocumentChange(space=("e",), key="k", value={}, new=True)
        adapter.run(lambda cue: cue.documents.put([change]))
        with pytest.raises(Conflict, match="has another value"):
            adapter.run(lambda cue: cue.documents.put([change]))
        with pytest.raises(NotFound, match="Unknown document 'x' in 'e'"):
            adapter.run(lambda cue: cue.documents.get(("e",), "x"))
        with pytest.raises(InvalidInput, match="limit"):
            adapter.run(lambda cue: cue.documents.list(limit=0))
        with pytest.raises(InvalidInput, match="unknown argument 'nothing'"):
            adapter.run(lambda cue: cue.documents.list(nothing=1))
        with pytest.raises(CuebookError, match=r"memory.utility: a server does not offer it"):
            adapter.run(lambda cue: cue.memory.utility())
    with Adapter("http://127.0.0.1:1") as adapter, pytest.raises(BackendError, match="does not answer: ConnectError"):
        adapter.run(lambda cue: cue.documents.list())
    with pytest.raises(CuebookError, match="closed"):
        adapter.run(lambda cue: cue.documents.list())


def test_a_server_with_keys_needs_one(tmp_path, monkeypatch):
    with serving(tmp_path, with_key=True) as (url, key):
        with Adapter(url) as adapter, pytest.raises(Denied):
            adapter.run(lambda cue: cue.documents.list())
        monkeypatch.setenv("CUEBOOK_API_KEY", key)
        with Adapter(url) as adapter:
            assert adapter.run(lambda cue: cue.documents.list(user="zoe")).items == ()


def test_an_append_over_a_server_tells_how_many_posts_are_new(url):
    with Adapter(url) as adapter:
        posts = [Posted(sender="user", message=text, id=text) for text in ("one", "two")]
        for number, stored in ((1, 1), (2, 1), (2, 0)):
            appended = adapter.run(lambda cue, number=number: cue.append("appended", posts[:number], user="ann"))
            assert (appended.stored, appended.last_seq) == (stored, number)
