"""Tests of recall: full-text keys and queries, ranking, excerpts and packing into a budget."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cuebook.memory.excerpt import excerpt, pack
from cuebook.memory.query import SENTENCES, Query, dated, long_sentences, match_values, read_query
from cuebook.memory.quotes import states_rule
from cuebook.memory.recall import rank
from cuebook.memory.recall_results import rank_found
from cuebook.memory.tokenizer import (
    KEY_WORDS,
    MARK,
    MOST_WORDS,
    key_pattern,
    key_text,
    prefix_term,
    query_words,
    read_period,
    segments_of,
    terms_in,
    words,
)
from cuebook.records.answer import Time
from cuebook.records.memory import Hit, Nearby, PostMatch, RecallCandidate, SearchResult

DAY = 86_400.0
MONDAY = datetime(2024, 5, 13, 9, tzinfo=UTC).timestamp()
MIXED = st.sampled_from(
    [
        *"Anna's dog didn't bark | ? getUserId snake_case 8th May 2023 naïve Straße ＡＢＣ 我的猫很可爱 学校 ".split(),
        *"が 학교에서 ภาษาไทย हिन्दी مَرحَبًا שָׁלוֹם ﬁ x² ½ İ ſ ﷺ é AND OR NOT NEAR(a col:x {scope} --".split(),
        *['"', "'", "*", "^", "(", ")", "\0", "😀👍🏽", "\ud800", "\u0301", "e\u0301", "\u200b", "\n", "key : a"],
    ]
)
TEXTS = st.one_of(st.text(st.characters(), max_size=60), st.lists(MIXED, max_size=12).map(" ".join))
LINES = st.sampled_from(
    [
        "I bought a red kayak in Oslo last week.",
        "What colour is it?",
        "Nice, where did you buy it?",
        "The kayak leaks. " * 60,
        "Red, like the last one.",
        "My sister plays the cello in Lisbon",
        "我昨天在东京买了一只猫",
        "",
        "ok",
    ]
)


def table(rows):
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE f USING fts5(scope, key, tokenize = 'unicode61 remove_diacritics 2')")
    db.executemany("INSERT INTO f (rowid, scope, key) VALUES (?, ?, ?)", rows)
    return db


def search(db, text, scope="c1", speakers=()):
    match = (match_values(read_query(text, speakers=speakers), scope) or {}).get("match")
    return (
        [row for (row,) in db.execute("SELECT rowid FROM f WHERE f MATCH ? ORDER BY bm25(f)", (match,))]
        if match
        else []
    )


def posts(*said, gap=60.0):
    """Return the candidates of one path from (speaker, text) pairs, a minute apart."""
    return [
        RecallCandidate(
            n,
            speaker,
            MONDAY + n * gap,
            key_text(speaker, MONDAY + n * gap, text),
            n - 1,
            role="assistant" if speaker == "assistant" else "user",
        )
        for n, (speaker, text) in enumerate(said, 1)
    ]


def order(query, candidates, *, limit=50, size=None, now=None):
    read = read_query(query, speakers=sorted({post.sender for post in candidates}), now=now)
    return [post.seq for post, *_ in rank(read, candidates, SearchResult(posts=size or len(candidates)), limit=limit)]


def count(text):
    return -(-len(text) // 4)


# ---- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna's dogs didn't bark, O'Brien’s did", "anna dog bark brien"),
        ("He went and bought two kids' bikes", "go buy two child bike"),
        ("volunteering volunteers volunteered", "volunt volunt volunt"),
        ("getUserId HTTPServer get_user_id", "getuserid user id httpserver http server user id"),
        ("on the 8th of May 2023, as I may", "8 may 2023"),
        ("Généralement naïve Straße ＡＢＣ ﬁne", "general naiv strass abc fine"),
        ("l'amour d'accord", "amour accord"),
        ("我的猫world", "我 的 猫 我的 的猫 world"),
        ("학교에서", "학 교 에 서 학교 교에 에서"),
        ("が", "が"),
        ("हिन्दी में", "हिन्दी में"),
        ("v2.0 and 3.5 GB", "v2 0 3 5 gb"),
        ("What is it that you would do to him?", ""),
        ("\0 \ud800 😀👍🏽 ", ""),
    ],
)
def test_text_is_split_into_words(text, expected):
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("我的猫 猫", "我的 的猫 猫"),
        ("Wann hat Anna der Katze das Futter gegeben?", "anna katz futter gegeben"),
        ("Quel est le nom de mon chat ?", "nom chat"),
        ("¿Dónde vive mi hermana con los gatos?", "vive hermana gato"),
        ("When did his dog die?", "dog die"),
    ],
)
def test_a_query_is_split_into_words(query, expected):
    assert query_words(query) == expected.split()


@given(TEXTS)
def test_the_key_of_a_text_contains_its_query_words(text):
    assert set(query_words(text)) <= set(words(text))
    assert all(word and " " not in word and word not in "|/?" for word in words(text))


def test_a_key_contains_date_speaker_and_words():
    assert key_text("Anna Lee", MONDAY, "Hi! When did Tom go home? [image: a cat]") == (
        "2024 may 13 monday anna lee | tom go home imag cat ?"
    )
    assert key_text("user", 1e18, "fine") == "user | fine"


def test_a_huge_post_is_found_by_each_of_its_words():
    text = " ".join(f"w{n % 7000}" for n in range(40_000))
    key = key_text("tool", MONDAY, text).split()
    assert len(key) - key.count(MARK) < 7_000 + KEY_WORDS
    assert {f"w{n}" for n in range(7000)} <= set(key)
    many = key_text("tool", MONDAY, " ".join(f"w{n}" for n in range(MOST_WORDS + 9))).split()
    assert len(many) - many.count(MARK) == len("2024 may 13 monday tool |".split()) + MOST_WORDS


@given(st.one_of(TEXTS, st.lists(LINES).map("\n".join)).map(lambda text: text * 9))
def test_the_segments_of_a_text_cover_it_in_order(text):
    spans = segments_of(text)
    assert "".join(text[first:last] for first, last in spans) == text
    assert all(first < last for first, last in spans) or text == ""
    assert key_text("Ann", MONDAY, text).split().count(MARK) == len(spans) - 1


@pytest.mark.parametrize(
    ("text", "first", "days"),
    [
        ("what did I say yesterday?", "2024-05-14", 1),
        ("Last Monday?", "2024-05-13", 1),
        ("last wednesday", "2024-05-08", 1),
        ("3 days ago", "2024-05-12", 1),
        ("two weeks ago", "2024-04-28", 7),
        ("last week", "2024-05-06", 7),
        ("this month", "2024-05-01", 15),
        ("last month", "2024-04-01", 30),
        ("last year", "2023-01-01", 365),
        ("am 3.5.2024?", "2024-05-03", 1),
        ("2024-02 or so", "2024-02-01", 29),
        ("2024年5月3日", "2024-05-03", 1),
        ("on 3 May 2024 or later", "2024-05-03", 1),
        ("May 3rd, 2024?", "2024-05-03", 1),
        ("in Sept 2023", "2023-09-01", 30),
        ("am 3. März 2024", "2024-03-03", 1),
        ("el 3 de mayo de 2024", "2024-05-03", 1),
        ("en aout 2023", "2023-08-01", 31),
        ("on 31 February 2024", None, 0),
        ("May 0, 2024", None, 0),
        ("page 10 May 15, 2024", "2024-05-15", 1),
        ("5.Mai 2024", "2024-05-05", 1),
        ("le 15\u00a0aou\u0302t\n2023", "2023-08-15", 1),
        ("In March 1500 people came yesterday", "2024-05-14", 1),
        ("What happened in March?", "2024-03-01", 31),
        ("in May, or later", "2024-05-01", 31),
        ("in December", "2023-12-01", 31),
        ("on 14 May", "2024-05-14", 1),
        ("May 16", "2023-05-16", 1),
        ("am 3. märz", "2024-03-03", 1),
        ("el 3 de mayo", "2024-05-03", 1),
        ("Was war im Juni?", "2023-06-01", 30),
        ("en mayo", "2024-05-01", 31),
        ("29 February", "2024-02-29", 1),
        ("In March 5 people came", "2024-03-01", 31),
        ("May I ask what I may do?", None, 0),
        ("Can August come? Ask June about the 3 mar options.", None, 0),
        ("13 May '23", None, 0),
        ("13 May 1650", None, 0),
        ("on 31 April", None, 0),
        ("Apr\u0131l 2023, APR\u0130L 2023, Augu\u017ft 2023", "2023-04-01", 30),
        ("on 2024-13-01", None, 0),
        ("at last", None, 0),
    ],
)
def test_relative_periods_resolve_to_dates(text, first, days):
    period = read_period(text, MONDAY + 2 * DAY)
    begin = first and datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp()
    assert period == (first and (begin, begin + days * DAY))


def test_a_named_date_is_found_in_any_language():
    said = [("Ann", "We ate soup."), *FILLER]
    for query in ("What did we do in May 2024?", "Was war im Mai 2024?", "¿Qué hicimos en mayo de 2024?"):
        assert set(query_words(dated(query, now=MONDAY, zone=UTC))) >= {"2024", "may"}
        assert found(dated(query, now=MONDAY, zone=UTC), *said)
    assert dated("What did we do in May 2024?", now=MONDAY, zone=UTC) == "What did we do in May 2024?"


@given(TEXTS, st.floats())
def test_any_date_is_accepted_as_now(text, now):
    read_query(text + " 999 years ago", now=now)
    key_text(text, now, text)


# ---- full-text queries ----------------------------------------------------------------------------------------------


@given(TEXTS, TEXTS, TEXTS)
def test_any_query_is_a_valid_full_text_expression(text, other, scope):
    key = key_text("Anna", MONDAY, text)
    with closing(table([(1, "c1", key), (2, "c2", key)])) as db:
        search(db, other, scope.encode("utf-8", "ignore").decode())
        assert search(db, text) == ([1] if query_words(text) else [])


@given(st.lists(TEXTS, min_size=1, max_size=5), TEXTS)
def test_full_text_and_ranking_match_the_same_posts(texts, query):
    keys = [key_text("Anna", MONDAY, text) for text in texts]
    with closing(table([(n, "c1", key) for n, key in enumerate(keys)])) as db:
        for term in read_query(query).terms:
            by_words = {n for n, key in enumerate(keys) if key_pattern(term) in f" {key} "}
            rows = db.execute("SELECT rowid FROM f WHERE f MATCH :match", match_values(Query("", (term,)), "c1"))
            assert by_words == {row for (row,) in rows}


def test_speaker_names_are_searched_only_alone():
    names = ("Anna", "Bob Lee", "user", "Will")
    assert (match_values(read_query("What does Anna like to eat?", speakers=names), "c1") or {})["match"] == (
        'scope : "c1" AND key : ("like" OR "eat")'
    )
    assert (match_values(read_query("And Anna?", speakers=names), 'c"1') or {})[
        "match"
    ] == 'scope : "c""1" AND key : ("anna")'
    assert match_values(read_query("What is it?", speakers=names), "c1") is None


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("What does Anna like?", ("Anna",)),
        ("what did lee and anna do", ("Anna", "Bob Lee")),
        ("Did Will come?", ("Will",)),
        ("Will it rain on the user?", ()),
        ("will it rain", ()),
    ],
)
def test_speakers_named_in_a_query_are_recognized(query, named):
    speakers = ["Anna", "Bob Lee", "user", "assistant"] + (["Will"] if query.startswith("Did") else [])
    assert read_query(query, speakers=speakers).named == named


def test_a_long_query_is_reduced_to_its_longest_words():
    read = read_query(" ".join(f"{'x' * (n % 40)}{n}" for n in range(2000)))
    assert len(read.terms) == 32
    assert min(map(len, read.terms)) > 30


# ---- ranking --------------------------------------------------------------------------------------------------------


def test_messages_around_a_match_count_by_their_distance_in_words():
    burst = [("ann", text) for text in ("I rented a kayak", "red one", "old too", "great day", "we sang", "so tired")]
    assert order("Where is the kayak?", posts(*burst), size=60) == [1, 2, 3, 4, 5, 6]
    far = [burst[0], ("bob", "and " + "rain fell on hills " * 30), burst[1]]
    assert order("Where is the kayak?", posts(*far), size=60)[0] == 1
    assert 3 not in order("Where is the kayak?", posts(*far), size=60)


def test_words_in_distant_messages_score_less_than_in_adjacent_ones():
    said = ["red kayak", *(f"fine weather here {n}" for n in range(4)), "Oslo trip"]
    near, apart = [said[0], said[-1], *said[1:-1]], said
    scores = [
        rank(read_query("red kayak Oslo"), posts(*(("ann", text) for text in each)), SearchResult(posts=60), limit=1)
        for each in (near, apart)
    ]
    assert scores[0][0].score > scores[1][0].score


@given(
    st.lists(st.tuples(st.sampled_from(["Anna", "Bob", "user", "tool"]), LINES), max_size=12),
    st.one_of(LINES, TEXTS),
    st.integers(0, 6),
    st.floats(0, 1e5),
)
def test_rank_is_deterministic_bounded_and_sorted(said, query, limit, gap):
    candidates = posts(*said, gap=gap)
    read = read_query(query, speakers=["Anna", "Bob"], now=MONDAY)
    hits = rank(read, candidates, SearchResult(posts=len(said)), limit=limit)
    shuffled = Random(len(query)).sample(candidates, len(candidates))
    assert rank(read, [*shuffled, *shuffled], SearchResult(posts=len(said)), limit=limit) == hits
    assert len(hits) <= limit
    assert all(0 < hit.score <= 1 and hit.why for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({seq for seq, *_ in hits}) == len(hits)


FILLER = [("Anna", "We talked about the weather and the garden."), ("Bob", "It rained on the tulips all morning.")] * 8
ASSISTED = [("Ann" if speaker == "Anna" else "assistant", text) for speaker, text in FILLER]


def test_an_answer_is_returned_with_its_question():
    said = [*FILLER, ("Anna", "How long have you played the cello?"), ("Bob", "Seven years now."), *FILLER]
    assert set(order("How long has Bob played the cello?", posts(*said))[:2]) == {17, 18}


def test_the_named_speaker_ranks_first():
    said = [*FILLER, ("Anna", "My kayak is red."), *FILLER, ("Bob", "My kayak is red."), *FILLER]
    candidates = posts(*said, gap=4 * 3600.0)
    assert order("Which kayak is Bob's?", candidates)[0] == 34
    assert order("Which kayak is Anna's?", candidates)[0] == 17


@pytest.mark.parametrize(
    ("query", "first"),
    [("Which kayak did I choose?", 17), ("Which kayak did you choose for me?", 34)],
    ids=["I", "you"],
)
def test_a_question_about_its_author_prefers_what_the_user_said(query, first):
    said = [*ASSISTED, ("Ann", "The kayak is red."), *ASSISTED, ("assistant", "The kayak is red."), *ASSISTED]
    assert order(query, posts(*said, gap=4 * 3600.0))[0] == first


def test_generic_speakers_are_no_names():
    said = [("user", "The user table has a red column."), *FILLER, ("assistant", "The table has a red column.")]
    both = order("Which column did the user table have, says the assistant?", posts(*said, gap=4 * 3600.0))
    assert both[0] == 1
    assert read_query("the user", speakers=["user", "assistant"]).named == ()


def test_a_long_answer_neither_dominates_nor_disappears():
    advice = " ".join(f"Sentence {n} speaks of training, leashes and treats for a dog." for n in range(30))
    long = advice + " I recommend the Kestrel harness. " + advice
    said = [*FILLER, ("user", "My dog is called Biscuit. Any tips for training?"), ("assistant", long), *FILLER]
    candidates = posts(*said)
    assert order("What is my dog called?", candidates)[0] == 17
    assert order("Which harness did you recommend?", candidates)[0] == 18


def test_a_matching_session_raises_its_posts():
    trip = [("Anna", "The ferry to Bergen leaves at noon."), ("Bob", "Packing a raincoat for Bergen and the ferry.")]
    said = [("Bob", "A raincoat is useful."), *FILLER, *trip, *FILLER]
    assert order("raincoat for the ferry to Bergen", posts(*said))[0] == 19


def test_a_time_in_the_query_affects_the_ranking():
    said = [("Anna", "I went swimming."), *FILLER, ("Anna", "I went swimming.")]
    candidates = posts(*said, gap=DAY)
    now = MONDAY + 2 * DAY
    assert order("Who went swimming yesterday?", candidates, now=now)[0] == 1
    assert order("Who went swimming?", candidates)[0] == 18


def test_neighbors_and_sessions_stay_in_their_conversation():
    one = RecallCandidate(1, "user", MONDAY, key_text("user", MONDAY, "What is my cat called?"))
    two = RecallCandidate(2, "user", MONDAY, key_text("user", MONDAY, "Biscuit."), previous=1, no=1)
    assert [post.seq for post, *_ in rank(read_query("cat"), [one, two], SearchResult(posts=9), limit=9)] == [1]


@pytest.mark.parametrize(
    "query", ["", "?", "thanks!", "what is it", "photosynthesis of cacti", "zebra crossings in Anna"]
)
def test_an_unrelated_query_returns_nothing(query):
    assert order(query, posts(*FILLER, ("Anna", "Thanks, it is what it is."))) == []


def test_one_common_word_returns_nothing():
    said = [("Anna", f"I like number {n} a lot.") for n in range(30)]
    assert order("Which chloroplasts like ultraviolet xylem?", posts(*said)) == []
    assert len(order("Who likes numbers?", posts(*said))) == 30


def test_a_named_speaker_returns_results():
    said = posts(*[("user", "We talked of the weather again.")] * 30, ("user", "Malik broke an ankle while climbing."))
    assert order("Why is Malik unable to get behind the steering wheel of cars?", said)[:1] == [31]
    assert order("Why is nobody unable to get behind the steering wheel of cars?", said) == []


def test_small_words_are_no_evidence_and_one_rare_word_is_not_enough():
    said = posts(
        *[("user", "It was a good day, I had time and the weather was fine.")] * 30, ("user", "The ferry left.")
    )
    assert order("A good day and good time: which cello sonata has the pizzicato arpeggio?", said) == []
    assert order("Which ferry carried the cello, the pizzicato, the sonata and an arpeggio?", said) == []
    assert order("When has the ferry left with the cello and the sonata?", said)[:1] == [31]


def test_one_word_and_the_name_of_a_speaker_are_no_evidence_for_a_long_question():
    said = posts(*FILLER, ("Anna", "My saddle is red."), *FILLER)
    assert order("Which saddle is Anna's?", said)[:1] == [17]
    rest = "thermostat, compass, lantern and anvil"
    assert order(f"Which {rest} did Anna lend with her saddle to an orchid dealer?", said) == []


def test_german_nouns_are_no_names():
    said = posts(*[("user", "Das Wetter war heute schön.")] * 9, ("user", "Swantje holt uns mit dem Kater ab."))
    assert order("Wer hat gestern den kranken Kater untersucht, gebadet und gekämmt?", said) == []
    assert order("Wen holt Swantje mit dem Kater ab?", said)[:1] == [10]


def test_each_sentence_of_a_long_message_is_searched():
    talk = "Honestly the weather in the garden is awful and the tulips drown, what a rainy, miserable morning. "
    said = posts(*FILLER, ("Anna", "The cello teacher is called Ines."), *FILLER, gap=4 * 3600.0)
    assert order(talk + "Who teaches the cello?", said)[0] == 17


def found(query, *said, tokens=9, gap=DAY, **options):
    """Return the hits among (speaker, text) pairs, a day apart."""
    matches = [
        PostMatch(**{**structs.asdict(post), "text": text}, id=f"p{post.seq}", tokens=tokens, direct=True)
        for post, (_, text) in zip(posts(*said, gap=gap), said, strict=True)
    ]
    options = {"limit": 9, "count": count, **options}
    return rank_found(SearchResult(found=tuple(matches), posts=len(said)), read_query(query), **options)


def test_posts_without_text_are_no_hits():
    question = ("Ann", "Why does test_spring_high fail on CI?")
    said = [*FILLER, question, ("Ben", ""), ("Tool", "test_spring_high failed: two naive datetimes"), ("Ben", " ")]
    hits = found("Why did test_spring_high fail on CI?", *said, gap=40.0)
    assert {"Ann", "Tool"} <= {hit.speaker for hit in hits}
    assert all(hit.text.strip() for hit in hits)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Which prefix do variable names start with?", "fn_ b_ a_"),
        ("Which prefix did variable names start with at first?", "a_ b_ fn_"),
    ],
)
def test_versions_of_a_statement_are_ordered_by_time(query, expected):
    values = ("a_", "b_", "fn_")
    said = [("Ann", f"Hi. From now on, the prefix of all variable names is {value}, please.") for value in values]
    hits = found(query, *FILLER, said[0], *FILLER, said[1], *FILLER, said[2], ("Ann", "A name is a label."))
    assert [hit.text.split()[-2].strip(",") for hit in hits[:3]] == expected.split()
    ids = {hit.sources[0]: hit.newer for hit in hits}
    assert (ids["p17"], ids["p34"], ids["p51"]) == ("post:p34", "post:p51", None)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    order = "oldest first" if expected.startswith("a_") else "newest first"
    assert [hit.why.rpartition("; ")[2] for hit in hits[:3]] == [order] * 3


def test_a_question_is_no_version_of_a_statement():
    values = [("Ann", f"The office rent is {euros} euros{tag}") for euros, tag in ((900, "."), (950, ", right?"))]
    said = [*FILLER, values[0], *FILLER, values[1], *FILLER, ("Ann", "Hm. Is the office rent tax deductible?")]
    said += [*FILLER, ("Ann", "Remember the old office rent? It is 990 now."), *FILLER]
    for query, expected in (
        ("What is the office rent?", "p68 p34 p17 p51"),
        ("… the office rent at first?", "p17 p34 p68 p51"),
    ):
        hits = found(query, *said)
        assert [hit.sources[0] for hit in hits[:4]] == expected.split()
        newer = {hit.sources[0]: hit.newer for hit in hits[:4]}
        assert newer == {"p17": "post:p34", "p34": "post:p68", "p68": None, "p51": None}


@pytest.mark.parametrize(
    ("said", "newest", "first"),
    [
        (
            ("My landlord is called Mr Hobbs.", "My landlord is Ms Varga, the house was sold.", "I am currently late."),
            ("Who is currently my landlord?", "Who is my landlord these days?", "Who is my current landlord?"),
            ("Who was my landlord at first?", "Who was my landlord when I started?", "Who was originally my landlord?"),
        ),
        (
            ("Mein Hausarzt ist Doktor Brandt.", "Mein Hausarzt ist Doktor Okonkwo.", "Zuletzt regnete es."),
            ("Wer war zuletzt mein Hausarzt?", "Wer ist derzeit mein Hausarzt?"),
            ("Wer war anfangs mein Hausarzt?", "Wer war ursprünglich, also am Anfang, mein Hausarzt?"),
        ),
        (
            ("Le marché ferme à midi.", "Le marché ferme à une heure depuis mai.", "Au début il pleuvait."),
            ("Quand est-ce que le marché ferme actuellement ?",),
            ("Quand est-ce que le marché ferme au début ?", "Quand le marché ferme-t-il à l’origine ?"),
        ),
        (
            ("La panadería abre a las siete.", "La panadería abre a las seis.", "Ahora leo una novela."),
            ("¿A qué hora abre ahora la panadería?",),
            ("¿A qué hora abre al principio la panadería?",),
        ),
        (
            ("会議は月曜日です。", "会議は木曜日です。", "最初は鍵が見つからなかった。"),
            ("会議は今の何曜日ですか",),
            ("最初の会議は何曜日でしたか",),
        ),
        (
            ("我的房租是三千元。", "我的房租是三千五百元。", "我现在在看小说。"),
            ("我现在的房租是多少？",),
            ("我最初的房租是多少？",),
        ),
    ],
)
def test_words_of_time_choose_the_newest_or_the_first_version(said, newest, first):
    old, new, other = (("user", text) for text in said)
    talk = [*FILLER, old, other, *FILLER, new, *FILLER]
    for query in newest:
        assert [hit.text for hit in found(query, *talk)[:2]] == [new[1], old[1]], query
    for query in first:
        assert [hit.text for hit in found(query, *talk)[:2]] == [old[1], new[1]], query


def test_words_of_time_are_searched_if_a_query_has_no_others():
    assert read_query("What did I say when I started?").terms == ("say",)
    assert read_query("at first, originally").terms == ("first", "origin")
    assert read_query("Is the originality of the current measured?").terms == ("origin", "current", "measur")


@pytest.mark.parametrize(
    ("query", "terms", "about_author"),
    [
        ("Can you list the trips I brought up?", ("trip", "bring"), True),
        ("Please summarize how my plans for the boat developed", ("plan", "boat", "develop"), True),
        ("Can you remind me of the name of the venue?", ("remind", "name", "venu"), False),
        ("What did you tell me about my car?", ("tell", "car"), False),
        ("Kannst du meine Reisen auflisten?", ("reis*", "aufli*"), True),
        ("Peux-tu lister mes voyages ?", ("list*", "voyag*"), True),
        ("Write a list", ("write", "list"), False),
        ("Who wrote the request to list the shares?", ("write", "request", "list", "share"), False),
    ],
)
def test_the_words_of_a_request_are_not_searched(query, terms, about_author):
    result = read_query(query)
    assert (result.terms, result.is_about_author) == (terms, about_author)


# ---- forms of words in other languages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("Wann hat sie sich beim Schnitzen verletzt?", "die Verletzung vom schnitzer ist fast verheilt"),
        ("Wie streng war der Fahrlehrer?", "die prüfung lief gut, aber die fahrlehrerin hat gemeckert"),
        ("Wie heißen ihre Katzen?", "meine katze mimi und der kater"),
        ("Pourquoi a-t-elle changé de travail ?", "je change encore, travailler là-bas me fatigue"),
        ("¿Cuándo empezó a trabajar en la panadería?", "empecé en lo del panadero, trabajo de noche"),
        ("Wanneer is hij verhuisd naar het dorp?", "de verhuizing was zaterdag, het dorpje is klein"),
        ("Когда она переехала в деревню?", "переезд в субботу, деревня маленькая"),
    ],
)
def test_other_forms_of_a_word_are_found_in_any_language(query, answer):
    said = [("Ann", "bonjour hallo hola"), *FILLER, ("Ben", answer), *FILLER]
    assert [hit.text for hit in found(query, *said)][:1] == [answer]


def test_english_words_are_compared_by_their_stems():
    assert read_query("When was she injured at the station?").terms == ("injur", "station")
    assert read_query("Wann wurde sie am Bahnhof verletzt, um 17 Uhr?").terms == ("bahnh*", "verl*", "17", "uhr")
    assert read_query("fix parseConfig").terms == ("fix", "parseconfig", "pars", "config")


@given(st.text(st.sampled_from("abcdeéghiknorstuyz"), min_size=1, max_size=12))
def test_a_word_begins_like_itself(text):
    for word in words(text):
        assert terms_in([prefix_term(word)], [word]) == {prefix_term(word)}
        assert len(prefix_term(word)) >= min(5, len(word))


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("Wann macht der Friedhof am Berg zu?", "der friedhof am berg schließt um acht"),
        ("Kim jest Patrycja?", "patrycja to moja siostra"),
        ("Wer ist unser Babysitter?", "babysitter ist jetzt die jana"),
        ("Où sont les photographies ?", "les photographies sont chez ma mère"),
        ("Was für ein Märchen liest sie vor?", "sie liest das märchen vom wolf"),
        ("Was hat denn Frida gesagt?", "frida kommt nicht"),
    ],
)
def test_words_that_begin_like_others_are_found(query, answer):
    said = [("user", "na dann, schönen freitag"), ("assistant", "das kind ist krank"), ("user", answer)]
    said += [("assistant", f"etwas anderes, nummer {n}") for n in range(20)]
    assert [hit.text for hit in found(query, *said)][:1] == [answer]


def test_the_first_letters_are_not_compared_with_date_and_speaker():
    said = [("assistant", f"nichts neues an tag {n}") for n in range(20)]
    assert found("Wer ist denn der Assistenzarzt?", *said) == []
    assert found("Was hat denn Frida gesagt?", *said) == []  # on Fridays


def test_words_that_only_begin_alike_are_no_versions():
    doctor, garden = "Der Kinderarzt von Emil heißt Dr. Braun.", "Der Kindergarten von Emil heißt Sonnenhof."
    talk = [("Ann", doctor), *FILLER, ("Ann", garden), *FILLER]
    hits = found("Wie heißt denn der Kinderarzt von Emil?", *talk)
    assert hits[0].text == doctor
    assert hits[0].newer is None
    hits = found(
        "Was ist denn mein Lieblingsfilm?",
        ("Ann", "Lieblingsessen, Lieblingsmusik"),
        *FILLER,
        ("Ann", "Lieblingsfilm: Alien"),
    )
    assert hits[0].text == "Lieblingsfilm: Alien"


def test_keywords_in_english_are_compared_by_their_stems():
    query = read_query("Caroline adoption agency interviews")
    assert query.terms == ("carolin", "adopt", "agenc", "interview")


@pytest.mark.parametrize("word", ["Y", "war", "sobre", "Wer"])
def test_a_stop_word_alone_is_searched(word):
    assert read_query(word).terms == tuple(query_words(word))


def test_the_longest_words_of_a_long_query_are_kept():
    query = read_query("Wie hoch ist denn das? " + " ".join(f"wort{'x' * n}" for n in range(9, 50)) + " Haftpflicht")
    assert "haftp*" not in query.terms
    query = read_query(
        "Wie ist denn die? " + " ".join(f"klein{a}" for a in "abcdefghijklmnopqrstuvwxyzäöü12345678") + " Haftpflicht"
    )
    assert "haftp*" in query.terms


def test_a_name_is_recognized_in_any_case():
    query = read_query("Was wollte Inkens Bruder mit Valentin kaufen?", speakers=["Inken", "Valentin"])
    assert query.named == ("Inken", "Valentin")
    assert set(query.terms) - query.names == {"brude*", "kauf*"}
    assert read_query("Wie alt ist denn Mario?", speakers=["Marion", "Mario"]).named == ("Mario",)
    assert read_query("Wer ist denn Marions Bruder?", speakers=["Inken", "Marion"]).named == ("Marion",)
    assert read_query("Wann sah Mario denn Inkens Haus?", speakers=["Inken", "Mario"]).named == ("Inken", "Mario")
    for other in ("Wer ist denn Christine?", "Wann ist denn die Christmette?"):
        assert read_query(other, speakers=["Christian", "Eva"]).named == ()
    assert read_query("Gdzie jest pies Szymonowi?", speakers=["Szymon", "Ewa"]).named == ("Szymon",)


CELLO = [
    ("Anna", "How long have you played the cello?"),
    ("Bob", "Seven years now."),
    ("Bob", "Yes, the cello: long lessons, hard pieces."),
]


def test_a_post_without_a_word_of_the_query_is_nearby_its_neighbor():
    said = [*FILLER, *CELLO, *FILLER]
    first, *others = found("How long is the cello played?", *said, gap=60.0)
    assert first.text == "How long have you played the cello?\n(after) Bob: Seven years now."
    assert [(each.id, each.speaker, each.text) for each in first.nearby] == [("p18", "Bob", "Seven years now.")]
    assert first.tokens == 18 + count("\n(after) Bob: ")
    assert first.sources == ("p17", "p18")
    assert "p18" not in {post for hit in others for post in hit.sources}
    assert "p19" in {hit.sources[0] for hit in others}  # it has a word of the query


def test_skipped_posts_are_not_nearby():
    hits = found("How long is the cello played?", *FILLER, *CELLO, *FILLER, gap=60.0, skip={18})
    assert hits[0].nearby == ()
    assert "p18" not in {post for hit in hits for post in hit.sources}


def test_hits_under_a_share_of_the_best_are_omitted():
    said = [("Ann", "The red kayak leaks."), *FILLER, ("Ann", "A kayak."), *FILLER]
    everything = found("Which red kayak leaks?", *said, min_share=0)
    few = found("Which red kayak leaks?", *said, min_share=0.9)
    assert [hit for hit in everything if hit.score >= 0.9 * everything[0].score] == few
    assert len(few) == 1 < len(everything)


def test_a_task_finds_the_rules_that_apply_to_it():
    rule = "From now on, start the names in a function with x_."
    said = [("Ann", rule), *ASSISTED, ("Ann", "A list of ferries sorts itself."), *ASSISTED]
    hits = [found(f"{begin} a function that sorts a list of ferries.", *said) for begin in ("Write", "I saw")]
    assert [[hit.text for hit in each] for each in hits] == [[said[17][1], rule]] * 2
    assert "rule ×1.5" in hits[0][1].why
    [only] = found("Write a function with recursion, memoization, iterators and generators.", *said)
    assert only.text == rule


def test_what_the_user_asked_of_an_assistant_ranks_higher():
    stated = ("Ann", "About kayaks, I prefer wooden ones, and never buy a used kayak.")
    scores = []
    for listener in ("assistant", "Bob"):
        said = [*ASSISTED, stated, *ASSISTED, ("assistant", "A kayak course starts in May."), (listener, "Good.")]
        scores.append({hit.text: hit.score for hit in found("Which kayak course starts soon?", *said)}[stated[1]])
    assert scores[0] > scores[1] + 0.1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No emojis.", True),
        ("Keine Anrufe vor zehn Uhr.", True),
        ("Nobody called about the kayak.", False),
        ("Niemand hat wegen des Kajaks angerufen.", False),
    ],
)
def test_a_ban_is_a_rule_but_nobody_is_none(text, expected):
    assert states_rule(text) is expected


def test_the_reason_for_a_score_names_the_words_that_match():
    said = [*ASSISTED, ("Ann", "The kayak club called me."), *ASSISTED, ("Ann", "Never call me about a kayak.")]
    why = {hit.text: hit.why for hit in found("Who called about the kayak?", *said)}
    assert [text for text, each in why.items() if "rule ×1.5" in each] == ["Never call me about a kayak."]
    assert "(call, kayak)" in why["The kayak club called me."]


@pytest.mark.parametrize(
    ("query", "first"), [("boat 13 May and 4 April", "2024-05-13"), ("a boat in May or June", "2024-05-01")]
)
def test_of_two_dates_in_a_query_the_first_counts(query, first):
    now = MONDAY + 2 * DAY
    read = read_query(dated(query, now=now, zone=UTC), now=now)
    assert datetime.fromtimestamp(read.period[0], UTC).date().isoformat() == first


def test_a_speaker_may_have_the_name_of_a_month():
    now = MONDAY + 2 * DAY
    read = read_query(dated("dinner on 2024-05-13", now=now, zone=UTC), speakers=["May"], now=now)
    said = posts(*FILLER, ("May", "Dinner was late."), *FILLER)
    [first, *_] = rank(read, said, SearchResult(posts=len(said)), limit=9)
    assert first.post.seq == 17


def test_a_long_post_is_returned_as_its_best_passage_with_its_heading():
    filler = "Sentence about leashes and treats for dogs. " * 20
    text = f"# Dogs\n{filler}\n## Harnesses\nThe Kestrel harness costs 40 dollars. {filler}\n## Food\n{filler}"
    hit = found("How many dollars for the Kestrel harness?", *FILLER, ("assistant", text), tokens=900)[0]
    assert (hit.text.startswith("# Dogs\n… "), hit.text.endswith(" …")) == (True, True)
    assert "\n## Harnesses\nThe Kestrel harness costs 40 dollars. Sentence" in hit.text
    assert hit.tokens == count(hit.text) < 200


def test_a_long_post_gains_little_from_its_session():
    page = "The harbor has a crane and a ferry to the island. " * 90
    short, long = "The tide table is in the hall.", f"{page} The tide table of the lighthouse is printed. {page}"
    candidates = posts(("Ann", short), ("assistant", long), *FILLER, gap=60.0)
    ranked = rank(read_query("tide table of the lighthouse"), candidates, SearchResult(posts=18), limit=9)
    why = {hit.post.seq: hit.why for hit in ranked}
    assert ("session 0." in why[1], "session" in why[2]) == (True, False)


def test_short_posts_close_in_meaning_do_not_displace_a_long_one_by_their_session():
    lines = " ".join(f"tests/part{n} took {n} ms and passed." for n in range(150))
    output = f"{lines} FAILED test of the billing client: expected 3, got 7. {lines}"
    kinds = "client store queue loader parser schema policy router cache mailer locale".split()
    remarks = [("user", f"Look at the billing {kind}, something is off there.") for kind in kinds]
    cosines = [*(0.6 - n / 100 for n in range(len(kinds))), 0.25, *[0.1] * len(FILLER)]
    said = posts(*remarks, ("tool", output), *FILLER)
    candidates = [structs.replace(post, cosine=each) for post, each in zip(said, cosines, strict=True)]
    read = read_query("Which value did the failing test of the billing client get?")
    ranked = rank(read, candidates, SearchResult(posts=len(said), mean_cosine=0.1, akin=0.5), limit=9)
    assert len(kinds) + 1 in [hit.post.seq for hit in ranked[:5]]


INVITED = (
    "Guess what, the neighbours from upstairs want to take me along on their sailing boat next weekend, three days out "
    "to the islands with a tent, and I have no idea what to pack or whether to say yes at all."
)


def test_a_long_message_whose_words_match_by_chance_finds_posts_by_meaning_alone():
    cue = ("Ann", "I get seasick even on a ferry.")
    chance = [("Ann", "The tent of the circus is on the islands."), ("Bob", "Pack the plates into the boat.")]
    said = posts(*FILLER, *chance, *FILLER, cue, *FILLER, gap=DAY)
    candidates = [structs.replace(post, cosine=0.4 if "seasick" in post.key else 0.1) for post in said]
    first, *_ = rank(read_query(INVITED), candidates, SearchResult(posts=60, mean_cosine=0.1, akin=0.6), limit=9)
    assert "seasick" in first.post.key
    assert first.why == "keywords 0.00, by chance, meaning 1.00"


def test_a_post_without_a_vector_is_found_by_its_words_beside_others_with_one():
    said = posts(*FILLER, ("Ann", "The tent of the circus is on the islands."), *FILLER)
    candidates = [post if post.seq == 17 else structs.replace(post, cosine=0.1 + post.seq / 100) for post in said]
    ranked = rank(read_query(INVITED), candidates, SearchResult(posts=60, mean_cosine=0.1, akin=0.9), limit=9)
    assert 17 in [each.post.seq for each in ranked[:3]]


def test_a_query_of_unknown_words_needs_less_closeness_in_meaning():
    said = posts(*FILLER, ("Ann", "Our wedding was on the beach."), *FILLER)
    corpus = SearchResult(posts=len(said), mean_cosine=0.1, akin=0.5)

    def closest(cosine):
        candidates = [structs.replace(post, cosine=cosine if "wed" in post.key else 0.1) for post in said]
        return [each.post.seq for each in rank(read_query("When did they get married?"), candidates, corpus, limit=1)]

    assert (closest(0.4), closest(0.3)) == ([17], [])


def test_without_a_cutoff_posts_that_match_by_chance_are_shown():
    query = "Which compiler flags does the build of the lighthouse need in the garden?"
    assert found(query, *FILLER) == []
    assert {hit.speaker for hit in found(query, *FILLER, min_share=0.0)} == {"Anna"}


def test_words_that_match_by_chance_count_fully_if_no_post_has_a_vector():
    said = posts(*FILLER, ("Ann", "We pack the tent."), *FILLER, gap=60.0)
    first, *_ = rank(read_query(INVITED), said, SearchResult(posts=60), limit=9)
    assert (first.post.seq, "by chance" in first.why) == (17, False)


def test_short_messages_answer_together_if_more_than_half_of_the_words_were_used():
    said = posts(
        ("Ann", "proof came back"), *FILLER, ("Ann", "niece born!!"), *FILLER, ("Ann", "zine looks good"), gap=DAY
    )
    assert order("Did she approve the proof of the zine before her niece arrived?", said)
    assert order("Did she approve the contract of the shop before her niece arrived?", said) == []
    long = posts(
        *((post.sender, f"{post.key.partition(' | ')[2]} and then so many other stories " * 3) for post in said)
    )
    assert order("Did she approve the proof of the zine before her niece arrived?", long) == []
    read = read_query("Did she approve the proof of the zine before her niece arrived?")
    for cosine, is_found in ((0.44, False), (0.46, True)):
        near = [structs.replace(post, cosine=cosine) for post in said]
        corpus = SearchResult(posts=len(said), mean_cosine=0.1, akin=0.5)
        assert bool(rank(read, near, corpus, limit=9)) == is_found


def test_a_post_counts_with_the_question_before_it_by_the_words_in_between():
    scores = []
    for between in ("It rained.", "It rained on the tulips all morning long. " * 10):
        said = posts(("Ann", "Where is the kayak?"), ("Bob", between), ("Ann", "In the shed."), gap=60.0)
        ranked = rank(read_query("Where is the kayak?"), said, SearchResult(posts=60), limit=9)
        scores.append({hit.post.seq: hit.score for hit in ranked}[3])
    assert scores[0] > 1.3 * scores[1]


def test_only_the_longest_sentences_of_a_message_are_compared_by_meaning():
    assert long_sentences("Hi! Thanks. Which boat did Ann buy last week? It was red.") == [
        "Which boat did Ann buy last week?"
    ]
    many = [f"Sentence {n} has kayaks, tents and tide tables." for n in range(20)]
    assert long_sentences(" ".join(many)) == many[:SENTENCES]
    asked = "Which of the two canoes in the boathouse at the northern lake did Ann paint green?"
    assert long_sentences(" ".join([*many, asked])) == [*many[: SENTENCES - 1], asked]
    assert long_sentences("The red boat sank. " * 3) == ["The red boat sank."]
    assert long_sentences("") == []


def test_counted_word_frequencies_are_used():
    candidates = posts(("Anna", "the red door"), ("Bob", "the old kayak"), gap=DAY)
    read = read_query("red kayak")
    assert rank(read, candidates, SearchResult(posts=900, frequencies={"red": 600, "kayak": 2}), limit=1)[0][0].seq == 2
    assert rank(read, candidates, SearchResult(posts=900, frequencies={"red": 2, "kayak": 600}), limit=1)[0][0].seq == 1


def test_chinese_and_japanese_words_are_found_inside_text():
    candidates = posts(("Anna", "我昨天在东京买了一只猫"), ("Bob", "今日は学校で日本語を勉強しました"), *FILLER)
    assert order("东京的猫叫什么", candidates)[0] == 1
    assert order("日本語の勉強", candidates)[0] == 2


# ---- excerpts -------------------------------------------------------------------------------------------------------


@given(st.one_of(TEXTS, st.lists(LINES).map("\n".join)), TEXTS, st.integers(-1, 60))
def test_an_excerpt_never_exceeds_its_tokens(text, query, tokens):
    shown = excerpt(text, read_query(query), tokens, count)
    assert count(shown) <= max(0, tokens) or (text == shown == "")
    assert shown == text or all(part.strip("… ") in text for part in [shown])
    assert count(text) > tokens or shown == text


def test_an_excerpt_is_the_matching_passage():
    filler = "Sentence about leashes and treats for dogs. " * 20
    text = f"{filler}I recommend the Kestrel harness. It costs 40 dollars. {filler}"
    shown = excerpt(text, read_query("Which harness did you recommend?"), 30, count)
    assert "I recommend the Kestrel harness. It costs 40 dollars." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")


def test_an_excerpt_is_found_in_a_very_long_line():
    line = '{"rows": [' + ", ".join(f'{{"id": {n}, "name": "row {n}"}}' for n in range(500)) + "]}"
    assert '"row 321"' in excerpt(line, read_query("name of row 321"), 80, count)
    long = "Nothing is said here.\n" * 9_000 + "The kayak is green.\n" + "Nor is it there.\n" * 9_000
    shown = excerpt(long, read_query("which kayak?"), 30, count)
    assert ("kayak" in shown, shown[:2], shown[-2:], count(shown) <= 30) == (True, "… ", " …", True)
    assert "kayak" in excerpt("x" * 900 + " kayak " + "y" * 900, read_query("kayak"), 60, count)


def test_an_excerpt_does_not_split_words():
    text = "[[secret:openai_key#a1b2c3d4]] " * 40
    shown = excerpt(text, read_query("key"), 20, count)
    assert set(shown.strip("… ").split()) == {"[[secret:openai_key#a1b2c3d4]]"}


def hit(score, tokens, *, nearby=()):
    fields = {"kind": "post", "text": "Ten years.", "scope": "conversation", "sources": ("p",), "seq": 2}
    return Hit(memory_id="post:p", score=score, tokens=tokens, timestamp=Time(MONDAY), **fields).beside(nearby)


@given(st.lists(st.builds(hit, st.floats(0, 1), st.integers(0, 400)), max_size=30), st.integers(0, 2000))
def test_packing_fits_the_budget_and_keeps_the_order(hits, budget):
    packed = pack(hits, budget)
    places = [next(n for n, hit in enumerate(hits) if hit is one) for one in packed]
    left = budget - sum(hit.tokens for hit in packed)
    assert left >= 0
    assert places == sorted(places)
    assert all(hit.tokens > left for n, hit in enumerate(hits) if n not in places)


def test_packing_prefers_value_per_token():
    long, short = hit(0.80, 900), hit(0.78, 60)
    assert pack([long, short], 940) == [short]
    assert pack([long, hit(0.5, 60)], 940) == [long]


def test_packing_drops_what_is_nearby_before_the_hit():
    question = Nearby(id="q", seq=1, speaker="Ann", text="How long?", tokens=50, timestamp=Time(MONDAY))
    answer = hit(0.8, 60, nearby=(question,))
    assert pack([answer], 110) == [answer]
    assert pack([answer], 109) == [answer.alone]
    assert (answer.text, answer.sources) == ("Ten years.\n(before) Ann: How long?", ("p", "q"))
    assert answer.alone == hit(0.8, 60)
