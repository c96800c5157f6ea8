"""Tests of the MCP server over a real pipe with the official SDK client."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourcesListChanged
from mcp_types import LATEST_PROTOCOL_VERSION

from cuebook import Ask, Cuebook
from cuebook.records.prompt import Param
from cuebook.server.mcp.schemas import schema_of
from cuebook.server.mcp.tools import TOOLS

CUEBOOK = "import sys; from cuebook.cli.main import main; sys.exit(main())"


@asynccontextmanager
async def mcp_client(project: Path, *more: str, mode: str = "auto", on_message: Any = None) -> AsyncIterator[Client]:
    """Start `cuebook mcp` as an agent does. `on_message` receives its notifications."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", CUEBOOK, "-C", str(project), "mcp", *more],
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    with anyio.fail_after(60):
        async with Client(stdio_client(server), mode=mode, message_handler=on_message) as client:
            yield client


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_memory_is_remembered_recalled_and_forgotten(project: Path, mode: str) -> None:
    async with mcp_client(project, "--user", "ann", mode=mode) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert list(tools) == ["remember", "recall", "forget", "why", "history", "correct"]
        assert all("user" not in each.input_schema["properties"] for each in tools.values())

        stored = await client.call_tool("remember", {"text": "Ann is allergic to shrimp.", "key": "allergies"})
        assert not stored.is_error
        assert stored.structured_content["category"] == "user_preference"
        result = await client.call_tool("recall", {"query": "what is Ann allergic to?", "conversation": None})
        [hit] = result.structured_content["hits"]
        assert "shrimp" in hit["text"]
        assert "shrimp" in result.content[0].text

        matches = await client.call_tool("forget", {"query": "shrimp"})
        [candidate] = matches.structured_content["candidates"]
        assert matches.structured_content["receipt"] is None
        assert (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"]
        gone = await client.call_tool("forget", {"ids": [candidate["id"]], "reason": "Ann asked"})
        assert gone.structured_content["receipt"]["state"] == "done"
        assert (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"] == []

        for name, answer in {"remember": stored, "recall": result, "forget": gone}.items():
            jsonschema.validate(answer.structured_content, tools[name].output_schema)


def test_tool_parameters_have_one_type_each() -> None:
    for tool in TOOLS.values():
        for field in schema_of(tool.takes)["properties"].values():
            assert isinstance(field["type"], str)
    assert schema_of(TOOLS["forget"].takes)["properties"]["ids"]["items"] == {"type": "string", "minLength": 1}
    assert None not in schema_of(TOOLS["remember"].takes)["properties"]["category"]["enum"]


@pytest.mark.slow
async def test_why_tool_explains_a_turn(project: Path) -> None:
    async with Cuebook.open(project / "cuebook.toml", worker=False) as cue:
        await cue.ask(Ask("The ferry to Vlieland leaves at 9:45.", "trip", user="ann"))
        await cue.ask(Ask("When does the ferry leave?", "trip", user="ann"))
    async with mcp_client(project) as client:
        answer = await client.call_tool("why", {"conversation": "trip"})
        assert answer.structured_content["turn"] == 2
        assert {"persona", "query"} <= {each["kind"] for each in answer.structured_content["blocks"]}
        assert "- persona" in answer.content[0].text
        first = await client.call_tool("why", {"conversation": "trip", "turn": 1, "full": True})
        assert first.structured_content["query"] == "The ferry to Vlieland leaves at 9:45."

        history = await client.call_tool("history", {"conversation": "trip", "last": 3})
        assert [each["seq"] for each in history.structured_content["posts"]] == [2, 3, 4]


@pytest.mark.slow
async def test_remember_in_a_conversation_stores_a_post(project: Path) -> None:
    async with mcp_client(project, "--user", "ann") as client:
        assert client.protocol_version == LATEST_PROTOCOL_VERSION
        async with client.listen(resources_list_changed=True) as subscription:
            stored = await client.call_tool("remember", {"text": "The key is under the mat.", "conversation": "house"})
            assert await anext(subscription) == ResourcesListChanged()
        assert stored.structured_content == {
            "kept": "conversation",
            "conversationId": "house",
            "seq": 1,
        } | dict.fromkeys(("id", "category", "key", "confidence"))
        history = await client.call_tool("history", {"conversation": "house"})
        assert history.structured_content["posts"][0]["sendFrom"] == "ann"
        result = await client.call_tool("recall", {"query": "where is the key?"})
        assert result.structured_content["hits"][0]["conversationId"] == "house"


@pytest.mark.slow
async def test_memory_without_a_user_belongs_to_the_project(project: Path) -> None:
    async with mcp_client(project) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert "user" in tools["recall"].input_schema["properties"]
        stored = await client.call_tool("remember", {"text": "The build needs Node 20."})
        assert stored.structured_content["category"] == "domain"
        assert "user" not in stored.structured_content
        result = await client.call_tool("recall", {"query": "which Node does the build need?"})
        assert result.structured_content["hits"][0]["kind"] == "knowledge"
        anns = await client.call_tool("remember", {"text": "Ann likes tea.", "user": "ann"})
        assert anns.structured_content["category"] == "user_preference"
        gone = await client.call_tool("forget", {"ids": [stored.structured_content["id"]]})
        assert not gone.is_error


@pytest.mark.slow
async def test_tool_errors_explain_the_remedy(project: Path) -> None:
    async with mcp_client(project, "--user", "ann") as client:
        for name, arguments, words in [
            ("recall", {"query": "x", "limit": 0}, "limit"),
            ("recall", {"query": "x", "colour": "red"}, "unknown field 'colour'"),
            ("recall", {"query": "x", "user": "bob"}, "cannot act for others"),
            ("remember", {"text": "x", "category": "nonsense"}, "Available: domain"),
            ("forget", {}, "pass either ids"),
            ("forget", {"ids": ["0123456789abcdef"]}, "Unknown memory '0123456789abcdef'"),
            ("correct", {"memory": "m", "text": "x"}, "Unknown memory 'm'. The results of recall have the IDs."),
            ("why", {"conversation": "a. `b`"}, "Unknown conversation 'a. `b`'. The results of recall have the IDs."),
            ("history", {"conversation": "nowhere"}, "nowhere"),
        ]:
            answer = await client.call_tool(name, arguments)
            assert answer.is_error, name
            assert words in answer.content[0].text
        with pytest.raises(MCPError, match=r"Unknown tool 'fly'\. Available: remember"):
            await client.call_tool("fly", {})


@pytest.mark.slow
async def test_conversations_and_memories_are_resources(project: Path) -> None:
    async with mcp_client(project, "--user", "ann") as client:
        await client.call_tool("remember", {"text": "Hallo, see you — tomorrow.", "conversation": "a/b c"})
        stored = await client.call_tool("remember", {"text": "Ann likes tea."})
        listed = await client.list_resources()
        assert [each.uri for each in listed.resources] == ["cuebook://conversations/a%2Fb%20c"]
        more = await client.list_resources(cursor=listed.next_cursor)
        assert more.next_cursor is None
        read = await client.read_resource(listed.resources[0].uri)
        assert "see you — tomorrow" in read.contents[0].text
        read = await client.read_resource(more.resources[0].uri)
        assert stored.structured_content["id"] in read.contents[0].text
        assert len((await client.list_resource_templates()).resource_templates) == 2
        for uri in (
            "cuebook://conversations/none",
            "cuebook://memories/none",
            "cuebook://else/1",
            "https://a.example/",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        for listing in (client.list_resources, client.list_prompts, client.list_tools):
            with pytest.raises(MCPError, match="cursor"):
                await listing(cursor="elsewhere")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_legacy_client_receives_change_notifications(project: Path) -> None:
    says, hears = anyio.create_memory_object_stream[tuple[str, str | None]](99)

    async def on_message(message: Any) -> None:
        await says.send((message.method, getattr(message.params, "uri", None)))

    async def until(*wanted: tuple[str, str | None]) -> None:
        received = set[tuple[str, str | None]]()
        while not set(wanted) <= received:
            received.add(await hears.receive())

    uri, prompts = "cuebook://conversations/house", ("notifications/prompts/list_changed", None)
    async with says, hears, mcp_client(project, "--user", "ann", mode="legacy", on_message=on_message) as client:
        capabilities = client.server_capabilities
        assert (
            capabilities.resources.subscribe,
            capabilities.resources.list_changed,
            capabilities.prompts.list_changed,
        ) == (True, True, True)
        with pytest.raises(MCPError, match="Unknown conversation"):
            await client.subscribe_resource(uri)
        await client.call_tool("remember", {"text": "The door is red.", "conversation": "house"})
        await until(("notifications/resources/list_changed", None))
        await client.subscribe_resource(uri)
        async with Cuebook.open(project / "cuebook.toml", worker=False) as cue:  # acts as another process
            await cue.append("house", [{"role": "user", "content": "And tall."}], user="ann")
            await cue.prompts.save("greet", sections={"body": "Hello."})
        await until(("notifications/resources/updated", uri), prompts)
        await client.unsubscribe_resource(uri)


@pytest.mark.slow
async def test_prompts_are_listed_and_rendered(project: Path) -> None:
    async with Cuebook.open(project / "cuebook.toml", worker=False) as cue:
        count = Param(name="count", type="integer", default="1", description="How many")
        text = {"body": "Welcome $name, you have $count."}
        await cue.prompts.save("team/greet", sections=text, params=(Param(name="name"), count))
    async with mcp_client(project) as client:
        found: dict = {}
        cursor = None
        while True:
            page = await client.list_prompts(cursor=cursor)
            found |= {each.name: each for each in page.prompts}
            if (cursor := page.next_cursor) is None:
                break
        greet = found["team/greet"]
        assert [(each.name, each.required) for each in greet.arguments] == [("name", True), ("count", False)]
        made = await client.get_prompt("team/greet", {"name": "Ann", "count": "3"})
        assert made.messages[0].content.text == "Welcome Ann, you have 3."
        with pytest.raises(MCPError, match="Missing parameter: 'name'"):
            await client.get_prompt("team/greet", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("team/none", {})


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (None, 0)])
def test_server_ends_on_a_signal_or_end_of_input(project: Path, sent: signal.Signals | None, code: int) -> None:
    command = [sys.executable, "-c", CUEBOOK, "-C", str(project), "mcp"]
    params = {
        "protocolVersion": LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdin.write(json.dumps(hello).encode() + b"\n")
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["result"]["serverInfo"]["name"] == "cuebook"
        if sent is None:
            running.stdin.close()
        else:
            running.send_signal(sent)  # its input stays open
        assert running.wait(60) == code
        assert running.stderr.read() == b""


@pytest.mark.slow
async def test_long_messages_are_transferred_whole(project: Path) -> None:
    async with mcp_client(project, "--user", "ann") as client:
        long = "ä€𝄞 " * 40_000
        stored = await client.call_tool("remember", {"text": f"{long}The heron is grey.", "conversation": "birds"})
        assert not stored.is_error
        history = await client.call_tool("history", {"conversation": "birds"})
        [post] = history.structured_content["posts"]
        assert post["cut"]
        whole = await client.call_tool("history", {"conversation": "birds", "full": True})
        assert whole.structured_content["posts"][0]["message"] == f"{long}The heron is grey."
