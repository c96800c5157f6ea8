"""Test the memory pages: list, search, history, and the forms to correct and forget a memory."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab, config
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.testing import FrozenClock
from cuebook.testing.doubles import ScriptedModel


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    return tmp_path / "project"


async def add_message(cue: Cuebook, text: str, conversation: str, user: str = "ann") -> None:
    await cue.ask(Ask(text, conversation, user=user))
    await cue.settle()


def test_memory_can_be_found_corrected_and_forgotten(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."), memory__user=True)
    served.run(lambda cue: add_message(cue, "I am allergic to <b>nuts</b>.", "lunch"))
    served.run(lambda cue: add_message(cue, "I am allergic to cats.", "pets", "bob"))
    seen = tab(served)
    page = seen.open("/")
    page.click("nav >> text=Memories")
    assert "nuts" in page.inner_text("main")
    assert "cats" in page.inner_text("main")
    page.fill("[name=userId]", "ann")
    page.keyboard.press("Enter")
    page.wait_for_url("**userId=ann**")
    assert "cats" not in page.inner_text("main")
    seen.screenshot_page("memories")
    page.fill("[name=q]", "allergic")
    page.keyboard.press("Enter")
    page.wait_for_selector("ol.hits")
    assert "nuts" in page.inner_text("ol.hits")
    page.click("ol.hits >> text=open memory")
    assert "user ann" in page.inner_text(".facts")
    expect(page.locator("main b")).to_have_count(0)
    page.click("section:has(#from) a")
    assert page.evaluate("document.querySelector(':target')?.textContent").startswith("user ann · #1 ·")
    page.go_back()
    page.fill("#text", "I am allergic to hazelnuts.")
    page.click("button:has-text('Correct')")
    page.wait_for_selector(".text:has-text('hazelnuts')")
    assert "corrected manually" in page.inner_text(".facts")
    seen.screenshot_page("memory")
    page.click("a:has-text('Forget this memory')")
    preview = page.inner_text("main")
    assert "hazelnuts" in preview, "the preview shows the text"
    rows = page.inner_text("main tr:has-text('memories') td.n")
    assert ("To be deleted" in preview, rows) == (True, "2"), "the text before the correction is deleted too"
    seen.screenshot_page("forget")
    page.check("[name=sure]")
    page.click("button:has-text('Forget')")
    page.wait_for_selector("h1:has-text('Forgotten')")
    seen.screenshot_page("receipt")
    page.click("main a")
    assert "hazelnuts" not in page.inner_text("main")
    assert served.run(lambda cue: cue.memory.list(user="ann")).items == ()


def test_overview_lists_memories_of_recent_conversations(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    for number in range(14):
        served.run(lambda cue, at=number: add_message(cue, f"My locker number {at} has code {at}-{at * 7}.", "lockers"))
    page = tab(served).open("/page/memories")
    card = page.locator("section.card:has-text('lockers')")
    assert "No cross-conversation memories yet" in page.inner_text("main")
    expect(card.locator("li")).to_have_count(4)
    card.locator("a:has-text('All')").click()
    page.wait_for_url("**conversationId=lockers")
    assert page.locator("main tbody tr, main table tr").count() > 4
    assert page.locator("details[open] [name=conversationId]").input_value() == "lockers"


def test_memory_shows_its_history_and_is_listed_as_of_a_time(
    served_cue: Callable[[Cuebook], Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    clock = FrozenClock()
    served = served_cue(Cuebook.open(config(project(tmp_path)), model=ScriptedModel(default="Noted."), clock=clock))
    for city in ("Bergen", "Oslo", "Lima"):
        served.run(lambda cue, city=city: cue.memory.put_knowledge("domain", "city", city, user="ann"))
        clock.advance(86_400)
    seen = tab(served)
    page = seen.open("/page/memories?userId=ann&ended=true")
    expect(page.locator("tr.past")).to_have_count(2)
    assert page.locator("tr:has-text('Lima') td.n").all_inner_texts() == ["0.50", "1", "0"], "confidence, uses, sources"
    page.uncheck("[name=ended]")
    page.fill("[name=asOf]", datetime.fromtimestamp(clock.now() - 1.5 * 86_400, UTC).isoformat())
    page.click("button:has-text('Search')")
    page.wait_for_url("**asOf=2**")
    assert page.locator("main table a").all_inner_texts() == ["city: Oslo"]
    page.click("text=city: Oslo")
    assert "valid until" in page.inner_text(".facts")
    steps = page.locator("ol.history li").all_inner_texts()
    assert [city in step for city, step in zip(("Lima", "Oslo", "Bergen"), steps, strict=True)] == [True] * 3
    assert page.inner_text("li[aria-current] b") == "Oslo"
    page.click("ol.history a >> nth=0")
    assert "valid until" not in page.inner_text(".facts")
    seen.open("/page/memories?userId=ann")
    with page.expect_download() as download:
        page.click("text=Export all as JSON")
    assert download.value.suggested_filename == "memories.json"
    kept = json.loads(Path(download.value.path()).read_text())["items"]
    assert sorted(each["text"] for each in kept) == ["Bergen", "Lima", "Oslo"]


def test_memories_of_a_conversation_are_listed_with_sources(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(lambda cue: add_message(cue, "We decided to use PostgreSQL for the shop.", "a/b c"))
    seen = tab(served)
    page = seen.open("/page/memories")
    page.click("section.card:has-text('a/b c') >> text=As a list")
    from_all = page.inner_text("main table")
    page = seen.open("/page/conversations/a~b%20c")
    page.click("text=Memories of this conversation")
    assert page.inner_text("main table") == from_all
    page.click("main table a")
    assert "PostgreSQL" in page.inner_text(".text")
    assert "a/b c" in page.inner_text("section:has(#from)")
    for day, many in (("2999-01-31", 1), ("2020-01-31", 0)):
        page = seen.open(f"/page/memories?conversationId=a/b%20c&asOf={day}")
        assert page.locator("main table a:has-text('PostgreSQL')").count() == many, "number of memories at that time"


def test_memory_pages_have_a_valid_layout(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."), memory__user=True)
    served.run(lambda cue: add_message(cue, "I am allergic to nuts. We decided to use PostgreSQL.", "lunch"))
    [first, *_] = served.run(lambda cue: cue.memory.list(user="ann")).items
    views = ("/page/memories", "/page/memories?q=allergic&userId=ann", f"/page/memories/{first.id}?userId=ann")
    check_layout(served, tab, *views)


def test_viewer_sees_own_memories_and_cannot_change_them(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."), memory__user=True)
    served.run(lambda cue: add_message(cue, "I am allergic to nuts.", "lunch"))
    served.run(lambda cue: add_message(cue, "I am allergic to cats.", "pets", "bob"))
    [own] = served.run(lambda cue: cue.memory.list(user="ann")).items
    [other] = served.run(lambda cue: cue.memory.list(user="bob")).items
    made = served.run(lambda cue: cue.keys.new("viewer", user="ann"))
    page = tab(served, extra_http_headers={"X-Cuebook-Key": made.token}).open("/page/memories")
    assert "nuts" in page.inner_text("main")
    assert "cats" not in page.inner_text("main")
    page.click("main table a")
    expect(page.locator("main form")).to_have_count(0)
    with httpx.Client(base_url=served.url, headers={"X-Cuebook-Key": made.token}) as client:
        assert client.get(f"/page/memories/{other.id}").status_code == 404
        assert client.get("/page/memories?userId=bob").status_code == 403
        change = client.post(f"/page/memories/{own.id}/forget", data={"sure": "on"})
        assert (change.status_code, "role editor or higher" in change.text) == (403, True)
    editor = served.run(lambda cue: cue.keys.new("editor", user="ann"))
    with httpx.Client(base_url=served.url, headers={"X-Cuebook-Key": editor.token}) as client:
        foreign = {"Origin": "http://203.0.113.9"}
        assert client.post(f"/page/memories/{own.id}/forget", headers=foreign).status_code == 403
        assert client.post(f"/page/memories/{other.id}/forget").status_code == 404
        assert client.post(f"/page/memories/{own.id}/correct", data={"text": " "}).status_code == 400
        assert client.post(f"/page/memories/{own.id}/forget").status_code == 303
