"""Tests of the command `cuebook demo`: reproducible reports, fair cost figures, and the served page."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CUEBOOK
from profile_table import README, readme

from cuebook import Cuebook
from cuebook.app.demo.run import demo_config
from cuebook.app.demo.sample_project import SLUG, add_sample_project
from cuebook.cli import main as cli

pytestmark = pytest.mark.slow

PICTURE = "data:image/png;base64," + "QUJD" * 20_000


class Demo:
    """Runs the demo in this process on a transcript file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = folder / "talk.json"
        self._capsys = capsys

    def __call__(self, value: object, *arguments: str) -> str:
        self._file.write_text(json.dumps(value), "utf-8")
        self._capsys.readouterr()
        code = cli.run(["demo", str(self._file), *arguments])
        shown, complaint = self._capsys.readouterr()
        assert (code, complaint) == (0, "")
        return shown

    def report(self, value: object) -> dict[str, Any]:
        [report] = json.loads(self(value, "--json"))["items"]
        assert isinstance(report, dict)
        return report


@pytest.fixture
def demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Demo:
    monkeypatch.setenv("COLUMNS", "100")
    return Demo(tmp_path, capsys)


def make_messages(turns: int, **fields: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for number in range(1, turns + 1):
        said = f"We decided that bed number {number} gets tulips of sort {number * 7}."
        results += [
            {"role": "user", "content": said, **fields},
            {"role": "assistant", "content": f"Noted, {number}.", **fields},
        ]
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
        {"question": "What does Piet repair?", "answer": "rusty two-wheelers", "evidence": ["D1:3"], "category": 4},
        {"question": "Who plays xylophone?", "answer": 3, "evidence": ["D1:4"], "category": 4},
    ],
}


@pytest.fixture(scope="module")
def bundled() -> dict[str, Any]:
    done = subprocess.run([CUEBOOK, "demo", "--json"], capture_output=True, timeout=600, check=True)
    [report] = json.loads(done.stdout)["items"]
    assert isinstance(report, dict)
    return report


def test_bundled_demo_reports_only_text_from_memory(bundled: dict[str, Any]) -> None:
    summary = " ".join(bundled["summary"]["summaryText"].split())
    items = {item["text"]: item["sources"] for item in bundled["items"]}
    places = set()
    for question in bundled["asked"]:
        for match in question["stands"]:
            places.add(match["where"])
            assert match["text"] != question["key"]
            if match["where"] == "summary":
                assert match["text"] in summary
            elif match["where"] == "item":
                assert items[match["text"]] == match["sources"]
            else:
                assert 1 <= match["rank"] <= 10
    assert places == {"summary", "item", "hit"}
    assert bundled["identical"] == bundled["rendered"] > 200


def test_value_only_in_the_summary_is_found(bundled: dict[str, Any]) -> None:
    [question] = [each for each in bundled["asked"] if each["key"] == "End of November"]
    assert "summary" in {match["where"] for match in question["stands"]}


def test_bundled_demo_costs_less_than_the_full_history(bundled: dict[str, Any]) -> None:
    assert bundled["ours"]["tokens"] < 0.3 * bundled["everything"]["tokens"]
    assert bundled["survival"]["held"] >= 0.88 * bundled["survival"]["current"]


def test_readme_shows_the_figures_of_the_demo(bundled: dict[str, Any]) -> None:
    text = README.read_text("utf-8")
    assert text == readme(bundled["profiles"]), "run tests/interfaces/profile_table.py"
    [standard] = [each for each in bundled["profiles"] if each["profile"] == "standard"]
    ours, whole = bundled["ours"]["tokens"], bundled["everything"]["tokens"]
    assert f"prompts use {standard['tokens'] / standard['clientTokens']:.0%} of the tokens" in text
    assert f"sends {ours / whole:.0%} of the tokens" in " ".join(text.split())
    figures = (README.parent / "docs/figures.md").read_text("utf-8")
    assert f"| {ours:,} | the full history each time: {whole:,} | {ours / whole:.0%} |" in figures


def test_demo_output_is_the_same_in_every_folder(tmp_path: Path) -> None:
    assert cli.run(["init", str(tmp_path / "project")]) == 0
    (tmp_path / "project/personas/broken.json").write_text("{")  # the demo ignores the project
    (tmp_path / "talk.json").write_text(json.dumps(make_messages(40)))
    results = []
    for folder in ("project", "."):
        command = [CUEBOOK, "demo", str(tmp_path / "talk.json"), "--json"]
        environment = {**os.environ, "PYTHONHASHSEED": str(len(results))}
        done = subprocess.run(
            command, cwd=tmp_path / folder, env=environment, capture_output=True, timeout=60, check=True
        )
        results.append(done.stdout)
    assert results[0] == results[1]


def test_image_costs_the_same_with_and_without_memory(demo: Demo) -> None:
    look = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    report = demo.report([{"role": "user", "content": look}, {"role": "assistant", "content": "Nice."}])
    assert report["ours"]["tokens"] == report["everything"]["tokens"] < 2_000


def test_system_text_is_in_every_prompt_and_shifts_no_source(demo: Demo) -> None:
    system = {"role": "system", "content": "You are a gardener who keeps to what was decided. " * 8}
    plain, report = demo.report(make_messages(15)), demo.report([system, *make_messages(15)])
    more = (report["ours"]["tokens"] - plain["ours"]["tokens"]) / 15
    assert more > 60
    last = report["items"][-1]
    assert ("bed number 15" in last["text"], last["sources"]) == (True, ["import-30"])  # the system text is import-1


def test_posts_without_times_show_no_dates(demo: Demo) -> None:
    output = demo(make_messages(40))
    assert output.startswith("talk: 80 posts, without")
    assert "summary, version" in output
    for match in ("1970", "2026", "day"):
        assert match not in output
    report = demo.report(make_messages(40))
    assert report["days"] is None
    assert report["summary"]["summaryUptoTimestamp"] is None
    assert {item["validFrom"] for item in report["items"]} == {None}


def test_posts_with_times_show_the_number_of_days(demo: Demo) -> None:
    posts = make_messages(2)
    for day, post in enumerate(posts, 1):
        post["timestamp"] = f"2026-03-0{day}T09:00:00Z"
    assert demo(posts).startswith("talk: 4 posts over 3 days, without")
    assert demo(posts[:2]).startswith("talk: 2 posts over 1 day, without")
    del posts[1]["timestamp"]
    assert demo(posts[:2]).startswith("talk: 2 posts within a day, without")
    assert demo(posts[:1]).startswith("talk: 1 post within a day, without")


def test_questions_of_the_file_are_searched_in_memory(demo: Demo) -> None:
    lives, repairs, plays = demo.report([LOCOMO])["asked"]
    assert [(match["where"], match["sources"]) for match in lives["stands"]][-1] == ("hit", ["D1:1"])
    assert (lives["key"], lives["evidence"]) == ("Terschelling", 1.0)
    assert (repairs["stands"], repairs["source"]["sources"]) == ([], ["D1:3"])
    assert (plays["key"], plays["stands"]) == ("3", [])
    output = demo([LOCOMO])
    assert "questions asked at the end: 3\n" in output
    assert "  Where does Piet live? [Terschelling]\n" in output


def test_cost_columns_are_aligned(demo: Demo) -> None:
    lines = demo(make_messages(3)).splitlines()
    at = lines.index(next(line for line in lines if line.startswith("prompt cost")))
    heads, rows = lines[at], lines[at + 1 : at + 5]
    ends = [heads.index("Cuebook") + len("Cuebook"), len(heads)]
    for row in rows:
        for end in ends:
            assert row[end - 1] != " "
            assert row[end : end + 1] in ("", " ")
    assert "a token costs" in lines[at + 5]


def test_served_demo_deletes_its_database_on_exit(tmp_path: Path) -> None:
    place, file = tmp_path / "temporary", tmp_path / "talk.json"
    place.mkdir()
    file.write_text(json.dumps(make_messages(3)), "utf-8")
    process = subprocess.Popen(
        [CUEBOOK, "demo", str(file), "--serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(place), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    with process.stdout as shown:
        address = next(line.split()[-1] for line in shown if "http://" in line)
        page = httpx.get(address).text
        assert "talk · turn 3" in page
        assert "at the prices of gpt-5-mini" in page
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(place.iterdir()) == []


async def test_sample_project_fills_the_inspector(tmp_path: Path) -> None:
    await add_sample_project(tmp_path, "demo.db", "gpt-5-mini")
    async with Cuebook.open(demo_config(tmp_path, "demo.db"), worker=False) as cue:
        conversations = (await cue.conversations.list()).items
        assert {each.persona for each in conversations} == {"support", "engineer", "companion"}
        for each in conversations:
            verdicts = [(await cue.turns.verify(each.id, n + 1)).verdict for n in range(each.turns)]
            assert verdicts == ["identical"] * each.turns
        history = (await cue.prompts.history(SLUG)).items
        assert {"write", "label", "rollback"} <= {each.kind for each in history}
        assert (await cue.mind.show("order-20418")).reflections
        assert (await cue.audit.verify()).ok


def _without_why(report: Any) -> Any:
    """Return a report without the parts of scores."""
    if isinstance(report, dict):
        return {key: _without_why(value) for key, value in report.items() if key != "why"}
    return [_without_why(each) for each in report] if isinstance(report, list) else report


def test_postgresql_gives_the_figures_of_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[dict[str, Any]] = []
    for arguments in ((), ("--postgres",)):
        assert cli.run(["demo", "--json", *arguments]) == 0
        reports += json.loads(capsys.readouterr().out)["items"]
    sqlite, postgres = reports
    # PostgreSQL selects the candidates of recall by BM25 over the matches of a query, SQLite over its whole index, and
    # its tokenizer stems the words once more. So prompts have about 0.1% other tokens, and parts of scores differ.
    for name in ("tokens", "lastTokens", "cost", "readShare"):
        assert postgres["ours"].pop(name) == pytest.approx(sqlite["ours"].pop(name), rel=0.005)
    for ours, theirs in zip(sqlite.pop("profiles"), postgres.pop("profiles"), strict=True):
        assert theirs["tokens"] == pytest.approx(ours["tokens"], rel=0.005)
        assert (theirs["summaryTokens"], theirs["recall"]) == (ours["summaryTokens"], ours["recall"])
    assert _without_why(postgres) == _without_why(sqlite)
