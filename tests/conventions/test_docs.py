"""Tests of the documentation site that `scripts/docs` builds: complete reference pages and no dead links."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import typer

from cuebook import Cuebook, errors
from cuebook.cli import main as command_line
from cuebook.config import ConfigSections
from cuebook.server.app import create_app

ROOT = Path(__file__).resolve().parents[2]


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_reference", ROOT / "scripts/docs_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference"))
    shutil.copy(ROOT / "zensical.toml", folder)
    reference().write(folder / "docs/reference")
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    zensical = str(Path(sys.executable).with_name("zensical"))
    done = subprocess.run(
        [zensical, "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


class Page(HTMLParser):
    """Collects the links, loaded files and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[key] for key in ("src", "href") if key in given and tag != "a"]


def paths_of(command: object, context: typer.Context, name: str) -> Iterator[str]:
    yield name
    for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from paths_of(command.get_command(context, below), context, f"{name} {below}")


def test_every_command_is_described(folder: Path) -> None:
    page = (folder / "docs/reference/commands.md").read_text("utf-8")
    group = typer.main.get_command(command_line.app)
    names = list(paths_of(group, group.make_context("cuebook", [], resilient_parsing=True), "cuebook"))
    headings = re.findall(r"^##+ (cuebook.*)$", page, re.MULTILINE)
    assert headings == names
    sections = re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]
    assert not [each.partition("\n")[0] for each in sections if "```text" not in each], "every command needs an example"
    assert "| `--upstream URL` | " in page


def test_every_setting_is_described(folder: Path) -> None:
    page = (folder / "docs/reference/settings.md").read_text("utf-8")
    settings = ConfigSections()
    for section in settings.__struct_fields__:
        for key in getattr(settings, section).__struct_fields__:
            assert page.count(f"| `{section}.{key}` | `") == 1, f"{section}.{key}"
    silent = re.findall(r"^\| (`[a-z_.]+`) .*\|  \|$", page, re.MULTILINE)
    assert not silent, "describe each setting beside its field in config.py"
    assert '| `store.url` | `".cuebook/cuebook.db"` |  | a file' in page
    assert "| `budget.trigger` | `0.7` | above 0, at most 1 |" in page
    assert "automatic rollback compares each new version" in page  # documented above the setting, not beside it


@pytest.mark.slow
def test_every_route_is_described(folder: Path) -> None:
    page = (folder / "docs/reference/routes.md").read_text("utf-8")
    document = create_app(Cuebook.open()).openapi_schema.to_schema()
    for path, operations in document["paths"].items():
        for method in operations:
            assert page.count(f"| `{method.upper()} {path}` | ") == 1, f"{method} {path}"
    for other in ("GET /", "POST /mcp", "GET /page/live", "POST /v1/chat/completions"):
        assert f"| `{other}` | " in page
    assert "| `PUT /api/conversations/{conversation}/participants` | owner |" in page


def test_every_error_is_described(folder: Path) -> None:
    page = (folder / "docs/reference/errors.md").read_text("utf-8")
    for name in errors.__all__:
        assert page.count(f"\n| `{name}` | ") == 1, name
    assert "| `StoreFull` | `BackendError` | 507 | `store-full` |" in page


@pytest.mark.slow
def test_every_page_is_in_the_navigation(folder: Path) -> None:
    def named(nav: object) -> Iterator[str]:
        for each in nav if isinstance(nav, list) else nav.values():
            yield from [each] if isinstance(each, str) else named(each)

    listed = set(named(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))
    design = (folder / "docs/reference/design.md").read_text("utf-8")
    for path in (folder / "docs").rglob("*.md"):
        place = path.relative_to(folder / "docs").as_posix()
        assert place in listed or f"(../{place})" in design, f"{place}: add it under nav in zensical.toml"


@pytest.mark.slow
def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    dead = []
    for path, page in pages.items():
        assert not [each for each in page.loads if urlsplit(each).netloc], path
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in pages[target].names):
                dead.append(f"{path.relative_to(site.resolve())}: {link}")
    assert not dead


def test_every_proving_test_of_the_security_page_exists() -> None:
    page = (ROOT / "docs/security.md").read_text("utf-8")
    tables = [line for line in page.splitlines() if line.startswith("| ")]
    named = {
        name for line in tables for name in re.findall(r"`((?:tests/)?[a-z_/]+(?:\.py)?)`", line) if "test" in name
    }
    paths = [str(each.relative_to(ROOT)) for each in (ROOT / "tests").rglob("*") if "__pycache__" not in each.parts]
    assert len(named) > 30
    assert [name for name in sorted(named) if not any(f"/{each}".endswith(f"/{name}") for each in paths)] == []
