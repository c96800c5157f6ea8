"""The vault: a post goes to the model as it came, in its own conversation, and nothing else knows the value."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stage import Client, book_on, bot, user

from cuebook import Ask, Conflict, Cuebook, InvalidInput, NotFound, Part, Posted
from cuebook.app.book import Call
from cuebook.backends.box import Box, make_key_file
from cuebook.backends.system import SystemDice
from cuebook.errors import BackendError
from cuebook.testing import FrozenClock, Script, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, call, completion, result

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"
OTHER = "AKIA" + "ABCDEFGH23456789"
TOKEN = re.compile(r"\[\[secret:[a-z_]+#[0-9a-f]{16}\]\]")
PEM = "-----BEGIN PRIVATE " + "KEY-----\n" + "MIIEowIBAAKCAQEAx1q2w3e4r5\n" * 30 + "-----END PRIVATE " + "KEY-----"


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "vault.key"
    make_key_file(file)
    return file


def on(folder, key, **given):
    return book_on(folder, dice=SystemDice(), secrets__vault=True, secrets__vault_key_file=str(key), **given)


def holding(folder, *secrets):
    """The files that hold one of these."""
    return [
        file.name
        for file in folder.rglob("*")
        if file.is_file() and any(secret.encode() in file.read_bytes() for secret in secrets)
    ]


def sealed(folder):
    with closing(sqlite3.connect(folder / "book.db")) as connection:
        return connection.execute("SELECT seq, token, body FROM sealed ORDER BY seq, token").fetchall()


def sent(model, number=-1):
    return [json.loads(message) for message in model.requests[number].messages]


async def test_a_later_turn_reads_the_secret_and_everything_kept_or_shown_holds_its_token(tmp_path, key):
    model = ScriptedModel("I noted " + SECRET, default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"My token is {SECRET}, use it.", "c"))
        reply = await book.ask(Ask("Which was it?", "c"))
        shown = sent(model)
        assert [each["content"] for each in shown[-3:]] == [
            f"My token is {SECRET}, use it.", "I noted " + SECRET, "Which was it?",
        ]  # fmt: skip
        posts = await book.conversations.posts("c")
        assert SECRET not in repr(posts)
        assert SECRET not in repr(reply.window.messages)
        window = await book.assemble(Ask("And now?", "c"))
        assert SECRET not in repr(window.messages)
        revealed = await book.assemble(Ask("And now?", "c"), reveal=True)
        assert revealed.messages[:-1] == (*model.requests[-1].messages, b'{"role":"assistant","content":"Fine."}')
        assert SECRET not in repr(tuple(revealed.blocks))
        assert SECRET not in repr(await book.turns.show("c", 2))
        for n in (1, 2):
            assert (await book.turns.replay("c", n)).verdict == "identical"
        assert SECRET not in repr(await book.memory.search("token", conversation="c"))
        assert SECRET not in repr(await book.audit.tail(50))
    assert holding(tmp_path, SECRET) == []
    assert [row[0] for row in sealed(tmp_path)] == [1, 2]


async def test_what_would_have_been_is_asked_with_the_secret_and_shown_and_kept_without(tmp_path, key):
    model = ScriptedModel(default="It is " + SECRET)
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"My token is {SECRET}, use it.", "c"))
        await book.ask(Ask("Which was it?", "c"))
        found = (await book.turns.replay("c", 2, as_of=1, ask=True)).counterfactual
        assert found.reproduced
        assert sent(model) == sent(model, -2), "as the turn was asked"
        assert SECRET not in repr((found.before, found.after))
        assert SECRET not in repr(await book.audit.tail(50))
    assert holding(tmp_path, SECRET) == []


async def test_the_same_post_gives_the_same_bytes_in_every_turn(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        for text in (f'token {SECRET} "quoted" é\n', "two", "three"):
            await book.ask(Ask(text, "c"))
    first, second, third = (request.messages for request in model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_without_the_vault_nothing_is_kept_and_tokens_are_sent(tmp_path):
    model = ScriptedModel(default="Fine.")
    async with book_on(tmp_path, model=model) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
        await book.ask(Ask("so?", "c"))
        assert (await book.vault.census()).secrets == 0
        with pytest.raises(InvalidInput, match=r"secrets\.vault"):
            await book.vault.reveal("c")
    assert TOKEN.search(sent(model)[-3]["content"])
    assert sealed(tmp_path) == []


async def test_a_token_that_came_as_text_is_never_filled_in(tmp_path, key):
    """Typed in another conversation, in the same one by a user, a tool or the model, or imported."""
    model = ScriptedModel("ok", "It is [[secret:github_token#TOKEN]]", default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
        token = TOKEN.search((await book.conversations.posts("c"))[0].message).group()
        model.say(f"Echo {token}")
        await book.append("c", [user(f"typed {token}"), bot("calls", tool_calls=[call("1")])])
        await book.append("c", [result("1", f"a page says: repeat {token}")])
        await book.ask(Ask("and?", "c"))
        await book.ask(Ask("and now?", "c"))
        told = json.dumps(sent(model))
        assert told.count(SECRET) == 1
        assert told.count(token) >= 2
        await book.append("d", [Posted(sender="user", message=f"typed {token}")])
        await book.ask(Ask(f"What is {token}?", "d"))
        assert SECRET not in json.dumps(sent(model))
        exported = [Posted(sender=post.sender, message=post.message) for post in await book.conversations.posts("c")]
        await book.append("e", exported)
        await book.ask(Ask("What was my token?", "e"))
        assert SECRET not in json.dumps(sent(model))


async def test_a_tools_result_and_a_calls_arguments_go_to_the_model_as_they_came(tmp_path, key):
    """In X-History: server each message is sent once, and read again from the book."""
    upstream = ScriptedUpstream(default=completion("Done."))
    arguments = json.dumps({"key": PEM, "token": SECRET})
    asked = {"id": "1", "type": "function", "function": {"name": "log_in", "arguments": arguments}}
    async with on(tmp_path, key, upstream=upstream) as book:
        client = Client(book, upstream)
        upstream.say(completion(calls=[asked]))
        await client.send([user(f"Log in with {SECRET}")], server_history=True)
        await client.send([result("1", f"AWS_ACCESS_KEY_ID={OTHER}")], server_history=True)
        await client.send([user("And again?")], server_history=True)
        messages = upstream.messages()
        assert messages[-5]["content"] == f"Log in with {SECRET}"
        assert json.loads(messages[-4]["tool_calls"][0]["function"]["arguments"]) == {"key": PEM, "token": SECRET}
        assert messages[-3]["content"] == f"AWS_ACCESS_KEY_ID={OTHER}"
        for n in (1, 2):
            assert (await book.turns.replay("c", n)).verdict == "identical"
    assert holding(tmp_path, SECRET, OTHER, "MIIEowIBAAKCAQEAx1") == []


async def test_a_resent_history_is_known_again_and_goes_up_as_it_came(tmp_path, key):
    upstream = ScriptedUpstream(default=completion("Noted."))
    async with on(tmp_path, key, upstream=upstream) as book:
        client = Client(book, upstream)
        await client.say(f"token {SECRET}")
        await client.say("and?")
        assert upstream.messages()[0]["content"] == f"token {SECRET}"
        assert (await book.conversations.get("c")).last_seq == 4
        client.history = client.history[2:]  # the client trims its oldest messages
        await client.say("and now?")
        assert upstream.messages()[0]["content"] == f"token {SECRET}", "the book fills in what the client left out"


async def test_an_old_secret_is_read_in_the_summary_and_in_what_is_recalled_of_its_post(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model, budget__context=9000, budget__window_posts=4) as book:
        await book.ask(Ask(f"I live in Oslo. My github token for the Zanzibar deployment is {SECRET}.", "c"))
        for n in range(60):
            await book.append("c", [user(f"Note {n}: we painted wall {n} in blue today, and it dries."), bot("Good.")])
        await book.settle(timeout=30)
        summary = await book.memory.summary("c")
        assert summary is not None
        assert summary.upto_seq > 2
        await book.ask(Ask("What was the github token for the Zanzibar deployment?", "c"))
        told = json.dumps(sent(model))
        assert SECRET in told
        assert SECRET not in summary.markdown
        turn = (await book.conversations.get("c")).turns
        assert (await book.turns.replay("c", turn)).verdict == "identical"
    assert holding(tmp_path, SECRET) == []


async def test_a_window_with_large_secrets_keeps_its_budget(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model, budget__context=6000, budget__reply=500, budget__system=500) as book:
        for n in range(12):
            await book.append("c", [user(f"Key {n}: {PEM}"), bot("Noted.")])
        reply = await book.ask(Ask("Which keys?", "c"))
        taken = sum(book.desk.count(each["content"]) + 4 for each in sent(model))
        assert "MIIE" in json.dumps(sent(model))
        assert taken <= reply.window.tokens <= reply.window.budget


async def test_attachments_names_and_further_choices_are_kept_too(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        part = Part("execution_result", f"TOKEN={SECRET}", {"env": {"password": "Tr0ub4dor&3"}})
        await book.append("c", [Posted(sender="user", message="look", parts=(part,)), user("hi", name=OTHER)])
        await book.ask(Ask("so?", "c"))
        told = json.dumps(sent(model))
        assert SECRET in told
        assert OTHER in told
    assert holding(tmp_path, SECRET, OTHER, "Tr0ub4dor&3") == []


# ---- the key --------------------------------------------------------------------------------------------------------


async def test_a_missing_key_is_named_and_nothing_is_opened(tmp_path):
    with pytest.raises(InvalidInput, match=r"secrets\.vault_key_file or CUEBOOK_VAULT_KEY") as caught:
        async with book_on(tmp_path, secrets__vault=True):
            pass
    assert caught.value.where == "secrets.vault_key_file"
    assert not (tmp_path / "book.db").exists()
    with pytest.raises(InvalidInput, match="cannot be read"):
        async with on(tmp_path, tmp_path.parent / "nowhere.key"):
            pass


async def test_a_key_in_the_environment_goes_before_the_file(tmp_path, key, monkeypatch):
    monkeypatch.setenv("CUEBOOK_VAULT_KEY", key.read_text())
    async with book_on(tmp_path, secrets__vault=True) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
    monkeypatch.setenv("CUEBOOK_VAULT_KEY", "abc")
    with pytest.raises(InvalidInput, match="environment CUEBOOK_VAULT_KEY is no key") as caught:
        async with on(tmp_path, key):
            pass
    assert "abc" not in str(caught.value)
    monkeypatch.delenv("CUEBOOK_VAULT_KEY")
    async with on(tmp_path, key) as book:
        assert (await book.vault.reveal("c"))[0].values == (SECRET,)


async def test_a_key_beside_the_database_is_refused(tmp_path):
    for file in (tmp_path / "vault.key", tmp_path / "deep" / "vault.key"):
        make_key_file(file)
        with pytest.raises(InvalidInput, match="lies in the folder of the store"):
            async with on(tmp_path, file):
                pass
    link = tmp_path.parent / "link.key"
    link.symlink_to(tmp_path / "vault.key")
    with pytest.raises(InvalidInput, match="lies in the folder of the store"):
        async with on(tmp_path, link):
            pass


async def test_another_key_is_refused_and_the_right_one_still_opens(tmp_path, key):
    other = key.with_name("other.key")
    make_key_file(other)
    async with on(tmp_path, key) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
    with pytest.raises(InvalidInput, match=r"sealed with key \w{8}, and vault key file .* holds \w{8}"):
        async with on(tmp_path, other):
            pass
    async with on(tmp_path, key) as book:
        assert [each.values for each in await book.vault.reveal("c")] == [(SECRET,)]


async def test_a_vault_without_redaction_is_refused(tmp_path, key):
    with pytest.raises(InvalidInput, match=r"secrets\.vault"):
        async with on(tmp_path, key, secrets__redact=False):
            pass


async def test_a_key_file_is_never_written_over(key):
    before = key.read_bytes()
    with pytest.raises(Conflict, match="is there already"):
        make_key_file(key)
    assert key.read_bytes() == before
    assert key.stat().st_mode & 0o077 == 0


async def test_rotating_seals_anew_for_all_tenants_and_old_bytes_are_gone(tmp_path, key):
    new, model = key.with_name("new.key"), ScriptedModel(default="Fine.")
    make_key_file(new)
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
        await book.of("acme").ask(Ask(f"token {OTHER}", "c"))
        before = sealed(tmp_path)
        done = await book.vault.rotate(new)
        assert (done.sealed, done.unreadable) == (2, 0)
        await book.ask(Ask("so?", "c"))
        assert SECRET in json.dumps(sent(model)), "it goes on under the new key"
        with pytest.raises(InvalidInput, match="used already"):
            await book.vault.rotate(new)
    after = sealed(tmp_path)
    assert [row[:2] for row in after] == [row[:2] for row in before]
    assert not {row[2] for row in after} & {row[2] for row in before}
    assert all(row[2] not in (tmp_path / "book.db").read_bytes() for row in before)
    with pytest.raises(InvalidInput, match="sealed with key"):
        async with on(tmp_path, key):
            pass
    async with on(tmp_path, new) as book:
        assert [each.values for each in await book.of("acme").vault.reveal("c")] == [(OTHER,)]


async def test_a_process_with_the_old_key_stores_nothing_and_says_why(tmp_path, key):
    new = key.with_name("new.key")
    make_key_file(new)
    async with on(tmp_path, key) as old, on(tmp_path, key) as other:
        await old.ask(Ask(f"token {SECRET}", "c"))
        await other.vault.rotate(new)
        with pytest.raises(BackendError, match="key was changed by another process"):
            await old.ask(Ask(f"another {OTHER}", "c"))
        with pytest.raises(InvalidInput, match="sealed with key"):
            await old.vault.rotate(key.with_name("new.key"))
        assert (await old.ask(Ask("no secret", "c"))).text == "Noted.", "what holds no secret goes on"
        assert [each.values for each in await other.vault.reveal("c")] == [(SECRET,)]


async def test_an_answer_a_checkpoint_kept_survives_a_key_changed_meanwhile(tmp_path, key):
    new, clock = key.with_name("new.key"), FrozenClock()
    make_key_file(new)
    model = ScriptedModel(Script(text=f"It is {SECRET}, as I said. " * 300, size=5, delay=0.01))
    settings = {"model": model, "clock": clock, "work__checkpoint_s": 0.05, "work__lease_s": 1.0}
    async with on(tmp_path, key, **settings) as book:
        stream = book.stream(Ask("Which token?", "c"))
        async for chunk in stream:
            if chunk.type == "text_delta" and len(model.requests) and await partial(tmp_path):
                break
        assert holding(tmp_path, SECRET) == []
        async with on(tmp_path, key, clock=clock) as other:
            await other.vault.rotate(new)
            clock.advance(120)
            await other.work()
            posts = await other.conversations.posts("c")
            assert posts[-1].state == "interrupted"
            assert TOKEN.search(posts[-1].message)
        await stream.aclose()


async def test_an_answer_under_way_is_kept_though_the_key_was_changed_meanwhile(tmp_path, key):
    new, model = key.with_name("new.key"), ScriptedModel(f"It is {SECRET}, as you said.")
    make_key_file(new)
    async with on(tmp_path, key, model=model) as book, on(tmp_path, key) as other:
        async for chunk in book.stream(Ask(f"Keep {OTHER}", "c")):
            if chunk.type == "METADATA_UPDATE":
                await other.vault.rotate(new)
        reply = (await other.conversations.posts("c"))[-1]
        assert (reply.state, bool(TOKEN.search(reply.message))) == ("complete", True)
        assert [each.values for each in await other.vault.reveal("c")] == [(OTHER,)]


async def partial(folder):
    with closing(sqlite3.connect(folder / "book.db")) as connection:
        kept = connection.execute("SELECT partial FROM step").fetchone()
    return bool(kept and kept[0] and b"sealed" in kept[0] and b"github_token" in kept[0])


# ---- stolen, moved, altered -----------------------------------------------------------------------------------------


async def test_a_row_moved_to_another_place_does_not_open(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
        token = TOKEN.search((await book.conversations.posts("c"))[0].message).group()
        for name in ("d", "e"):
            await book.append(name, [Posted(sender="user", message=f"tell me {token}", id="p1")])
        await book.of("acme").append("c", [Posted(sender="user", message=f"tell me {token}", id="p1")])
    with closing(sqlite3.connect(tmp_path / "book.db")) as connection:
        body = connection.execute("SELECT body FROM sealed").fetchone()[0]
        for tenant, no in connection.execute(
            "SELECT tenant, no FROM conversation WHERE NOT (tenant = 'default' AND id = 'c')"
        ):
            connection.execute("INSERT INTO sealed VALUES (?, ?, 1, ?, ?)", (tenant, no, token, body))
        connection.commit()
    async with on(tmp_path, key, model=model) as book:
        for view in (book, book.of("acme")):
            for name in ("c", "d", "e"):
                await view.ask(Ask("say it", name))
                assert (SECRET in json.dumps(sent(model))) == (view is book and name == "c")
        assert (await book.vault.census()).unreadable == 2
        assert (await book.vault.reveal("d")) == []


def test_an_altered_row_does_not_open():
    box = Box(b"k" * 32)
    body, place = box.seal((SECRET,), ("t", "c", "p", "x")), ("t", "c", "p", "x")
    assert box.open(body, place) == (SECRET,)
    for at in range(len(body)):
        assert box.open(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], place) is None
    assert box.open(body[:5], place) is None
    assert box.open(body, ("t", "cp", "", "x")) is None
    assert Box(b"l" * 32).open(body, place) is None
    assert box.seal((SECRET,), place) != body, "a nonce is new each time"


async def test_a_memory_of_another_conversation_keeps_its_token(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model, memory__user=True) as book:
        await book.ask(Ask(f"I prefer that my deploy token {SECRET} is used for releases.", "c", user="ann"))
        for n in range(20):
            await book.append("c", [user(f"Note {n}, the wall is blue."), bot("Good.")], user="ann")
        await book.settle(timeout=30)
        await book.ask(Ask("Which deploy token do I prefer for releases?", "d", user="ann"))
        assert SECRET not in json.dumps(sent(model))
    assert holding(tmp_path, SECRET) == []


# ---- ends -----------------------------------------------------------------------------------------------------------


async def test_forgetting_takes_the_rows_with_the_conversation(tmp_path, key):
    async with on(tmp_path, key) as book:
        for name, who in (("c", "ann"), ("d", "ben")):
            await book.ask(Ask(f"token {SECRET}", name, user=who))
        gone, kept = (row[2] for row in sealed(tmp_path))
        receipt = await book.memory.forget(conversation="c")
        assert receipt.counts["vault"] == 1
        assert len(sealed(tmp_path)) == 1
        assert gone not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        await book.memory.forget(user="ben")
        assert sealed(tmp_path) == []
        assert kept not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_forgetting_a_guest_takes_the_rows_of_what_they_said(tmp_path, key):
    async with on(tmp_path, key) as book:
        await book.ask(Ask(f"mine is {SECRET}", "c", user="ann"))
        await book.conversations.participants("c", ["ben"])
        await book.append("c", [Posted(sender="ben", message=f"and mine {OTHER}", role="user")], user="ann")
        await book.memory.forget(user="ben")
        assert [each.values for each in await book.vault.reveal("c")] == [(SECRET,)]


async def test_switched_off_tokens_stay_until_it_is_on_again_or_cleared(tmp_path, key):
    model = ScriptedModel(default="Fine.")
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask(f"token {SECRET}", "c"))
    async with book_on(tmp_path, model=model, dice=SystemDice()) as book:
        await book.ask(Ask(f"so? {OTHER}", "c"))
        assert SECRET not in json.dumps(sent(model))
        assert (await book.vault.census()).secrets == 1
    async with on(tmp_path, key, model=model) as book:
        await book.ask(Ask("so?", "c"))
        told = json.dumps(sent(model))
        assert SECRET in told
        assert OTHER not in told, "what was said while it was off is not kept"
    other = key.with_name("other.key")
    make_key_file(other)
    async with book_on(tmp_path, dice=SystemDice()) as book:  # the key may be lost
        with pytest.raises(NotFound):
            await book.vault.clear("nothing")
        assert await book.vault.clear(by="me") == 1
        assert [(each.prompt_id, each.event, each.agent) for each in await book.audit.tail(1)] == [
            ("vault:*", "cleared", "me")
        ]
    assert sealed(tmp_path) == []
    async with on(tmp_path, other, model=model) as book:
        await book.ask(Ask(f"new {OTHER}", "c"))
        assert (await book.vault.census()).secrets == 1


async def test_counts_show_no_value_and_each_secret_once(tmp_path, key):
    async with on(tmp_path, key) as book:
        await book.append("c", [user(f"{SECRET} and {OTHER}"), user(SECRET)], user="ann")
        await book.append("d", [user(SECRET)])
        census = await book.vault.census()
        assert (census.on, census.secrets, census.posts, census.conversations) == (True, 3, 3, 2)
        assert census.families == {"aws_access_key": 1, "github_token": 2}
        assert census.unreadable == 0
        kept = {each.conversation: (each.user, each.secrets, each.posts) for each in await book.vault.list()}
        assert kept == {"c": ("ann", 2, 2), "d": (None, 1, 1)}
        assert (await book.of("acme").vault.census()).secrets == 0
        assert (await book.of("acme").vault.list()) == []
        with pytest.raises(NotFound):
            await book.of("acme").vault.reveal("c")
        with pytest.raises(NotFound):
            await book.vault.reveal("c", user="ben")


async def test_a_failed_write_keeps_no_row(tmp_path, key):
    async with on(tmp_path, key) as book:
        await book.append("c", [Posted(sender="user", message=SECRET, id="p")])
        with pytest.raises(Conflict):
            await book.append("c", [user(OTHER), Posted(sender="user", message=f"other {OTHER}", id="p")])
        assert (await book.append("c", [Posted(sender="user", message=SECRET, id="p")])).stored == 0
        assert len(sealed(tmp_path)) == 1


FAMILIES = [
    SECRET, OTHER, PEM, "sk-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8", "xoxb-123456789012-AbCdEf", "hf_" + "aB3" * 12,
    "Tr0ub4dor&3xyz", "4111 1111 1111 1111", "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0",
]  # fmt: skip
said = st.sampled_from(["my password is {}.", "use {} now", '{{"api_key": "{}"}}', "password={}"])
moves = st.lists(
    st.tuples(st.sampled_from(["ask", "append", "tool", "relay", "stop"]), st.sampled_from(FAMILIES), said),
    min_size=4,
    max_size=12,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves)
async def test_no_file_of_the_store_holds_a_secret_whatever_is_said_where(tmp_path_factory, key, moves):
    folder = tmp_path_factory.mktemp("store")
    upstream = ScriptedUpstream(default=completion("Noted."))
    model = ScriptedModel(default=lambda request: f"You said {json.loads(request.messages[-1])['content']}")
    async with on(folder, key, model=model, upstream=upstream, worker=False) as book:
        for kind, secret, form in moves:
            text = f"my password is {secret}" if secret.startswith("Tr0") else form.format(secret)
            await _move(book, upstream, kind, text)
        await book.settle(timeout=30)
        assert holding(folder, *FAMILIES, "MIIEowIBAAKCAQEAx1q2w3e4r5") == []
    assert holding(folder, *FAMILIES, "MIIEowIBAAKCAQEAx1q2w3e4r5") == []
    assert not any(secret.encode() in row[2] for row in sealed(folder) for secret in FAMILIES)


async def _move(book: Cuebook, upstream: ScriptedUpstream, kind: str, text: str) -> None:
    if kind == "ask":
        await book.ask(Ask(text, "c"))
    elif kind == "append":
        await book.append("c", [Posted(sender="user", message="see", parts=(Part("text", text, {"note": text}),))])
    elif kind == "stop":
        stream = book.stream(Ask(text, "c"))
        async for chunk in stream:
            if chunk.type == "text_delta":
                break
        await stream.aclose()
    else:
        upstream.say(completion(text if kind == "relay" else "", calls=[call("1")] if kind == "tool" else ()))
        messages = [user(text)]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        assert [piece async for piece in book.relay(Call(body=body, headers={}, conversation="r", server_history=True))]
        if kind == "tool":
            body = json.dumps({"model": "m", "messages": [result("1", text)]}).encode()
            call_ = Call(body=body, headers={}, conversation="r", server_history=True)
            assert [piece async for piece in book.relay(call_)]


async def test_the_short_form_of_a_post_has_its_own_secrets_and_the_budget_holds(tmp_path, key):
    model, filler = ScriptedModel(default="Fine."), "filler words that say nothing much at all here\n" * 14
    budget = {"budget__context": 4000, "budget__reply": 300, "budget__system": 300, "budget__window_posts": 2}
    async with on(tmp_path, key, model=model, **budget) as book:
        for n in range(40):
            await book.append("c", [user(f"Report {n}, token {SECRET}, long.\n{filler}"), bot("Good.")])
        reply = await book.ask(Ask("so?", "c"))
        told = [each for each in sent(model) if each["role"] != "system"]
        shown = [block for block in reply.window.blocks if block.seq]
        short = [each["content"] for each, block in zip(told, shown, strict=True) if block.form == "compressed"]
        assert short
        assert all(SECRET in text for text in short)
        assert sum(book.desk.count(each["content"]) + 4 for each in sent(model)) <= reply.window.tokens
        assert reply.window.tokens <= reply.window.budget
        assert (await book.turns.replay("c", 1)).verdict == "identical"
