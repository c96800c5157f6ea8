"""The command `cuebook eval`, and `cuebook.app.evaluate` in Python: memory measured on somebody's own conversations."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.app.evaluate import evaluate, together
from cuebook.cli import main as cli
from cuebook.errors import InvalidInput

CONVERSATIONS = Path(__file__).parent / "conversations"
BEES, BEES_GOLD = CONVERSATIONS / "bees.json", CONVERSATIONS / "bees.gold.json"


class Evals:
    """The command in this process, on a file with something in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def file(self, value: object, name: str = "talk.json") -> str:
        file = self.folder / name
        file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return str(file)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        given = cli.run(["eval", *arguments])
        shown, complaint = self._capsys.readouterr()
        assert given == code, complaint
        assert complaint.count("\n") == (1 if code else 0)
        return complaint if code else shown

    def report(self, *arguments: str) -> dict[str, Any]:
        told = json.loads(self(*arguments, "--json"))
        [report] = told["items"]
        assert told["together"] is None
        assert isinstance(report, dict)
        return report


@pytest.fixture
def evals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evals:
    return Evals(tmp_path, capsys)


def talk(*said: str, rest: int = 0) -> list[dict[str, str]]:
    """Give what a user said as messages, each answered, with so much small talk after it."""
    small = [f"Just chatting, nothing of note, {word}." for word in ("really", "truly", "honestly", "as ever")]
    found = []
    for text in [*said, *(small[number % 4] for number in range(rest))]:
        found += [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
    return found


LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "My brother Piet moved to Terschelling last week."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Does he like the island?"},
            {"speaker": "Ann", "dia_id": "D1:3", "text": "He adores it, and he repairs old bicycles there."},
            {"speaker": "Bo", "dia_id": "D1:4", "text": "Lovely."},
        ],
    },
    "qa": [
        {"question": "Where does Piet live?", "answer": "Terschelling", "evidence": ["D1:1"], "category": 4},
        {"question": "Who plays xylophone?", "answer": "Eve", "evidence": ["D1:2", "D1:4"], "category": 4},
    ],
}


def test_a_files_own_questions_measure_recall(evals: Evals) -> None:
    recall = evals.report(evals.file([LOCOMO]))["recall"]
    assert (recall["origin"], recall["questions"], recall["thereAre"]) == ("file", 2, 2)
    assert recall["at5"] == recall["at10"] >= 0.5
    assert "from the file" in evals(evals.file([LOCOMO]))


def test_two_conversations_are_told_apart_and_together(evals: Evals) -> None:
    other = LOCOMO | {"sample_id": "conv-2"}
    told = json.loads(evals(evals.file([LOCOMO, other]), "--json"))
    one, two = told["items"]
    assert one["recall"] == two["recall"]
    assert told["together"]["recall"]["questions"] == 4
    assert told["together"]["posts"] == 8
    assert "together: 2 conversations, 8 posts" in evals(evals.file([LOCOMO, other]))


def test_without_questions_it_asks_clozes_of_old_posts(evals: Evals) -> None:
    said = [f"The {plant} in bed number {n + 11} cost {n + 3}.50 euros." for n, plant in enumerate(PLANTS)]
    file = evals.file(talk(*said, rest=12))
    recall = evals.report(file)["recall"]
    assert (recall["origin"], recall["thereAre"]) == ("cloze", len(PLANTS))
    assert recall["at5"] > 0.8
    assert evals.report(file, "--limit", "3")["recall"]["questions"] == 3


PLANTS = ("tulip", "rose", "fern", "quince", "medlar", "iris", "peony", "lavender")


def test_values_survive_held_ended_or_found_and_posts_never_vanish(evals: Evals) -> None:
    said = [f"I have decided that the {plant} goes to bed number {n + 11}." for n, plant in enumerate(PLANTS)]
    report = evals.report(evals.file(talk(*said, rest=60)))
    rows = [row for row in report["firstPass"] if row["whose"] == "user"]
    assert [row["compactions"] for row in rows] == [1, 5]  # 20 were not reached
    for row in rows:
        assert row["held"] + row["ended"] + row["found"] + row["lost"] == row["facts"] > 3
        assert row["lost"] == 0
    assert [row["dropped"] for row in report["survival"]] == [[]] * len(report["survival"])


def test_items_that_should_not_be_there_are_counted(evals: Evals) -> None:
    report = evals.report(evals.file(talk("I always feel like a loaf of fresh bread.", "My rent is 900 euros.")))
    assert report["items"]["junk"] == ["I always feel like a loaf of fresh bread."]
    assert report["items"]["duplicates"] == report["items"]["contradictions"] == []


def test_a_gold_list_is_held_against_the_items(evals: Evals) -> None:
    messages = talk("I live in Antwerp.", "My cat Moss is grey.", "I moved: I live in Ghent now.")
    facts = [
        {"id": "a", "fact": "Lives in Antwerp.", "match": [["antwerp"]], "sources": ["import-1"], "current": False},
        {"id": "b", "fact": "Moss is grey.", "match": [["moss"], ["grey"]], "sources": ["import-3"], "current": True},
        {"id": "c", "fact": "Lives in Ghent.", "match": [["ghent"]], "sources": ["import-5"], "current": True}
        | {"supersedes": "a"},
    ]
    asked = [fact | {"question": f"What about this: {fact['fact']}", "answer": "-"} for fact in facts]
    gold = evals.file({"facts": asked}, "gold.json")
    report = evals.report(evals.file(messages), "--gold", gold)
    assert report["recall"]["origin"] == "gold"
    held = report["currentFacts"]
    assert (held["current"], held["superseded"]) == (2, 1)
    assert held["shown"] + len(held["missing"]) == 2


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "talk.json: invalid JSON"),
        ([], "talk.json: empty list"),
        ({"rows": 3}, "unknown format"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(evals: Evals, value: object, says: str) -> None:
    assert says in evals(evals.file(value), code=1)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "gold.json: not JSON"),
        ({"facts": 1}, "gold.json: facts: expected a list"),
        ({"facts": [{"id": "a"}]}, "gold.json: facts[0].fact: expected a string"),
        (
            {"facts": [{"id": "a", "fact": "f", "question": "q", "answer": "a", "current": True, "match": [["x"]]}]}
            | {},
            "gold.json: facts[0].sources: expected a list",
        ),
    ],
)
def test_a_wrong_gold_list_is_one_clear_line(evals: Evals, value: object, says: str) -> None:
    gold = evals.file(value, "gold.json")
    assert says in evals(evals.file(talk("Hello.")), "--gold", gold, code=1)


def test_a_gold_list_of_another_file_is_refused(evals: Evals) -> None:
    assert "has no post 't001'" in evals(evals.file(talk("Hello.")), "--gold", str(BEES_GOLD), code=1)
    assert "nowhere.json" in evals("nowhere.json", code=1)
    assert "Pass the file too" in evals("--gold", str(BEES_GOLD), code=1)


def test_other_branches_of_a_tree_are_left_out(evals: Evals) -> None:
    posts = [
        {"id": "a", "sendFrom": "ann", "message": "My rent is 900 euros."},
        {"id": "b", "sendFrom": "assistant", "message": "One."},
        {"id": "c", "sendFrom": "assistant", "message": "Two.", "parent": "a"},
    ]
    assert evals.report(evals.file({"id": "x", "user": "ann", "posts": posts}))["posts"] == 2


@pytest.mark.slow
async def test_nothing_remembered_is_lost_from_the_first_compaction_to_the_twentieth() -> None:
    [report] = await evaluate(BEES, gold=BEES_GOLD)
    assert (report.posts, together([report])) == (316, None)
    assert report.compactions > 20
    assert {row.compactions for row in report.survival if row.whose == "gold"} == {1, 5, 20}
    assert all(not row.dropped for row in report.survival)
    assert min(row.held / row.facts for row in report.survival if row.whose == "gold") >= 0.9
    assert report.recall.origin == "gold"
    facts = report.current_facts
    assert facts is not None
    assert facts.shown / facts.current >= 0.88
    assert not report.items.contradictions


@pytest.mark.slow
async def test_the_conversation_that_ships_loses_nothing() -> None:
    [report] = await evaluate()
    assert all(not row.dropped for row in report.survival if row.whose == "gold")
    facts = report.current_facts
    assert facts is not None
    assert facts.shown / facts.current >= 0.9
    assert not report.items.contradictions


async def test_evaluate_wants_a_question_at_least() -> None:
    with pytest.raises(InvalidInput, match=r"limit: 0\. Must be 1 or more"):
        await evaluate(BEES, limit=0)
