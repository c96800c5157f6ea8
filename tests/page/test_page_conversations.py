"""Test the conversation pages: search, the transcript with its branches, and forgetting."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import CuebookError, UpstreamError
from cuebook.records.answer import to_wire
from cuebook.testing.doubles import Script, ScriptedModel

PIXEL = "data:image/png;base64," + "A" * 4000
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"port": "Vlieland", "day": 5}'}}
MESSAGES = (
    {"role": "user", "content": "When does the ferry leave?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"leaves": "9:45"}' + " " * 90_000 + "end"},
    {"role": "assistant", "content": "It leaves at **9:45**."},
    {"role": "user", "content": [
        {"type": "text", "text": "Is it this one?"}, {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "image_url", "image_url": {"url": "http://203.0.113.9/ship.png"}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": "x" * 2500}},
    ]},
    {"role": "assistant", "content": "Yes."},
)  # fmt: skip


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    return tmp_path / "project"


async def ask_all(cue: Cuebook, *texts: str, conversation: str, **ask: str) -> None:
    for text in texts:
        await cue.ask(Ask(text, conversation, **ask))


async def add_older(cue: Cuebook) -> None:
    for number in range(52):
        await cue.append(f"old-{number}", [{"role": "user", "content": f"Older talk {number}"}])


def test_conversations_can_be_searched_paged_and_forgotten(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(add_older)
    served.run(lambda cue: ask_all(cue, "Wann fährt die Fähre nach Ærø?", "Danke", conversation="trip", user="mara"))
    first = served.run(lambda cue: cue.conversations.posts("trip"))[0]
    served.run(lambda cue: cue.append("trip", [{"role": "user", "content": "Other"}], user="mara", parent=first.id))
    seen = tab(served)
    page = seen.open("/page/conversations")
    row = page.locator("tr:has-text('trip')")
    tokens = to_wire(served.run(lambda cue: cue.turns.show("trip", 2, user="mara")))["window"]["tokens"]
    assert row.locator("td").all_inner_texts()[1:7] == ["mara", "2", "5", "2", f"{tokens}", "live"]
    seen.screenshot_page("conversations")
    page.click("a:text-is('Older')")
    expect(page.locator("tr:has(td)")).to_have_count(3)  # after the 50 of the first page
    for words, found in (("FÄHRE ærø", 1), ("MARA", 1), ("old-5", 3), ("nowhere", 0), ("100%_", 0)):
        page = seen.open("/page/conversations")
        page.fill("[name=q]", words)
        page.click("button:has-text('Search')")
        expect(page.locator("tr:has(td)")).to_have_count(found)
    assert "No conversation with" in page.inner_text("[role=status]")
    check_layout(served, tab, "/page/conversations?q=trip")
    page = seen.open("/page/conversations/trip")
    page.click("a:has-text('Forget this conversation')")
    assert "5 posts of trip" in page.inner_text("main")
    check_layout(served, tab, "/page/conversations/trip/forget")
    page.click("button:has-text('Forget')")
    assert page.url.endswith("/trip/forget")  # the confirmation is not checked
    page.check("[name=sure]")
    page.click("button:has-text('Forget')")
    page.wait_for_url("**/page/receipts/**")
    assert "posts" in page.inner_text("table")
    assert "trip" not in seen.open("/page/conversations").inner_text("main")


def test_transcript_shows_tools_branches_turns_and_the_end_of_the_summary(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    model = ScriptedModel(
        Script(text="Half of an ans", half=True), UpstreamError("the model is away"), default="Noted."
    )
    served = serve(project(tmp_path), model)
    served.run(lambda cue: cue.append("trip", MESSAGES))
    posts = served.run(lambda cue: cue.conversations.posts("trip"))
    other = [{"role": "user", "content": "And the way back?"}, {"role": "assistant", "content": "At 18:30."}]
    served.run(lambda cue: cue.append("trip", other, parent=posts[3].id))
    served.run(lambda cue: cue.conversations.move_head("trip", posts[5].id))
    for text in ("Go on", "Again", "Once more"):
        with suppress(CuebookError):
            served.run(lambda cue, text=text: cue.ask(Ask(text, "trip")))
    served.run(lambda cue: cue.conversations.compress("trip", older_than=posts[4].id, summary="It leaves at 9:45."))
    seen = tab(served)
    page = seen.open("/page/conversations/trip")
    tree = page.locator(".tree")
    assert "Tool call: look_up" in tree.inner_text()
    assert '"port": "Vlieland"' in tree.locator(".call pre").first.inner_text()
    assert page.locator("summary:has-text('Result of look_up')").inner_text().endswith("90,021 characters")
    assert tree.locator(".image").all_inner_texts() == [
        "image · image/png · 3.0 kB", "image · http://203.0.113.9/ship.png · not loaded", "file · plan.pdf · 2.5 kB",
    ]  # fmt: skip
    assert "Summary version 1 ends here" in page.inner_text("li:has-text('It leaves at 9:45') + .summary-end")
    assert page.locator(".state-interrupted, .state-failed").count() >= 2
    seen.screenshot_page("transcript")
    check_layout(served, tab, "/page/conversations/trip")
    page.click(".tree a:has-text('And the way back?')")
    assert "At 18:30." in page.inner_text(".tree")
    assert "Is it this one?" not in page.locator(".tree .by-user").all_inner_texts()
    assert "not the current branch" in page.inner_text(".notice")
    page.click(".tree a:has-text('Is it this one?')")
    expect(page.locator(".notice")).to_have_count(0)
    page.click(".tree a:has-text('turn 3')")
    assert page.inner_text("h1") == "Turn 3 of trip"
