"""Tests of settings: the source of each value, and the errors about invalid ones."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook import InvalidInput
from cuebook.app.setup.project_files import load_compaction, load_config, load_personas
from cuebook.app.setup.project_templates import templates
from cuebook.config import Config, ConfigSections, build, has_path
from cuebook.memory.rolling import SHIPPED
from cuebook.prompts.names import candidates
from cuebook.records.persona import CHAIN
from cuebook.window.models import RULES

TEMPLATES = Path(__file__).parents[2] / "src/cuebook/app/setup/project"


def test_every_setting_has_a_default() -> None:
    assert build() == Config()


def test_file_environment_and_arguments_override_in_this_order() -> None:
    config = build(
        file={"model": {"name": "file", "provider": "openai"}, "server": {"port": 1}},
        environment={"CUEBOOK_MODEL_NAME": "environment", "CUEBOOK_SERVER_PORT": "2", "HOME": "/home"},
        arguments={"server.port": 3},
    )
    assert (config.settings.model.provider, config.settings.model.name, config.settings.server.port) == (
        "openai",
        "environment",
        3,
    )
    assert config.origins == {
        "model.provider": "cuebook.toml",
        "model.name": "environment CUEBOOK_MODEL_NAME",
        "server.port": "argument",
    }


@pytest.mark.parametrize(
    ("name", "text", "place", "value"),
    [
        ("CUEBOOK_DATABASE_URL", "other.db", "store.url", "other.db"),
        ("CUEBOOK_STORE_URL", "other.db", "store.url", "other.db"),
        ("CUEBOOK_BUDGET_MAX_SHORT_TERM", "9000", "budget.max_short_term", 9000),
        ("CUEBOOK_BUDGET_TRIGGER", "0.5", "budget.trigger", 0.5),
        ("CUEBOOK_MEMORY_RECALL", "no", "memory.recall", False),
        ("CUEBOOK_SECRETS_REDACT", "True", "secrets.redact", True),
    ],
)
def test_the_environment_sets_any_setting(name: str, text: str, place: str, value: object) -> None:
    section, key = place.split(".")
    assert getattr(getattr(build(environment={name: text}).settings, section), key) == value


def test_unrelated_environment_variables_are_ignored() -> None:
    environment = {"CUEBOOK_CONFIG": "x", "CUEBOOK_API_KEY": "y", "MEMORY_COMPACTION_TAIL_TURNS": "3"}
    config = build(environment=environment)
    assert config.settings == ConfigSections()
    assert config.compaction_env == {"MEMORY_COMPACTION_TAIL_TURNS": "3"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"file": {"a": 1}}, "cuebook.toml: 'a' is outside a section"),
        ({"file": {"modle": {"name": "x"}}}, "cuebook.toml: modle: unknown field 'modle'. Did you mean 'model'?"),
        ({"file": {"model": {"nmae": "x"}}}, "model.nmae: unknown field 'nmae'. Did you mean 'name'?"),
        (
            {"file": {"budget": {"context": "x"}}},
            "budget.context: expected a whole number from 1 to 1,000,000,000, got 'x'",
        ),
        ({"file": {"model": {"provider": "x"}}}, "model.provider: unknown value 'x'"),
        ({"environment": {"CUEBOOK_MODLE_NAME": "x"}}, "environment CUEBOOK_MODLE_NAME: unknown setting"),
        ({"environment": {"CUEBOOK_SERVER_PORT": "x"}}, "environment CUEBOOK_SERVER_PORT: expected int, got 'x'"),
        ({"environment": {"CUEBOOK_MEMORY_RECALL": "x"}}, "environment CUEBOOK_MEMORY_RECALL: expected bool, got 'x'"),
    ],
    ids=["loose", "section", "key", "type", "choice", "environment", "number", "truth"],
)
def test_an_invalid_setting_names_its_path_and_source(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        build(**given)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("budget.trigger", 7.0, "budget.trigger: expected a number above 0 up to 1, got 7.0"),
        ("budget.trigger", 0.0, "expected a number above 0 up to 1, got 0.0"),
        ("budget.trigger", float("nan"), "budget.trigger: expected a number"),
        ("budget.context", -5, "budget.context: expected a whole number from 1 to 1,000,000,000, got -5"),
        ("budget.context", 100, "budget.context: 100 tokens must exceed budget.reply (4,096)"),
        ("budget.reply", 200_000, "budget.context: 200,000 tokens must exceed budget.reply (200,000)"),
        ("budget.window_posts", 0, "budget.window_posts: expected a whole number from 1 to 1,000,000, got 0"),
        ("server.port", -1, "server.port: expected a whole number from 0 to 65,535, got -1"),
        ("server.port", 99_999, "server.port: expected a whole number from 0 to 65,535, got 99999"),
        ("work.lease_s", 0.0, "work.lease_s: expected a number above 0 up to 86,400, got 0.0"),
        ("upstream.read_timeout_s", float("inf"), "upstream.read_timeout_s: expected a number"),
        ("memory.recall_hits", 1000, "memory.recall_hits: expected a whole number from 0 to 200, got 1000"),
        ("upstream.cache_rule", "zz", "upstream.cache_rule: unknown value 'zz'. Available: "),
        ("upstream.url", "nowhere", "upstream.url: 'nowhere' is not a valid URL. Use one like http://127.0.0.1:8080/v1."),
        ("upstream.url", "ftp://127.0.0.1/v1", "upstream.url: 'ftp://127.0.0.1/v1' is not a valid URL"),
        ("upstream.url", "http://:80/v1", "is not a valid URL"),
        ("upstream.url", "http://host:0/v1", "is not a valid URL"),
        ("upstream.url", "http://host:70000/v1", "is not a valid URL"),
        ("upstream.url", "http://host/v1?x=1", "is not a valid URL"),
        ("model.base_url", "", "model.base_url: '' is not a valid URL"),
        ("store.url", "mysql://host/book", "store.url: 'mysql' databases are not supported"),
        ("store.url", "sqlite://cuebook.db", "store.url: 'sqlite' databases are not supported"),
    ],
)  # fmt: skip
def test_an_out_of_range_setting_names_the_allowed_range(place: str, value: object, said: str) -> None:
    section, key = place.split(".")
    with pytest.raises(InvalidInput, match=re.escape(said)) as caught:
        build(file={section: {key: value}})
    assert str(caught.value).startswith("cuebook.toml: ")
    assert str(caught.value.where).split(".")[0] == section


def test_an_invalid_address_error_hides_the_password() -> None:
    with pytest.raises(InvalidInput) as caught:
        build(arguments={"upstream.url": "http://me:hunter2@host:99999/v1"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("HTTPS://me:secret@[::1]:8080/openai/v1/", True),
        ("http://localhost", False),
        ("http://localhost:8080/", False),
    ],
)
def test_an_address_may_have_a_port_a_password_and_a_path(url: str, path: bool) -> None:
    assert build(file={"upstream": {"url": url}}).settings.upstream.url == url
    assert has_path(url) is path


def test_every_cache_rule_can_be_set() -> None:
    for name in ("auto", "off", *RULES):
        assert build(file={"upstream": {"cache_rule": name}}).settings.upstream.cache_rule == name


@pytest.mark.parametrize(
    "given",
    [
        {"server": {"port": 0}, "budget": {"trigger": 1, "memory": 0, "context": 4097}},
        {"store": {"url": "sqlite:////tmp/cuebook.db"}, "work": {"interval_s": 5}, "memory": {"recall_hits": 0}},
        {"store": {"url": ":memory:"}, "server": {"line": 0}},
    ],
)
def test_the_limits_of_a_range_are_allowed(given: dict[str, Any]) -> None:
    assert build(file=given).origins


def test_a_settings_file_or_its_directory_selects_a_project(tmp_path: Path) -> None:
    (tmp_path / "cuebook.toml").write_text('[model]\nname = "m"\n')
    for path in (tmp_path, tmp_path / "cuebook.toml"):
        config = load_config(path, environment={})
        assert (config.settings.model.name, config.folder) == ("m", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"), [(b"x = [", "cuebook.toml: invalid TOML"), (b"x = '\xff'", "line 1: not UTF-8")]
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "cuebook.toml").write_bytes(text)
    with pytest.raises(InvalidInput, match=said):
        load_config(tmp_path, environment={})


def test_a_missing_file_is_an_error_only_if_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="cuebook init"):
        load_config(tmp_path / "nowhere.toml", environment={})
    monkeypatch.chdir(tmp_path)
    assert load_config(environment={}) == Config()


# ---- the templates of `cuebook init` --------------------------------------------------------------------------------


def test_every_file_of_a_project_has_a_template() -> None:
    assert {"cuebook.toml", ".gitignore", "personas/helper.json", "prompts/_meta/concise.md"} <= templates().keys()
    assert ".cuebook/" in templates()[".gitignore"].read_text().splitlines()


def test_the_settings_template_sets_only_the_persona() -> None:
    document = tomllib.loads((TEMPLATES / "cuebook.toml").read_text("utf-8"))
    assert {section: keys for section, keys in document.items() if keys} == {"persona": {"default": "helper"}}


def test_the_settings_template_lists_every_default() -> None:
    text = (TEMPLATES / "cuebook.toml").read_text("utf-8")
    document = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    assert document.pop("persona") == {"folder": "personas", "default": "helper", "speaks": "asked"}
    expected = msgspec.to_builtins(ConfigSections())
    del expected["persona"]
    assert document == expected


def test_the_preset_template_equals_the_built_in_profiles(tmp_path: Path) -> None:
    presets = json.loads((TEMPLATES / "config/metaprompt-presets.json").read_text("utf-8"))
    assert presets["memoryCompaction"].keys() == {"defaultProfile", "defaultProfileByMode", "profiles"}
    assert load_compaction(Config(folder=str(TEMPLATES))) == SHIPPED


def test_the_persona_template_is_complete() -> None:
    [persona, *_] = [each for each in load_personas(Config(folder=str(TEMPLATES)))[0].values() if each.id == "helper"]
    assert (persona.name, persona.version) == ("Helper", "1.0.0")
    assert persona.base_system_prompt
    for slug in persona.chain.values():
        assert any((TEMPLATES / f"prompts/{each}.md").is_file() for each in candidates(slug))
    assert list(persona.chain) == list(CHAIN)
