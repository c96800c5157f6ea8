"""Test the settings page: values with their sources, and no secrets."""

from collections.abc import Callable
from pathlib import Path

from layout import check_layout
from playwright.sync_api import expect

from conftest import Served, Tab
from cuebook import Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.app.setup.project_templates import init_project
from cuebook.testing.doubles import ScriptedModel

KEY = "sk-proj-abcdefghijklmnopqrstuvwx1234567890ABCDEFGH"  # pasted into the wrong place
SECRET = "hunter2-of-the-proxy"


def test_settings_show_their_sources_and_hide_secrets(
    served_cue: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    init_project(tmp_path / "project")
    (tmp_path / "project" / "cuebook.toml").write_text("[budget]\ncontext = 64000\n")
    environment = {
        "CUEBOOK_UPSTREAM_URL": f"https://ann:{SECRET}@models.example.org/v1",
        "CUEBOOK_MODEL_NAME": KEY,
        "OPENAI_API_KEY": SECRET,
        "MEMORY_COMPACTION_COOLDOWN_MS": "5000",
    }
    config = load_config(tmp_path / "project", environment=environment)
    served = served_cue(Cuebook.open(config, model=ScriptedModel(default="Noted.")))
    seen = tab(served)
    page = seen.open("/")
    page.click("nav >> text=Settings")
    assert page.inner_text("tr:has-text('budget.context')").split()[1:3] == ["64000", "cuebook.toml"]
    assert "default" in page.inner_text("tr:has-text('budget.trigger')")
    assert "tokens reserved for the answer" in page.inner_text("tr:has-text('budget.reply')")
    assert "https://***@models.example.org/v1" in page.inner_text("tr:has-text('upstream.url')")
    assert "5000" in page.inner_text("section:has(#section-environment)")
    assert SECRET not in page.content()
    assert KEY not in page.content()
    for each in config.settings.__struct_fields__:
        expect(page.locator(f"#section-{each}")).to_have_count(1)
    seen.screenshot_page("settings")
    check_layout(served, tab, "/page/settings")


def test_settings_require_the_owner_role(serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path) -> None:
    init_project(tmp_path / "project")
    served = serve(tmp_path / "project", ScriptedModel(default="Noted."))
    made = served.run(lambda cue: cue.keys.new("admin"))
    seen = tab(served, extra_http_headers={"X-Cuebook-Key": made.token})
    page = seen.open("/page/settings")
    seen.faults.clear()  # the browser logs the 403
    assert "role owner or higher" in page.inner_text("[role=alert]")
    assert "budget" not in page.inner_text("main")
