"""Utility calls of proxy clients: recognized in any language, listed apart, with nothing added or learned."""

import json
from importlib.resources import files
from typing import Any

import pytest
from turn_helpers import NAME, Client, cue_on, system, user

from cuebook.app.cuebook import RelayCall
from cuebook.engine.turn.utility_frames import is_framed
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.testing import LoadedDice
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import completion

FACT = "I am allergic to walnuts and I live in Oslo with my sister Ingrid."
JSON = {"type": "json_object"}

#: By language, a frame before and after its content, and two contents.
FRAMES = {
    "en": (
        "Read what follows and reply with a heading of at most six words. Never explain the heading.\n\n",
        "\n\nHeading:",
        "A: Where do the ferries to Vlieland leave from?\nB: From Harlingen.",
        "A: My oven smokes at 200 degrees.\nB: Clean its floor.",
    ),
    "de": (
        "Lies den folgenden Austausch und nenne eine Überschrift aus höchstens sechs Wörtern, ohne Erklärung:\n",
        "\nÜberschrift:",
        "A: Wann fährt die Fähre nach Vlieland?\nB: Um Viertel vor zehn.",
        "A: Mein Ofen qualmt ab 200 Grad.\nB: Putz den Boden.",
    ),
    "fr": (
        "",
        "\n\nRelis l'échange ci-dessus et propose trois questions que cette personne pourrait poser ensuite.",
        "A : D'où part le bateau pour Vlieland ?\nB : De Harlingen.",
        "A : Mon four fume dès 200 degrés.\nB : Nettoie la sole.",
    ),
    "ru": (
        "Перепиши последний вопрос так, чтобы его можно было понять без остального разговора. Верни только его.\n",
        "",
        "А: Откуда идёт паром на Влиланд? Б: Из Харлингена.",
        "А: Моя духовка дымит при двухстах градусах. Б: Помой дно.",
    ),
    "zh": (
        "请阅读下面的对话内容，用不超过十个汉字写出一个能够概括全部要点的简短标题，不要解释。\n",
        "\n标题：",
        "甲：去弗利兰岛的渡轮从哪里出发？乙：从哈灵根港口。",
        "甲：我的烤箱一到二百度就冒烟。乙：清洗一下底部吧。",
    ),
    "ja": (
        "次の会話を読んで、内容を表す短い見出しを一つだけ書いてください。説明や記号は書かないでください。\n",
        "",
        "甲：フリーラント島行きの船はどこから出ますか。乙：ハルリンゲンです。",
        "甲：オーブンから煙が出ます。乙：底を掃除してください。",
    ),
}

#: Questions that people ask first, some with the same beginning or end, and edits of one of them.
LONG = (
    "I am planning four days on Vlieland with two children and a dog in the second week of June. We arrive by the "
    "early ferry from Harlingen, stay near the lighthouse, and want to cycle and see seals. What should we book ahead?"
)
QUESTIONS = (
    "hi",
    "What is the best way to get from Amsterdam to Paris with two children, a dog and a lot of luggage in August?",
    "What is the best way to get from Berlin to Rome with a bicycle and a tent, and without a night on the train?",
    "Can you please help me write a polite email to my landlord? The heating in the kitchen has been off for a week.",
    "Can you please help me write a polite email to my landlord? The neighbors upstairs hammer at night, and I work.",
    "Give me JSON with the capitals of Norway, Sweden and Denmark.",
    "Summarize the plot of Moby-Dick in three sentences.",
    "Write a title for my essay about tides.",
    "Kannst du mir bitte helfen, eine höfliche Nachricht an meinen Vermieter zu schreiben? Die Heizung ist kaputt.",
    "Kannst du mir bitte helfen, eine höfliche Nachricht an meinen Vermieter zu schreiben? Der Aufzug steckt fest.",
    "¿Cuál es la mejor manera de aprender a nadar cuando uno ya tiene sesenta años y le da miedo el agua profunda?",
    "Подскажи, пожалуйста, как лучше добраться из Москвы до Казани с двумя детьми?",
    "Подскажи, пожалуйста, как лучше приготовить борщ без мяса?",
    "请帮我写一封给房东的邮件，厨房的暖气坏了一个星期。",
    "请帮我写一封给老师的邮件，我明天不能去上课。",
    "次の週末に京都へ行きます。おすすめの静かなお寺を三つ教えてください。",
    LONG,
    LONG.replace("June", "July"),
    LONG.replace("two children and a dog", "three friends"),
    LONG.replace("near the lighthouse", "in the village, close to the harbor"),
)  # fmt: skip


async def send(client: Client, text: Any, *, headers: dict[str, str] | None = None, **fields: Any) -> str:
    """Send one message, and return the id of its conversation."""
    messages = text if isinstance(text, list) else [user(text)]
    body = {"model": "m", "messages": messages, **fields}
    client.upstream.say(completion("Noted."))
    call = RelayCall(
        body=json.dumps(body).encode(), headers=headers or {}, user=client.user_id, conversation=client.conversation
    )
    head, *_ = [piece async for piece in client.cue.relay(call)]
    return head.conversation


async def listed(cue: Any, *, utility: bool = False) -> set[str]:
    """Return the ids of the listed conversations, or of the utility calls."""
    return {each.id for each in (await cue.conversations.list(utility=utility, limit=200)).items}


def sent(upstream: ScriptedUpstream) -> Any:
    return json.loads(upstream.requests[-1].body)["messages"]


@pytest.fixture
async def clients(tmp_path, clock):
    """Open a project with memory and a persona that always speaks, and return the client of a named user."""
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, clock=clock, memory__user="named", persona__speaks="always") as cue:
        yield Client(cue, upstream, conversation=None, user_id="ann")


@pytest.mark.parametrize("language", FRAMES)
async def test_a_frame_seen_around_other_content_is_a_utility_call(clients, language):
    before, after, *contents = FRAMES[language]
    first, second = [await send(clients, f"{before}{content}{after}") for content in contents]
    assert (await listed(clients.cue), await listed(clients.cue, utility=True)) == ({first}, {second})
    assert sent(clients.upstream) == [user(f"{before}{contents[1]}{after}")]


async def test_the_contents_may_be_long(clients):
    before, after, *contents = FRAMES["en"]
    for number, content in enumerate(contents):
        lines = "\n".join(f"{content} ({line * (7 + number)})" for line in range(2_000))
        name = await send(clients, f"{before}{lines}{after}")
    assert await listed(clients.cue, utility=True) == {name}


async def test_frames_survive_a_restart_and_belong_to_one_user(tmp_path):
    upstream, dice, (before, after, first, second) = ScriptedUpstream(), LoadedDice(), FRAMES["en"]
    async with cue_on(tmp_path, upstream=upstream, dice=dice) as cue:
        await send(Client(cue, upstream, conversation=None, user_id="ann"), f"{before}{first}{after}")
    async with cue_on(tmp_path, upstream=upstream, dice=dice) as cue:
        message = f"{before}{second}{after}"
        await send(Client(cue, upstream, conversation=None, user_id="bob"), message)
        assert await listed(cue, utility=True) == set()
        await send(Client(cue, upstream, conversation=None, user_id="ann"), message)
        assert len(await listed(cue, utility=True)) == 1


async def test_a_forgotten_conversation_leaves_no_frame(clients):
    before, after, first, second = FRAMES["en"]
    name = await send(clients, f"{before}{first}{after}")
    await clients.cue.memory.forget(conversation=name)
    await send(clients, f"{before}{second}{after}")
    assert await listed(clients.cue, utility=True) == set()


async def test_ordinary_first_questions_are_conversations(clients):
    ids = [await send(clients, text) for text in (*QUESTIONS, *QUESTIONS)]
    ids += [
        await send(clients, [system("You are a helper. Answer briefly and always in English."), user(text)])
        for text in QUESTIONS
    ]
    assert await listed(clients.cue, utility=True) == set()
    assert len(set(ids)) == 3 * len(QUESTIONS)


def test_no_message_of_a_long_conversation_frames_another():
    data = json.loads(files("cuebook.app.demo").joinpath("data/conversation.json").read_text("utf-8"))
    texts = [each["message"] for each in data["posts"]]
    assert len(texts) > 300
    assert [text for n, text in enumerate(texts) if is_framed(text, texts[max(0, n - 8) : n])] == []


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([user("List the towns in: Oslo, then Bergen.")], {"response_format": JSON}),
        ([user("Where to?")], {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}}),
        ([user("Name it.")], {"max_tokens": 8}),
        ([user("Name it.")], {"max_completion_tokens": 16}),
        ([user("### Task:\nGenerate a concise, 3-5 word title with an emoji: …")], {}),
        ([system("You are a Personal Information Organizer, …"), user("Input: I like tea.")], {}),
    ],
)
async def test_format_few_tokens_and_known_templates_are_signs(clients, messages, fields):
    name = await send(clients, messages, **fields)
    assert await listed(clients.cue, utility=True) == {name}
    assert sent(clients.upstream) == messages


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"max_tokens": 500},
        {"response_format": JSON, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    ],
)
async def test_tools_and_ordinary_limits_are_no_signs(clients, fields):
    name = await send(clients, "Where do the ferries leave?", **fields)
    assert await listed(clients.cue) == {name}


async def test_the_header_decides(clients):
    messages = [user("Hi."), {"role": "assistant", "content": "Hello."}, user("Which title has this?")]
    name = await send(clients, messages, headers={"x-cuebook-utility": "1"})
    assert await listed(clients.cue, utility=True) == {name}
    assert sent(clients.upstream) == messages
    other = await send(clients, "Name it.", headers={"x-cuebook-utility": "0"}, max_tokens=8)
    assert await listed(clients.cue) == {other}
    with pytest.raises(InvalidInput, match="Available: 0, 1"):
        await send(clients, "Name it.", headers={"x-cuebook-utility": "yes"})


async def test_a_utility_call_reads_and_teaches_nothing(clients, clock):
    cue = clients.cue
    await send(clients, FACT)
    clock.advance(60)
    await cue.settle()
    known = [each.text for each in (await cue.memory.list(user="ann")).items]
    assert known, "the fact is a memory"
    text = "Extract: I am allergic to shrimp, my brother Lars lives in Bergen, and walnuts are in my cake."
    name = await send(clients, text, response_format=JSON)
    assert sent(clients.upstream) == [user(text)]
    clock.advance(60)
    await cue.settle()
    assert [each.text for each in (await cue.memory.list(user="ann")).items] == known
    assert await cue.services.store.summary(Scope(user="ann"), name) is None
    turn = await cue.turns.get(name, 1, user="ann")
    assert turn.metadata["longTermMemoryRetrieval"]["hits"] == []
    assert "sentiment" not in turn.metadata


async def test_a_utility_call_beside_a_named_conversation_is_stored_apart(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=NAME, user_id="ann")
        assert await send(client, "List the towns in: Oslo.", response_format=JSON) == NAME
        name = await send(client, "List the towns in: Bergen.", response_format=JSON)
        assert name != NAME
        assert (await listed(cue), await listed(cue, utility=True)) == ({NAME}, {name})


async def test_a_continued_utility_call_is_a_conversation(clients):
    name = await send(clients, "Where do the ferries leave? As JSON.", response_format=JSON)
    assert await listed(clients.cue, utility=True) == {name}
    assert await clients.cue.memory.search("ferries", user="ann") == []
    assert [hit.conversation for hit in await clients.cue.memory.search("ferries", user="ann", conversation=name)]
    messages = [user("Where do the ferries leave? As JSON."), {"role": "assistant", "content": "Noted."}, user("When?")]
    assert await send(clients, messages, response_format=JSON) == name
    assert (await listed(clients.cue), await listed(clients.cue, utility=True)) == ({name}, set())
    assert {hit.conversation for hit in await clients.cue.memory.search("ferries", user="ann")} == {name}


async def test_a_retried_utility_call_is_one_entry(clients):
    clients.upstream.say(HttpReply(status=429, pieces=(b'{"error": {"message": "Slow down."}}',)))
    for retry in ("0", "1"):
        await send(clients, "Name it.", headers={"x-stainless-retry-count": retry}, max_tokens=8)
    assert len(await listed(clients.cue, utility=True)) == 1


def test_one_changed_word_is_no_frame():
    assert not is_framed(LONG.replace("June", "May"), [LONG, LONG.replace("June", "July")])
    frame = FRAMES["en"][0]
    assert not is_framed(frame + "and the price?", [frame + "who is it?"])
    assert is_framed(frame + "and the price?", [frame + "who is it?", frame + "where to?", frame + "at noon"])
