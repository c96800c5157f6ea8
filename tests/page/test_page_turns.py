"""Test the live page, the turn page and signing in."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import UpstreamError
from cuebook.records.answer import to_wire
from cuebook.testing.doubles import Script, ScriptedModel

MESSAGES = (
    "Can you help me sort a list of dates in Python?",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Which of the two lines do I have to change?",
)
HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(2)> ![track](http://203.0.113.9/pixel.png)
[click](javascript:alert(3)) [ok](https://example.org/) <iframe src="http://203.0.113.9/"></iframe>
</textarea></style><svg onload=alert(4)> \u202eevil\u202c `code` **bold** {{ 7*7 }} {% raw %}"""
MAX_TAB_STOPS = 60


async def talk(cue: Cuebook, *texts: str, conversation: str = "sorting", **ask: str) -> None:
    for text in texts:
        await cue.ask(Ask(text, conversation, persona="engineer", **ask))
        await cue.settle()


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    return tmp_path / "project"


def test_live_page_shows_setup_steps_and_then_the_first_turn(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    model = ScriptedModel(default=Script(text="One two three four five.", size=4, delay=0.05))
    served = serve(project(tmp_path), model)
    seen = tab(served)
    page = seen.open("/")
    assert "Connect your program" in page.inner_text("main")
    seen.screenshot_page("live-empty")
    served.run(lambda cue: talk(cue, MESSAGES[0]))
    page.wait_for_selector("li.turn:has-text('One two three four five.')")
    page.wait_for_selector("li.turn:has-text('finished')")
    expect(page.locator("#welcome")).to_have_count(0)
    assert "persona" in page.inner_text("li.turn .facts")
    assert "first token after" in page.inner_text("li.turn .facts")
    page.wait_for_selector("[data-sum=turns]:text-is('1')")  # the totals arrive after the turn
    tokens = to_wire(served.run(lambda cue: cue.turns.show("sorting", 1)))["window"]["tokens"]
    assert page.inner_text("[data-sum=tokens]") == f"{tokens}"
    seen.screenshot_page("live")
    page.click("li.turn a")
    assert page.inner_text("h1") == "Turn 1 of sorting"


def test_running_turn_page_reloads_when_the_answer_is_ready(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default=Script(text="One two three four.", size=8, delay=0.5)))
    page = tab(served).open("/")
    asked = asyncio.run_coroutine_threadsafe(talk(served.cue, MESSAGES[0]), served.loop)
    page.click("li.turn a")
    page.wait_for_selector(".assistant:has-text('One two three four.')")
    assert page.inner_text(".facts .state") == "finished"
    asked.result(30)


def test_failed_turn_shows_its_error_as_the_answer(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(UpstreamError("the model answered 401")))

    async def ask(cue: Cuebook) -> None:
        with suppress(UpstreamError):
            await cue.ask(Ask("\N{WOMAN}\u200d\N{PERSONAL COMPUTER} می\u200cروم a\u200db \u202eevil\u202c", "sorting"))

    served.run(ask)
    page = tab(served).open("/")
    shown = page.inner_text("li.turn .query")
    assert shown == "\N{WOMAN}\u200d\N{PERSONAL COMPUTER} می\u200cروم a⟨U+200D⟩b ⟨U+202E⟩evil⟨U+202C⟩"
    page.click("li.turn a")
    assert "the model answered 401" in page.inner_text(".talk .assistant")
    assert shown == page.inner_text(".talk .user p")
    facts = page.inner_text(".figures")
    assert "Ended after" in facts
    assert "no previous prompt" in facts


def test_turn_page_accounts_for_all_tokens_and_decisions(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Change the second line."))
    served.run(lambda cue: talk(cue, *MESSAGES))
    seen = tab(served)
    page = seen.open("/page/conversations/sorting/turns/3")
    shown = to_wire(served.run(lambda cue: cue.turns.show("sorting", 3)))
    tokens = [int(re.sub(r"\D", "", each)) for each in page.locator(".legend b").all_inner_texts()]
    assert sum(tokens) == shown["window"]["tokens"]
    assert page.locator(".blocks li").count() == len(shown["window"]["blocks"])
    assert MESSAGES[0] in page.locator(".blocks .preview").all_inner_texts()
    page.focus(".bar")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert "section" in page.inner_text("#block-name")
    assert "mood empathetic" in page.inner_text("main")
    page.click(".blocks summary:has-text('mind')")
    assert "What helps now" in page.inner_text(".blocks")
    seen.screenshot_page("turn")
    page.keyboard.press("p")
    page.wait_for_url("**/turns/2")
    assert "event: user_frustrated" in page.inner_text("main")
    page.click("h1 a")
    assert page.inner_text("h1") == "sorting"
    expect(page.locator("section:has(#turns) tbody tr, section:has(#turns) table tr:has(td)")).to_have_count(3)
    seen.screenshot_page("conversation")


def test_pages_work_with_a_keyboard_and_at_every_size(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(lambda cue: talk(cue, *MESSAGES))
    first = served.run(lambda cue: cue.conversations.posts("sorting"))[1]
    served.run(lambda cue: cue.conversations.move_head("sorting", first.id))  # the others are on another branch
    check_layout(
        served, tab, "/", "/page/conversations", "/page/conversations/sorting", "/page/conversations/sorting/turns/2"
    )
    page = tab(served).open("/page/conversations/sorting")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    for _ in range(MAX_TAB_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "/page/conversations/sorting/turns/2":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/turns/2")


def test_hostile_transcript_runs_no_script_and_sends_no_request(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default=HOSTILE + "x" * 30_000))
    served.run(lambda cue: talk(cue, HOSTILE, conversation="<b>'\"&</b> / ü", user="<script>alert(5)</script>"))
    seen = tab(served)
    for view in ("/", "/page/conversations"):
        page = seen.open(view)
        assert "<b>'\"&</b> / ü" in page.inner_text("main")
    page.click("text=<b>'\"&</b> / ü")
    assert "alert(1)" in page.inner_text("main")
    page.locator("section:has(#turns) a").first.click()
    assert "Turn 1" in page.inner_text("h1")
    expect(page.locator("main img, main iframe, main script, main svg:not(.bar, .versus)")).to_have_count(0)
    expect(page.locator("main a[href^='javascript']")).to_have_count(0)
    seen.screenshot_page("hostile")


def test_conversation_with_ten_thousand_posts_is_usable(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": f"Sentence {n} of a long talk."} for n in range(10_000)
    ]
    served.run(lambda cue: cue.append("long", messages))
    served.run(lambda cue: cue.ask(Ask("And now?", "long", persona="engineer")))  # its summaries need not be ready
    seen = tab(served)
    page = seen.open("/page/conversations/long")
    assert "Sentence 9999" in page.inner_text("main")
    page.locator("section:has(#turns) a").first.click()
    assert "Turn 1 of long" in page.inner_text("h1")
    page.locator(".blocks a:has-text('9900')").click()  # an older post, not on the page of the newest
    page.wait_for_url("**?at=**")
    assert "Sentence 9899 of" in page.inner_text("li:has(:target)")
    assert "Sentence 12 of" in seen.open("/page/conversations/long?behind=0").inner_text("main")


def test_page_requires_an_api_key_when_keys_exist(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(lambda cue: talk(cue, MESSAGES[0], user="ann"))
    made = served.run(lambda cue: cue.keys.new("viewer", user="bob"))
    owner = served.run(lambda cue: cue.keys.new("owner"))
    seen = tab(served)
    page = seen.open("/page/conversations/sorting")
    seen.faults.clear()  # the browser logs the 401
    assert "API key required" in page.inner_text("h1")
    page.fill("#key", "cue_wrong")
    page.click("button")
    assert "Invalid API key" in page.inner_text("[role=alert]")
    seen.faults.clear()
    page.fill("#key", owner.token)
    page.click("button")
    page.wait_for_url("**/page/conversations/sorting")
    assert page.inner_text("h1") == "sorting"
    assert page.evaluate("document.cookie") == ""
    other = tab(served)
    page = other.open("/")
    other.faults.clear()
    page.fill("#key", made.token)
    page.click("button")
    page.wait_for_selector("h1:has-text('Live')")
    assert "sorting" not in page.inner_text("main")
