"""Test the shadow mode page."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab, config
from cuebook import Cuebook
from cuebook.app.cuebook import RelayCall
from cuebook.app.replay import recorded_answer
from cuebook.interfaces import RelayRequest
from cuebook.testing.upstream import ScriptedUpstream

TURNS = 6


async def talk(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    """Send a growing history. The last request omits the first messages."""
    messages = []
    for number in range(TURNS):
        messages.append({"role": "user", "content": f"Bed {number} gets tulips of sort {number * 7}."})
        upstream.say(recorded_answer({"role": "assistant", "content": f"Noted, {number}."}, "gpt-5-mini"))
        sent = messages[4:] if number == TURNS - 1 else messages
        body = msgspec.json.encode({"model": "gpt-5-mini", "messages": sent})
        headers = {"content-type": "application/json"}
        request = RelayRequest(method="POST", path="/chat/completions", headers=headers, body=body, query="")
        call = RelayCall(body=body, headers=headers, conversation="garden")
        async for _ in cue.pass_through(request, call):
            pass
        messages.append({"role": "assistant", "content": f"Noted, {number}."})
    await cue.settle()


def test_shadow_calls_are_totaled_and_listed(
    served_cue: Callable[[Cuebook], Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    upstream = ScriptedUpstream()
    served = served_cue(
        Cuebook.open(config(tmp_path, upstream__shadow=True, upstream__url="http://recorded/v1"), upstream=upstream)
    )
    seen = tab(served)
    assert "No calls yet" in seen.open("/page/shadow").inner_text("main")
    served.run(lambda cue: talk(cue, upstream))
    found = served.run(lambda cue: cue.shadow.report())
    calls = served.run(lambda cue: cue.shadow.calls())
    page = seen.open("/")
    assert "Shadow mode" in page.inner_text("[role=note]")
    page.click("nav >> text=Shadow")
    assert f"{found.window_tokens:,}" in page.inner_text(".figures")
    expect(page.locator("svg.plot polyline")).to_have_count(2)
    assert page.locator("section:has(#calls) tr:has(td)").count() == len(calls) == TURNS
    assert sum(each.call.entry.client_tokens for each in calls) == found.client_tokens
    seen.screenshot_page("shadow")
    page.click(f"text=garden · turn {TURNS}")
    assert "this prompt was not sent" in page.inner_text("main")
    check_layout(served, tab, "/page/shadow")
    phone = tab(served, viewport={"width": 360, "height": 800})
    page = phone.open("/page/shadow")
    for cell in page.locator("section:has(#profiles) tr:has(td) >> nth=0 >> td[data-name]").all():
        assert cell.evaluate("each => getComputedStyle(each, '::before').content") != "none", "no heading on a phone"
    phone.screenshot_page("shadow-phone")
    page = seen.open("/page/shadow")
    assert page.locator("section:has(#profiles) tr:has(td)").count() == len(found.replay.profiles)
    page.select_option("[name=profile]", "budget")
    page.click("text=Switch")
    expect(page.locator("section:has(#profiles) td b")).to_have_text("budget")
