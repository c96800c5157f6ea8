"""Test the prompt pages: versions, differences, variant scores, quality and rollbacks."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab, config
from cuebook import Ask, Cuebook
from cuebook.app.prompts.arguments import ForkOrigin
from cuebook.app.setup.project_templates import init_project
from cuebook.testing import FrozenClock
from cuebook.testing.doubles import ScriptedModel


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    return tmp_path / "project"


async def write(cue: Cuebook) -> None:
    """Create a prompt with versions and a branch, record feedback, and roll a version back."""
    await cue.prompts.save("kind", {"role": "You are kind.", "rules": "Be short."}, author="ann", description="Kind.")
    await cue.prompts.save("kind", {"role": "You are very kind.", "rules": "Be short.", "more": "Say <b>why</b>."})
    await cue.prompts.fork("kind", "trial", origin=ForkOrigin(version=1), by="bob")
    await cue.prompts.save("kind", {"role": "You are stern.\u202e"}, branch="trial", author="bob")
    await cue.prompts.label("kind", "production", version=1, by="ann")
    for sentiment in (0.9, 0.8, 0.2, 0.1, 0.3):
        await cue.prompts.observe("kind", sentiment=sentiment, outcome="success")
        await cue.prompts.observe("kind", sentiment=1.0, outcome="success", branch="trial")
    await cue.prompts.roll_back("kind", reason="users complain", by="ann")


def test_prompt_page_shows_versions_scores_and_history(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(write)
    seen = tab(served)
    page = seen.open("/")
    page.click("nav >> text=Prompts")
    page.click("main >> text=kind")
    expect(page.locator("svg.graph a")).to_have_count(4)
    expect(page.locator("svg.graph a[aria-label='main:1, active, label production']")).to_have_count(1)
    expect(page.locator("svg.graph a[aria-label='main:2, rolled back']")).to_have_count(1)
    expect(page.locator("svg.plot polyline")).to_have_count(2)
    expect(page.locator("svg.plot line.event")).to_have_count(1)
    branch = served.run(lambda cue: cue.prompts.family("kind")).branch("trial")
    row = page.inner_text("section:has(#scores) tr:has-text('trial:2')").split()
    assert float(row[-1]) == pytest.approx(branch.weight, abs=0.001)
    assert "users complain" in page.inner_text("section:has(#history)")
    seen.screenshot_page("prompt")
    page.focus("svg.graph a[aria-label^='trial:2']")
    page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('trial:2')")
    assert "You are stern.⟨U+202E⟩" in page.inner_text("section:has(#text)")


async def run_trial(cue: Cuebook, clock: FrozenClock) -> None:
    """Record feedback for a worse version in half of the conversations until it is rolled back automatically."""
    dice = random.Random(3)
    await cue.prompts.save("kind", {"role": "You are kind."})
    await cue.prompts.save("kind", {"role": "You are rude."})
    for number in range(200):
        version = 1 + (dice.random() < 0.5)
        for _ in range(2):
            sentiment = min(max(dice.gauss((0.85, 0.25)[version - 1], 0.1), 0.0), 1.0)
            options = {"version": version, "propensity": 0.5, "conversation": f"talk {number}"}
            if (await cue.prompts.observe("kind", sentiment=sentiment, **options)).rolled_back:
                return
            clock.advance(30)
        clock.advance(3600)


def test_automatic_rollback_shows_its_evidence(
    served_cue: Callable[[Cuebook], Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    clock = FrozenClock()
    served = served_cue(Cuebook.open(config(project(tmp_path), prompts__rollback="guarded"), clock=clock))
    served.run(lambda cue: run_trial(cue, clock))
    [event, *_] = served.run(lambda cue: cue.prompts.history("kind"))
    evidence = event.evidence
    page = tab(served).open("/page/prompts/kind")
    why = page.locator("article[aria-label='main:2 rolled back']")
    assert "automatically" in why.inner_text()
    assert event.reason in why.inner_text()
    for number, name in ((1, "control"), (2, "new")):
        row = why.locator(f"tr:has(td:text-is('main:{number}'))").inner_text().split()
        assert row[-2:] == [str(evidence["n"][name]), f"{evidence['means'][name]:.3f}"]
    wealth, bound = (f"{evidence[part]['wealth']:.4g}" for part in ("statistics", "thresholds"))
    assert why.locator("tr:has(td:text-is('wealth'))").inner_text().split("\t")[1:3] == [wealth, bound]
    assert "at most 0.5%" in why.inner_text()
    expect(why.locator("svg[aria-label^='Mean score'] polyline")).to_have_count(2)
    plot = why.locator("svg[aria-label^='Evidence against main:2']")
    expect(plot.locator("polyline")).to_have_count(3)
    tops = [float(each) for each in plot.locator("text").all_text_contents()[:3]]
    assert max(tops) >= math.log10(evidence["thresholds"]["wealth"]) - 0.01, "the threshold was reached"
    check_layout(served, tab, "/page/prompts/kind")


def test_diff_shows_the_impact_on_recorded_turns(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(write)
    seen = tab(served)
    page = seen.open("/page/prompts/kind")
    page.select_option("[name=a]", "main:1")
    page.select_option("[name=b]", "main:2")
    page.click("button:has-text('Compare')")
    page.wait_for_url("**/diff?**")
    assert "You are very kind." in page.inner_text(".diff ins >> nth=0")
    assert "+Say <b>why</b>." in page.inner_text("main")
    expect(page.locator("main pre b")).to_have_count(0)
    assert "tokens" in page.inner_text("section:has(#use)")
    seen.screenshot_page("prompt-diff")


def test_diff_shows_selected_versions_side_by_side(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(write)
    page = tab(served).open("/page/prompts/kind/diff?a=main:1&b=main:2")
    page.select_option("[name=a]", "main:2")
    page.select_option("[name=b]", "trial:2")
    page.check("[name=sides]")
    page.click("button:has-text('Compare')")
    page.wait_for_url("**sides=true**")
    [left, right] = page.locator("table.sided tr:has-text('stern') td").all_inner_texts()
    assert (left, right) == ("You are very kind.", "You are stern.⟨U+202E⟩")
    assert page.inner_text("tr:has(td:text-is('author'))").split() == ["author", "–", "bob"]
    check_layout(served, tab, "/page/prompts/kind/diff?a=main:2&b=trial:2&sides=true")


def test_version_shows_parameters_ancestors_and_quality(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))

    async def make(cue: Cuebook) -> None:
        await cue.prompts.save("base", {"role": "You are kind."})
        await cue.prompts.save(
            "child", {"more": "Speak of ${place}."}, inherits="base",
            params=[{"name": "place", "type": "string", "required": True, "description": "Which <i>town</i>."}],
        )  # fmt: skip

    served.run(make)
    page = tab(served).open("/page/prompts/child")
    assert page.inner_text("tr:has(code:text-is('place'))").split("\t")[1:] == [
        "string",
        "yes",
        "",
        "Which <i>town</i>.",
    ]
    assert page.inner_text("p:has-text('Inherits') a") == "base@main:1"
    page.click("text=Quality score")
    rated = served.run(lambda cue: cue.prompts.rating("child"))
    assert page.inner_text("main b") == f"{rated.score:g}"
    assert page.locator("section:has(#parts) tr:has(td)").count() == len(rated.parts)
    assert "no-description" in page.inner_text("section:has(#findings)")
    check_layout(served, tab, "/page/prompts/child", "/page/prompts/child/quality")


def test_impact_is_measured_on_turns_with_the_prompt(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    folder = project(tmp_path)
    (folder / "personas" / "ferry.json").write_text(json.dumps({"id": "ferry", "name": "Ada"}))
    served = serve(folder, ScriptedModel(default="Noted."))

    async def talk(cue: Cuebook) -> None:
        await cue.prompts.save("persona/ferry", {"role": "You are kind."})
        for number in range(6):
            text = (
                f"Ferry {number} leaves at {number} o'clock. " + "The sea is calm and the crew is in a good mood. " * 4
            )
            await cue.ask(Ask(text, "harbour", persona="ferry", token_budget=500))
        await cue.prompts.save("persona/ferry", {"role": "You are kind, and tell what you know of harbours. " * 12})

    served.run(talk)
    seen = tab(served)
    page = seen.open("/page/prompts/persona~ferry/diff?a=1&b=2")
    assert "6 turns with this prompt" in page.inner_text("section:has(#use)")
    seen.screenshot_page("impact")
    page.click("section:has(#use) a:has-text('harbour turn 6')")  # in which a post more is left out
    assert page.inner_text("h1") == "Turn 6 of harbour"


def test_prompt_pages_have_a_valid_layout(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(write)
    diff = "/page/prompts/kind/diff?a=main:1&b=trial:2"
    check_layout(served, tab, "/page/prompts", "/page/prompts/kind", diff, "/page/prompt-clusters")
