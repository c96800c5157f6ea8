"""Tests of BlockingCuebook: the same methods as Cuebook, usable from any thread, and a clean close."""

import ast
import asyncio
import inspect
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuebook import Ask, BlockingCuebook, Chunk, Cuebook, CuebookError, NotFound
from cuebook.interfaces import ModelRequest, Piece
from cuebook.testing import Script, ScriptedModel

#: Members without a blocking form: the services are internal, relay and pass_through are for the server.
ASYNC_ONLY = {
    "services",
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


def class_pairs() -> Iterator[tuple[type, type]]:
    yield Cuebook, BlockingCuebook
    blocking = dict(parts(BlockingCuebook))
    for name, part in parts(Cuebook):
        yield part, blocking[name]


def test_a_wheel_built_by_a_newer_python_runs_on_an_older_one() -> None:
    # From Python 3.12 on, `ast.unparse` writes f-strings with quotes that 3.11 cannot parse.
    for _, blocking in class_pairs():
        source = ast.parse(inspect.getsource(inspect.getmodule(blocking)))  # type: ignore[arg-type]
        if "generated" in blocking.__module__:
            assert not any(isinstance(node, ast.JoinedStr) for node in ast.walk(source)), blocking.__module__


def test_methods_and_parameters_match_the_async_class() -> None:
    for own, blocking in class_pairs():
        expected = {RENAMED.get(name, name): member for name, member in public(own).items() if name not in ASYNC_ONLY}
        blocking_members = public(blocking)
        assert sorted(expected.keys() - {"config"}) == sorted(blocking_members.keys() - {"config", "submit"})
        for name, member in expected.items():
            assert isinstance(member, property) == isinstance(blocking_members[name], property), name
            if callable(member):
                assert list(_parameters(member)) == list(_parameters(blocking_members[name])), name
    assert list(_parameters(Cuebook.__init__))[1:] == list(_parameters(BlockingCuebook.__init__))[1:]


def _parameters(member: object) -> Iterator[tuple[str, object, object]]:
    assert callable(member)
    for each in inspect.signature(member).parameters.values():
        yield each.name, each.kind, each.default


def test_each_kind_of_member_works_without_await() -> None:
    model = ScriptedModel("Miso.")
    with BlockingCuebook.open(model=model) as cue:
        assert cue.append("c1", [{"role": "user", "content": "My cat is Miso."}], user="ann").stored == 1  # a coroutine
        assert cue.ask(Ask("What is my cat called?", "c1", user="ann")).text == "Miso."
        assert "Miso" in cue.memory.search("cat", conversation="c1", user="ann")[0].text  # a method of a namespace
        assert cue.memory.compress("short").text == "short"  # a plain method
        assert cue.personas == ["assistant"]  # a property
        assert cue.prompts.save("a", {"body": "Be $tone."}, params=["tone"]).number == 1  # a method of a base class
        with pytest.raises(NotFound, match="c2"):
            cue.conversations.get("c2")
    assert model.closed


def test_stream_yields_pieces_and_never_reads_ahead() -> None:
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


def test_stream_left_early_stores_the_partial_answer() -> None:
    with BlockingCuebook.open(model=ScriptedModel(SLOW, default="ok")) as cue:
        for chunk in cue.stream(Ask("Count", "c1")):
            if chunk.type == "text_delta":
                break
        assert cue.turns.get("c1", 1).state == "interrupted"
        assert cue.conversations.posts("c1")[-1].message == "one "
        assert cue.ask(Ask("Go on", "c1")).text == "ok"


def test_errors_are_raised_unchanged() -> None:
    broken = Script(text="half an", half=False, error=CuebookError("the model fell over"))
    with BlockingCuebook.open(model=ScriptedModel(broken)) as cue:
        with pytest.raises(CuebookError, match="fell over"):
            list(cue.stream(Ask("Hello", "c1")))
        with pytest.raises(CuebookError, match="empty"):
            cue.ask(Ask("", "c1"))


def test_several_threads_share_one_instance() -> None:
    with BlockingCuebook.open(model=ScriptedModel(default="ok")) as cue, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: cue.ask(Ask(f"Hello {n}", f"c{n % 4}")), range(24)))
        assert {reply.text for reply in replies} == {"ok"}
        assert sum(each.turns for each in cue.conversations.list().items) == 24


def test_close_ends_the_thread_and_pending_calls() -> None:
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
        wait_until(lambda: bool(cue.conversations.list().items))
    thread.join(60)
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
def test_the_first_call_opens_an_instance_and_none_after_its_end(use: Callable[[BlockingCuebook], object]) -> None:
    cue = BlockingCuebook()
    cue.conversations.list()
    cue.close()
    with pytest.raises(CuebookError, match="is closed"):
        use(cue)
    cue.close()


def test_closed_instance_reopens_but_open_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "cuebook.toml").write_text("")
    cue = BlockingCuebook.open(tmp_path)
    with cue:
        cue.append("c1", [{"role": "user", "content": "Hello"}])
        with pytest.raises(CuebookError, match="already open"), cue:
            pass
    with cue:
        assert cue.conversations.get("c1").last_seq == 1


def test_stream_of_a_closed_instance_raises() -> None:
    with BlockingCuebook.open(model=ScriptedModel(SLOW)) as cue:
        chunks = cue.stream(Ask("Hello", "c1"))
        next(chunks)
    with pytest.raises(CuebookError, match="closed"):
        next(chunks)


def test_failed_open_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "cuebook.toml").write_text('[store]\nurl = "https://example.com/db"\n')
    with pytest.raises(CuebookError, match=r"store\.url"), BlockingCuebook.open(tmp_path):
        pass
    assert set(threading.enumerate()) == before


def test_call_on_the_event_loop_thread_is_refused() -> None:
    def reply(_: object) -> str:
        with pytest.raises(CuebookError, match="own thread"):
            cue.conversations.list()
        return "refused"

    with BlockingCuebook.open(model=ScriptedModel(reply)) as cue:
        assert cue.ask(Ask("Hello", "c1")).text == "refused"


def test_interrupt_stores_the_partial_answer() -> None:
    class Interrupting(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
            async for piece in super().stream(request):
                yield piece
                # The caller now waits for the second piece: an interrupt before that would end the test run.
                asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)

    with BlockingCuebook.open(model=Interrupting(Script(text="one two", size=4))) as cue:
        chunks = cue.stream(Ask("Count", "c1"))
        next(chunks)
        next(chunks)
        with pytest.raises(KeyboardInterrupt):
            list(chunks)
        assert cue.turns.get("c1", 1).state == "interrupted"
        assert cue.conversations.posts("c1")[-1].message == "one "


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
