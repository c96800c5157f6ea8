"""Tests of prompt names: valid ids, branches, sections and references, and the errors about invalid ones."""

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.names import (
    MAX_ID,
    MAX_PART,
    Reference,
    candidates,
    check_branch,
    check_project,
    check_section,
    check_slug,
    instructions,
    overridden,
    overrides,
    parse_reference,
    project_of,
)

PART = st.from_regex(r"[a-z0-9_][a-z0-9_-]{0,8}", fullmatch=True)


def fault(check, *given):
    with pytest.raises(InvalidInput) as caught:
        check(*given)
    return str(caught.value)


def is_slug(text):
    try:
        check_slug(text)
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize(
    "slug",
    [
        "persona/kind_helper",
        "_meta/concise",
        "default/agent_init",
        "a",
        "0",
        "v1.2-beta/x_y",
        "console",
        "com",
        "com10",
    ],
)
def test_valid_ids_are_returned_unchanged(slug):
    assert check_slug(slug) == slug


@pytest.mark.parametrize(
    ("slug", "why"),
    [
        ("", "at least one character"),
        (None, "got NoneType"),
        (7, "got int"),
        ("..", "'..'"),
        ("a/../b", "'..'"),
        ("a..b", "'..'"),
        (".", "begins with '.'"),
        (".objects/x", "begins with '.'"),
        ("/etc/passwd", "empty part"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a/%2e%2e/b", "write the character itself"),
        ("a%2fb", "write the character itself"),
        ("a\\b", "backslash"),
        ("a\0b", r"'\x00'"),
        ("a\nb", r"'\n'"),
        ("a\n", r"'\n'"),
        ("a b", "' '"),
        ("a ", "' '"),
        ("a.", "ends with a dot"),
        ("a./b", "ends with a dot"),
        ("con", "Windows device name"),
        ("x/nul.txt", "Windows device name"),
        ("com1", "Windows device name"),
        ("lpt9.a/b", "Windows device name"),
        ("Persona/x", "lower case"),
        ("persona/kınd", "LATIN SMALL LETTER DOTLESS I"),
        ("pеrsona/x", "CYRILLIC SMALL LETTER IE"),
        ("a\uff0fb", "FULLWIDTH SOLIDUS"),
        ("a\u2024\u2024/b", "ONE DOT LEADER"),
        ("a\ud800", "not ASCII"),
        ("com\u00b9", "SUPERSCRIPT ONE"),
        ("-rf", "begins with '-'"),
        ("c:/x", "':'"),
        ("a~b", "'~'"),
        ("a@main", "'@'"),
        ("persona/kind.md", "omit the file extension"),
        ("a.md/b", "omit the file extension"),
        ("a" * (MAX_PART + 1), "a part has"),
        ("/".join(["abcdefg"] * 30), f"at most {MAX_ID}"),
    ],
)
def test_invalid_ids_are_rejected_with_the_reason(slug, why):
    said = fault(check_slug, slug)
    assert why in said
    said.encode()


@given(st.text(max_size=20) | st.lists(PART | st.sampled_from(["..", ".", "", "nul", "a."])).map("/".join))
def test_an_id_is_a_safe_path_on_every_system(text):
    if not is_slug(text):
        return
    assert text.isascii()
    assert text == text.lower()
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(text)
        assert not path.is_absolute()
        assert not path.drive
        assert list(path.parts) == text.split("/")
        assert not set(path.parts) & {"", ".", ".."}


@given(st.lists(PART, min_size=1, max_size=4).map("/".join))
def test_plain_parts_form_a_valid_id(text):
    assert is_slug(text) == (not set(text.split("/")) & {"con", "prn", "aux", "nul"})


def test_candidates_are_the_id_and_the_one_under_default():
    assert candidates("persona/x") == ("persona/x", "default/persona/x")
    assert candidates("default/x") == ("default/x", "x")
    longest = "/".join(["abcdefg"] * (MAX_ID // 8))
    assert candidates(longest) == (longest,)
    assert "empty part" in fault(candidates, "/x")


def test_project_prompts_precede_default_ones():
    assert candidates("x", "acme") == ("projects/acme/x", "projects/acme/default/x", "x", "default/x")
    assert candidates("default/x", "acme") == ("projects/acme/default/x", "projects/acme/x", "default/x", "x")
    assert candidates("projects/acme/x", "other")[0] == "projects/acme/x", "a prefix names the project"
    assert set(overrides(candidates("x"), "acme")) == set(candidates("x", "acme")) - set(candidates("x"))
    longest = "/".join(["abcdefg"] * (MAX_ID // 8))
    assert candidates(longest, "acme") == (longest,)


def test_instructions_are_searched_under_system_before_default():
    assert instructions("m") == ("m", "system/m", "default/m")
    assert instructions("system/m") == ("system/m",)
    assert instructions("m", "a") == (
        "projects/a/m", "projects/a/system/m", "projects/a/default/m", "m", "system/m", "default/m",
    )  # fmt: skip


def test_a_project_prompt_overrides_every_candidate():
    for name in ("x", "default/x", "_meta/x"):
        for own in overrides(candidates(name), "acme"):
            assert set(overridden(own)) & {*candidates(name)}
    assert overridden("projects/acme") == ()
    assert overridden("persona/x") == ()


def test_the_call_overrides_the_conversation_and_the_setting():
    assert project_of("a", "b", "c") == "a"
    assert project_of("", "b", "c") == ""
    assert project_of(None, "b", "c") == "b"
    assert project_of(None, "", "c") == ""
    assert project_of(None, None, "c") == "c"
    assert check_project("") == ""
    assert "one part" not in fault(check_project, "a/b")
    assert "'..'" in fault(check_project, "..")


@pytest.mark.parametrize("name", ["main", "formal-tone", "v2.1", "_x", "2x"])
def test_valid_branches_are_accepted(name):
    assert check_branch(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty part"),
        ("12", "version's number"),
        ("a/b", "'/'"),
        ("Main", "lower case"),
        ("a:1", "':'"),
        ("..", "'..'"),
        (None, "got NoneType"),
        ("x" * 1000, "at most"),
    ],
)
def test_invalid_branches_are_rejected(name, why):
    assert why in fault(check_branch, name)


@pytest.mark.parametrize("name", ["body", "Output format", "段落", "a/b", "\u00e9"])
def test_valid_sections_are_accepted(name):
    assert check_section(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "0 characters"),
        ("a" * (MAX_PART + 1), "characters"),
        (" a", "space"),
        ("a\nb", "invisible character"),
        ("a\u202eb", "invisible character"),
        ("a\ud800", "invisible character"),
        ("a --> b", "would end its marker"),
        ("e\u0301", "NFC"),
        (3, "got int"),
    ],
)
def test_invalid_sections_are_rejected(name, why):
    assert why in fault(check_section, name)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("system/base", Reference("system/base")),
        ("system/base@main", Reference("system/base", "main")),
        ("system/base@main:12", Reference("system/base", "main", 12)),
        ("system/base:12", Reference("system/base", None, 12)),
    ],
)
def test_references_round_trip(text, reference):
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("base@^1.0", "'^'"),
        ("base@", "empty part"),
        ("base@main:", "not a valid version number"),
        ("base@main:0", "not a valid version number"),
        ("base@main:01", "not a valid version number"),
        ("base@main:\u0663", "not a valid version number"),
        ("base@main:" + "9" * 5000, "not a valid version number"),
        ("base@a@b", "'@'"),
        ("@main", "at least one character"),
        (None, "expected slug"),
    ],
)
def test_invalid_references_are_rejected(text, why):
    said = fault(parse_reference, text)
    assert why in said
    assert len(said) < 300


def test_the_invalid_field_is_named():
    with pytest.raises(InvalidInput) as caught:
        parse_reference("a//b", where="inherits")
    assert caught.value.where == "inherits"
