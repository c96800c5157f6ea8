"""What a client sends beside its words is kept without its secrets too, and goes to the upstream as it came."""

import json
import sqlite3
from contextlib import closing

import pytest
from stage import NAME, Client, cue_on, user

from cuebook import Ask, Posted
from cuebook.app.cuebook import RelayCall
from cuebook.engine.core.drafts import PostFactory
from cuebook.errors import BackendError, KeyReused
from cuebook.records.memory import Scope
from cuebook.records.redaction import Redactor
from cuebook.testing import Script, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, completion

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"


@pytest.fixture
def upstream():
    return ScriptedUpstream(default=completion("Noted."))


@pytest.fixture
async def cue(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream) as opened:
        yield opened


@pytest.fixture
def client(cue, upstream):
    return Client(cue, upstream)


def holding(folder, secret=SECRET):
    """The files that hold a secret."""
    return [file.name for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


async def test_secrets_of_tools_and_response_formats_go_up_and_are_stored_replaced(cue, client, upstream, tmp_path):
    tools = [{"type": "function", "function": {"name": "look", "description": f"Use token {SECRET} to look."}}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"default": SECRET}}}
    for text in ("hi", "and again"):
        client.history.append(user(text))
        await client.send(tools=tools, response_format=schema)
        client.history.append({"role": "assistant", "content": "Noted."})
        assert (upstream.sent()["tools"], upstream.sent()["response_format"]) == (tools, schema)
    assert holding(tmp_path) == []
    manifest = (await cue.turns.get(NAME, 2)).steps[0].manifest
    texts = await cue.desk.store.texts(Scope(), [manifest.tools_digest])
    assert texts[manifest.tools_digest].count("[[secret:github_token#") == 2
    assert manifest.tools_tokens >= cue.desk.count("\n".join(map(json.dumps, (tools, schema))))
    assert (await cue.turns.replay(NAME, 2)).verdict == "identical"


async def test_a_secret_in_a_name_is_stored_replaced(cue, client, upstream, tmp_path):
    said = user("hello", name=SECRET)
    await client.send([said])
    assert upstream.messages() == [said]
    await cue.append("d", [user("one", name=SECRET), Posted(sender=SECRET, recipient=SECRET, message="two")])
    await cue.append("d", [Posted(sender="x", message="three", wire=json.dumps(said).encode())])
    senders = [post.sender for name in (NAME, "d") for post in await cue.conversations.posts(name)]
    assert [sender.partition("#")[0] for sender in senders] == [
        "[[secret:github_token", "assistant", "[[secret:github_token", "[[secret:github_token", "x",
    ]  # fmt: skip
    assert holding(tmp_path) == []
    client.history = [said, {"role": "assistant", "content": "Noted."}]
    await client.say("and again?")
    assert (await cue.conversations.get(NAME)).last_seq == 4, "it is known again"


async def test_a_user_whose_id_looks_like_a_secret_stays_who_they_are(cue, client, upstream):
    client.who = SECRET
    await client.send([user("hello")])
    assert [post.sender for post in await cue.conversations.posts(NAME, user=SECRET)] == [SECRET, "assistant"]
    await cue.append(NAME, [Posted(sender=SECRET, message="more")], user=SECRET)
    await client.send([user("so?")], server_history=True)
    assert "name" not in json.dumps(upstream.messages())


async def test_a_secret_in_a_mode_is_stored_replaced(cue, tmp_path):
    reply = await cue.ask(Ask("hello", NAME, mode=SECRET))
    assert reply.metadata["mode"].startswith("[[secret:github_token#")
    assert holding(tmp_path) == []
    assert (await cue.ask(Ask("again", NAME, mode="calm"))).metadata["mode"] == "calm"


async def test_idempotency_keys_and_their_requests_are_kept_under_the_books_key(tmp_path):
    """The same requests in two books: nobody reads the keys in the file, nor tries out what the requests held."""
    rows = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        upstream = ScriptedUpstream(default=completion("Noted."))
        async with cue_on(tmp_path / name, upstream=upstream) as cue:
            body = json.dumps({"model": "m", "messages": [user("my pin is 1234")]}).encode()
            for _ in range(2):
                await cue.ask(Ask("my pin is 1234", "a", idempotency_key="my key a"))
                call = RelayCall(body=body, headers={}, conversation="b", idempotency_key="my key b")
                assert [piece async for piece in cue.relay(call)]
                posts = [Posted(sender="ann", message=f"pin {n}", id=f"p{n}") for n in range(3)]
                assert (await cue.append("c", posts, idempotency_key="my key c")).stored == 3
                asked = {"older_than": "p2", "summary": "Pins.", "idempotency_key": "my key d"}
                assert await cue.conversations.compress("c", **asked)
            assert len(upstream.requests) == 1
            for key in "abcd":
                with pytest.raises(KeyReused, match=f"my key {key}"):
                    await cue.append("x", posts, idempotency_key=f"my key {key}")
        with closing(sqlite3.connect(tmp_path / name / "cuebook.db")) as connection:
            rows += connection.execute("SELECT key, digest FROM idempotency").fetchall()
    assert len(rows) == 8
    assert len({key for key, _ in rows} | {digest for _, digest in rows}) == 16
    assert holding(tmp_path, "my key") == []


async def test_an_answer_that_breaks_off_within_a_key_leaves_no_half_of_it(tmp_path):
    """Half a key has no known shape yet; a checkpoint and an interrupted answer end before it."""
    model = ScriptedModel(
        default=Script(text=f"The first is {SECRET} and it is {SECRET[:25]}", size=3, half=True, delay=0.002)
    )
    async with cue_on(tmp_path, model=model, work__checkpoint_s=0.01) as cue:
        for stop in (8, 12, 30):
            stream = cue.stream(Ask("Which?", f"c{stop}"))
            heard = 0
            async for chunk in stream:
                heard += chunk.type == "text_delta"
                if heard == stop:
                    break
            await stream.aclose()
        with pytest.raises(BackendError):
            await cue.ask(Ask("Which?", "whole"))
        told = [(await cue.conversations.posts(name))[-1].message for name in ("c8", "c12", "c30", "whole")]
        assert [text.partition(" [[")[0] for text in told[:2]] == ["The first is ", "The first is "]
        assert told[3].endswith("and it is ")
        assert holding(tmp_path, SECRET[:8]) == []
    assert holding(tmp_path, SECRET[:8]) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""), ("hello", "hello"), ("a ghp_", "a "), ("a ghp_ ", "a ghp_ "), ("key=sk-abc", "key="),
        ("x\nAKIA1", "x\n"), ("risk-free", "risk-free"), ("desk-1", "desk-1"), (SECRET, SECRET),
        (f"{SECRET} sk-1", f"{SECRET} "), ("eyJhbGciOi", ""),
    ],
)  # fmt: skip
def test_a_text_that_broke_off_ends_before_the_key_it_broke_off_in(text, kept):
    assert PostFactory(len, Redactor(b"k"), 9).settled(text) == kept
