"""Test the what-if replay page."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel


async def talk(cue: Cuebook) -> str:
    await cue.ask(Ask("I am allergic to shrimp.", "before", user="mara"))
    await cue.settle()
    reply = await cue.ask(Ask("What am I allergic to?", "dinner", user="mara"))
    assert reply.window is not None
    [source] = [each.source for each in reply.window.blocks if each.source.startswith("memory:")]
    return source


def test_what_if_without_a_memory_shows_both_prompts(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    served = serve(tmp_path / "project", ScriptedModel(default="Shrimp."), memory__user=True)
    source = served.run(talk)
    seen = tab(served)
    page = seen.open("/page/conversations/dinner/turns/1")
    page.click("text=What-if replay")
    page.check(f"input[value='{source}']")
    page.click("button:text-is('Compare')")
    assert page.inner_text("h1") == "What-if replay: turn 1 of dinner"
    assert "Blocks removed: 1, added: 0, changed: 0." in page.inner_text("[role=status]")
    assert "differs from the bytes" not in page.inner_text("[role=status]")
    expect(page.locator("section[aria-labelledby=before] .marked")).to_have_count(1)
    assert source in page.inner_text("section[aria-labelledby=before] .marked")
    assert "only here" in page.inner_text("section[aria-labelledby=before] .marked")
    expect(page.locator("section[aria-labelledby=after] .marked")).to_have_count(0)
    assert page.is_checked(f"input[value='{source}']")
    seen.screenshot_page("what-if")
    page.uncheck(f"input[value='{source}']")
    page.fill("#asOf", "1990-01-01")
    page.click("button:text-is('Compare')")
    assert "Blocks removed: 1" in page.inner_text("[role=status]")
    assert page.input_value("#asOf") == "1990-01-01"
    page = seen.open("/page/conversations/dinner/turns/1/what-if")
    assert "Choose at least one change" in page.inner_text("main")


def test_invalid_what_if_shows_an_error(serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path) -> None:
    init_project(tmp_path / "project")
    served = serve(tmp_path / "project", ScriptedModel(default="Shrimp."), memory__user=True)
    served.run(talk)
    seen = tab(served)
    page = seen.page
    answer = page.goto(f"{served.url}/page/conversations/dinner/turns/1/what-if?asOf=soon")
    assert answer.status == 400
    assert "invalid time 'soon'" in page.inner_text("main")
    seen.faults.clear()  # the browser logs the 400


def test_what_if_asks_the_model_once_and_shows_both_answers(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    model = ScriptedModel("Noted.", "You may not eat **shrimp**.", "I do not know.")
    served = serve(tmp_path / "project", model, memory__user=True)
    source = served.run(talk)
    seen = tab(served)
    page = seen.open("/page/conversations/dinner/turns/1")
    page.click("text=What-if replay")
    page.check(f"input[value='{source}']")
    page.click("text=Compare and ask")
    assert page.inner_text("section[aria-labelledby=original-answer] strong") == "shrimp"
    assert "I do not know." in page.inner_text("section[aria-labelledby=new-answer]")
    assert "shrimp" not in str(model.requests[-1].messages[:-1])
    assert page.is_checked(f"input[value='{source}']")
    seen.screenshot_page("what-if-asked")
    assert (model.left, len(served.run(lambda cue: cue.turns.list("dinner")))) == (0, 1)


def test_what_if_without_a_model_offers_no_question(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    served = serve(tmp_path / "project", memory__user=True)
    served.run(lambda cue: cue.ask(Ask("I am allergic to shrimp.", "dinner")))
    page = tab(served).open("/page/conversations/dinner/turns/1/what-if")
    assert "No model is set" in page.inner_text("main form")
    expect(page.locator("text=Compare and ask")).to_have_count(0)
