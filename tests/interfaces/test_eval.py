"""Tests of the command `cuebook eval` and `cuebook.app.evaluate`: memory measured on the user's own conversations."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.app.evaluate.run import evaluate, together
from cuebook.cli import main as cli
from cuebook.errors import InvalidInput

CONVERSATIONS = Path(__file__).parent / "conversations"
BEES, BEES_GOLD = CONVERSATIONS / "bees.json", CONVERSATIONS / "bees.gold.json"


class Evals:
    """Runs the command in this process on a transcript file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def file(self, value: object, name: str = "talk.json") -> str:
        file = self.folder / name
        file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return str(file)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        exit_code = cli.run(["eval", *arguments])
        shown, complaint = self._capsys.readouterr()
        assert exit_code == code, complaint
        assert complaint.count("\n") == (1 if code else 0)
        return complaint if code else shown

    def report(self, *arguments: str) -> dict[str, Any]:
        result = json.loads(self(*arguments, "--json"))
        [report] = result["items"]
        assert result["together"] is None
        assert isinstance(report, dict)
        return report


@pytest.fixture
def evals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evals:
    return Evals(tmp_path, capsys)


def make_messages(*said: str, rest: int = 0) -> list[dict[str, str]]:
    """Return answered user messages, followed by `rest` messages of small talk."""
    small = [f"Just chatting, nothing of note, {word}." for word in ("really", "truly", "honestly", "as ever")]
    results = []
    for text in [*said, *(small[number % 4] for number in range(rest))]:
        results += [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
    return results


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


def test_questions_of_the_file_measure_recall(evals: Evals) -> None:
    recall = evals.report(evals.file([LOCOMO]))["recall"]
    assert (recall["origin"], recall["questions"], recall["thereAre"]) == ("file", 2, 2)
    assert recall["at5"] == recall["at10"] >= 0.5
    assert "from the file" in evals(evals.file([LOCOMO]))


def test_two_conversations_are_reported_separately_and_together(evals: Evals) -> None:
    other = LOCOMO | {"sample_id": "conv-2"}
    result = json.loads(evals(evals.file([LOCOMO, other]), "--json"))
    one, two = result["items"]
    assert one["recall"] == two["recall"]
    assert result["together"]["recall"]["questions"] == 4
    assert result["together"]["posts"] == 8
    assert "together: 2 conversations, 8 posts" in evals(evals.file([LOCOMO, other]))


def test_file_without_questions_uses_cloze_questions(evals: Evals) -> None:
    messages = [f"The {plant} in bed number {n + 11} cost {n + 3}.50 euros." for n, plant in enumerate(PLANTS)]
    file = evals.file(make_messages(*messages, rest=12))
    recall = evals.report(file)["recall"]
    assert (recall["origin"], recall["thereAre"]) == ("cloze", len(PLANTS))
    assert recall["at5"] > 0.8
    assert evals.report(file, "--limit", "3")["recall"]["questions"] == 3


PLANTS = ("tulip", "rose", "fern", "quince", "medlar", "iris", "peony", "lavender")


@pytest.mark.slow
def test_facts_survive_compaction_and_no_post_is_lost(evals: Evals) -> None:
    messages = [f"I have decided that the {plant} goes to bed number {n + 11}." for n, plant in enumerate(PLANTS)]
    report = evals.report(evals.file(make_messages(*messages, rest=60)))
    rows = [row for row in report["firstPass"] if row["whose"] == "user"]
    assert [row["compactions"] for row in rows] == [1, 5]  # the conversation has fewer than 20 compactions
    for row in rows:
        assert row["held"] + row["ended"] + row["found"] + row["lost"] == row["facts"] > 3
        assert row["lost"] == 0
    assert [row["dropped"] for row in report["survival"]] == [[]] * len(report["survival"])


def test_junk_items_are_reported(evals: Evals) -> None:
    report = evals.report(
        evals.file(make_messages("I always feel like a loaf of fresh bread.", "My rent is 900 euros."))
    )
    assert report["items"]["junk"] == ["I always feel like a loaf of fresh bread."]
    assert report["items"]["duplicates"] == report["items"]["contradictions"] == []


def test_gold_list_is_compared_with_the_items(evals: Evals) -> None:
    messages = make_messages("I live in Antwerp.", "My cat Moss is grey.", "I moved: I live in Ghent now.")
    facts = [
        {"id": "a", "fact": "Lives in Antwerp.", "match": [["antwerp"]], "sources": ["import-1"], "current": False},
        {"id": "b", "fact": "Moss is grey.", "match": [["moss"], ["grey"]], "sources": ["import-3"], "current": True},
        {"id": "c", "fact": "Lives in Ghent.", "match": [["ghent"]], "sources": ["import-5"], "current": True}
        | {"supersedes": "a"},
    ]
    gold_facts = [fact | {"question": f"What about this: {fact['fact']}", "answer": "-"} for fact in facts]
    gold = evals.file({"facts": gold_facts}, "gold.json")
    report = evals.report(evals.file(messages), "--gold", gold)
    assert report["recall"]["origin"] == "gold"
    current_facts = report["currentFacts"]
    assert (current_facts["current"], current_facts["superseded"]) == (2, 1)
    assert current_facts["held"] + len(current_facts["missing"]) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{", "talk.json: invalid JSON"),
        ([], "talk.json: empty list"),
        ({"rows": 3}, "unknown format"),
    ],
)
def test_unreadable_file_prints_one_error_line(evals: Evals, value: object, expected: str) -> None:
    assert expected in evals(evals.file(value), code=1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{", "gold.json: not JSON"),
        ({"facts": 1}, "gold.json: facts: expected a list"),
        ({"facts": [{"id": "a"}]}, "gold.json: facts[0].fact: missing. Expected a string"),
        (
            {"facts": [{"id": "a", "fact": "f", "question": "q", "answer": "a", "current": True, "match": [["x"]]}]}
            | {},
            "gold.json: facts[0].sources: missing. Expected a list",
        ),
    ],
)
def test_invalid_gold_list_prints_one_error_line(evals: Evals, value: object, expected: str) -> None:
    gold = evals.file(value, "gold.json")
    assert expected in evals(evals.file(make_messages("Hello.")), "--gold", gold, code=1)


def test_gold_list_of_another_file_is_rejected(evals: Evals) -> None:
    assert "has no post 't001'" in evals(evals.file(make_messages("Hello.")), "--gold", str(BEES_GOLD), code=1)
    assert "nowhere.json" in evals("nowhere.json", code=1)
    assert "Pass the file too" in evals("--gold", str(BEES_GOLD), code=1)


def test_posts_of_other_branches_are_ignored(evals: Evals) -> None:
    posts = [
        {"id": "a", "sendFrom": "ann", "message": "My rent is 900 euros."},
        {"id": "b", "sendFrom": "assistant", "message": "One."},
        {"id": "c", "sendFrom": "assistant", "message": "Two.", "parent": "a"},
    ]
    assert evals.report(evals.file({"id": "x", "user": "ann", "posts": posts}))["posts"] == 2


@pytest.mark.slow
async def test_no_fact_is_lost_over_twenty_compactions() -> None:
    [report] = await evaluate(BEES, gold=BEES_GOLD)
    assert (report.posts, together([report])) == (316, None)
    assert report.compactions > 20
    assert {row.compactions for row in report.survival if row.whose == "gold"} == {1, 5, 20}
    assert all(not row.dropped for row in report.survival)
    assert min(row.held / row.facts for row in report.survival if row.whose == "gold") >= 0.9
    assert report.recall.origin == "gold"
    facts = report.current_facts
    assert facts is not None
    assert facts.held / facts.current >= 0.88
    assert not report.items.contradictions


@pytest.mark.slow
async def test_bundled_conversation_loses_no_fact() -> None:
    [report] = await evaluate()
    assert all(not row.dropped for row in report.survival if row.whose == "gold")
    facts = report.current_facts
    assert facts is not None
    assert facts.held / facts.current >= 0.9
    assert not report.items.contradictions


async def test_evaluate_requires_at_least_one_question() -> None:
    with pytest.raises(InvalidInput, match=r"limit: 0\. Must be 1 or more"):
        await evaluate(BEES, limit=0)
