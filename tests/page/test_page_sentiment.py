"""Test the sentiment page and the optimizer page."""

from collections.abc import Callable
from pathlib import Path

from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel

MESSAGES = (
    "Can you help me sort a list of dates in Python?",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Which of the two lines do I have to change?",
    "Thank you so much, that is wonderful, it works perfectly now!",
)
MIND = "/page/conversations/sorting/mind"


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    return tmp_path / "project"


async def talk(cue: Cuebook) -> None:
    for text in MESSAGES:
        await cue.ask(Ask(text, "sorting", persona="engineer", user="ann"))
        await cue.settle()


async def tune(cue: Cuebook) -> None:
    await talk(cue)
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"Sentence {n} of a long talk."} for n in range(60)]
    await cue.append("sorting", messages, user="ann")
    for _ in range(3):
        await cue.optimizer.run("sorting")


def test_sentiment_and_mood_are_listed_by_turn(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(talk)
    seen = tab(served)
    page = seen.open("/page/conversations/sorting")
    page.click("text=Sentiment by turn")
    sentiments = [each.metadata["sentiment"] for each in served.run(lambda cue: cue.turns.list("sorting", last=9))]
    assert page.locator("svg.plot circle").count() == sum(each["polarity"] != "unknown" for each in sentiments)
    assert page.locator("svg.plot line.event").count() == sum(len(each["events"]) for each in sentiments) > 0
    row = page.inner_text("section:has(#time) tr:has-text('user_frustrated')")
    assert f"{sentiments[1]['score']:+.2f}" in row
    assert "empathetic" in page.inner_text("section:has(#time) table")
    assert "event:user_frustrated" in page.inner_text("section:has(#runs)")
    seen.screenshot_page("mind")


def test_optimizer_runs_are_listed_and_plotted(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(tune)
    seen = tab(served)
    page = seen.open("/page/conversations/sorting")
    page.click("text=Tuning history")
    runs = served.run(lambda cue: cue.optimizer.history("sorting"))
    assert page.locator("section:has(#runs) tr:has(td)").count() == len(runs) >= 3
    expect(page.locator("section:has(#tokens) polyline")).to_have_count(2)
    assert f"{runs[0].tokens_before:,}" in page.inner_text("section:has(#runs)")
    seen.screenshot_page("optimizer")


def test_sentiment_and_optimizer_pages_have_a_valid_layout(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(tune)
    check_layout(served, tab, MIND, "/page/optimizer")


def test_viewer_sees_only_own_optimizer_runs(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(tune)
    made = served.run(lambda cue: cue.keys.new("viewer", user="bob"))
    seen = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    page = seen.open("/page/optimizer")
    assert "sorting" not in page.inner_text("main")
    page = seen.open(MIND)
    seen.faults.clear()  # the browser logs the 404
    assert page.inner_text("h1") == "404"
