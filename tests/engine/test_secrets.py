"""Tests of secret redaction in stored request fields; the upstream gets the original."""

import json
import sqlite3
from contextlib import closing

import pytest
from turn_helpers import NAME, Client, cue_on, open_with_memory, user

from cuebook import Ask, Posted
from cuebook.app.cuebook import RelayCall
from cuebook.app.prompts.draft import import_files
from cuebook.engine.core.drafts import PostFactory
from cuebook.errors import BackendError, InvalidInput, KeyReused
from cuebook.records.memory import Scope
from cuebook.records.redaction import Redactor
from cuebook.testing import Script, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"


@pytest.fixture
def upstream():
    return ScriptedUpstream(default=completion("Noted."))


@pytest.fixture
async def cue(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream) as handle:
        yield handle


@pytest.fixture
def client(cue, upstream):
    return Client(cue, upstream)


def files_with(folder, secret=SECRET):
    """Return the files that contain a secret."""
    return [file.name for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


async def test_secrets_in_tools_and_response_formats_are_redacted_in_storage(cue, client, upstream, tmp_path):
    tools = [{"type": "function", "function": {"name": "look", "description": f"Use token {SECRET} to look."}}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"default": SECRET}}}
    for text in ("hi", "and again"):
        client.history.append(user(text))
        await client.send(tools=tools, response_format=schema)
        client.history.append({"role": "assistant", "content": "Noted."})
        assert (upstream.sent()["tools"], upstream.sent()["response_format"]) == (tools, schema)
    assert files_with(tmp_path) == []
    manifest = (await cue.turns.get(NAME, 2)).steps[0].manifest
    texts = await cue.services.store.texts(Scope(), [manifest.tools_digest])
    assert texts[manifest.tools_digest].count("[[secret:github_token#") == 2
    assert manifest.tools_tokens >= cue.services.count("\n".join(map(json.dumps, (tools, schema))))
    assert (await cue.turns.replay(NAME, 2)).verdict == "identical"


async def test_a_secret_in_a_name_is_redacted_in_storage(cue, client, upstream, tmp_path):
    message = user("hello", name=SECRET)
    await client.send([message])
    assert upstream.messages() == [message]
    await cue.append("d", [user("one", name=SECRET), Posted(sender=SECRET, recipient=SECRET, message="two")])
    await cue.append("d", [Posted(sender="x", message="three", wire=json.dumps(message).encode())])
    senders = [post.sender for name in (NAME, "d") for post in await cue.conversations.posts(name)]
    assert [sender.partition("#")[0] for sender in senders] == [
        "[[secret:github_token", "assistant", "[[secret:github_token", "[[secret:github_token", "x",
    ]  # fmt: skip
    assert files_with(tmp_path) == []
    client.history = [message, {"role": "assistant", "content": "Noted."}]
    await client.say("and again?")
    assert (await cue.conversations.get(NAME)).last_seq == 4, "the conversation is matched again"


async def test_account_numbers_are_not_in_summaries_and_memories(tmp_path, clock):
    iban, card = "GB33BUKB20201555555555", "4111 1111 1111 1111"
    said = [f"My IBAN is {iban}, my card is {card}, and I am allergic to nuts."]
    said += [f"The parcel {number} came on Monday." for number in range(29)]
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.conversations.append("c1", [{"role": "user", "content": each} for each in said], user="ann")
        await cue.settle()
        summary = await cue.conversations.summary("c1")
        assert "My IBAN is [IBAN], my card is [[secret:card" in summary.markdown
        memories = [each.text for each in (await cue.memory.list(user="ann")).items]
        assert any("allergic to nuts" in each for each in memories)
        assert iban not in "".join(memories) + summary.markdown
        assert any(iban in hit.text for hit in await cue.memory.search("What is my IBAN?", conversation="c1"))
    assert not files_with(tmp_path, card)


async def test_a_user_id_that_looks_like_a_secret_is_unchanged(cue, client, upstream):
    client.user_id = SECRET
    await client.send([user("hello")])
    assert [post.sender for post in await cue.conversations.posts(NAME, user=SECRET)] == [SECRET, "assistant"]
    await cue.append(NAME, [Posted(sender=SECRET, message="more")], user=SECRET)
    await client.send([user("so?")], server_history=True)
    assert "name" not in json.dumps(upstream.messages())


async def test_a_secret_in_a_mode_is_redacted(cue, tmp_path):
    reply = await cue.ask(Ask("hello", NAME, mode=SECRET))
    assert reply.metadata["mode"].startswith("[[secret:github_token#")
    assert files_with(tmp_path) == []
    assert (await cue.ask(Ask("again", NAME, mode="calm"))).metadata["mode"] == "calm"


async def test_idempotency_keys_are_stored_as_keyed_digests(tmp_path):
    """Two databases store the same requests; neither keys nor request contents can be guessed from the files."""
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
                arguments = {"older_than": "p2", "summary": "Pins.", "idempotency_key": "my key d"}
                assert await cue.conversations.compress("c", **arguments)
            assert len(upstream.requests) == 1
            for key in "abcd":
                with pytest.raises(KeyReused, match=f"my key {key}"):
                    await cue.append("x", posts, idempotency_key=f"my key {key}")
        with closing(sqlite3.connect(tmp_path / name / "cuebook.db")) as connection:
            rows += connection.execute("SELECT key, digest FROM idempotency").fetchall()
    assert len(rows) == 8
    assert len({key for key, _ in rows} | {digest for _, digest in rows}) == 16
    assert files_with(tmp_path, "my key") == []


async def test_an_answer_cut_within_a_secret_leaves_no_part_of_it(tmp_path):
    """A partial secret has no known pattern, so checkpoints and interrupted answers end before it."""
    model = ScriptedModel(
        default=Script(text=f"The first is {SECRET} and it is {SECRET[:25]}", size=3, half=True, delay=0.002)
    )
    async with cue_on(tmp_path, model=model, work__checkpoint_s=0.01) as cue:
        for stop in (8, 12, 30):
            stream = cue.stream(Ask("Which?", f"c{stop}"))
            deltas = 0
            async for chunk in stream:
                deltas += chunk.type == "text_delta"
                if deltas == stop:
                    break
            await stream.aclose()
        with pytest.raises(BackendError):
            await cue.ask(Ask("Which?", "whole"))
        texts = [(await cue.conversations.posts(name))[-1].message for name in ("c8", "c12", "c30", "whole")]
        assert [text.partition(" [[")[0] for text in texts[:2]] == ["The first is ", "The first is "]
        assert texts[3].endswith("and it is ")
        assert files_with(tmp_path, SECRET[:8]) == []
    assert files_with(tmp_path, SECRET[:8]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""), ("hello", "hello"), ("a ghp_", "a "), ("a ghp_ ", "a ghp_ "), ("key=sk-abc", "key="),
        ("x\nAKIA1", "x\n"), ("risk-free", "risk-free"), ("desk-1", "desk-1"), (SECRET, SECRET),
        (f"{SECRET} sk-1", f"{SECRET} "), ("eyJhbGciOi", ""),
    ],
)  # fmt: skip
def test_an_interrupted_text_ends_before_a_partial_secret(text, expected):
    assert PostFactory(len, Redactor(b"k"), 9).settled(text) == expected


async def test_a_secret_in_the_reason_of_a_rollback_is_redacted(cue, tmp_path):
    for text in ("one", "two"):
        await cue.prompts.save("p", {"body": text})
    await cue.prompts.roll_back("p", reason=f"It leaked {SECRET}.")
    await cue.prompts.clear("p", 2, reason=f"It leaked {SECRET}.")
    assert "It leaked" in (await cue.prompts.history("p"))[0].reason
    assert not files_with(tmp_path)


async def test_a_secret_in_a_name_is_refused_by_prompt_operations(cue, tmp_path):
    for text in ("one", "two"):
        await cue.prompts.save("p", {"body": text})
    prompts = cue.prompts
    for call in (
        prompts.save("p", {"body": "three"}, by=SECRET),
        prompts.save("p", {"body": "three"}, type=SECRET),
        prompts.save("p", {SECRET: "three"}),
        prompts.save("p", {"body": "three"}, params=[SECRET]),
        prompts.fork("p", "trial", by=SECRET),
        prompts.label("p", "production", by="4111 1111 1111 1111"),
        prompts.roll_back("p", reason="worse", by=SECRET),
        prompts.clear("p", 1, by=f"password={SECRET}"),
        prompts.migrate([{"slug": "q", "version": 1, "sections": {"body": "four"}}], by=SECRET),
        prompts.render("p", log=True, by=SECRET),
        prompts.observe("p", sentiment=0.5, signals={"coding": 1.0, SECRET: 0.5}),
        import_files(cue.services, [("q.md", b"Five.")], by=SECRET),
    ):
        with pytest.raises(InvalidInput, match=r"^(author|type|sections|params|userId|signals): contains a secret \("):
            await call
    assert [each.kind for each in await prompts.history("p")] == ["write", "write"]
    assert not files_with(tmp_path)
    assert not files_with(tmp_path, "4111 1111 1111 1111")
