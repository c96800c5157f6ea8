"""What is given to the Python API and cannot be: one InvalidInput that says what, which, and what to do."""

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
    with BlockingCuebook.open(worker=False) as opened:
        yield opened


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.where
    return str(caught.value)


@pytest.mark.parametrize(
    ("ask", "said"),
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
def test_what_is_no_ask(cue: BlockingCuebook, ask: Any, said: str) -> None:
    for method in (cue.ask, cue.assemble, lambda given: list(cue.stream(given))):
        assert said in refused(lambda method=method: method(ask))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("posts", "said"),
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
def test_what_is_no_post(cue: BlockingCuebook, posts: Any, said: str) -> None:
    assert said in refused(lambda: cue.append("c", posts))


def test_names_are_strings(cue: BlockingCuebook) -> None:
    given: Any = 5
    assert "conversation: expected a string" in refused(lambda: cue.append(given, [HELLO]))
    for name in ("user", "persona", "parent", "idempotency_key"):
        assert f"{name}: expected a string, got 5" in refused(
            lambda name=name: cue.append("c", [HELLO], **{name: 5})  # type: ignore[misc]
        )
    assert "conversation: expected a string" in refused(lambda: cue.settle(conversation=given))
    assert "timeout: expected a number, got 'soon'" in refused(lambda: cue.settle(timeout=given and "soon"))


def test_what_cannot_be_looked_for(cue: BlockingCuebook) -> None:
    given: Any = 5
    assert "query: expected a string, got 5" in refused(lambda: cue.memory.search(given))
    assert "scopes: expected a list, got 'user'" in refused(lambda: cue.memory.search("x", scopes="user"))
    for limit in (0, 201, True):
        assert "limit: expected a whole number from 1 to 200" in refused(
            lambda limit=limit: cue.memory.search("x", limit=limit)
        )  # type: ignore[misc]
    assert "tokenBudget: expected a number of tokens, got -1" in refused(
        lambda: cue.memory.search("x", token_budget=-1)
    )


async def test_the_book_with_await_refuses_the_same() -> None:
    async with Cuebook.open(worker=False) as cue:
        wrong: Any = "hello"
        for call in (cue.ask(wrong), cue.assemble(wrong), cue.append("c", wrong), cue.settle(timeout=wrong)):
            with pytest.raises(InvalidInput):
                await call


@pytest.mark.parametrize("where", [5, b"x", ["cuebook.toml"], {"store": "x"}])
def test_what_names_no_book(where: Any) -> None:
    said = refused(lambda: BlockingCuebook.open(where))
    assert re.search(r"where: not a project: .* Pass a cuebook.toml, its folder, or a Config", said)


def test_a_database_is_no_settings_file_and_how_one_is_opened_is_said(tmp_path: Path) -> None:
    said = refused(lambda: BlockingCuebook.open("x.db"))
    assert "not a cuebook.toml or a folder: 'x.db'. To store data in this file, use Cuebook.open(arguments={" in said
    file = tmp_path / "project"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (a)")
    assert "not a cuebook.toml or a folder" in refused(lambda: BlockingCuebook.open(file))
    for _ in range(2):
        with BlockingCuebook.open(arguments={"store.url": str(tmp_path / "x.db")}) as cue:
            assert cue.append("c", [HELLO | {"id": "p1"}]).last_seq == 1
    assert (tmp_path / "x.db").exists()


def test_arguments_and_parts_are_looked_at() -> None:
    wrong: Any = 5
    assert "arguments: expected an object" in refused(lambda: BlockingCuebook.open(arguments=wrong))
    assert "budget.context" in refused(lambda: BlockingCuebook.open(arguments={"budget.context": 100}))
    assert "model: 5 has no 'name'. Pass an object with name, stream, aclose" in refused(
        lambda: BlockingCuebook.open(model=wrong)
    )
    assert "config: expected a Config, got 5." in refused(lambda: BlockingCuebook(wrong))


class Mocking:
    """A method of sentiment of somebody's own."""

    name = "mocking"

    def read(self, text: str) -> Sentiment:
        return Sentiment(score=float("!" in text), method=self.name, polarity="neutral")


async def test_methods_of_sentiment_are_given_by_name() -> None:
    async with Cuebook.open(analyzers=[Mocking()], worker=False) as cue:
        methods = cue.desk.analyzers
        assert methods["mocking"].read("Hi!").score == 1.0
        assert methods["lexicon_based"].read("this is great").polarity == "positive"


@pytest.mark.parametrize(
    ("analyzers", "said"),
    [
        ("mocking", "analyzers: expected a list of analyzers, got 'mocking'"),
        (Mocking(), "analyzers: expected a list of analyzers, got <"),
        (["mocking"], "analyzers[0]: not an analyzer: 'mocking'. It needs a name and `read(text)"),
        ([Mocking(), Mocking()], "analyzers[1]: the name 'mocking' is used twice. Choose another name."),
    ],
)
def test_what_is_no_method_of_sentiment(analyzers: Any, said: str) -> None:
    assert said in refused(lambda: Cuebook.open(analyzers=analyzers))
