"""Tests of the prompt registry file: how it is built, parsed, and checked against the prompt files."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import read_file, write_file
from cuebook.prompts.registry import check, complete, layout, object_path, path_of, read, render
from cuebook.records.answer import Time
from cuebook.records.prompt import Branch, Label, Param, Version

SEED = """{
  "id": "persona/kind_helper",
  "version": "1.2.0",
  "description": "Helper personality for Kind AI agents",
  "author": "dev@kind.ai",
  "last_updated": "2025-06-20T10:12:45Z",
  "tags": ["persona", "helper"],
  "params": ["$agent_name", "$user_name"],
  "path": "~/.kos/prompts/default/persona/kind_helper.md"
}"""
TEXT = "Welcome $user_name, I'm $agent_name. How can I help you today?\n"


def version(slug="persona/kind_helper", number=1, text="Welcome $user_name.", branch="main", **changes):
    made = Version(slug=slug, branch=branch, number=number, sections={"body": text}, created_at=1_750_414_365.0)
    return sealed(replace(made, **changes))


def cue():
    one = version(semver="1.0.0", description="Helper", tags=("persona",), params=(Param(name="user_name"),))
    two = replace(one, number=2, semver="1.1.0", sections={"body": "Hello $user_name."}, digest="")
    return [one, sealed(two), version("system/base", 1, "Be kind."), version(number=1, text="Hi!", branch="trial")]


def stands(head, active=0):
    return Branch(
        name="", head=head, active=active or head, semver="", digest="", weight=0.5, observations=0, rolled_back=()
    )


BRANCHES = {
    ("persona/kind_helper", "main"): stands(2),
    ("system/base", "main"): stands(1),
    ("persona/kind_helper", "trial"): stands(1),
}
LABELS = {"persona/kind_helper": (Label(name="production", branch="main", number=1, moved_by="ann", moved_at=Time(0)),)}


def test_the_registry_has_an_object_per_version():
    old = object_path(write_file(cue()[0]))
    assert layout(cue()[:2], BRANCHES, LABELS, paths={})["registry.json"] == (
        '{\n  "format": 1,\n  "prompts": [\n    {\n'
        '      "author": "",\n      "branch": "main",\n      "description": "Helper",\n'
        f'      "digest": "{cue()[0].digest}",\n      "head": false,\n      "id": "persona/kind_helper",\n'
        '      "labels": [\n        "production"\n      ],\n      "last_updated": "2025-06-20T10:12:45Z",\n'
        f'      "number": 1,\n      "params": [\n        "$user_name"\n      ],\n      "path": "{old}",\n'
        '      "sync": false,\n      "tags": [\n        "persona"\n      ],\n      "type": "prompt",\n'
        '      "version": "1.0.0"\n    },\n    {\n'
        '      "author": "",\n      "branch": "main",\n      "description": "Helper",\n'
        f'      "digest": "{cue()[1].digest}",\n      "head": true,\n      "id": "persona/kind_helper",\n'
        '      "last_updated": "2025-06-20T10:12:45Z",\n      "number": 2,\n      "params": [\n        "$user_name"\n'
        '      ],\n      "path": "default/persona/kind_helper.md",\n      "sync": false,\n      "tags": [\n'
        '        "persona"\n      ],\n      "type": "prompt",\n      "version": "1.1.0"\n    }\n  ]\n}\n'
    )


@given(st.permutations(cue()))
def test_the_same_versions_in_any_order_have_the_same_bytes(versions):
    assert layout(versions, BRANCHES, LABELS, paths={}) == layout(cue(), BRANCHES, LABELS, paths={})


def test_a_built_registry_parses_and_matches_its_files():
    files = layout(cue(), BRANCHES | {("persona/kind_helper", "main"): stands(2, 1)}, LABELS, paths={})
    registry = read(files["registry.json"])
    assert render(registry.entries) == files["registry.json"]
    assert check(registry, files) == []
    assert [(f"{entry.id}@{entry.branch}:{entry.number}", entry.path) for entry in registry.entries] == [
        ("persona/kind_helper@main:1", "default/persona/kind_helper.md"),
        ("persona/kind_helper@main:2", object_path(write_file(cue()[1]))),
        ("persona/kind_helper@trial:1", "default/persona/kind_helper@trial.md"),
        ("system/base@main:1", "system/base.md"),
    ]
    assert [entry.active for entry in registry.entries] == [True, False, None, None]
    windows = {path: text.replace("\n", "\r\n") for path, text in files.items() if not path.startswith(".objects")}
    assert check(read(windows["registry.json"]), {**files, **windows}) == []


def test_an_older_version_is_restored_from_its_object():
    files = layout(cue(), BRANCHES, {}, paths={})
    old = cue()[0]
    path = object_path(write_file(old))
    assert path.endswith(hashlib.sha256(files[path].encode()).hexdigest())
    read_back = read_file(files[path], path=path)
    assert sealed(replace(read_back, number=1, created_at=old.created_at)) == old


@pytest.mark.parametrize("form", [SEED, f"[{SEED}]", '{"format": 1, "prompts": [' + SEED + "]}"])
def test_registry_forms_of_the_original_are_parsed(form):
    registry = read(form)
    [entry] = registry.entries
    assert (entry.id, entry.version, entry.params, entry.path, entry.tags) == (
        "persona/kind_helper",
        "1.2.0",
        ("agent_name", "user_name"),
        "default/persona/kind_helper.md",
        ("persona", "helper"),
    )
    made = complete(read_file(TEXT, path=entry.path), entry)
    assert (made.slug, made.semver, made.author, made.created_at) == (entry.id, "1.2.0", "dev@kind.ai", 1_750_414_365.0)
    assert made.params == (Param(name="agent_name"), Param(name="user_name"))


def test_a_file_without_front_matter_matches_its_entry():
    assert check(read(SEED), {"default/persona/kind_helper.md": TEXT, "README": "", "registry.json": SEED}) == []


def test_the_highest_version_of_a_bare_list_is_the_head():
    rows = [json.loads(SEED) | {"version": version} for version in ("1.2.0", "1.10.0", "1.10.0-rc", "1.9.0")]
    assert [entry.head for entry in read(json.dumps(rows)).entries] == [False, True, False, False]


def test_unknown_keys_are_kept():
    text = json.dumps({"format": 1, "prompts": [json.loads(SEED) | {"owner": {"team": "core"}}]})
    assert json.loads(render(read(text).entries))["prompts"][0]["owner"] == {"team": "core"}


KINDS = {
    "no_file": "missing, but",
    "no_entry": "not in registry.json",
    "digest": "was edited after",
    "unreadable": "is not closed",
    "object": "does not match the hash",
    "form": "was edited by hand",
    "twice": "is listed 2 times",
    "heads": "has 2 heads",
    "metadata": " is ",
}


def kinds(files, **changed):
    files = {path: text for path, text in {**files, **changed}.items() if text is not None}
    faults = check(read(files["registry.json"]), files)
    return [(next(kind for kind, phrase in KINDS.items() if phrase in message), path) for path, _, message in faults]


def test_every_mismatch_is_found():
    files = layout(cue(), BRANCHES, LABELS, paths={})
    head, old = "default/persona/kind_helper.md", object_path(write_file(cue()[0]))
    registry = files["registry.json"]
    assert kinds(files) == []
    assert kinds(files, **{head: None}) == [("no_file", head)]
    assert kinds(files, **{"projects/new.md": "Hi"}) == [("no_entry", "projects/new.md")]
    assert kinds(files, **{".objects/sha256/aa/b": "Hi"}) == [], "an object of another project"
    assert kinds(files, **{head: files[head] + "More.\n"}) == [("digest", head)]
    assert kinds(files, **{head: files[head].replace("description: Helper", "description: Other")}) == [
        ("metadata", head)
    ]
    assert kinds(files, **{head: files[head].replace("tags: [persona]\n", "")}) == [("metadata", head)]
    assert kinds(files, **{head: "---\nname: a"}) == [("unreadable", head)]
    assert kinds(files, **{old: files[old] + "x"}) == [("object", old)]
    assert kinds(files, **{"registry.json": registry.replace("  ", "\t")}) == [("form", "registry.json")]
    assert kinds(files, **{"registry.json": registry.replace('"1.1.0"', '"1.2.0"')}) == [("metadata", head)]
    assert kinds(files, **{"registry.json": registry.replace('"head": false', '"head": true')}) == [
        ("heads", "registry.json")
    ]
    doubled = json.loads(registry)
    doubled["prompts"].insert(1, doubled["prompts"][0])
    twice = json.dumps(doubled, indent=2, sort_keys=True) + "\n"
    assert kinds(files, **{"registry.json": twice}) == [("twice", "registry.json")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "registry.json: not valid JSON"),
        ("7", "expected a list of prompts"),
        ('{"format": 2, "prompts": []}', "format 2 is not supported"),
        ('{"id": "a", "id": "b"}', "registry.json: id: duplicate key"),
        ('[{"id": "a"}, {"version": "1.0.0"}]', "prompts[1]: expected an object with an `id`"),
        ('[{"id": "A"}]', "prompts[0].id: 'A' is not a valid id"),
        ('[{"id": "a", "path": "/etc/passwd"}]', "prompts[0].path: '/etc/passwd' is not a path below"),
        ('[{"id": "a", "path": "prompts/../../a.md"}]', "prompts[0].path: "),
        ('[{"id": "a", "path": "default/.objects/a.md"}]', "prompts[0].path: "),
        ('[{"id": "a", "path": "C:\\\\prompts\\\\con.md"}]', "prompts[0].path: "),
        ('[{"id": "a", "tags": "x"}]', "prompts[0].tags: expected a list, got"),
        ('[{"id": "a", "params": ["$1"]}]', "prompts[0].params[0]: '1' is not a valid parameter name"),
        ('[{"id": "a", "sync": "yes"}]', "prompts[0].sync: expected true or false, got"),
        ('[{"id": "a", "number": true}]', "prompts[0].number: expected a whole number"),
        ('[{"id": "a", "number": -1}]', "prompts[0].number: expected a whole number from 0, got -1"),
        ('[{"id": "a", "version": 1.1}]', "prompts[0].version: expected a string, got 1.1"),
        ("[\n<<<<<<< ours\n{}\n=======\n>>>>>>> theirs\n]", "contains Git conflict markers"),
    ],
)
def test_an_invalid_registry_is_reported(text, message):
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert message in str(caught.value)


def test_two_prompts_in_one_file_are_rejected():
    versions = [version("persona/a"), version("default/persona/a")]
    branches = {("persona/a", "main"): stands(1), ("default/persona/a", "main"): stands(1)}
    with pytest.raises(InvalidInput, match=r"default/persona/a\.md: would contain"):
        layout(versions, branches, {}, paths={})
    assert "projects/a.md" in layout(versions, branches, {}, paths={("persona/a", "main"): "projects/a.md"})


def test_heads_have_file_paths():
    assert path_of("persona/kind_helper") == "default/persona/kind_helper.md"
    assert path_of("default/agent_init") == "default/agent_init.md"
    assert path_of("system") == "default/system.md"
    assert path_of("_meta/concise", "trial") == "_meta/concise@trial.md"
