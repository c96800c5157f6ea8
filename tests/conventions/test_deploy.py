"""Tests of the examples in deploy/: they parse, and each command, option, setting and path in them exists."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cuebook import Cuebook
from cuebook.cli import main as command_line
from cuebook.config import build
from cuebook.server.app import create_app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
#: Environment variables that are not settings.
NOT_SETTINGS = {"CUEBOOK_KEY_SECRET"}


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return document


def resources() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def containers() -> Iterator[dict[str, Any]]:
    for each in resources():
        if each["kind"] in ("Job", "Deployment"):
            yield from each["spec"]["template"]["spec"]["containers"]


def commands() -> Iterator[list[str]]:
    """Yield the arguments of each `cuebook` command in deploy/, comments included."""
    for service in compose()["services"].values():
        if service.get("image") == "cuebook:local":
            yield service["command"]
    yield from (container["args"] for container in containers())
    yield json_list(instruction("CMD"))
    for unit in UNITS:
        yield shlex.split(re.findall(r"^ExecStart=\S+/cuebook (.*)$", unit.read_text("utf-8"), re.MULTILINE)[0])
    for file in DEPLOY.iterdir():
        for line in re.findall(r"^#  +.*?(?:run --rm init|-- cuebook) (.*)$", file.read_text("utf-8"), re.MULTILINE):
            yield shlex.split(line)


def json_list(text: str) -> list[str]:
    return [each.strip(' "') for each in text.strip("[]").split(",")]


def instruction(name: str) -> str:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)[-1]


def test_every_command_and_option_exists() -> None:
    found = list(commands())
    assert {"db init", "key new"} <= {" ".join(each[:2]) for each in found}
    assert {"serve", "worker"} <= {each[0] for each in found}
    for arguments in found:
        parse(arguments)


def parse(arguments: list[str]) -> None:
    """Parse a command without running it. Raises the parser's errors."""
    command: Any = typer.main.get_command(command_line.app)
    context = command.make_context("cuebook", [*arguments], resilient_parsing=True)
    rest = list(arguments)
    while hasattr(command, "get_command"):
        name = rest.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"unknown command {name!r} in {arguments}"
    command.make_context(name, rest)


def test_every_environment_variable_is_a_setting() -> None:
    texts = "".join(file.read_text("utf-8") for file in DEPLOY.iterdir())
    names = set(re.findall(r"CUEBOOK_[A-Z_]*[A-Z]", texts))
    assert {"CUEBOOK_DATABASE_URL", "CUEBOOK_WORK_WHERE", *NOT_SETTINGS} <= names
    environment: dict[str, str] = dict(compose()["x-cuebook"]["environment"])
    environment |= {each["name"]: each["value"] for container in containers() for each in container.get("env", ())}
    assert names == environment.keys()
    values = {name: re.sub(r"\$\{.*?\}", "", text) for name, text in environment.items() if name not in NOT_SETTINGS}
    config = build(environment=values)
    assert config.settings.work.where == "workers"
    assert config.settings.store.url.startswith("postgresql://")


@pytest.mark.slow
def test_every_health_check_exists() -> None:
    routes = {*create_app(Cuebook.open()).openapi_schema.to_schema()["paths"]}
    texts = "".join(file.read_text("utf-8") for file in DEPLOY.glob("*.yaml"))
    paths = {*re.findall(r"path: (/\w+)", texts), *re.findall(r"http://127\.0\.0\.1:\d+(/\w+)", texts)}
    assert paths == {"/healthz", "/readyz"}
    assert paths <= routes


def test_containers_run_without_privileges() -> None:
    assert instruction("USER") == "10001:10001"
    for service in compose()["services"].values():
        if service.get("image") == "cuebook:local":
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
    for each in resources():
        if each["kind"] in ("Job", "Deployment"):
            assert each["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    for container in containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/project", "/tmp"}  # noqa: S108


def test_the_image_has_the_files_that_it_copies() -> None:
    texts = (DEPLOY / "Dockerfile").read_text("utf-8")
    allowed = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE)
    copied = [file for line in re.findall(r"^COPY (?!--from)(.*) \S+$", texts, re.MULTILINE) for file in line.split()]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / file).exists() for file in copied)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8").replace("/opt/cuebook/bin/cuebook", str(Path(sys.executable).with_name("cuebook")))
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
