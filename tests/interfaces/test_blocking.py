"""The blocking facade: the same methods, from any thread, and an end that ends everything."""

import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuebook import Ask, BlockingCuebook, Chunk, Cuebook, CuebookError, NotFound
from cuebook.testing import Script, ScriptedModel

#: What has no blocking form: the desk is for this package, relay and pass_through are for the server.
ASYNC_ONLY = {
    "desk",
    "relay",
    "respond",
    "message",
    "messages",
    "responses",
    "openai_conversations",
    "pass_through",
    "live",
}
RENAMED = {"aclose": "close"}
SLOW = Script(text="one two three four five six", size=4, delay=0.05)


def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def parts(kind: type) -> Iterator[tuple[str, type]]:
    for name, member in public(kind).items():
        if isinstance(member, property) and name not in ASYNC_ONLY:
            part = inspect.get_annotations(member.fget)["return"]
            if inspect.isclass(part) and part.__module__.startswith("cuebook.app."):
                yield name, part


def twins() -> Iterator[tuple[type, type]]:
    yield Cuebook, BlockingCuebook
    blocking = dict(parts(BlockingCuebook))
    for name, part in parts(Cuebook):
        yield part, blocking[name]


def test_methods_and_parameters_are_the_same() -> None:
    for own, blocking in twins():
        expected = {RENAMED.get(name, name): member for name, member in public(own).items() if name not in ASYNC_ONLY}
        given = public(blocking)
        assert sorted(expected.keys() - {"config"}) == sorted(given.keys() - {"config"})
        for name, member in expected.items():
            assert isinstance(member, property) == isinstance(given[name], property), name
            if callable(member):
                assert list(_parameters(member)) == list(_parameters(given[name])), name
    assert list(_parameters(Cuebook.__init__))[1:] == list(_parameters(BlockingCuebook.__init__))[1:]


def _parameters(member: object) -> Iterator[tuple[str, object, object]]:
    assert callable(member)
    for each in inspect.signature(member).parameters.values():
        yield each.name, each.kind, each.default


def test_each_kind_of_method_works_without_await() -> None:
    model = ScriptedModel("Miso.")
    with BlockingCuebook.open(model=model) as cue:
        assert cue.append("c1", [{"role": "user", "content": "My cat is Miso."}], user="ann").stored == 1  # a coroutine
        assert cue.ask(Ask("What is my cat called?", "c1", user="ann")).text == "Miso."
        assert "Miso" in cue.memory.search("cat", conversation="c1", user="ann")[0].text  # of a namespace
        assert cue.memory.compress("short").text == "short"  # a plain method
        assert cue.personas == ["assistant"]  # a property
        assert cue.prompts.save("a", {"body": "Be $tone."}, params=["tone"]).number == 1  # one of a base class
        with pytest.raises(NotFound, match="c2"):
            cue.conversations.get("c2")
    assert model.closed


def test_a_stream_comes_piece_by_piece_and_never_runs_ahead() -> None:
    model = ScriptedModel(Script(text="abcdefgh", size=2))
    with BlockingCuebook.open(model=model) as cue:
        chunks = cue.stream(Ask("Hello", "c1"))
        assert next(chunks).type == "METADATA_UPDATE"
        assert next(chunks).text == "ab"
        time.sleep(0.1)
        assert cue.turns.get("c1", 1).state == "running"
        rest = list(chunks)
    assert [chunk.text for chunk in rest] == ["cd", "ef", "gh", "abcdefgh"]
    assert isinstance(rest[-1], Chunk)
    assert rest[-1].type == "final_response"


def test_a_stream_left_early_is_closed_with_what_had_come() -> None:
    with BlockingCuebook.open(model=ScriptedModel(SLOW, default="ok")) as cue:
        for chunk in cue.stream(Ask("Count", "c1")):
            if chunk.type == "text_delta":
                break
        assert cue.turns.get("c1", 1).state == "interrupted"
        assert cue.conversations.posts("c1")[-1].message == "one "
        assert cue.ask(Ask("Go on", "c1")).text == "ok"


def test_errors_of_the_book_arrive_as_they_are() -> None:
    broken = Script(text="half an", half=False, error=CuebookError("the model fell over"))
    with BlockingCuebook.open(model=ScriptedModel(broken)) as cue:
        with pytest.raises(CuebookError, match="fell over"):
            list(cue.stream(Ask("Hello", "c1")))
        with pytest.raises(CuebookError, match="empty"):
            cue.ask(Ask("", "c1"))


def test_several_threads_share_a_book() -> None:
    with BlockingCuebook.open(model=ScriptedModel(default="ok")) as cue, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: cue.ask(Ask(f"Hello {n}", f"c{n % 4}")), range(24)))
        assert {reply.text for reply in replies} == {"ok"}
        assert sum(each.turns for each in cue.conversations.list().items) == 24


def test_closing_ends_the_thread_and_what_waits() -> None:
    failures: list[BaseException] = []

    def wait(cue: BlockingCuebook) -> None:
        try:
            cue.ask(Ask("Hello", "c1"))
        except CuebookError as error:
            failures.append(error)

    before = set(threading.enumerate())
    with BlockingCuebook.open(model=ScriptedModel(Script(text="never", delay=30))) as cue:
        thread = threading.Thread(target=wait, args=(cue,))
        thread.start()
        until(lambda: bool(cue.conversations.list().items))
    thread.join(5)
    assert len(failures) == 1
    assert "closed" in str(failures[0])
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    "use",
    [
        lambda cue: cue.ask(Ask("Hello", "c1")),
        lambda cue: list(cue.stream(Ask("Hello", "c1"))),
        lambda cue: cue.conversations.list(),
        lambda cue: cue.memory.search("x"),
        lambda cue: cue.personas,
    ],
    ids=["ask", "stream", "list", "search", "personas"],
)
def test_using_a_book_that_is_not_open_is_a_clear_error(use: Callable[[BlockingCuebook], object]) -> None:
    cue = BlockingCuebook.open()
    with pytest.raises(CuebookError, match="not open"):
        use(cue)
    with cue:
        pass
    with pytest.raises(CuebookError, match="not open"):
        use(cue)
    cue.close()


def test_a_book_can_be_opened_again_but_not_twice(tmp_path: Path) -> None:
    (tmp_path / "cuebook.toml").write_text("")
    cue = BlockingCuebook.open(tmp_path)
    with cue:
        cue.append("c1", [{"role": "user", "content": "Hello"}])
        with pytest.raises(CuebookError, match="already open"), cue:
            pass
    with cue:
        assert cue.conversations.get("c1").last_seq == 1


def test_a_stream_of_a_closed_book_ends_with_a_clear_error() -> None:
    with BlockingCuebook.open(model=ScriptedModel(SLOW)) as cue:
        chunks = cue.stream(Ask("Hello", "c1"))
        next(chunks)
    with pytest.raises(CuebookError, match="closed"):
        next(chunks)


def test_what_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "cuebook.toml").write_text('[store]\nurl = "https://example.com/db"\n')
    with pytest.raises(CuebookError, match=r"store\.url"), BlockingCuebook.open(tmp_path):
        pass
    assert set(threading.enumerate()) == before


def test_a_call_on_the_books_own_thread_is_refused() -> None:
    def reply(_: object) -> str:
        with pytest.raises(CuebookError, match="own thread"):
            cue.conversations.list()
        return "refused"

    with BlockingCuebook.open(model=ScriptedModel(reply)) as cue:
        assert cue.ask(Ask("Hello", "c1")).text == "refused"


def test_an_interrupt_stops_the_answer_and_keeps_what_had_come() -> None:
    with BlockingCuebook.open(model=ScriptedModel(Script(text="one two", size=4, delay=0.5))) as cue:
        chunks = cue.stream(Ask("Count", "c1"))
        next(chunks)
        next(chunks)
        timer = threading.Timer(0.1, os.kill, args=(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(chunks)
        timer.join()
        assert cue.turns.get("c1", 1).state == "interrupted"
        assert cue.conversations.posts("c1")[-1].message == "one "


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
