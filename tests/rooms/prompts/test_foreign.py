import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.files import read_file, write_file
from cuebook.prompts.foreign import read_any, read_dotprompt, read_prompty
from cuebook.prompts.template import render, used
from cuebook.records.prompt import Param, Version

DOTPROMPT = """---
model: vertexai/gemini-3-pro
version: 8f3a2c11
config:
  temperature: 0.4
input:
  schema:
    name: string, the guest's name
    style?: string
    party(enum, how many): [ONE, MANY]
  default:
    style: NO
output:
  format: text
tools: [weather]
acme.owner: core
---
{{!-- The greeting. --}}
{{role "system"}}
You greet guests{{! shortly }} in the style {{{style}}}.
A name stands here: \\{{name}}, and {"as": "JSON", "party": {{party}}}.

{{role 'user'}}
I am {{ name }} from {{city}}.
"""

PROMPTY = """---
name: Basic Prompt
description: Asks about a topic
authors: [ada, grace]
tags: [basic, NO]
version: 1.0.0
model:
  api: chat
  configuration: {type: azure_openai, api_key: "${env:KEY}"}
inputs:
  firstName: {type: string, default: Jane, sample: Joe}
  age: {type: float, required: false}
  question: What is 1.10?
template:
  format: jinja2
---
{# Who speaks. #}
system:
You help {{firstName}}, {{ age }} years old, in {{city}}.

  #User[name="x"]:
{{question}}

assistant:

user:
Thanks
"""


def test_a_dotprompt_file():
    version = read_dotprompt(DOTPROMPT, path="default/Greeting Card.formal.prompt")
    assert version == Version(
        slug="default/greeting-card",
        branch="formal",
        engine="braces",
        sections={
            "system": 'You greet guests in the style {{style}}.\nA name stands here: {{{{name}}}}, and {"as": "JSON", '
            '"party": {{party}}}.',
            "user": "I am {{name}} from {{city}}.",
        },
        params=(
            Param(name="name", description="the guest's name"),
            Param(name="style", required=False, default="NO"),
            Param(name="party", description="how many (one of ONE, MANY)"),
            Param(name="city"),
        ),
        metadata={
            "model": "vertexai/gemini-3-pro",
            "config": {"temperature": 0.4},
            "output": {"format": "text"},
            "extra": {"version": "8f3a2c11", "tools": ["weather"], "acme.owner": "core"},
        },
    )
    declared = {param.name for param in version.params}
    text = render(version.sections["system"], {"style": "x", "party": "2"}, engine=version.engine, declared=declared)
    assert text.endswith('style x.\nA name stands here: {{name}}, and {"as": "JSON", "party": 2}.')


def test_a_prompty_file():
    assert read_prompty(PROMPTY, path="projects/basic.prompty") == Version(
        slug="projects/basic",
        engine="braces",
        sections={
            "system": "You help {{firstName}}, {{age}} years old, in {{city}}.",
            "user": "{{question}}",
            "user-2": "Thanks",
        },
        params=(
            Param(name="firstName", required=False, default="Jane"),
            Param(name="age", type="number", required=False),
            Param(name="question", required=False, default="What is 1.10?"),
            Param(name="city"),
        ),
        metadata={
            "model": {"api": "chat", "configuration": {"type": "azure_openai", "api_key": "${env:KEY}"}},
            "extra": {"displayName": "Basic Prompt"},
        },
        tags=("basic", "NO"),
        author="ada, grace",
        description="Asks about a topic",
    )


def test_a_prompty_file_of_version_2():
    text = """---
name: chat/helper
displayName: Helper
metadata: {authors: [ada], tags: [x], domain: support}
inputs:
  - {name: topic, kind: string, required: true, description: about what}
outputs: {answer: string}
template: {format: {kind: mustache}, parser: {kind: prompty}}
---
Tell me of {{{topic}}} and {{&topic}}.{{! said }}
"""
    assert read_prompty(text, path="x.prompty") == Version(
        slug="chat/helper",
        engine="braces",
        sections={"body": "Tell me of {{topic}} and {{topic}}."},
        params=(Param(name="topic", description="about what"),),
        metadata={"domain": "support", "output": {"answer": "string"}, "extra": {"displayName": "Helper"}},
        tags=("x",),
        author="ada",
    )


def test_the_ending_tells_the_format():
    assert read_any("{{a}}", path="x.prompt").engine == "braces"
    assert read_any("system:\n{{a}}", path="x.prompty").sections == {"system": "{{a}}"}
    assert read_any("{{a}}", path="x.md").engine == "dollar"
    assert read_any("---\ninput: {default: {a: 7}}\n---\n{{a}}", path="x.prompt").params == (
        Param(name="a", required=False, default="7"),
    )


@pytest.mark.parametrize(("text", "path"), [(DOTPROMPT, "a.b.prompt"), (PROMPTY, "a.prompty")])
def test_what_was_imported_is_a_file_of_ours(text, path):
    version = read_any(text, path=path)
    assert read_file(write_file(version), path="x.md") == version


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a\n{{#if x}}y{{/if}}", "x.prompt", "x.prompt: line 2: '{{#if x}}' is logic"),
        ("---\nmodel: a\n---\n\n{{#each xs}}", "x.prompt", "line 5: '{{#each xs}}'"),
        ("{{else}}", "x.prompt", "'{{else}}' is logic"),
        ("{{>header}}", "x.prompt", "'{{>header}}'"),
        ("{{a.b}}", "x.prompt", "'{{a.b}}'"),
        ("{{@root}}", "x.prompt", "'{{@root}}'"),
        ("{{media url=u}}", "x.prompt", "'{{media url=u}}'"),
        ("{{history}}", "x.prompt", "'{{history}}'"),
        ("{{user-name}}", "x.prompt", "'{{user-name}}'"),
        ("{{~a~}}", "x.prompt", "'{{~a~}}'"),
        ("{{" + "a" * 65 + "}}", "x.prompt", "is logic, and a prompt has names only"),
        ("a {{b", "x.prompt", "line 1: '{{b' is not closed; end it with }}"),
        ("{{{b}} }", "x.prompt", "is not closed; end it with }}}"),
        ("{{!-- b }}", "x.prompt", "is not closed; end it with --}}"),
        ("{% for a in b %}", "x.prompty", "'{% for a in b %}'"),
        ("{{ a | upper }}", "x.prompty", "'{{ a | upper }}'"),
        ("{{ a() }}", "x.prompty", "'{{ a() }}'"),
        ("{{ 'a'*10**9 }}", "x.prompty", "is logic"),
        ("---\ntemplate: nunjucks\n---\n", "x.prompty", "line 2: template: expected handlebars, mustache, jinja2"),
        ("---\ninput:\n  schema:\n    xs(array): string\n---\n", "x.prompt", "line 4: input.schema.xs: 'array' has no"),
        ("---\ninputs:\n  xs: {type: array}\n---\n", "x.prompty", "line 3: inputs[0]: 'array' is no type"),
        ("---\na: 1\n{{b}}", "x.prompt", "line 1: the front matter that begins here is not closed"),
        ("a", "../x.prompt.md", "no id"),
        ("a", "日本.prompt", "an id needs at least one character"),
    ],
)
def test_what_has_no_place_here_is_named(text, path, message):
    with pytest.raises(InvalidInput) as caught:
        read_any(text, path=path)
    assert message in str(caught.value)


def test_a_numbered_variant_is_a_branch():
    assert read_any("Hi", path="card.2.prompt").branch == "v2"
    assert read_any("---\nvariant: A/B\n---\nHi", path="card.prompt").branch == "a-b"


@given(st.text(st.sampled_from('{}\\ ab!#%->\n"role:system')))
def test_any_template_is_imported_or_refused_in_words(text):
    for path in ("x.prompt", "x.prompty"):
        try:
            version = read_any(text, path=path)
        except InvalidInput as error:
            assert str(error).startswith(path)  # noqa: PT017  # either is right
            continue
        names = {param.name for param in version.params}
        whole = "\n".join(version.sections.values())
        assert used(whole, "braces", names) == names


def test_hostile_templates_take_no_time():
    began = time.thread_time()
    for text in ("{{a}}" * 20_000, " " * 200_000 + "x", "{#" * 50_000, "\\{{a}}" * 20_000, "{{!--" * 20_000):
        for path in ("x.prompt", "x.prompty"):
            with contextlib.suppress(InvalidInput):
                read_any(text, path=path)
    assert time.thread_time() - began < 20
