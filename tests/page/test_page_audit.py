"""Test the audit pages: the list of records, one record, and the integrity check."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.reports.audit import Audit
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "project")
    (tmp_path / "project" / "personas" / "kindly.json").write_text('{"id": "kindly", "name": "Ada"}')
    return tmp_path / "project"


async def seed(cue: Cuebook) -> None:
    await cue.prompts.save("persona/kindly", {"body": "Be <b>kind</b> to $user_name."}, params=["user_name"])
    await cue.prompts.save("other", {"body": "Be short."})
    for text in ("hello", "and again"):
        await cue.ask(Ask(text, "c1", user="zoe", persona="kindly"))
    await cue.settle()


def test_records_can_be_filtered_opened_replayed_and_verified(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(seed)
    seen = tab(served)
    page = seen.open("/")
    page.click("nav >> text=Audit")
    page.click("button:has-text('Verify integrity')")
    page.wait_for_selector("[role=status]:has-text('Intact.')")
    seen.screenshot_page("audit")
    page.fill("[name=promptId]", "persona/kindly")
    page.fill("[name=event]", "render")
    page.keyboard.press("Enter")
    page.wait_for_url("**event=render**")
    expect(page.locator("main table tr:has(td)")).to_have_count(2)
    page.click("main table a")
    assert "Be <b>kind</b> to" in page.inner_text("main")
    expect(page.locator("main pre b")).to_have_count(0)
    page.click("button:has-text('Check replay')")
    page.wait_for_selector("[role=status]:has-text('identical')")
    seen.screenshot_page("audit-record")
    page.click("main dl a")
    assert page.inner_text("h1") == "persona/kindly"


def test_verification_names_a_changed_record(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    folder = project(tmp_path)
    served = serve(folder, ScriptedModel(default="Noted."))
    served.run(seed)
    [file] = folder.rglob("*.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        change = "UPDATE audit_record SET body = CAST(replace(CAST(body AS TEXT), ?, ?) AS BLOB) WHERE seq = 3"
        connection.execute(change, ('"write"', '"wrote"'))
    page = tab(served).open("/page/audit")
    page.click("button:has-text('Verify integrity')")
    page.wait_for_selector("[role=alert]:has-text('at record 3')")


def test_older_link_continues_the_filtered_list(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))

    async def write(cue: Cuebook) -> None:
        for n in range(60):
            await cue.prompts.save("other", {"body": f"Be short, {n}."})

    served.run(write)
    page = tab(served).open("/page/audit?event=write&promptId=other")
    first = page.locator("main table tr:has(td)").count()
    page.click("a:text-is('Older')")
    assert first == 50
    expect(page.locator("main table tr:has(td)")).to_have_count(10)
    found = served.run(lambda cue: found_all(cue.audit))
    assert found == list(range(found[0], found[0] - 60, -1))


async def found_all(audit: Audit) -> list[int]:
    found, before = [], None
    while True:
        page = await audit.find(prompt="other", before=before, limit=7)
        found += [each.seq for each in page.records]
        before = page.before
        if before is None:
            return found


def test_audit_requires_an_admin_and_pages_have_a_valid_layout(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    served.run(seed)
    check_layout(served, tab, "/page/audit", "/page/audit/1")
    made = served.run(lambda cue: cue.keys.new("viewer", user="zoe"))
    seen = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    page = seen.open("/page/audit")
    seen.faults.clear()  # the browser logs the 403
    assert "role admin or higher" in page.inner_text("[role=alert]")
    with httpx.Client(base_url=served.url, headers={"X-Cuebook-Key": made.token}) as client:
        assert client.post("/page/audit/verify").status_code == 403
