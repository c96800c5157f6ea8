"""The shipped table of models."""

import re

import pytest

from cuebook.window.models import ContextSize, context_in_table, model_table


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("gpt-6.1-sol", ContextSize(1_050_000)),
        ("openai/gpt-4o-mini-2024-07-18", ContextSize(128_000)),
        ("ft:gpt-4.1-mini-2025-04-14:acme", ContextSize(1_047_576)),
        ("gpt-5-mini", ContextSize(272_000, prompt_only=True)),
        ("gpt-4", ContextSize(8_192)),
        ("claude-sonnet-4-5-20250929", ContextSize(200_000)),
        ("anthropic/claude-opus-5-5", ContextSize(1_000_000)),
        ("models/gemini-2.5-flash", ContextSize(1_048_576, prompt_only=True)),
        ("mistral-large-latest", ContextSize(262_144)),
        ("deepseek-v4-pro", ContextSize(1_000_000)),
        ("qwen/qwen3-coder", ContextSize(262_144)),
        ("meta-llama/Llama-3.3-70B-Instruct", ContextSize(131_072)),
        ("llama3.1:8b", ContextSize(131_072)),
        ("nobodys-model", None),
        ("", None),
    ],
)
def test_the_longest_match_tells_a_models_context(model: str, size: ContextSize | None) -> None:
    assert context_in_table(model) == size


def test_the_table_is_dated_and_names_each_model_once() -> None:
    table = model_table()
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", table.checked)
    assert not table.contexts.keys() & table.inputs.keys()
    assert all(name == name.lower() for name in (*table.contexts, *table.inputs, *table.prices, *table.exceptions))
    assert all(size >= 4_096 for size in (*table.contexts.values(), *table.inputs.values()))
