"""Test the memory usefulness page: measuring, and forgetting the memories that are not useful."""

from collections.abc import Callable
from pathlib import Path

import httpx
from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel

VIEW = "/page/memories/of-use?userId=ann"


async def talk(cue: Cuebook) -> None:
    for number, fact in enumerate(("My cat is called Pixel.", "I live in Oslo <b>now</b>.", "I cook for two.")):
        await cue.ask(Ask(fact, f"before-{number}", user="ann"))
        await cue.settle()
    for number in range(10):
        await cue.ask(Ask("What is my cat called, and does it snow in Oslo?", f"desk-{number}", user="ann"))


def test_useless_memories_are_proposed_and_forgotten_when_selected(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    served = serve(
        tmp_path / "project",
        ScriptedModel(default="That will be Pixel again: cats like warm keyboards."),
        memory__user=True,
    )
    served.run(talk)
    seen = tab(served)
    page = seen.open("/page/memories?userId=ann")
    page.click("text=Memory usefulness")
    assert "Pixel" in page.inner_text("section:has(#others)")
    rows = page.locator("section:has(#useless) tr:has(td)")
    gone = page.locator("section:has(#useless) tr:has-text('Oslo')")
    assert rows.count() >= 1
    assert gone.inner_text().split()[-3:] == ["0.00", "10", "10"]
    expect(page.locator("main b")).to_have_count(0)
    page.locator("section:has(#others) td a[href*=turns]").first.click()
    assert "Pixel again" in page.inner_text("main")
    page.go_back()
    cells = page.locator("section:has(#others) tr:has-text('My cat') td.n").all_inner_texts()
    page.click("section:has(#others) a:has-text('My cat')")
    page.click("text=Measure usefulness")
    assert f"{cells[0]} of 1, measured in {cells[2]} of the {cells[1]} turns" in page.inner_text("section:has(#use)")
    seen.screenshot_page("memory-use")
    page.click("text=Compare with all memories")
    check_layout(served, tab, VIEW)
    gone.locator("input").check()
    page.check("[name=sure]")
    page.click("button:has-text('Forget selected')")
    page.wait_for_selector("h1:has-text('Forgotten')")
    kept = [each.text for each in served.run(lambda cue: cue.memory.list(user="ann")).items]
    assert "My cat is called Pixel." in kept
    assert not [text for text in kept if "Oslo" in text]
    assert "something of it was erased" in seen.open(VIEW).inner_text("[role=status]")


def test_usefulness_over_http_covers_only_the_callers_memories(serve: Callable[..., Served], tmp_path: Path) -> None:
    init_project(tmp_path / "project")
    served = serve(
        tmp_path / "project",
        ScriptedModel(default="That will be Pixel again: cats like warm keyboards."),
        memory__user=True,
    )
    served.run(talk)
    keys = {name: served.run(lambda cue, name=name: cue.keys.new("editor", user=name)).token for name in ("ann", "bob")}
    with httpx.Client(base_url=served.url) as client:
        asked = {"conversationIds": ["desk-0", "desk-1"]}
        answer = client.post("/api/memories/utility", json=asked, headers={"X-Cuebook-Key": keys["ann"]}).json()
        assert (answer["by"], answer["turns"], answer["items"][0]["text"]) == ("words", 2, "My cat is called Pixel.")
        assert answer["items"][0]["verdict"] == "useful"
        assert {each["verdict"] for each in answer["items"][1:]} <= {"seldom", "silent"}
        others = client.post("/api/memories/utility", json={}, headers={"X-Cuebook-Key": keys["bob"]}).json()
        assert others["items"] == []
        mine = served.run(lambda cue: cue.memory.list(user="ann")).items
        form = {"memory": [each.id for each in mine], "sure": "on"}
        client.post("/page/memories/of-use/forget", data=form, headers={"X-Cuebook-Key": keys["bob"]})
        assert served.run(lambda cue: cue.memory.list(user="ann")).items == mine
        none = client.post("/page/memories/of-use/forget", data={}, headers={"X-Cuebook-Key": keys["ann"]})
        assert none.status_code == 400
