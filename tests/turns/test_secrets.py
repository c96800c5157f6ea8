"""What a client sends beside its words is kept without its secrets too, and goes to the upstream as it came."""

import json

import pytest
from stage import NAME, Client, book_on, user

from cuebook import Posted
from cuebook.records.memory import Scope
from cuebook.testing.upstream import ScriptedUpstream, completion

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"


@pytest.fixture
def upstream():
    return ScriptedUpstream(default=completion("Noted."))


@pytest.fixture
async def book(tmp_path, upstream):
    async with book_on(tmp_path, upstream=upstream) as opened:
        yield opened


@pytest.fixture
def client(book, upstream):
    return Client(book, upstream)


def holding(folder, secret=SECRET):
    """The files that hold a secret."""
    return [file.name for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


async def test_secrets_of_tools_and_response_formats_go_up_and_are_stored_replaced(book, client, upstream, tmp_path):
    tools = [{"type": "function", "function": {"name": "look", "description": f"Use token {SECRET} to look."}}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"default": SECRET}}}
    for text in ("hi", "and again"):
        client.history.append(user(text))
        await client.send(tools=tools, response_format=schema)
        client.history.append({"role": "assistant", "content": "Noted."})
        assert (upstream.sent()["tools"], upstream.sent()["response_format"]) == (tools, schema)
    assert holding(tmp_path) == []
    manifest = (await book.turns.get(NAME, 2)).steps[0].manifest
    texts = await book.desk.store.texts(Scope(), [manifest.tools_digest])
    assert texts[manifest.tools_digest].count("[[secret:github_token#") == 2
    assert manifest.tools_tokens >= book.desk.count("\n".join(map(json.dumps, (tools, schema))))
    assert (await book.turns.replay(NAME, 2)).verdict == "identical"


async def test_a_secret_in_a_name_is_stored_replaced(book, client, upstream, tmp_path):
    said = user("hello", name=SECRET)
    await client.send([said])
    assert upstream.messages() == [said]
    await book.append("d", [user("one", name=SECRET), Posted(sender=SECRET, recipient=SECRET, message="two")])
    await book.append("d", [Posted(sender="x", message="three", wire=json.dumps(said).encode())])
    senders = [post.sender for name in (NAME, "d") for post in await book.conversations.posts(name)]
    assert [sender.partition("#")[0] for sender in senders] == [
        "[[secret:github_token", "assistant", "[[secret:github_token", "[[secret:github_token", "x",
    ]  # fmt: skip
    assert holding(tmp_path) == []
    client.history = [said, {"role": "assistant", "content": "Noted."}]
    await client.say("and again?")
    assert (await book.conversations.get(NAME)).last_seq == 4, "it is known again"


async def test_a_user_whose_id_looks_like_a_secret_stays_who_they_are(book, client, upstream):
    client.who = SECRET
    await client.send([user("hello")])
    assert [post.sender for post in await book.conversations.posts(NAME, user=SECRET)] == [SECRET, "assistant"]
    await book.append(NAME, [Posted(sender=SECRET, message="more")], user=SECRET)
    await client.send([user("so?")], server_history=True)
    assert "name" not in json.dumps(upstream.messages())
