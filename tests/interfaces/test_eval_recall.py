"""Tests of `cuebook eval --recall`: search against BM25 and vectors on tiny test sets in each public format."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.hashing_embedder import HashingEmbedder

from cuebook.app.evaluate.compare import SetRecall, SystemRecall, compare
from cuebook.app.evaluate.sets import read_sets
from cuebook.cli import main as cli
from cuebook.errors import InvalidInput
from cuebook.memory.evidence import Question

TECHNICAL = Path(__file__).parent / "conversations" / "technical-chat.json"

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "My brother Piet moved to Terschelling."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Does he like the island?"},
            ],
        },
        "qa": [
            {"question": "Where does Piet live?", "answer": "Terschelling", "evidence": ["D1:1"], "category": 4},
            {"question": "What does Bo bake?", "adversarial_answer": "bread", "evidence": ["D1:2"], "category": 5},
        ],
    }
]
REALTALK = {
    "name": {"speaker_1": "Kim", "speaker_2": "Lee"},
    "session_1_date_time": "29.12.2023, 22:51:33",
    "session_1": [
        {"clean_text": "I adopted a greyhound.", "speaker": "Kim", "dia_id": "D1:1"},
        {"clean_text": "", "speaker": "Lee", "dia_id": "D1:2"},
        {"clean_text": "What is its name?", "speaker": "Lee", "dia_id": "D1:3"},
    ],
    "qa": [{"question": "What did Kim adopt?", "answer": "a dog", "evidence": ["D1:1; D1:3"], "category": 1}],
}
PLUS = [
    {
        "relation_type": "causal",
        "cue_dialogue": "A: I sold my scooter after the fall.\\nB: Wise.",
        "trigger_query": "A: Walking to work is lovely.",
        "time_gap": "two weeks later",
    }
]
MEMORY_CODE: dict[str, Any] = {
    "instructions": [
        {"kind": "code", "versions": ["always end names with '_at'", "always end names with '_x'"], "task": "function"}
    ],
    "dialogues": [
        {
            "id": 4,
            "mentor": "Eve",
            "mentee": "Rado",
            "sessions": [
                {"topic": ["always end names with '_at'"], "text": "Eve: End names with '_at'.\n\nRado: Fine."},
                {
                    "topic": ["always end names with '_x'"],
                    "text": "Eve: Hello!\nEve: Now end names with '_x'.\nRado: Ok.",
                },
            ],
        }
    ],
}
CHAT = [
    {
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "The API takes 300ms. ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Add a cache."},
            ],
            [{"role": "user", "id": 2, "content": "The API takes 250ms with the cache."}],
        ]
    }
]
PROBES = {
    "abstention": [{"question": "Who designed the logo?"}],
    "knowledge_update": [
        {
            "question": "How long does the API take?",
            "source_chat_ids": {"original_info": [0], "updated_info": [2]},
        }
    ],
    "event_ordering": [{"question": "In which order did I mention the cache?", "source_chat_ids": [[1], 2]}],
    "summarization": [{"question": "What happened?", "source_chat_ids": [99]}],
}
BELIEF = {"user_id": "test-user", "scope": ["domain:code"], "created_at": "2026-09-01T00:00:00Z", "aliases": ["k8s"]}
BELIEFS = [
    BELIEF | {"_id": "b1", "canonical_name": "kubernetes", "content": "Deploys to a cluster."},
    BELIEF | {"_id": "b2", "canonical_name": "heroku", "content": "Deployed to Heroku.", "superseded_by": "b1"},
    BELIEF | {"_id": "b3", "canonical_name": "theirs", "content": "Deploys by hand.", "user_id": "other"},
]
CASES = [
    {"scope": ["domain:code"], "query": "k8s?", "expect": {"relevantBeliefs": {"shouldOnlyInclude": ["b1"]}}},
    {"scope": ["domain:code"], "query": "coins", "expect": {"relevantBeliefs": {"shouldOnlyInclude": []}}},
    {"scope": ["domain:code"], "query": " ", "expect": {"relevantBeliefs": {"shouldOnlyInclude": []}}},
]
HISTORY = """[2026-01-05 09:00:00] Gary: Set the display to brightness 8, please.
and keep it
[2026-01-06 09:00:00] Ada: Brightness 8 is too much for me, I prefer 3.
"""
VEHICLE = {
    "related_to_vehicle_preference": [
        {
            "gold_memory": "2026-01-06: Ada prefers brightness 3",
            "reasoning_type": "preference_conflict",
            "query": "Set the display as Ada likes it",
        }
    ]
}
BFCL = {"id": "m-0", "question": [[{"role": "user", "content": "Where do I live?"}]], "scenario": "customer"}
BFCL_ANSWER = {"id": "m-0", "ground_truth": ["Delft"], "source": "...live in Delft..."}
BFCL_TALK = {"question": [[{"role": "user", "content": "Hello."}], [{"role": "user", "content": "I live in Delft!"}]]}


def write(folder: Path, name: str, value: object) -> Path:
    """Write a file as JSON or text, and return its path."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return file


def questions_in(*paths: Path) -> list[tuple[str, Question]]:
    """Return each question with the format of its set."""
    return [
        (each.form, question)
        for each in read_sets(paths)
        for transcript in each.transcripts
        for question in transcript.questions
    ]


def test_conversations_of_people_are_read(tmp_path: Path) -> None:
    [(form, asked)] = questions_in(write(tmp_path, "locomo.json", LOCOMO))
    assert (form, asked.kind, asked.evidence) == ("LoCoMo", "single-hop", ("D1:1",))
    write(tmp_path / "data", "Chat_1.json", REALTALK)
    write(tmp_path / "data", "Chat_2.json", REALTALK)
    [(form, asked), _] = questions_in(tmp_path / "data")
    assert (form, asked.kind, asked.evidence) == ("REALTALK", "multi-hop", ("D1:1", "D1:3"))


def test_cues_are_inserted_into_a_conversation(tmp_path: Path) -> None:
    plus, locomo = write(tmp_path, "plus.json", PLUS), write(tmp_path, "locomo.json", LOCOMO)
    [_, (form, asked)] = questions_in(plus, locomo)
    assert (form, asked.text) == ("LoCoMo-Plus", "Walking to work is lovely.")
    assert asked.evidence == ("cue-0-0", "cue-0-1")
    with pytest.raises(InvalidInput, match="Pass a LoCoMo file too"):
        questions_in(plus)


@pytest.mark.parametrize("is_split", [False, True])
def test_changed_instructions_have_outdated_posts(tmp_path: Path, is_split: bool) -> None:
    if is_split:
        [talk] = MEMORY_CODE["dialogues"]
        context = {"context": {"mentor": talk["mentor"], "mentee": talk["mentee"]}, "sessions": talk["sessions"]}
        write(tmp_path, "dataset/dialogue_1.json", context)
        path = write(tmp_path, "dataset/topics.json", {"instructions": MEMORY_CODE["instructions"]}).parent
    else:
        path = write(tmp_path, "memorycode.json", MEMORY_CODE)
    [(form, asked), (_, task)] = questions_in(path)
    assert (form, asked.text, task.text) == ("MemoryCode", "end names with", "Write a function")
    assert (asked.evidence, asked.outdated) == (("s1t1",), ("s0t0",))


@pytest.mark.parametrize("probes", ["probing_questions.json", "probing_questions/probing_questions.json"])
def test_long_chats_are_read_from_their_folders(tmp_path: Path, probes: str) -> None:
    chat = write(tmp_path, "chats/100K/1/chat.json", CHAT)
    write(chat.parent, probes, PROBES)
    asked = {each.kind: each for _, each in questions_in(tmp_path)}
    assert asked == {each.kind: each for _, each in questions_in(chat)}
    assert asked["abstention"].evidence == ()
    assert (asked["knowledge_update"].evidence, asked["knowledge_update"].outdated) == (("0", "2"), ("0",))
    assert asked["event_ordering"].evidence == ("1", "2")
    assert "summarization" not in asked  # its evidence is in no post
    [chats] = read_sets([tmp_path])
    first = chats.transcripts[0].posts[0]
    assert getattr(first, "message", "") == "The API takes 300ms."


def test_beliefs_that_hold_are_searched(tmp_path: Path) -> None:
    write(tmp_path, "fixtures/beliefs.seed.json", BELIEFS)
    write(tmp_path, "fixtures/retrieval.cases.json", CASES)
    [beliefs] = read_sets([tmp_path])
    [talk] = beliefs.transcripts
    assert [getattr(post, "id", "") for post in talk.posts] == ["b1"]
    assert [each.evidence for each in talk.questions] == [("b1",), ()]


def test_evidence_in_words_is_found_in_the_posts(tmp_path: Path) -> None:
    write(tmp_path, "benchmark/history/history_1.txt", HISTORY)
    write(tmp_path, "benchmark/qa_data/qa_1.json", VEHICLE)
    [(_, asked)] = questions_in(tmp_path / "benchmark")
    assert (asked.evidence, asked.kind) == (("line-2",), "preference_conflict")
    data = tmp_path / "data"
    write(data, "BFCL_v4_memory.json", json.dumps(BFCL) + "\n")
    write(data, "possible_answer/BFCL_v4_memory.json", json.dumps(BFCL_ANSWER))
    write(data, "memory_prereq_conversation/memory_customer.json", json.dumps(BFCL_TALK))
    [(_, asked)] = questions_in(data)
    assert asked.evidence == ("s0t1",)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"posts": [{"sendFrom": "user", "message": "hi"}]}, "no questions"),
        ([{"traj": [], "reward": 1}], "tau-bench logs have no questions"),
        ({"a": 1}, "unknown format .* Supported test sets: LoCoMo"),
        ({"instructions": [], "dialogues": [3]}, "expected an object"),
        ([{"turns": [[{"role": "user"}]]}], "not the form of its test set"),
        ({"messages": [{"role": "user", "content": "a"}], "questions": [{"question": "b", "evidence": ["c"]}]}, "'c'"),
    ],
)
def test_file_of_another_form_is_refused(tmp_path: Path, value: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as raised:
        read_sets([write(tmp_path, "set.json", value)])
    assert "set.json" in str(raised.value) or "set" in str(raised.value)


def measured(*paths: Path) -> list[SetRecall]:
    return asyncio.run(compare(paths, limit=5, embedders={"hashing": HashingEmbedder()}))


def test_every_system_is_measured_on_the_same_questions(tmp_path: Path) -> None:
    folder = write(tmp_path, "chats/100K/1/chat.json", CHAT).parent
    write(folder, "probing_questions.json", PROBES)
    steps: list[tuple[int, int]] = []
    paths = [folder, write(tmp_path, "locomo.json", LOCOMO)]
    work = compare(paths, limit=5, embedders={"hashing": HashingEmbedder()}, progress=lambda *step: steps.append(step))
    chats, people = asyncio.run(work)
    assert (chats.questions, chats.unanswerable, people.questions, people.unanswerable) == (2, 1, 1, 0)
    names = [each.system for each in chats.systems]
    cuebook = ["Cuebook, words"] * 2 + ["Cuebook, hashing"] * 2
    assert names == [*cuebook, "BM25", "BM25, passages", "vectors, hashing"]
    assert [each.min_share for each in chats.systems[:2]] == [0.0, 0.2]
    assert chats.systems[0].newest_first == 1.0
    assert people.systems[0].newest_first is people.systems[0].left_empty is None
    assert all(each.at10 == 1.0 for each in people.systems)
    texts = 3 + 3 + 2 + 1  # posts and questions
    assert steps[-1] == (4 * 7 + texts, 4 * 7 + texts)
    assert measured(*paths) == [chats, people]


def test_evaluation_leaves_the_working_directory_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "locomo.json", LOCOMO)
    monkeypatch.chdir(tmp_path)
    measured(file)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_technical_chat_has_every_kind_of_question() -> None:
    [(chat)] = asyncio.run(compare([TECHNICAL], limit=200, embedders={}))
    assert (chat.posts, chat.questions, chat.unanswerable) == (110, 53, 14)
    words: SystemRecall = chat.systems[1]
    assert [each.kind for each in words.kinds] == ["lookup", "assistant", "paraphrase", "multi", "update"]
    assert (words.at10 or 0) > 0.8
    assert words.newest_first is not None


@pytest.mark.slow
def test_command_prints_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert cli.run(["eval", *arguments]) == code
        shown, complaint = capsys.readouterr()
        return complaint if code else shown

    memory_code, locomo = write(tmp_path, "code.json", MEMORY_CODE), write(tmp_path, "locomo.json", LOCOMO)
    table = run(str(memory_code))
    assert "code (MemoryCode): 1 conversation, 5 posts, 2 questions" in table
    assert "BM25, passages" in table
    assert "code as a task (1)" not in table
    assert run(str(memory_code), "--kinds").count("code as a task (1)") == table.count("\n  ")
    result: dict[str, Any] = json.loads(run(str(locomo), "--recall", "--json"))
    assert [each["form"] for each in result["sets"]] == ["LoCoMo"]
    assert {"system", "minShare", "at10", "withinTokens", "newestFirst", "leftEmpty"} <= set(
        result["sets"][0]["systems"][0]
    )
    assert "needs a FILE or FOLDER" in run("--recall", code=2)
    assert "--gold is for one transcript" in run(str(locomo), str(memory_code), "--gold", "x", code=2)
    assert "Supported test sets: LoCoMo" in run("--recall", str(write(tmp_path, "odd.json", {"a": 1})), code=1)
    assert "No such file" in run("--recall", "missing.json", code=1)
