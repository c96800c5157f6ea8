"""Tests of Anthropic's memory tool: the SDK's tool on the local file system is the reference."""

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook, Cuebook
from cuebook.integrations.anthropic import AsyncCuebookMemoryTool, CuebookMemoryTool

NAMES = st.sampled_from(["a", "b.md", ".hidden", "ü b"])
PATHS = st.one_of(
    st.lists(NAMES, max_size=4).map(lambda names: "/".join(("/memories", *names))),
    st.sampled_from(["/memories/", "/memories/a/", "/memories//a", "/memories/a/../b.md", "/memories/./a", "/etc", ""]),
    st.sampled_from(["/memories/..", "/memories/a/../../b", "/memories/..a"]),
)
TEXTS = st.text("ab\nü\r", max_size=12)
COMMANDS = st.one_of(
    st.fixed_dictionaries(
        {"command": st.just("view"), "path": PATHS},
        optional={"view_range": st.lists(st.integers(-2, 9), min_size=2, max_size=2)},
    ),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries(
        {"command": st.just("str_replace"), "path": PATHS, "old_str": st.text("ab\nü", max_size=2), "new_str": TEXTS}
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": PATHS, "insert_line": st.integers(-1, 5), "insert_text": TEXTS}
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)
CREATE: dict[str, Any] = {"command": "create", "path": "/memories/a", "file_text": "one\ntwo\ntwo\n"}


def outcome(tool: Any, command: dict[str, Any]) -> str:
    """Return the answer to a command, or its error; errors of the file system have no fixed message."""
    try:
        return without_sizes_of_directories(tool.call(command))
    except ToolError as error:
        return f"error: {error}"
    except OSError:
        return "error"


def without_sizes_of_directories(answer: str) -> str:
    header, *lines = answer.split("\n")
    if not header.startswith("Here're the files"):
        return answer
    return "\n".join(
        (header, lines[0].partition("\t")[2], *(re.sub(r"^\S+\t(.*/)$", r"\1", each) for each in lines[1:]))
    )


def remove_empty_directories(root: Path) -> None:
    """Remove the directories that have no files, as Cuebook has none."""
    for folder in sorted(root.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@settings(max_examples=100, deadline=None)
@given(st.lists(COMMANDS, min_size=1, max_size=14))
@example([CREATE, {"command": "str_replace", "path": "/memories/a", "old_str": "two", "new_str": "2"}])
@example([CREATE, {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b/c"}])
def test_the_tool_answers_as_the_tool_on_files(commands: list[Any]) -> None:
    with BlockingCuebook() as cue, TemporaryDirectory() as folder:
        ours, theirs = CuebookMemoryTool(cue, user="ann"), BetaLocalFilesystemMemoryTool(folder)
        for command in commands:
            expected, answer = outcome(theirs, command), outcome(ours, command)
            remove_empty_directories(theirs.memory_root)
            assert answer == expected or (expected == "error" and answer.startswith("error: "))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "memories/a", "/memories/../a", "/memories/a/../../a", "/memoriesa", "\0"]
)
def test_a_path_outside_the_memory_directory_is_refused(path: str) -> None:
    with CuebookMemoryTool() as tool:
        tool.call(CREATE)
        others = ({"old_path": path, "new_path": "/memories/b"}, {"old_path": "/memories/a", "new_path": path})
        texts = {"file_text": "x", "old_str": "x", "new_str": "y", "insert_line": 0, "insert_text": "x"}
        commands = [{"command": name, "path": path, **texts} for name in ("view", "create", "str_replace", "insert")]
        for command in [
            *commands,
            {"command": "delete", "path": path},
            *({"command": "rename"} | each for each in others),
        ]:
            with pytest.raises(ToolError, match=r"Path must start with /memories|would escape"):
                tool.call(command)
        assert "one" in tool.call({"command": "view", "path": "/memories/a"})


@pytest.mark.parametrize(
    "path", ["/memories/a\x1fb", "/memories/" + "a" * 1001, "/memories" + "/a" * 31, "/memories/\ud800"]
)
def test_a_path_that_no_document_has_is_refused(path: str) -> None:
    with CuebookMemoryTool() as tool, pytest.raises(ToolError, match="too long or contains control characters"):
        tool.call({"command": "create", "path": path, "file_text": "x"})


def test_of_two_edits_of_one_text_the_second_is_refused() -> None:
    class Stale(CuebookMemoryTool):
        """A tool that has read a file before another session changed it."""

        stale: Any

        async def _file(self, *_: object) -> Any:
            return self.stale

    with BlockingCuebook() as cue:
        tool, other = Stale(cue), CuebookMemoryTool(cue)
        other.call(CREATE)
        tool.stale = cue.documents.get(("anthropic", "memories"), "a")
        other.call({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "zero"})
        with pytest.raises(ToolError, match="Changed meanwhile"):
            tool.call({"command": "str_replace", "path": "/memories/a", "old_str": "one", "new_str": "1"})
        assert "zero" in other.call({"command": "view", "path": "/memories/a"})


def test_files_belong_to_a_user_and_are_forgotten_with_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with Cuebook.open(arguments={"store.url": str(tmp_path / "chats.db")}) as cue:
            ann, bob = AsyncCuebookMemoryTool(cue, user="ann"), AsyncCuebookMemoryTool(cue, user="bob")
            assert isinstance(ann, BetaAsyncAbstractMemoryTool)
            assert ann.to_dict() == {"type": "memory_20250818", "name": "memory"}
            await ann.call(CREATE)
            assert "/memories/a" not in str(await bob.call({"command": "view", "path": "/memories"}))
            await cue.memory.forget(user="ann")
            with pytest.raises(ToolError, match="does not exist"):
                await ann.call({"command": "view", "path": "/memories/a"})
            await bob.call(CREATE)
            assert await bob.clear_all_memory() == "All memory cleared"
            assert "/memories/a" not in str(await bob.call({"command": "view", "path": "/memories"}))

    asyncio.run(run())


def test_the_size_of_a_directory_is_that_of_its_files() -> None:
    with CuebookMemoryTool() as tool:
        tool.call({"command": "create", "path": "/memories/x/y/z/deep.md", "file_text": "ü" * 1024})
        tool.call({"command": "create", "path": "/memories/x/.secret", "file_text": ""})
        lines = str(tool.call({"command": "view", "path": "/memories"})).split("\n")
        assert lines[1:] == ["2K\t/memories", "2K\t/memories/x/", "2K\t/memories/x/y/"]


@pytest.mark.parametrize("text", examples_of("Anthropic memory tool"))
def test_the_documentation_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
