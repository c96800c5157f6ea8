"""The state of mind over time and the optimizer's runs, in a browser."""

from collections.abc import Callable
from pathlib import Path

from looks import look_over
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel

SAID = (
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
    for text in SAID:
        await cue.ask(Ask(text, "sorting", persona="engineer", user="ann"))
        await cue.settle()


async def tune(cue: Cuebook) -> None:
    await talk(cue)
    said = [{"role": ("user", "assistant")[n % 2], "content": f"Sentence {n} of a long talk."} for n in range(60)]
    await cue.append("sorting", said, user="ann")
    for _ in range(3):
        await cue.optimizer.run("sorting")


def test_a_mind_is_seen_turn_by_turn(serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(talk)
    seen = tab(served)
    page = seen.open("/page/conversations/sorting")
    page.click("text=Sentiment by turn")
    heard = [each.metadata["sentiment"] for each in served.run(lambda cue: cue.turns.last("sorting", last=9))]
    assert page.locator("svg.plot circle").count() == sum(each["polarity"] != "unknown" for each in heard)
    assert page.locator("svg.plot line.event").count() == sum(len(each["events"]) for each in heard) > 0
    row = page.inner_text("section:has(#time) tr:has-text('user_frustrated')")
    assert f"{heard[1]['score']:+.2f}" in row
    assert "empathetic" in page.inner_text("section:has(#time) table")
    assert "event:user_frustrated" in page.inner_text("section:has(#runs)")
    seen.shoot("mind")


def test_runs_of_the_optimizer_are_seen_over_time(
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
    seen.shoot("optimizer")


def test_views_over_time_look_well_everywhere(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(tune)
    look_over(served, tab, MIND, "/page/optimizer")


def test_a_viewer_sees_what_was_tuned_of_their_own_alone(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(tune)
    made = served.run(lambda cue: cue.keys.new("viewer", user="bob"))
    seen = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    page = seen.open("/page/optimizer")
    assert "sorting" not in page.inner_text("main")
    page = seen.open(MIND)
    seen.faults.clear()  # the browser tells of the 404
    assert page.inner_text("h1") == "404"
