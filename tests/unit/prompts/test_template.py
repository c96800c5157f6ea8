"""Tests of template rendering: one pass over declared names, compared with a slow character-by-character reference."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.template import LIMIT, placeholders, render, touched, used

ENGINES = st.sampled_from(["dollar", "braces", "none"])
PIECES = st.sampled_from(
    ["$", "$$", "{", "}", "{{", "}}", " ", "\t", "\n", "a", "ab", "b", "_", "1", "é", "名", "PATH", "5"]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=20)
NAMES = st.frozensets(st.sampled_from(["a", "ab", "b", "_", "a1"]))
VALUES = st.fixed_dictionaries(dict.fromkeys(("a", "ab", "b", "_", "a1"), TEXTS))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"


def run_of(text, at, char):
    end = at
    while end < len(text) and text[end] == char:
        end += 1
    return end


def name_at(text, at):
    if at >= len(text) or text[at] not in LETTERS:
        return ""
    end = at
    while end < len(text) and text[end] in LETTERS + "0123456789":
        end += 1
    return text[at:end]


def dollar(text, at, values, declared):
    """Return the text that dollars and the characters after them render to, and the next position."""
    end = run_of(text, at, "$")
    braced = text[end : end + 1] == "{"
    name = name_at(text, end + braced)
    after = end + len(name) + 2 * braced
    if name not in declared or (braced and text[after - 1 : after] != "}"):
        return text[at:end], end
    half, odd = divmod(end - at, 2)
    return "$" * half + (values[name] if odd else text[end:after]), after


def braces(text, at, values, declared):
    end = run_of(text, at, "{")
    begin = end
    while text[begin : begin + 1] in (" ", "\t"):
        begin += 1
    name = name_at(text, begin)
    last = begin + len(name)
    while text[last : last + 1] in (" ", "\t"):
        last += 1
    after = run_of(text, last, "}")
    pairs = min(end - at, after - last) // 2
    if name not in declared or not pairs:
        return text[at:end], end
    half, odd = divmod(pairs, 2)
    middle = "{{" * half + (values[name] if odd else text[end:last]) + "}}" * half
    return "{" * (end - at - 2 * pairs) + middle + "}" * (after - last - 2 * pairs), after


def slowly(text, values, engine, declared):
    out, at = "", 0
    readers = {"dollar": ("$", dollar), "braces": ("{", braces)}
    mark, reader = readers.get(engine, ("", None))
    while at < len(text):
        if reader and text[at] == mark:
            piece, at = reader(text, at, values, declared)
        else:
            piece, at = text[at], at + 1
        out += piece
    return out


@given(TEXTS, VALUES, ENGINES, NAMES)
def test_render_matches_the_slow_reference(text, values, engine, declared):
    assert render(text, values, engine=engine, declared=declared) == slowly(text, values, engine, declared)


@given(TEXTS, ENGINES, NAMES)
def test_used_names_are_the_names_that_appear(text, engine, declared):
    plain = dict.fromkeys(declared, "")
    shown = {
        name
        for name in declared
        if render(text, plain | {name: "\0seen"}, engine=engine, declared=declared).count("\0seen")
        > render(text, plain, engine=engine, declared=declared).count("\0seen")
    }
    assert used(text, engine, declared) == shown
    assert shown == placeholders(text, engine) & declared
    assert shown <= touched(text, engine, declared)


@given(TEXTS, ENGINES, NAMES)
def test_text_without_names_is_literal(text, engine, declared):
    if not touched(text, engine, declared):
        assert render(text, {}, engine=engine, declared=declared) == text


@given(TEXTS, ENGINES)
def test_values_are_not_rendered_again(value, engine):
    for template in ("$a", "{{a}}"):
        rendered = render(f"<{template}>", {"a": value, "b": "no"}, engine=engine, declared={"a", "b"})
        assert rendered in (f"<{value}>", f"<{template}>")


@given(TEXTS, NAMES)
def test_any_text_can_be_escaped_in_both_engines(text, declared):
    """An escape doubles every run of marks before a declared name."""
    dollars = re.sub(
        r"(\$+)(\{)?([A-Za-z_][A-Za-z0-9_]*)(?(2)\})",
        lambda match: (match[1] * 2 if match[3] in declared else match[1]) + match[0][len(match[1]) :],
        text,
    )
    assert render(dollars, {}, engine="dollar", declared=declared) == text


@pytest.mark.parametrize(
    ("engine", "text", "rendered"),
    [
        ("dollar", "Welcome $user, I'm $agent.", "Welcome Alex, I'm kAI."),
        ("dollar", "${user}s and $users", "Alexs and $users"),
        ("dollar", "你好$user。$userß", "你好Alex。Alexß"),
        ("dollar", "$$user $${user} $$$user $$$$user", "$user ${user} $Alex $$user"),
        ("dollar", "Pay $5, $PATH, ${HOME}, $$, $$PATH, $x^2$, 5$", "Pay $5, $PATH, ${HOME}, $$, $$PATH, $x^2$, 5$"),
        ("dollar", "${user ${ user} ${user-x} $ user", "${user ${ user} ${user-x} $ user"),
        ("dollar", "{{user}} {user}", "{{user}} {user}"),
        ("dollar", "$User", "$User"),
        ("braces", "Welcome {{user}}, {{ agent }}{{\tuser}}", "Welcome Alex, kAIAlex"),
        ("braces", '{"a": {{user}}} {{{user}}}', '{"a": Alex} {Alex}'),
        ("braces", "{{{{user}}}} {{{{ user }}}}", "{{user}} {{ user }}"),
        ("braces", "{{{{{{user}}}}}}", "{{Alex}}"),
        ("braces", '{"a": {"b": {"c": {{user}}}}}', '{"a": {"b": {"c": Alex}}}'),
        ("braces", "{{#if user}} {{user.name}} {{other}}", "{{#if user}} {{user.name}} {{other}}"),
        ("braces", "{{\nuser}} {user}", "{{\nuser}} {user}"),
        ("braces", "$user ${user}", "$user ${user}"),
        ("none", "$user {{user}} $$user", "$user {{user}} $$user"),
    ],
)
def test_worked_examples(engine, text, rendered):
    assert render(text, {"user": "Alex", "agent": "kAI"}, engine=engine, declared=["user", "agent"]) == rendered


def test_a_missing_value_is_reported_by_name():
    with pytest.raises(InvalidInput, match="'user'") as caught:
        render("Hi $user", {"name": "x"}, engine="dollar", declared=["user", "name"])
    assert caught.value.where == "user"


def test_undeclared_names_get_no_value():
    assert render("$a $b", {"a": "1", "b": "2"}, engine="dollar", declared=["a"]) == "1 $b"


@given(TEXTS, VALUES, ENGINES, NAMES, st.integers(0, 60))
@example("$a" * 3 + "x", {"a": ""}, "dollar", {"a"}, 1)
def test_the_limit_applies_to_the_result(text, values, engine, declared, limit):
    whole = slowly(text, values, engine, declared)
    if len(whole) <= limit:
        assert render(text, values, engine=engine, declared=declared, limit=limit) == whole
    else:
        with pytest.raises(InvalidInput, match=f"more than {limit} characters"):
            render(text, values, engine=engine, declared=declared, limit=limit)


def test_a_too_long_result_is_never_built():
    begun = time.thread_time()
    with pytest.raises(InvalidInput):
        render("$a" * 100_000, {"a": "x" * LIMIT}, engine="dollar", declared=["a"])
    assert time.thread_time() - begun < 10


@pytest.mark.parametrize(
    "text",
    [
        "$" * 300_000,
        "${" * 150_000,
        "${a" * 100_000,
        "{" * 300_000,
        "{{ " * 100_000,
        "{{" + " " * 300_000,
        "{{a" * 100_000,
        "{{a}" * 80_000,
        "{{" + "a" * 300_000,
        "$" + "a" * 300_000,
    ],
)
@pytest.mark.parametrize("engine", ["dollar", "braces"])
def test_time_is_linear(engine, text):
    begun = time.thread_time()
    render(text, {"a": "x"}, engine=engine, declared=["a"], limit=10**6)
    assert time.thread_time() - begun < 20, "30 ms on an idle machine"


def test_undeclared_names_are_reported_to_lint():
    assert placeholders("$PATH ${HOME} $$esc $5 {{x}}", "dollar") == {"PATH", "HOME"}
    assert placeholders("{{x}} {{ y }} {{{{z}}}} {{#if}} $a", "braces") == {"x", "y"}
    assert placeholders("$a {{b}}", "none") == set()
