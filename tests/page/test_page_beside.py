"""Two turns side by side, in a browser."""

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
    "Which of the two lines <b>do I</b> have to change?",
)
VIEW = "/page/conversations/sorting/turns/3?with=2"


async def talk(cue: Cuebook) -> None:
    for text in SAID:
        await cue.ask(Ask(text, "sorting", persona="engineer", user="ann"))
        await cue.settle()


def test_two_turns_stand_side_by_side_and_what_is_in_one_alone_is_marked(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    served = serve(tmp_path / "project", ScriptedModel(default="Change the second line."))
    served.run(talk)
    seen = tab(served)
    page = seen.open("/page/conversations/sorting/turns/3")
    page.click("text=Compare with another turn")
    page.focus(".filters [name=with]")
    page.keyboard.press("Enter")
    page.wait_for_url("**with=2")
    expect(page.locator(".sides > section")).to_have_count(2)
    shown = [served.run(lambda cue, n=n: cue.turns.show("sorting", n))["window"]["blocks"] for n in (3, 2)]
    held = [{(each["kind"], each["source"]): each["text"] for each in blocks} for blocks in shown]
    for number, (own, other) in enumerate((held, reversed(held)), 1):
        marked = sum(key not in other or other[key] != text for key, text in own.items())
        assert page.locator(f".sides > section:nth-child({number}) li.marked").count() == marked > 0
    assert "mood empathetic" in page.inner_text(".sides > section:nth-child(1)")
    assert "user_frustrated" in page.inner_text(".sides > section:nth-child(2)")
    expect(page.locator(".user b")).to_have_count(0)
    seen.shoot("beside")
    look_over(served, tab, VIEW)
    made = served.run(lambda cue: cue.keys.new("viewer", user="bob"))
    other_tab = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    assert other_tab.open(VIEW).inner_text("h1") == "404"
    other_tab.faults.clear()  # the browser tells of the 404
