"""Tests of invalid arguments to the Python API: each raises InvalidInput with the field, the value and the remedy."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cuebook import Ask, BlockingCuebook, Cuebook, InvalidInput, Posted
from cuebook.records.conversation import Part
from cuebook.records.mind import Sentiment

HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def cue() -> Iterator[BlockingCuebook]:
    with BlockingCuebook.open(worker=False) as instance:
        yield instance


def rejection_of(call: Callable[[], Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.where
    return str(caught.value)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ("hello", "ask: expected Ask(text, conversation), got 'hello'"),
        (None, "ask: expected Ask(text, conversation), got null"),
        (Ask("x", 5), "conversation: expected a string, got 5"),  # type: ignore[arg-type]
        (Ask("x", ""), "conversation: empty. Provide a conversation id."),
        (Ask(b"x", "c"), "text: expected a string, got b'x'"),  # type: ignore[arg-type]
        (Ask("x", "c", user=5), "user: expected a string, got 5"),  # type: ignore[arg-type]
        (Ask("x", "c", attachments=("a",)), "attachments[0]: expected an object, got 'a'"),  # type: ignore[arg-type]
        (Ask("x", "c", attachments=(Part("text", 5),)), "attachments[0].content: expected a string, got 5"),  # type: ignore[arg-type]
        (Ask("x", "c", memory_control="off"), "memory_control: expected an object"),  # type: ignore[arg-type]
        (Ask("x", "c", token_budget=9.5), "token_budget: expected a number of tokens, got 9.5"),  # type: ignore[arg-type]
        (Ask("x", "c", token_budget=True), "token_budget: expected a number of tokens, got true"),
    ],
)  # fmt: skip
def test_invalid_ask_is_rejected(cue: BlockingCuebook, ask: Any, expected: str) -> None:
    for method in (cue.ask, cue.assemble, lambda given: list(cue.stream(given))):
        assert expected in rejection_of(lambda method=method: method(ask))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("posts", "expected"),
    [
        (["hello"], "posts[0]: expected Posted(sender=…, message=…), or a chat message such as"),
        ("hello", "posts: expected a list of posts, got 'hello'. Put a single post into a list."),
        (HELLO, "posts: expected a list of posts, got an object"),
        (Posted(sender="ann", message="Hi"), "posts: expected a list of posts, got Posted"),
        (None, "posts: expected a list of posts, got null"),
        ([HELLO, 5], "posts[1]: expected Posted("),
        ([HELLO | {"timestamp": "now"}], "posts[0].timestamp: expected a number, got 'now'"),
        ([HELLO | {"id": 7}], "posts[0].id: expected a string, got 7"),
        ([Posted(sender=5, message="x")], "posts[0].sender: expected a string, got 5"),  # type: ignore[arg-type]
        ([Posted(sender="", message="x")], "posts[0].sender: empty. Provide the sender."),
        ([Posted(sender="a", message=None)], "posts[0].message: expected a string, got null"),  # type: ignore[arg-type]
        ([Posted(sender="a", message="x", created_at="now")], "posts[0].created_at: expected a number"),  # type: ignore[arg-type]
        ([Posted(sender="a", message="x", role="boss")], "posts[0].role: unknown value 'boss'. Available: assistant"),  # type: ignore[arg-type]
        ([Posted(sender="a", parts=["x"])], "posts[0].parts[0]: expected an object"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_invalid_posts_are_rejected(cue: BlockingCuebook, posts: Any, expected: str) -> None:
    assert expected in rejection_of(lambda: cue.append("c", posts))


def test_names_must_be_strings(cue: BlockingCuebook) -> None:
    wrong_value: Any = 5
    assert "conversation: expected a string" in rejection_of(lambda: cue.append(wrong_value, [HELLO]))
    for name in ("user", "persona", "parent", "idempotency_key"):
        assert f"{name}: expected a string, got 5" in rejection_of(
            lambda name=name: cue.append("c", [HELLO], **{name: 5})  # type: ignore[misc]
        )
    assert "conversation: expected a string" in rejection_of(lambda: cue.settle(conversation=wrong_value))
    assert "timeout: expected a number, got 'soon'" in rejection_of(lambda: cue.settle(timeout=wrong_value and "soon"))


def test_invalid_search_arguments_are_rejected(cue: BlockingCuebook) -> None:
    wrong_value: Any = 5
    assert "query: expected a string, got 5" in rejection_of(lambda: cue.memory.search(wrong_value))
    assert "scopes: expected a list, got 'user'" in rejection_of(lambda: cue.memory.search("x", scopes="user"))
    for limit in (0, 201, True):
        assert "limit: expected a whole number from 1 to 200" in rejection_of(
            lambda limit=limit: cue.memory.search("x", limit=limit)
        )  # type: ignore[misc]
    assert "tokenBudget: expected a whole number from 1 to 2,147,483,648, got -1" in rejection_of(
        lambda: cue.memory.search("x", token_budget=-1)
    )


async def test_async_api_rejects_the_same_arguments() -> None:
    async with Cuebook.open(worker=False) as cue:
        wrong: Any = "hello"
        for call in (cue.ask(wrong), cue.assemble(wrong), cue.append("c", wrong), cue.settle(timeout=wrong)):
            with pytest.raises(InvalidInput):
                await call


@pytest.mark.parametrize("where", [5, b"x", ["cuebook.toml"], {"store": "x"}])
def test_open_rejects_a_value_that_is_no_project(where: Any) -> None:
    error = rejection_of(lambda: BlockingCuebook.open(where))
    assert re.search(r"where: not a project: .* Pass a cuebook.toml, its folder, or a Config", error)


def test_opening_a_database_file_explains_store_url(tmp_path: Path) -> None:
    error = rejection_of(lambda: BlockingCuebook.open("x.db"))
    assert "not a cuebook.toml or a folder: 'x.db'. To store data there, use Cuebook.open(arguments={" in error
    error = rejection_of(lambda: BlockingCuebook.open("postgresql://ann:secret@db/cue"))
    assert "'postgresql://***@db/cue'. To store data there, use Cuebook.open(arguments={" in error
    assert "Call a server's HTTP API" in rejection_of(lambda: BlockingCuebook.open("http://127.0.0.1:8760"))
    file = tmp_path / "project"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (a)")
    assert "not a cuebook.toml or a folder" in rejection_of(lambda: BlockingCuebook.open(file))
    for _ in range(2):
        with BlockingCuebook.open(arguments={"store.url": str(tmp_path / "x.db")}) as cue:
            assert cue.append("c", [HELLO | {"id": "p1"}]).last_seq == 1
    assert (tmp_path / "x.db").exists()


def test_open_validates_arguments_and_components() -> None:
    wrong: Any = 5
    assert "arguments: expected an object" in rejection_of(lambda: BlockingCuebook.open(arguments=wrong))
    assert "budget.context" in rejection_of(lambda: BlockingCuebook.open(arguments={"budget.context": 100}))
    assert "model: 5 has no 'name'. Pass an object with name, stream, aclose" in rejection_of(
        lambda: BlockingCuebook.open(model=wrong)
    )
    assert "where: not a project: 5." in rejection_of(lambda: BlockingCuebook(wrong))


class Mocking:
    """A custom sentiment analyzer."""

    name = "mocking"

    def read(self, text: str) -> Sentiment:
        return Sentiment(score=float("!" in text), method=self.name, polarity="neutral")


async def test_custom_analyzers_are_available_by_name() -> None:
    async with Cuebook.open(analyzers=[Mocking()], worker=False) as cue:
        methods = cue.services.analyzers
        assert methods["mocking"].read("Hi!").score == 1.0
        assert methods["lexicon_based"].read("this is great").polarity == "positive"


@pytest.mark.parametrize(
    ("analyzers", "expected"),
    [
        ("mocking", "analyzers: expected a list of analyzers, got 'mocking'"),
        (Mocking(), "analyzers: expected a list of analyzers, got <"),
        (["mocking"], "analyzers[0]: not an analyzer: 'mocking'. It needs a name and `read(text)"),
        ([Mocking(), Mocking()], "analyzers[1]: the name 'mocking' is used twice. Choose another name."),
    ],
)
def test_invalid_analyzers_are_rejected(analyzers: Any, expected: str) -> None:
    assert expected in rejection_of(lambda: Cuebook.open(analyzers=analyzers))
