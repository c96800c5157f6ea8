"""Tests of history alignment: resent, trimmed, edited and regenerated client histories."""

import json
import time

import pytest
from turn_helpers import NAME, Client, all_texts, bot, cue_on, path, system, user

from cuebook.app.cuebook import RelayCall
from cuebook.errors import InvalidInput, NotFound, UpstreamError
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion


@pytest.fixture
def upstream():
    return ScriptedUpstream()


@pytest.fixture
async def cue(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream, memory__profile="standard") as handle:
        yield handle


@pytest.fixture
def client(cue, upstream):
    return Client(cue, upstream)


async def hold_conversation(client, rounds, start=1):
    for n in range(start, start + rounds):
        await client.say(f"u{n}", f"a{n}")


async def test_a_resent_history_is_stored_once(cue, client):
    await hold_conversation(client, 3)
    assert await all_texts(cue) == ["u1", "a1", "u2", "a2", "u3", "a3"]
    assert (await cue.conversations.get(NAME)).turns == 3


@pytest.mark.parametrize("named", [True, False])
async def test_a_trimmed_answer_matches_the_stored_answer(cue, client, named):
    client.conversation = NAME if named else None
    names = []
    for n in range(1, 4):
        names.append(await client.say(f"u{n}", f"a{n} \n"))
        client.history[-1]["content"] = client.history[-1]["content"].strip()
    assert len(set(names)) == 1
    assert (await cue.conversations.get(names[0])).turns == 3
    sent = [message["content"] for message in client.upstream.messages()]
    assert sent == ["u1", "a1", "u2", "a2", "u3"], "the client's own copies are sent"


async def test_a_conversation_without_an_id_is_matched_again(cue, client):
    client.conversation = None
    names = [await client.say(f"u{n}", f"a{n}") for n in range(1, 4)]
    assert len(set(names)) == 1
    assert await all_texts(cue, names[0]) == ["u1", "a1", "u2", "a2", "u3", "a3"]


async def test_two_clients_that_say_hi_get_two_conversations(cue, upstream):
    ann, bob = (Client(cue, upstream, conversation=None, user_id=user_id) for user_id in ("ann", "bob"))
    assert await ann.say("hi", "hello") != await bob.say("hi", "hello")
    returning = Client(cue, upstream, conversation=None, user_id="ann")
    assert await returning.say("hi", "hello") not in (ann.head.conversation, bob.head.conversation)


async def test_one_history_under_two_users_stays_two_conversations(cue, upstream):
    ann, bob = (Client(cue, upstream, conversation=None, user_id=user_id) for user_id in ("ann", "bob"))
    await hold_conversation(ann, 2)
    bob.history = list(ann.history)
    assert await bob.say("u3", "a3") != ann.head.conversation
    assert await all_texts(cue, bob.head.conversation, "bob") == ["u1", "a1", "u2", "a2", "u3", "a3"]
    assert await all_texts(cue, ann.head.conversation, "ann") == ["u1", "a1", "u2", "a2"]
    with pytest.raises(NotFound):
        await bob.say("x", conversation=ann.head.conversation)


@pytest.mark.parametrize("named", [True, False])
async def test_a_trimmed_front_edits_nothing(cue, client, named):
    client.conversation = NAME if named else None
    await hold_conversation(client, 6)
    name = client.head.conversation
    client.history = client.history[-4:]
    await hold_conversation(client, 2, start=7)
    assert await path(cue, name) == [f"{kind}{n}" for n in range(1, 9) for kind in "ua"]
    window = json.loads(client.upstream.requests[-1].body)["messages"]
    assert [m["content"] for m in window] == ["u5", "a5", "u6", "a6", "u7", "a7", "u8"], "trimmed messages stay away"


@pytest.mark.parametrize("named", [True, False])
async def test_a_trimmed_middle_edits_nothing(cue, client, named):
    client.conversation = NAME if named else None
    await hold_conversation(client, 8)
    client.history = client.history[:6] + client.history[-2:]
    await client.say("u9", "a9")
    assert await path(cue, client.head.conversation) == [f"{kind}{n}" for n in range(1, 10) for kind in "ua"]


@pytest.mark.parametrize("named", [True, False])
async def test_a_clients_own_summary_in_front_edits_nothing(cue, client, named):
    client.conversation = NAME if named else None
    await hold_conversation(client, 6)
    client.history = [user("So far we talked about u1 to u4."), *client.history[-4:]]
    await client.say("u7", "a7")
    await client.say("u8", "a8")
    assert client.upstream.messages() == client.history[:-1], "the summary is sent each time"
    name, posts = client.head.conversation, [f"{kind}{n}" for n in range(1, 9) for kind in "ua"]
    assert await path(cue, name) == posts
    assert sorted(await all_texts(cue, name)) == sorted([*posts, "So far we talked about u1 to u4."]), "stored once"


async def test_an_edit_of_the_last_message_creates_a_branch(cue, client):
    await hold_conversation(client, 2)
    client.history = [*client.history[:2], user("u2 edited")]
    client.upstream.say(completion("a2 new"))
    await client.send()
    assert await path(cue) == ["u1", "a1", "u2 edited", "a2 new"]
    assert await all_texts(cue) == ["u1", "a1", "u2", "a2", "u2 edited", "a2 new"]


async def test_an_edit_in_the_middle_reaches_the_model(cue, client):
    await hold_conversation(client, 5)
    client.history[4] = user("u3 edited")
    await client.say("u6", "a6")
    texts = ["u1", "a1", "u2", "a2", "u3 edited", "a3", "u4", "a4", "u5", "a5", "u6"]
    assert [message["content"] for message in client.upstream.messages()] == texts
    assert await path(cue) == [*texts, "a6"]
    await client.say("u7", "a7")
    assert await path(cue) == [*texts, "a6", "u7", "a7"], "the branch continues"


@pytest.mark.parametrize("rounds", [1, 3])
async def test_regenerating_creates_a_branch_of_answers(cue, client, rounds):
    await hold_conversation(client, rounds)
    client.history.pop()
    client.upstream.say(completion("another"))
    await client.send()
    assert (await path(cue))[-2:] == [f"u{rounds}", "another"]
    assert len(await all_texts(cue)) == 2 * rounds + 1


async def test_a_retry_after_a_failed_turn_stores_the_query_once(cue, client):
    await hold_conversation(client, 1)
    client.upstream.say(UpstreamError("no answer", status=503))
    client.history.append(user("u2"))
    with pytest.raises(UpstreamError):
        await client.send()
    assert await path(cue) == ["u1", "a1", "u2"]
    client.upstream.say(completion("a2"))
    await client.send()
    assert await path(cue) == ["u1", "a1", "u2", "a2"]
    turns = await cue.turns.list(NAME, all_attempts=True)
    assert [turn.state for turn in turns] == ["finished", "failed", "finished"]


@pytest.mark.parametrize("named", [True, False])
async def test_a_title_call_is_stored_beside_the_path(cue, client, named):
    await hold_conversation(client, 16)
    await cue.settle()
    before, summary = await cue.services.store.conversation(Scope(), NAME), await cue.conversations.summary(NAME)
    assert summary is not None
    title = [system("You write titles."), user("Write a title for: u1 a1")]
    client.upstream.say(completion("About u1"))
    await client.send(title, conversation=NAME if named else None)
    sent = client.upstream.messages()
    assert [message["content"] for message in sent] == ["You write titles.", "Write a title for: u1 a1"]
    after = await cue.services.store.conversation(Scope(), NAME)
    assert (after.head, after.mark, after.backlog) == (before.head, before.mark, before.backlog)
    assert (client.head.conversation == NAME) == named
    record = to_wire(await cue.turns.show(client.head.conversation, client.head.turn))
    assert [block["kind"] for block in record["window"]["blocks"]] == ["section", "query"], "nothing is recalled"
    await client.say("u17", "a17")
    assert (await path(cue))[-4:] == ["u16", "a16", "u17", "a17"]
    assert not [item for item in await cue.memory.items(NAME) if "title" in item.text]


async def test_a_continued_title_call_becomes_the_path(cue, client):
    await hold_conversation(client, 2)
    for _ in range(2):  # repeated, it is still beside the path
        client.upstream.say(completion("A title"))
        await client.send([user("A title?")])
        assert (await path(cue))[-1] == "a2"
    client.upstream.say(completion("Shorter"))
    await client.send([user("A title?"), bot("A title"), user("A shorter one.")])
    assert await path(cue) == ["A title?", "A title", "A shorter one.", "Shorter"]
    await client.say("u3", "a3")
    assert await path(cue) == ["u1", "a1", "u2", "a2", "u3", "a3"]


async def test_changed_system_text_does_not_affect_alignment(cue, client):
    for n in range(1, 4):
        lead = [system(f"It is {n} o'clock."), {"role": "developer", "content": "Be kind."}]
        client.history.append(user(f"u{n}"))
        client.upstream.say(completion(f"a{n}"))
        await client.send([*lead, *client.history])
        assert client.upstream.messages()[:2] == lead, "the client's own messages are sent unchanged"
        client.history.append(bot(f"a{n}"))
    assert await path(cue) == ["u1", "a1", "u2", "a2", "u3", "a3"]


async def test_content_lists_names_and_images_are_matched(cue, client):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    first = user([{"type": "text", "text": "what is this?"}, image], name="mara")
    await client.say(first, "a cat")
    await client.say(user([{"type": "text", "text": "and"}, {"type": "text", "text": "this?"}]), "a dog")
    assert len(await all_texts(cue)) == 4
    assert client.upstream.messages()[0] == first, "sent unchanged"
    client.history[0] = user([{"type": "text", "text": "what is this?"}, image], name="mara", annotations=[])
    await client.say("thanks", "yes")
    assert len(await all_texts(cue)) == 6, "a client that adds an annotation edits nothing"


async def test_unknown_fields_go_upstream_byte_for_byte(cue, client):
    odd = b'{"role":"assistant", "content":"a1","x_signature":"\\u00e9AbC==", "reasoning_content": "hm"}'
    raw = (
        b'{"model":"m","messages":[{"content":"u1","role":"user"},'
        + odd
        + b',{"role":"user","content":"u2"}],"x":{"y":[1.50]}}'
    )  # noqa: E501, RUF100
    client.upstream.say(completion("a2"))
    [_ async for _ in cue.relay(RelayCall(body=raw, headers={}, conversation=NAME))]
    sent = client.upstream.requests[-1].body
    assert odd in sent
    assert b'"x":{"y":[1.50]}' in sent
    raw = raw.replace(
        b'{"role":"user","content":"u2"}',
        b'{"role":"user","content":"u2"},' + json.dumps(bot("a2")).encode() + b',{"role":"user","content":"u3"}',
    )  # noqa: E501, RUF100
    client.upstream.say(completion("a3"))
    [_ async for _ in cue.relay(RelayCall(body=raw, headers={}, conversation=NAME))]
    assert odd in client.upstream.requests[-1].body, "also when loaded from the store"
    assert await path(cue) == ["u1", "a1", "u2", "a2", "u3", "a3"]


@pytest.mark.parametrize(
    ("message", "location"),
    [
        ({"role": "wizard", "content": "x"}, "messages[1].role"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ("text", "messages[1]"),
        ({"role": "user", "content": "nul \x00"}, "message"),
    ],
)
async def test_an_invalid_message_is_refused_and_nothing_is_stored(cue, client, message, location):
    with pytest.raises(InvalidInput) as refused:
        await client.send([user("fine"), message])
    assert refused.value.where == location
    with pytest.raises(NotFound):
        await cue.conversations.get(NAME)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"messages":[]}', b'{"messages":{}}', b"\xff", b'{"messages":' + b"[" * 9000]
)  # noqa: E501, RUF100
async def test_an_invalid_body_is_refused(cue, body):
    with pytest.raises(InvalidInput):
        [_ async for _ in cue.relay(RelayCall(body=body, headers={}, conversation=NAME))]


async def test_a_client_continues_with_another_choice(cue, client):
    client.history.append(user("u1"))
    client.upstream.say(completion("first", "second", "third"))
    await client.send(n=3)
    assert await path(cue) == ["u1", "first"]
    client.history.append(bot("second"))
    await client.say("u2", "a2")
    assert await path(cue) == ["u1", "second", "u2", "a2"]
    assert await all_texts(cue) == ["u1", "first", "second", "third", "u2", "a2"]


async def test_with_server_history_messages_are_new(cue, client):
    for n in range(1, 4):
        client.upstream.say(completion("Noted."))
        await client.send([system("Be kind."), user("ok")], server_history=True)
        assert len(client.upstream.messages()) == 2 * n, "the system text and every earlier round"
    assert await path(cue) == ["ok", "Noted."] * 3


async def test_repeated_messages_are_aligned(cue, client):
    for _ in range(5):
        await client.say("ok", "Done.")
    assert await all_texts(cue) == ["ok", "Done."] * 5
    for n in range(6):
        await client.say("ok", f"Done, {n % 3} left.")
        client.history = client.history[-6:]
    assert await path(cue) == ["ok", "Done."] * 5 + [text for n in range(6) for text in ("ok", f"Done, {n % 3} left.")]


async def test_a_request_with_only_system_messages_is_answered(cue, client):
    client.upstream.say(completion("Hello."))
    await client.send([system("Greet the user.")])
    assert client.upstream.messages() == [system("Greet the user.")]
    client.history = [bot("Hello.")]
    await hold_conversation(client, 1)
    client.upstream.say(completion("Hello again."))
    await client.send([system("Greet the user.")])
    assert await path(cue) == ["Hello.", "u1", "a1"], "it continues no conversation"


async def test_secrets_in_a_history_are_redacted_in_storage_only(cue, client, tmp_path):
    secret = "sk-proj-Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0Fe"
    await client.say(f"my key is {secret}", f"keep {secret} safe")
    assert secret in json.dumps(client.upstream.messages())
    await client.say("and now?", "ok")
    sent = [message["content"] for message in client.upstream.messages()]
    assert sent == [f"my key is {secret}", f"keep {secret} safe", "and now?"], "the live request is unchanged"
    stored = await all_texts(cue)
    assert len(stored) == 4
    assert secret not in str(stored)
    client.upstream.say(completion("x"))
    await client.send([system(f"key {secret}"), *client.history, user("third")])
    assert client.upstream.messages()[0]["content"] == f"key {secret}"
    for n in range(1, 4):
        assert (await cue.turns.replay(NAME, n)).verdict == "identical"
    assert not [file for file in tmp_path.iterdir() if secret.encode() in file.read_bytes()]


async def test_a_history_of_a_thousand_messages_is_aligned_quickly(cue, client):
    history = [message for n in range(500) for message in (user(f"u{n} " + "word " * 30), bot(f"a{n} " + "word " * 30))]
    await cue.append(NAME, history)
    client.history = history
    await client.say("first", "ok")
    began = time.process_time()
    await client.say("second", "ok")
    assert time.process_time() - began < 5.0, "alignment takes milliseconds"
    assert (await cue.conversations.get(NAME)).last_seq == 1004


async def test_participants_are_named_but_the_owner_is_not(cue, upstream):
    await cue.append(NAME, [user("mine"), bot("yes")], user="ann")
    mine = Client(cue, upstream, user_id="ann")
    mine.history = [user("mine"), bot("yes")]
    await mine.say("more", "ok")
    assert upstream.messages() == [user("mine"), bot("yes"), user("more")]


SUMMARY = """The user plans a trip from Bergen to Oslo by train.
They prefer a window seat and leave on the first Monday in May.
The hotel at the harbour is booked for two nights, breakfast included.
The open question is whether the luggage may stay at the station after checkout."""


@pytest.mark.parametrize(
    ("answer", "resent", "same"),
    [
        (SUMMARY, f"This session continues an earlier one.\n\n{SUMMARY}\n\nGo on.", True),
        (f"<analysis>None.</analysis>\n<summary>\n{SUMMARY}\n</summary>", f"Summary:\n{SUMMARY}", True),
        (SUMMARY, f"Another session.\n\n{SUMMARY[:150]}\n\nGo on with the plan.", False),
        (SUMMARY, "> " + SUMMARY.upper().replace("\n", "\n> "), True),
        ("Noted.", f"Noted.\n{SUMMARY}", False),
    ],
)
async def test_a_summary_inside_the_first_message_continues_its_conversation(tmp_path, answer, resent, same):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=None)
        first = await client.say("Where are we?")
        assert await client.say("Summarize our conversation.", answer) == first
        client.history = []
        assert (await client.say(resent) == first) is same
        assert upstream.messages() == client.history[:1], "only what the client sent goes upstream"
        last = client.history[-1]["content"]
        assert (await client.say("And then?", "As planned.") == first) is same
        path = [post.message for post in await cue.services.store.posts(Scope(), first)]
        assert (last in path and "As planned." in path) is same, "the branch that the client continues becomes the path"


@pytest.mark.parametrize("ends", [False, True])
async def test_a_rewritten_first_answer_is_an_edit_of_its_conversation(tmp_path, ends):
    async with cue_on(tmp_path, upstream=(upstream := ScriptedUpstream())) as cue:
        client = Client(cue, upstream, conversation=None)
        first = await client.say("Which ferry leaves first?", '{"island": "Vlieland", "minutes": 95}')
        if ends:  # somebody else asked the same, and got another answer
            client.history[-1] = bot("The ferry to Texel, at noon.")
            assert await client.say("Why?") != first
            return
        client.history[-1] = bot('Calling tools: [{"island": "Vlieland", "minutes": 95}]')
        assert await client.say("And the next?", "Texel.") == first
        assert await client.say("And then?", "None.") == first
        path = [post.message for post in await cue.services.store.posts(Scope(), first)]
        assert path == [each["content"] for each in client.history], "the client's own form is the path"
        assert len((await cue.conversations.list()).items) == 1


async def test_a_summary_of_another_user_continues_no_conversation(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        ann = Client(cue, upstream, conversation=None, user_id="ann")
        first = await ann.say("Summarize our conversation.", SUMMARY)
        bob = Client(cue, upstream, conversation=None, user_id="bob")
        assert await bob.say(f"Summary:\n{SUMMARY}") != first
