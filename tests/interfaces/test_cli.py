"""Tests of the `cuebook` command, run as a user runs it."""

import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import CUEBOOK, CommandRunner, cuebook, environment, write_messages
from inline_snapshot import snapshot
from upstream import Upstream

from cuebook.app.setup.project_templates import templates
from cuebook.cli import main as cli
from cuebook.cli.output.screen import fit, harmless, json_text, line_of

ESCAPES = "fox \x1b[31mred\x1b[0m \u202eevil\u202c \x07 \u009b \U000e0041"


# ---- help


def every_command() -> Iterator[tuple[str, Any, Any]]:
    root = typer.main.get_command(cli.app)
    top = typer.Context(root, info_name="cuebook")
    for name in cli.COMMANDS:
        loaded = root.get_command(top, name)
        yield from commands_below(f"cuebook {name}", loaded, top)


def commands_below(path: str, loaded: Any, parent: Any) -> Iterator[tuple[str, Any, Any]]:
    if not hasattr(loaded, "commands"):
        yield path, loaded, parent
        return
    context = typer.Context(loaded, info_name=path.rpartition(" ")[2], parent=parent)
    for name, below in loaded.commands.items():
        yield from commands_below(f"{path} {name}", below, context)


def test_root_help_text(tmp_path: Path) -> None:
    assert cuebook("--help", cwd=tmp_path).stdout == snapshot("""\
Usage: cuebook [OPTIONS] COMMAND [ARGS]...

  Long-term memory, prompt management and an audit log for LLM agents.

  To start, run `cuebook demo`, or `cuebook init myproject`, `cd myproject`
  and `cuebook chat`.

Options:
  --config FILE  Use this cuebook.toml.  [env var: CUEBOOK_CONFIG]
  -C DIR         Use the project in this directory.
  --debug        Show the traceback of an unexpected error. Must come first.
  --version      Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
  init          Create a project directory.
  quickstart    Ask three questions and write cuebook.toml for the proxy.
  demo          Replay a long conversation and report cost and recall.
  eval          Measure memory on your own conversations.
  chat          Chat from the terminal.
  serve         Start the HTTP server and OpenAI-compatible proxy.
  worker        Run background jobs beside the servers.
  mcp           Serve memory and prompts over MCP on standard input/output.
  hermes        Install the memory plugin of the Hermes agent.
  shadow        Report tokens and cost of each summarization profile.
  import        Import conversations and memories of other programs.
  conversation  List, show, import, export and delete conversations.
  turn          Inspect, rate and replay the turns of a conversation.
  memory        Search, list, correct and forget memories.
  persona       List, show, check and create personas.
  prompt        Write, compare, test, select and roll back prompts.
  audit         Show, verify and export the audit log.
  key           Create, list and revoke API keys.
  knowledge     Store, list and decay memories under a category and a key.
  experience    List handwritten experiences and test their selection.
  mind          Show, update and reset the mood state of a conversation.
  optimizer     Show and run the automatic tuning of summarization.
  organization  Show and change the memory settings of an organization.
  settle        Run pending background jobs and wait until none is left.
  db            Prepare and copy a PostgreSQL database, and run a local
                server.
  backup        Back up the project to one file while it is in use.
  restore       Restore a backup.
  config        Show every setting with its value and source.
  doctor        Check the configuration and its dependencies.
  version       Show the version.

  Examples:
    cuebook demo
    cuebook serve --upstream http://127.0.0.1:8080/v1
    cuebook -C myproject turn show chat 1
""")


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    results = [(cli.run(arguments), capsys.readouterr()) for arguments in ([], ["--help"])]
    assert results[0] == results[1]
    assert results[0][0] == 0


def test_list_of_commands_shows_whole_summaries(here: CommandRunner) -> None:
    text = here("memory", "--help")
    assert "List the memories of a conversation, or the cross-conversation" in text
    assert "or of" in text, "the end of the summary of stats"


def test_subcommand_help_text(here: CommandRunner) -> None:
    assert here("conversation", "import", "--help") == snapshot("""\
Usage: cuebook conversation import [OPTIONS] {FILE}...

  Import transcripts. Importing the same file again stores only new posts.
  Asks before it restores erased data.

  Formats: OpenAI messages (JSON, {"messages": [...]}, or JSONL with a message
  or a conversation on each line), Cuebook exports, bodies of `POST
  /api/conversations/{id}/posts`, TaskWeaver JSON and YAML, and LoCoMo.

Arguments:
  FILE  Transcript files; - reads standard input.  [required]

Options:
  --conversation ID  Import into the conversation with this ID.
  --user USER        Owner of the conversation.
  --persona ID       Persona of the answers.
  --time-zone ZONE   Resolve "yesterday" and the like in this time zone, such
                     as Europe/Oslo.
  -y, --yes          Do not ask for confirmation.
  --json             Print JSON in the format of the HTTP API.
  --config FILE      Use this cuebook.toml.  [env var: CUEBOOK_CONFIG]
  -C DIR             Use the project in this directory.
  -h, --help         Show this message and exit.

  Examples:
    cuebook conversation import chat.json
    cuebook conversation import messages.jsonl --conversation c1 --user ann
    cuebook conversation export --all | cuebook -C copy conversation import -
""")


def test_help_and_version_accept_their_usual_options(here: CommandRunner, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["turn"], ["conversation"], ["memory"], ["turn", "show"], ["chat"]):
        outputs = [(cli.run([*arguments, option]), capsys.readouterr().out) for option in ("-h", "--help")]
        assert outputs[0] == outputs[1]
        assert f"    cuebook {' '.join(arguments)}".rstrip() in outputs[0][1].partition("Examples:")[2]
    assert here("--version") == here("version")
    wrong = [sys.executable, "-m", "cuebook", "turm"]
    done = subprocess.run(wrong, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr.partition(".")[0]) == (2, "cuebook: No such command 'turm'")


def test_every_command_has_a_description_and_an_example() -> None:
    commands = list(every_command())
    assert len(commands) > 15
    for path, command, context in commands:
        name = path.rpartition(" ")[2]
        text = command.get_help(typer.Context(command, info_name=name, parent=context))
        _, _, examples = text.partition("Examples:\n")
        assert any(line.strip().split(" --")[0].startswith(path) or path in line for line in examples.splitlines()), (
            path
        )
        assert command.help, path
        for option in ("--json", "--config", "-C"):
            assert f"  {option}" in text, (path, option)


def test_help_imports_no_heavy_packages() -> None:
    code = """
import sys
from cuebook.cli.main import run
assert run(["--help"]) == 0
assert run(["version"]) == 0
heavy = {"cuebook.app.cuebook", "litestar", "uvicorn", "rich", "httpx2", "yaml", "markdown_it"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stderr.strip() == "[]"


# ---- whole workflows


def test_init_and_chat_work_in_a_pipe(tmp_path: Path) -> None:
    made = cuebook("init", "project", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.endswith("Next: cd project && cuebook chat\n")
    cue = tmp_path / "project"
    lines = "My cat is called Miso.\n\n/help\n/show\n/quit\nnever said\n"
    talk = cuebook("chat", cwd=cue, stdin=lines, COLUMNS="140")
    assert (talk.returncode, talk.stderr) == (0, "")
    assert "no model configured" in talk.stdout
    assert "prompt:default/persona/helper@main:1" in talk.stdout
    assert "\x1b" not in talk.stdout
    assert "never said" not in cuebook("conversation", "show", "chat", cwd=cue).stdout
    second = cuebook("chat", "--json", "--mode", "relay", cwd=cue, stdin="What is my cat called?\n")
    answer = json.loads(second.stdout)
    assert (answer["conversationId"], answer["turn"]) == ("chat", 2)
    assert answer["metadata"]["window"]["tokens"] > 0


def test_unknown_chat_command_is_reported_and_not_sent(here: CommandRunner) -> None:
    talk = cuebook(
        "chat", cwd=here.folder, stdin="/etc/hosts is my file.\n//quit is what I type.\n/histroy 3\nnever said\n"
    )
    assert (talk.returncode, talk.stderr) == (
        1,
        "cuebook: Unknown command /histroy. Available: /show, /help, /quit. Type //histroy to send it as text.\n",
    )
    messages = [
        post["message"] for post in here.json("conversation", "show", "chat")["posts"] if post["role"] == "user"
    ]
    assert messages == ["/etc/hosts is my file.", "/quit is what I type."]


def test_chat_rejects_an_unknown_mode(here: CommandRunner) -> None:
    presets = here.folder / "config/metaprompt-presets.json"
    presets.write_text('{"memoryCompaction": {"defaultProfileByMode": {"plan": "budget", "talk": "standard"}}}')
    refused = cuebook("chat", "--mode", "nosuch", cwd=here.folder, stdin="Hello\n")
    assert refused.returncode == 1
    assert "Unknown mode 'nosuch' in config/metaprompt-presets.json" in refused.stderr
    assert "Available: plan, talk" in refused.stderr
    assert cuebook("chat", "--mode", "planner", cwd=here.folder, stdin="Hello\n").returncode == 0
    assert here.json("turn", "list", "chat")["items"][0]["turn"] == 1


def test_narrow_terminal_shows_whole_ids(here: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"a-long-id-of-a-post-that-is-needed-whole-{n:02}" for n in range(40)]
    posts = [{"id": id_, "sendFrom": "ann", "message": f"We decided to paint wall {id_} blue."} for id_ in ids]
    (tmp_path / "c1.json").write_text(json.dumps({"posts": posts}))
    name = "a-conversation-whose-name-is-longer-than-a-narrow-terminal-has-room-for-it"
    here("conversation", "import", str(tmp_path / "c1.json"), "--conversation", name)
    monkeypatch.setenv("COLUMNS", "60")
    for arguments, column, wanted in (
        (("memory", "list", name), "sources", ids[0]),
        (("conversation", "list"), "id", name),
    ):
        output = here(*arguments)
        assert max(map(len, output.splitlines())) <= 60
        assert wanted in _column(output, column)


def _column(table: str, name: str) -> str:
    """Return the text of a table column, with its lines joined."""
    head, _, *rows = table.splitlines()
    starts = [result.start() for result in re.finditer(r"\S+", head)]
    at = head.index(name)
    end = next((start for start in starts if start > at), None)
    return "".join(row[at:end].strip() for row in rows)


def test_turn_commands_list_show_and_replay(here: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuebook("chat", cwd=here.folder, stdin="My cat is called Miso.\nAnd my dog Rex.\n").returncode == 0
    assert [turn["state"] for turn in here.json("turn", "list", "chat")["items"]] == ["finished", "finished"]
    assert "finished" in here("turn", "list", "chat", "--last", "1")
    result = here.json("turn", "show", "chat", "2")
    assert result["query"] == "And my dog Rex."
    kinds = ["section", "persona", "section", "addon", "post", "post", "query"]
    assert [block["kind"] for block in result["window"]["blocks"]] == kinds
    monkeypatch.setenv("COLUMNS", "80")
    drawn = here("turn", "show", "chat", "2", "--full")
    for part in (
        "prompt:default/persona/helper",
        "post:",
        "share",
        "left out: nothing",
        "cache anchors:",
        "replay check: identical",
    ):
        assert part in drawn
    assert "You are Helper" in drawn
    assert here("turn", "replay", "chat", "2") == "identical\n"
    assert here.json("turn", "replay", "chat", "1")["verdict"] == "identical"


def test_replay_of_an_altered_turn_fails(here: CommandRunner) -> None:
    assert cuebook("chat", cwd=here.folder, stdin="My cat is called Miso.\nAnd?\n").returncode == 0
    with closing(sqlite3.connect(here.folder / ".cuebook/cuebook.db")) as connection:
        connection.execute("UPDATE post SET message = 'My cat is called Max.' WHERE seq = 1")
        connection.commit()
    assert here("turn", "replay", "chat", "2", code=1).startswith("altered: ")
    assert here.json("turn", "replay", "chat", "2", code=1)["verdict"] == "altered"


@pytest.mark.slow
def test_conversations_are_exported_and_imported(here: CommandRunner, tmp_path: Path) -> None:
    transcript = write_messages(tmp_path, ("user", "The lease ends on 3 May."), ("assistant", "Noted."))
    assert "c1: 2 of 2 posts new (from OpenAI messages)" in here(
        "conversation", "import", transcript, "--conversation", "c1"
    )
    assert here.json("conversation", "import", transcript, "--conversation", "c1")["items"] == [
        {"conversationId": "c1", "posts": 2, "stored": 0, "lastSeq": 2}
    ]
    assert here("conversation", "import", transcript, "--user", "ann", "--persona", "helper").startswith("talk: 2 of 2")
    rows = here.json("conversation", "list")
    assert [(row["id"], row["userId"], row["personaId"]) for row in rows["items"]] == [
        ("talk", "ann", "helper"),
        ("c1", None, None),
    ]
    assert [
        row["id"] for row in here.json("conversation", "list", "--limit", "1", "--cursor", _cursor(here))["items"]
    ] == ["c1"]
    assert "more results" in here("conversation", "list", "--limit", "1")
    assert [row["id"] for row in here.json("conversation", "list", "--find", "LEASE ann")["items"]] == ["talk"]
    assert "no conversations" in here("conversation", "list", "--find", "tulips")
    assert json.loads(here("conversation", "export", "c1", "--format", "openai"))["messages"][1]["content"] == "Noted."
    assert here("conversation", "export", "c1", "--format", "taskweaver-yaml").startswith("id: c1\n")
    everything = tmp_path / "all.jsonl"
    assert here.json("conversation", "export", "--all", "-o", str(everything))["conversations"] == 2
    (tmp_path / "other").mkdir()
    assert cuebook("init", ".", cwd=tmp_path / "other").returncode == 0
    piped = cuebook("conversation", "import", "-", cwd=tmp_path / "other", stdin=everything.read_text())
    assert (piped.returncode, piped.stderr) == (0, "")
    other = CommandRunner(tmp_path / "other", here._capsys)  # noqa: SLF001
    for name in ("c1", "talk"):
        assert _posts(other, name) == _posts(here, name)


def _posts(here: CommandRunner, name: str) -> list[dict[str, Any]]:
    return list(here.json("conversation", "show", name)["posts"])


def _cursor(here: CommandRunner) -> str:
    return str(here.json("conversation", "list", "--limit", "1")["next"])


@pytest.mark.slow
def test_memory_commands_search_list_and_show(here: CommandRunner, tmp_path: Path) -> None:
    talk = [("user", f"I live in town number {n}. We decided to paint wall {n} blue.") for n in range(20)]
    messages = [each for pair in zip(talk, [("assistant", "Noted.")] * 20, strict=True) for each in pair]
    here("conversation", "import", write_messages(tmp_path, *messages), "--conversation", "c1", "--user", "ann")
    assert here("settle") == "c1: summarized up to post 28\n"
    assert here("settle") == "no pending jobs\n"
    assert here.json("settle", "--conversation", "c1") == {}
    hits = here.json("memory", "search", "wall 7", "--conversation", "c1", "--limit", "3")["hits"]
    assert hits[0]["sources"] == ["import-15"]
    assert "wall 7 blue" in here("memory", "search", "wall 7", "--user", "ann", "--token-budget", "200")
    nothing = "no results in conversation 'c1'. Try other words. `cuebook conversation list` shows all IDs\n"
    assert here("memory", "search", "xylophone", "--conversation", "c1") == nothing
    assert here("memory", "search", "wall 7", "--token-budget", "1") == (
        "no results within 1 token. Raise --token-budget\n"
    )
    within = ("memory", "search", "wall 7", "--conversation", "c1")
    assert "wall 7 blue" in here(*within, "--scope", "conversation")
    assert here(*within, "--scope", "organization", "--scope", "persona") == nothing
    assert "--scope: unknown scope 'galaxy'. Available: conversation, user" in here(
        *within, "--scope", "galaxy", code=1
    )
    items = here.json("memory", "list", "c1", "--ended")["items"]
    assert items
    assert items[0]["category"][:5] in here("memory", "list", "c1", "--ended")
    assert here.json("memory", "show", "c1")["summary"]["summaryText"] in here("memory", "show", "c1")
    assert here.json("memory", "show", "c1", "--version", "1")["summary"]["version"] == 1
    for arguments in ((), ("--json",)):
        output = here("memory", "show", "c1", "--version", "300", *arguments, code=1)
        assert "Unknown summary version 300 of conversation 'c1'. Available: 1." in output
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")), "--conversation", "c2")
    assert here("memory", "list", "c2").startswith("no memories yet")
    assert here("memory", "show", "c2").startswith("no summary yet")
    assert here.json("memory", "show", "c2") == {"summary": None}
    assert here("memory", "show", "c2", "--version", "3").startswith("no summary yet")


@pytest.mark.slow
def test_settle_reports_finished_and_pending_jobs(here: CommandRunner, tmp_path: Path) -> None:
    talk = [("user" if n % 2 else "assistant", f"We decided to paint wall {n} blue.") for n in range(1, 61)]
    for name in ("c1", "c2"):
        here("conversation", "import", write_messages(tmp_path, *talk), "--conversation", name)
    assert here.json("settle", "--conversation", "c1") == {"done": [{"conversationId": "c1", "summaryUptoSeq": 48}]}
    assert here("settle") == "c2: summarized up to post 48\n"
    assert "Unknown conversation 'nosuch'" in here("settle", "--conversation", "nosuch", code=1)
    assert "Unknown conversation 'nosuch'" in here("settle", "--conversation", "nosuch", "--json", code=1)
    here("conversation", "import", write_messages(tmp_path, *talk), "--conversation", "c3")
    assert here("settle", "--timeout", "0", code=1) == "still pending: 1 compaction job, 1 optimizer job\n"


@pytest.mark.slow
def test_long_lists_are_paginated(here: CommandRunner, tmp_path: Path) -> None:
    talk = [("user", f"I live in town number {n}. We decided to paint wall {n} blue.") for n in range(5)]
    here("conversation", "import", write_messages(tmp_path, *talk), "--conversation", "c1")
    for command, name in ((("conversation", "show", "c1"), "posts"), (("memory", "list", "c1", "--ended"), "items")):
        whole, results, more = here.json(*command), [], ()
        while True:
            page = here.json(*command, "--limit", "2", *more)
            results += page[name]
            if "next" not in page:
                break
            more = ("--cursor", page["next"])
        assert results == whole[name]
        assert len(results) > 4
        assert "more results: --cursor" in here(*command, "--limit", "2")
        assert "cursor: invalid or expired: 'x'" in here(*command, "--cursor", "x", code=1)
    assert "last: send either last" in here("conversation", "show", "c1", "--limit", "2", "--last", "2", code=1)


@pytest.mark.slow
def test_session_shared_entries_and_manual_summaries(here: CommandRunner, tmp_path: Path) -> None:
    entry = {"type": "plan", "scope": "conversation", "content": "paint all walls", "id": "sme-1"}
    note = {"type": "shared_memory_entry", "content": "", "extra": entry}
    posts = [{"id": f"p{n}", "sendFrom": "ann", "message": f"We decided to paint wall {n} blue."} for n in range(6)]
    posts.append({"id": "p6", "sendFrom": "Planner", "message": "Noted.", "attachments": [note]})
    (tmp_path / "c1.json").write_text(json.dumps({"posts": posts}))
    here("conversation", "import", str(tmp_path / "c1.json"))
    assert len(here.json("conversation", "session", "c1")["items"]) == 7
    done = here("conversation", "compress", "c1", "--before", "p4", "--summary", "Blue walls.")
    assert done == "summary 1 of c1 covers the posts up to 4\n"
    rows = here.json("conversation", "session", "c1")["items"]
    assert [each["content"] for each in rows][:2] == ["[CONTEXT SUMMARY]\nBlue walls.", posts[4]["message"]]
    assert here("conversation", "session", "c1", "--compressed").count("(compressed)") == 4
    assert (
        here.json("conversation", "compress", "c1", "--before", "p5", "--summary", "More.")["summary"]["version"] == 2
    )
    assert "Unknown post 'p1' after" in here(
        "conversation", "compress", "c1", "--before", "p1", "--summary", "x", code=1
    )
    assert "summary: empty" in here("conversation", "compress", "c1", "--before", "p6", "--summary", "", code=1)
    assert here.json("conversation", "shared", "c1", "--type", "plan")["items"] == [entry | {"sendFrom": "Planner"}]
    assert "paint all walls" in here("conversation", "shared", "c1")
    assert here("conversation", "shared", "c1", "--type", "none") == "no shared memory entries\n"
    assert here("memory", "digest", "c1", "--last", "5").startswith("[Summary of 5 messages]")
    assert here.json("memory", "digest", "c1")["text"].startswith("[Summary of 7 messages]")
    made = here.json("memory", "compress", "short")
    assert (made["text"], made["tokensBefore"]) == ("short", made["tokensAfter"])
    long = "First.\n" + "and so on and on. " * 50 + "\nLast."
    piped = cuebook("memory", "compress", cwd=here.folder, stdin=long)
    assert (piped.returncode, piped.stderr) == (0, "")
    assert len(piped.stdout) < len(long)


@pytest.mark.slow
def test_export_without_disk_space_keeps_the_existing_file(here: CommandRunner, tmp_path: Path) -> None:
    talk = [("user", "word " * 20_000)] * 8
    here("conversation", "import", write_messages(tmp_path, *talk), "--conversation", "c1")
    file, link = tmp_path / "c1.json", tmp_path / "link.json"
    link.symlink_to(file)
    limited = f"ulimit -f 400; {CUEBOOK} conversation export c1 -o {file}"  # blocks of 1,024 bytes
    for content in (None, "what was there"):
        if content:
            file.write_text(content)
        done = subprocess.run(
            ["bash", "-c", limited], cwd=here.folder, env=environment(), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
        assert f": '{file}'. ".encode() in done.stderr
        assert (file.read_text() if file.exists() else None) == content
    assert sorted(tmp_path.glob(".c1*")) == []
    file.chmod(0o600)
    here("conversation", "export", "c1", "-o", str(link))
    assert len(json.loads(file.read_text())["posts"]) == 8
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o600)
    piped = subprocess.run(
        [CUEBOOK, "conversation", "export", "c1", "-o", "/dev/stdout"],
        cwd=here.folder, env=environment(), capture_output=True, check=True,
    )  # fmt: skip
    assert piped.stdout.startswith(file.read_bytes())


def test_delete_asks_for_confirmation_without_yes(here: CommandRunner, tmp_path: Path) -> None:
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")), "--conversation", "c1")
    assert "was not deleted. Use --yes" in here("conversation", "delete", "c1", code=1)
    assert here("conversation", "delete", "c1", "--yes") == "deleted c1 (1 post)\n"
    assert "Unknown conversation 'c1'" in here("conversation", "delete", "c1", "--yes", code=1)


def test_show_prints_branches_attachments_and_names(here: CommandRunner, tmp_path: Path) -> None:
    posts = [
        {"id": "p1", "sendFrom": "ann", "message": "First"},
        {"id": "p2", "sendFrom": "assistant", "attachments": [{"type": "function", "content": "f(1)"}]},
        {"id": "p3", "sendFrom": "assistant", "message": "Other", "parent": "p1"},
    ]
    (tmp_path / "tree.json").write_text(json.dumps({"userId": "ann", "posts": posts}))
    here("conversation", "import", str(tmp_path / "tree.json"))
    output = here("conversation", "show", "tree", "--branches")
    assert "[function] f(1)" in output
    assert "3 assistant" in output
    assert "(after p1)" in output
    assert "First" not in here("conversation", "show", "tree", "--last", "1")


@pytest.mark.slow
def test_images_audio_and_files_are_described_not_printed(here: CommandRunner, tmp_path: Path) -> None:
    data = "QUJD" * 5_500
    content = [
        {"type": "text", "text": "first"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": f"second, pasted: data:image/jpeg;base64,{data[:2000]} there"},
        {"type": "input_audio", "input_audio": {"data": data * 100, "format": "wav"}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "film", "film": {"url": f"data:video/mp4;base64,{data}"}},
    ]
    (tmp_path / "c1.json").write_text(json.dumps([{"role": "user", "content": content}]))
    here("conversation", "import", str(tmp_path / "c1.json"))
    output = here("conversation", "show", "c1").strip().splitlines()
    assert output[-7:] == [
        "first",
        "[image png, 16 kB]",
        "second, pasted: [image jpeg, 2 kB] there",
        "[audio wav, 2 MB]",
        "[file plan.pdf, 16 kB]",
        "[image_url] https://example.com/a.png",
        '[film] {"film":{"url":"[video mp4, 16 kB]"},"type":"film"}',
    ]
    (tmp_path / "c2.json").write_text(json.dumps([{"role": "user", "content": [content[1], content[0]]}]))
    here("conversation", "import", str(tmp_path / "c2.json"))
    assert here("conversation", "show", "c2").strip().splitlines()[-2:] == ["[image png, 16 kB]", "first"]


# ---- settings and health


def test_config_shows_values_and_sources_without_secrets(here: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUEBOOK_UPSTREAM_URL", "http://me:hunter2@127.0.0.1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    monkeypatch.setenv("MEMORY_COMPACTION_TAIL_TURNS", "3")
    rows = {row["name"]: (row["value"], row["source"]) for row in here.json("config")["items"]}
    assert rows["persona.default"] == ("helper", "cuebook.toml")
    assert rows["upstream.url"] == ("http://***@127.0.0.1/v1", "environment CUEBOOK_UPSTREAM_URL")
    assert rows["budget.context"] == (200_000, "default")
    assert rows["MEMORY_COMPACTION_TAIL_TURNS"] == ("3", "environment MEMORY_COMPACTION_TAIL_TURNS")
    assert "hunter2" not in here("config")


@pytest.mark.usefixtures("unused_project")
def test_doctor_accepts_a_new_and_a_used_project(here: CommandRunner, tmp_path: Path) -> None:
    states = {check["name"]: check["state"] for check in here.json("doctor")["checks"]}
    assert set(states) >= {"python", "sqlite", "settings", "personas", "presets", "folder", "store", "model"}
    assert {name for name, state in states.items() if state != "ok"} <= {"model", "disk", "folder"}
    assert not (here.folder / ".cuebook").exists()
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")))
    assert re.search(r"ok +store +1 conversations, 1 posts, schema \d+, intact", here("doctor"))


def test_doctor_names_each_problem(here: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.folder / "personas/bad.json").write_text('{"id": 3}')
    (here.folder / "config/metaprompt-presets.json").write_text('{"memoryCompaction": {"defaultProfile": "big"}}')
    (here.folder / ".cuebook/cuebook.db").write_text("no database at all, but long enough to be looked at " * 30)
    monkeypatch.setenv("CUEBOOK_UPSTREAM_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("CUEBOOK_MODEL_PROVIDER", "openai")
    result = {check["name"]: check for check in here.json("doctor", code=1)["checks"] if check["state"] == "fail"}
    assert "personas/bad.json: id: expected a name" in result["personas"]["found"]
    assert "defaultProfile" in result["presets"]["found"]
    assert "database" in result["store"]["found"]
    assert "model.name" in result["model"]["found"]
    assert "127.0.0.1:9" in result["upstream"]["found"]
    settings = '[experience]\nfolder = "nowhere"\n[logs]\nprompts = "{}"\n'
    (here.folder / "cuebook.toml").write_text(settings.format("cuebook.toml"))
    result = {check["name"]: check for check in here.json("doctor", code=1)["checks"]}
    assert "folder not found: 'nowhere'" in result["experiences"]["found"]
    assert (result["experiences"]["state"], result["logs"]["state"]) == ("warn", "fail")
    assert result["logs"]["found"].endswith("cuebook.toml' is not a writable folder")
    (here.folder / "cuebook.toml").write_text(settings.format("logs/prompts"))
    result = {check["name"]: check for check in here.json("doctor", code=1)["checks"]}
    assert result["logs"]["found"] == "each prompt is written to logs/prompts"
    (here.folder / "cuebook.toml").write_text("x = [")
    assert re.search(r"fail +settings +cuebook.toml: invalid TOML", here("doctor", code=1))


@pytest.mark.parametrize(
    ("setting", "check", "expected"),
    [
        ("CUEBOOK_BUDGET_TRIGGER=7", "settings", "budget.trigger: expected a number above 0 up to 1"),
        ("CUEBOOK_SERVER_PORT=99999", "settings", "server.port: expected a whole number from 0 to 65,535"),
        ("CUEBOOK_UPSTREAM_CACHE_RULE=zz", "settings", "unknown value 'zz'. Available: "),
        ("CUEBOOK_DATABASE_URL=mysql://h/b", "settings", "store.url: 'mysql' databases are not supported"),
        ("CUEBOOK_WORK_MODEL=model", "work", 'work.model: "model" needs [model]'),
        (
            "CUEBOOK_WORK_MODEL=upstream",
            "work",
            '"upstream" needs upstream.url (or --upstream) and work.model_name. Set',
        ),
    ],
)
def test_doctor_fails_on_invalid_settings(
    here: CommandRunner, monkeypatch: pytest.MonkeyPatch, setting: str, check: str, expected: str
) -> None:
    name, _, value = setting.partition("=")
    monkeypatch.setenv(name, value)
    [failed] = [each for each in here.json("doctor", code=1)["checks"] if each["state"] == "fail"]
    assert failed["name"] == check
    assert expected in failed["found"]
    if check == "settings":
        assert f"environment {name}: " in here("conversation", "list", code=1)


def test_doctor_fails_on_a_damaged_key_or_missing_project(
    here: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")))
    key = here.folder / ".cuebook/cuebook.db.key"
    key.write_text("no key")
    [failed] = [each for each in here.json("doctor", code=1)["checks"] if each["state"] == "fail"]
    assert (failed["name"], f"Key file '{key}' is damaged" in failed["found"]) == ("key", True)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    capsys.readouterr()
    assert cli.run(["doctor"]) == 1
    assert "fail  project     No cuebook.toml and no database in" in capsys.readouterr().out
    assert list(empty.iterdir()) == []
    (empty / "cuebook.toml").write_text("")
    assert cli.run(["doctor"]) == 0
    assert cli.run(["conversation", "list"]) == 0


def test_doctor_warns_of_a_small_window_and_incomplete_url(
    here: CommandRunner, monkeypatch: pytest.MonkeyPatch, upstream: Upstream
) -> None:
    monkeypatch.setenv("CUEBOOK_BUDGET_CONTEXT", "8192")
    monkeypatch.setenv("CUEBOOK_UPSTREAM_URL", upstream.url.removesuffix("/v1"))
    result = {each["name"]: each for each in here.json("doctor")["checks"] if each["state"] == "warn"}
    assert "4,096 tokens for a prompt, but none left for posts: budget.system is 5,000" in result["budget"]["found"]
    assert "most servers expect /v1" in result["upstream"]["advice"]


def test_init_overwrites_files_only_with_force(project: Path, here: CommandRunner) -> None:
    (project / "cuebook.toml").write_text("[model]\n")
    (project / ".gitignore").write_text("mine\nlogs/\n")
    assert f"File exists: '{project}/cuebook.toml'" in here("init", str(project), code=1)
    assert (project / "cuebook.toml").read_text() == "[model]\n"
    assert len(here.json("init", str(project), "--force")["files"]) == len(templates())
    assert "helper" in (project / "cuebook.toml").read_text()
    assert (project / ".gitignore").read_text().splitlines()[:2] == ["mine", "logs/"]
    assert (project / ".gitignore").read_text().count("logs/") == 1
    assert ".cuebook/" in (project / ".gitignore").read_text()


def test_init_keeps_a_gitignore_that_is_not_utf8(here: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9\n")
    here("init", str(tmp_path))
    assert (tmp_path / ".gitignore").read_bytes().startswith(b"caf\xe9\n")
    assert b"\n.cuebook/\n" in (tmp_path / ".gitignore").read_bytes()


@pytest.mark.usefixtures("unused_project")
def test_doctor_leaves_an_empty_database_file_unchanged(here: CommandRunner) -> None:
    (here.folder / ".cuebook").mkdir()
    (here.folder / ".cuebook/cuebook.db").touch()
    assert "does not exist yet" in here("doctor")
    assert (here.folder / ".cuebook/cuebook.db").stat().st_size == 0


def test_init_rejects_a_file_or_unwritable_path(here: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a folder: " in here("init", str(tmp_path / "file"), code=1)
    assert "cannot be written" in here("init", str(tmp_path / "file" / "below"), code=1)


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["conversaton", "list"], 2, "Did you mean 'conversation'"),
        (["conversation"], 2, "Missing command. See `cuebook conversation --help`"),
        (["turn", "show", "c1", "x"], 1, "Unknown conversation 'c1'"),
        (["knowledge", "decay", "--as-of", "soon"], 2, "'soon' is not a date. Use YYYY-MM-DD (UTC)"),
        (["conversation", "list", "--limit", "0"], 2, "Invalid value for '--limit'"),
        (["conversation", "export"], 2, "Pass conversation IDs, or use --all"),
        (["conversation", "export", "c1", "--format", "xml"], 2, "'xml' is not one of 'cuebook', 'openai'"),
        (["conversation", "show", "c1"], 1, "Unknown conversation 'c1'"),
        (["turn", "list", "c1"], 1, "Unknown conversation 'c1'"),
        (["turn", "show", "c1", "1"], 1, "'c1'"),
        (["conversation", "import", "nowhere.json"], 1, "nowhere.json: cannot be read (No such file or directory)"),
        (["conversation", "import", __file__], 1, "test_cli.py: not JSON"),
        (["serve", "--host", "192.0.2.1"], 1, "192.0.2.1"),
        (["serve", "--upstream", "nowhere"], 1, "upstream.url: 'nowhere' is not a valid URL"),
    ],
)  # fmt: skip
def test_bad_input_prints_one_error_line(here: CommandRunner, arguments: list[str], code: int, expected: str) -> None:
    line = here(*arguments, code=code)
    assert line.startswith("cuebook: ")
    assert expected in line


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("cuebook.toml", "x = [", "cuebook.toml: invalid TOML"),
        ("cuebook.toml", '[model]\nnmae = "x"\n', "model.nmae: unknown field"),
        ("cuebook.toml", '[persona]\ndefault = "nobody"\n', "unknown persona 'nobody'"),
        ("personas/helper.json", "{", "personas/helper.json: not valid JSON"),
        (
            "personas/helper.json",
            '{"id": "helper", "basePrompt": "x"}',
            "personas/helper.json: basePrompt: unknown field 'basePrompt'. Did you mean 'baseSystemPrompt'?",
        ),
        (
            "config/metaprompt-presets.json",
            '{"memoryCompaction": 3}',
            "config/metaprompt-presets.json: memoryCompaction",
        ),
        (".cuebook/cuebook.db", "no database, " * 200, "not a SQLite database"),
    ],
    ids=["toml", "unknown key", "no such persona", "persona json", "persona field", "presets", "database"],
)
def test_broken_project_file_prints_one_error_line(here: CommandRunner, file: str, text: str, expected: str) -> None:
    (here.folder / file).parent.mkdir(exist_ok=True)
    (here.folder / file).write_text(text)
    assert expected in here("conversation", "list", code=1)


def test_database_of_a_newer_version_is_refused(here: CommandRunner, tmp_path: Path) -> None:
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")))
    with closing(sqlite3.connect(here.folder / ".cuebook/cuebook.db")) as connection:
        connection.execute("UPDATE schema_version SET version = 9999")
        connection.commit()
    assert "written by a newer Cuebook" in here("conversation", "list", code=1)
    assert "written by a newer Cuebook" in here("doctor", code=1)


def test_unwritable_path_prints_one_error_line(
    here: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUEBOOK_STORE_URL", str(tmp_path / "file" / "cuebook.db"))
    assert str(tmp_path / "file") in here("conversation", "list", code=1)
    monkeypatch.delenv("CUEBOOK_STORE_URL")
    here("conversation", "import", write_messages(tmp_path, ("user", "Hi")), "--conversation", "c1")
    assert "Check the path" in here("conversation", "export", "c1", "-o", str(tmp_path / "file" / "x"), code=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_read_only_folder_prints_one_error_line(here: CommandRunner) -> None:
    here.folder.chmod(0o500)
    try:
        assert "permission" in here("conversation", "list", code=1).lower()
    finally:
        here.folder.chmod(0o700)


def test_commands_outside_a_project_create_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cuebook("chat", cwd=tmp_path, stdin="Hello\n")
    assert done.returncode == 1
    assert "No cuebook.toml and no database in" in done.stderr
    assert list(tmp_path.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert cli.run(["conversation", "list"]) == 1
    monkeypatch.setenv("CUEBOOK_STORE_URL", "named.db")
    assert cli.run(["conversation", "list"]) == 0


def test_project_is_selected_by_file_folder_or_environment(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toml, folder = str(project / "cuebook.toml"), str(project)
    for arguments in (["--config", toml, "config"], ["config", "--config", toml], ["config", "-C", folder], ["config"]):
        capsys.readouterr()
        assert cli.run([*arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["folder"] == folder
        if arguments == ["config", "-C", folder]:
            monkeypatch.setenv("CUEBOOK_CONFIG", toml)


def test_input_that_is_not_utf8_prints_one_error_line(project: Path) -> None:
    done = cuebook("chat", cwd=project, stdin=b"caf\xe9\n")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "The input is not UTF-8 text" in done.stderr
    posix = cuebook("chat", cwd=project, stdin=b"caf\xe9\n", LANG="C", LC_ALL="C")
    assert (posix.returncode, posix.stderr) == (1, done.stderr)


def test_unexpected_error_is_one_line_without_debug() -> None:
    code = "import sys; from cuebook.cli.output import screen; screen.prepare(debug={}); raise TypeError('two\\nlines')"
    for debug, lines in ((False, 1), (True, 6)):
        command = [sys.executable, "-c", code.format(debug)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
        assert done.returncode == 1
        assert (done.stderr.count("\n") == 1) is (lines == 1)
        assert "TypeError: two" in done.stderr


def test_logged_exception_shows_type_and_place_but_no_content() -> None:
    code = """import logging
from cuebook.cli.output import screen
screen.prepare(debug=False)
try:
    {}["what somebody said"]
except KeyError:
    logging.getLogger("cuebook.server").exception("a request failed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.stderr.startswith("cuebook: a request failed: KeyError in <string> line 5 ")
    assert "somebody" not in done.stderr


# ---- terminals, pipes, signals


def test_control_characters_are_escaped(here: CommandRunner, tmp_path: Path) -> None:
    here("conversation", "import", write_messages(tmp_path, ("user", ESCAPES)), "--conversation", "c1")
    for arguments in (["conversation", "show", "c1"], ["memory", "search", "fox", "--conversation", "c1"]):
        output = here(*arguments)
        assert "\\x1b[31mred" in output
        assert not set(ESCAPES) - set("fox [31mred0 evil ") & set(output)
    raw = here("conversation", "show", "c1", "--json")
    assert not {"\x1b", "\u202e", "\u009b", "\U000e0041"} & set(raw)
    assert json.loads(raw)["posts"][0]["message"] == ESCAPES
    assert json.loads(here("conversation", "export", "c1"))["posts"][0]["message"] == ESCAPES


def test_harmless_text_is_unchanged() -> None:
    plain = "Zeilen\n\tund Umlaute äöü, 中文, عربي, 👩‍👩‍👧, e\u0301"
    assert harmless(plain) == plain
    assert harmless("\x00\r\x7f\u2028\ud800") == "\\x00\\x0d\\x7f\\u{2028}\\u{d800}"
    assert json.loads(json_text({"a": plain})) == {"a": plain}
    assert line_of("one\n  two three", 8) == "one two…"


def test_tables_fit_the_terminal_width() -> None:
    assert fit([3, 50, 10, 100], 80) == [3, 29, 10, 29]
    assert fit([3, 5], 80) == [3, 5]
    assert sum(fit([30] * 9, 40)) == 8 * 9
    assert fit([16, 10, 10, 90], 100, [True, False, False, True]) == [16, 10, 10, 55]
    assert fit([16, 10, 90], 60, [True, False, True]) == [16, 8, 30]


@pytest.mark.slow
def test_closed_output_pipe_is_not_an_error(project: Path, tmp_path: Path) -> None:
    file = write_messages(tmp_path, ("user", "x"))
    assert cuebook("conversation", "import", file, "--conversation", "c1", cwd=project).returncode == 0
    command = [CUEBOOK, "conversation", "export", "c1"]
    with subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.slow
def test_interrupt_exits_without_output(project: Path) -> None:
    with subprocess.Popen(
        [CUEBOOK, "chat"],
        cwd=project,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"Hello\n")
        process.stdin.flush()
        assert b"no model configured" in process.stdout.readline()
        # A signal just before a read of the input takes effect after that read, so the test sends another one.
        for patience in (5, 20):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        assert process.returncode == 130
        assert process.stderr.read() == b""


def in_terminal(*arguments: str, cwd: Path, keys: list[tuple[bytes, bytes]], **given: str) -> tuple[str, int]:
    """Run the command in a terminal. Each of `keys` is the output to wait for and the input to type then."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [CUEBOOK, *arguments], cwd=cwd, env=environment(TERM="xterm", **given),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen, deadline, waiting = b"", time.monotonic() + 120, list(keys)
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
        if waiting and waiting[0][0] in seen:
            os.write(ours, waiting.pop(0)[1])
    os.close(ours)
    return seen.decode(), process.wait(60)


@pytest.mark.slow
def test_chat_works_in_a_terminal(project: Path) -> None:
    keys = [(b"you> ", b"My cat is Miso.\n"), (b"an answer.\r\n", b"/show\n"), (b"previous prompt", b"/quit\n")]
    seen, code = in_terminal("chat", cwd=project, keys=keys)
    assert code == 0
    assert "chat (new) · helper · cuebook-recall" in seen
    assert "prompt:default/pe" in seen
    assert "\x1b[1m" in seen
    seen, code = in_terminal("conversation", "list", cwd=project, keys=[], NO_COLOR="1")
    assert code == 0
    assert "\x1b[3" not in seen


@pytest.mark.slow
def test_confirmation_in_a_terminal_accepts_no_and_yes(project: Path) -> None:
    assert cuebook("chat", cwd=project, stdin="Hello\n").returncode == 0
    question = b"[y/N]: "
    seen, code = in_terminal("conversation", "delete", "chat", cwd=project, keys=[(question, b"n\n")])
    assert (code, "was not deleted" in seen) == (1, True)
    seen, code = in_terminal("conversation", "delete", "chat", cwd=project, keys=[(question, b"y\n")])
    assert (code, "deleted chat" in seen) == (0, True)


@pytest.mark.slow
def test_serve_prints_its_url_and_upstream(project: Path) -> None:
    command = [CUEBOOK, "serve", "--port", "0", "--upstream", "http://127.0.0.1:9/v1", "--no-forward-auth", "--json"]
    with subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        result = json.loads(b"".join(process.stdout.readline() for _ in range(7)))
        addresses = {"url": result["url"], "baseUrl": result["url"] + "/v1", "upstream": "http://127.0.0.1:9/v1"}
        assert result == addresses | {"profile": "fit", "data": str(project / ".cuebook/cuebook.db")}
        with urllib.request.urlopen(result["url"] + "/healthz", timeout=60) as answer:  # noqa: S310
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_serve_without_a_project_uses_the_data_directory_and_says_so(tmp_path: Path) -> None:
    empty, home = tmp_path / "empty", tmp_path / "home"
    empty.mkdir()
    command = [CUEBOOK, "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=empty, env=environment(XDG_DATA_HOME=str(home)), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        banner = []
        while not banner or not banner[-1].startswith("Press"):
            banner.append(process.stdout.readline().decode().rstrip("\n"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    assert f"  Data             {home}/cuebook/.cuebook/cuebook.db" in banner
    [line] = [each for each in banner if each.startswith("  Project")]
    assert list(empty.iterdir()) == []
    assert cuebook("-C", line.rpartition("-C ")[2], "conversation", "list", cwd=empty).returncode == 0


@pytest.mark.slow
def test_serve_warns_of_an_upstream_without_a_path(project: Path) -> None:
    command = [CUEBOOK, "serve", "--port", "0", "--upstream", "http://me:hunter2@127.0.0.1:9", "--json"]
    with subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        result = json.loads(b"".join(process.stdout.readline() for _ in range(7)))
        warned = process.stderr.readline().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    assert result["upstream"] == "http://***@127.0.0.1:9"
    assert warned.startswith("cuebook: upstream.url: 'http://***@127.0.0.1:9' has no path")
    assert "hunter2" not in warned


# ---- quickstart


def test_quickstart_writes_the_answers_and_prints_the_line_to_change(tmp_path: Path) -> None:
    options = ("--upstream", "ollama", "--no-remember", "--work-model", "llama3.2")
    done = cuebook("quickstart", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "OPENAI_BASE_URL=http://127.0.0.1:8760/v1" in done.stdout
    settings = {
        each["name"]: each["value"] for each in json.loads(cuebook("config", "--json", cwd=tmp_path).stdout)["items"]
    }
    assert settings["upstream.url"] == "http://127.0.0.1:11434/v1"
    assert (settings["memory.user"], settings["work.model_name"]) == (False, "llama3.2")
    again = cuebook("quickstart", "--yes", cwd=tmp_path)
    assert (again.returncode, "File exists: 'cuebook.toml'" in again.stderr) == (1, True)


def test_quickstart_with_yes_uses_the_defaults(tmp_path: Path) -> None:
    done = cuebook("-C", str(tmp_path / "new"), "quickstart", "--upstream", "anthropic", "--yes", cwd=tmp_path)
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8760" in done.stdout
    assert "/u/USER" in done.stdout
    text = (tmp_path / "new/cuebook.toml").read_text()
    assert 'url = "https://api.anthropic.com/v1"' in text
    assert 'user = "named"' in text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "Cannot ask without a terminal. Use --yes, or answer with --upstream, --remember and --work-model."),
        (("--upstream", "somewhere", "--yes"), "Unknown upstream 'somewhere'. Available: openai, anthropic,"),
        (("--upstream", "http://a b", "--yes"), "upstream.url: 'http://a b' is not a valid URL"),
        (("--upstream", "none", "--work-model", "x", "--yes"), "--work-model: 'x' needs an upstream."),
    ],
)
def test_quickstart_refuses_what_it_cannot_use(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    done = cuebook("quickstart", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_quickstart_asks_three_questions_in_a_terminal(tmp_path: Path) -> None:
    keys = [(b"In front of what", b"ollama\n"), (b"Remember", b"y\n"), (b"background", b"\n")]
    seen, code = in_terminal("quickstart", cwd=tmp_path, keys=keys)
    assert (code, "wrote cuebook.toml" in seen) == (0, True)
    assert "model_name" not in (tmp_path / "cuebook.toml").read_text()


# ---- the demo


@pytest.mark.slow
def test_demo_replays_a_transcript_file(here: CommandRunner, tmp_path: Path) -> None:
    talk = [("user" if n % 2 else "assistant", f"Line {n} about my garden in Ghent.") for n in range(1, 41)]
    file = write_messages(tmp_path, *talk)
    [report] = here.json("demo", file)["items"]
    assert report["posts"] == 40
    assert report["identical"] == report["rendered"] == 20
    assert "talk: 40 posts" in here("demo", file)
    assert "nowhere.json" in here("demo", "nowhere.json", code=1)
