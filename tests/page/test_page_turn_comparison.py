"""Test the comparison of two turns."""

from collections.abc import Callable
from pathlib import Path

from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.records.answer import to_wire
from cuebook.testing.doubles import ScriptedModel

MESSAGES = (
    "Can you help me sort a list of dates in Python?",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Which of the two lines <b>do I</b> have to change?",
)
VIEW = "/page/conversations/sorting/turns/3?with=2"


async def talk(cue: Cuebook) -> None:
    for text in MESSAGES:
        await cue.ask(Ask(text, "sorting", persona="engineer", user="ann"))
        await cue.settle()


def test_comparison_of_two_turns_marks_their_different_blocks(
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
    shown = [to_wire(served.run(lambda cue, n=n: cue.turns.show("sorting", n)))["window"]["blocks"] for n in (3, 2)]
    texts = [{(each["kind"], each["source"]): each["text"] for each in blocks} for blocks in shown]
    for number, (blocks, other) in enumerate((texts, reversed(texts)), 1):
        marked = sum(key not in other or other[key] != text for key, text in blocks.items())
        assert page.locator(f".sides > section:nth-child({number}) li.marked").count() == marked > 0
    assert "mood empathetic" in page.inner_text(".sides > section:nth-child(1)")
    assert "user_frustrated" in page.inner_text(".sides > section:nth-child(2)")
    expect(page.locator(".user b")).to_have_count(0)
    seen.screenshot_page("beside")
    check_layout(served, tab, VIEW)
    made = served.run(lambda cue: cue.keys.new("viewer", user="bob"))
    other_tab = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    assert other_tab.open(VIEW).inner_text("h1") == "404"
    other_tab.faults.clear()  # the browser logs the 404
