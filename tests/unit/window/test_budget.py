"""Tests of the window budget: its division among blocks, and the smallest budget that a refusal names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.config import BudgetConfig
from cuebook.errors import InvalidInput
from cuebook.window.budget import allot, prompt_budget

sizes = st.integers(0, 3000)


def least_named(refused: InvalidInput) -> int:
    return int(re.search(r"Allow at least (\d+)", str(refused))[1])


@given(sizes, sizes, sizes, sizes, st.none() | st.integers(1, 9000), st.integers(5000, 20_000))
def test_parts_fit_the_budget_or_the_minimum_is_named(front, tools, least, frozen, token_budget, context):  # noqa: PLR0917
    limits = BudgetConfig(context=context, system=100, reply=200)

    def try_with(budget):
        return allot(limits, front=front, tools=tools, least=least, frozen=frozen, token_budget=budget)

    try:
        allotment = try_with(token_budget)
    except InvalidInput as refused:
        assert refused.where == "tokenBudget"  # noqa: PT017
        needed = least_named(refused)
        assert needed == front + tools + least > prompt_budget(limits, token_budget)
        if needed <= prompt_budget(limits, None):
            assert try_with(needed).posts >= least
        return
    assert allotment.budget <= context - 200
    assert front + tools + allotment.memory + allotment.posts <= allotment.budget
    assert allotment.posts >= least
    assert allotment.memory >= 0
    assert allotment.memory <= max(frozen, limits.memory)


def test_defaults_match_the_original_systems():
    assert allot(BudgetConfig(), front=0).posts == 190_000, "BrowserOS's maxShortTermTokens"
    assert prompt_budget(BudgetConfig(), None) == 200_000 - 4_096
    wide = BudgetConfig(max_short_term=10**9, memory=0)
    assert allot(wide, front=0).posts == 190_904, "BrowserOS's available budget"


@pytest.mark.parametrize("context", [1000, 4096, 8192, 9096, 16_384])
def test_a_small_model_leaves_room_for_posts(context):
    """The reserve for the system text never takes most of the window."""
    limits = BudgetConfig(context=context, reply=context // 4)
    assert allot(limits, front=100).posts >= 0.6 * (context - context // 4)


def test_text_recalled_by_an_earlier_step_keeps_its_space():
    small = allot(BudgetConfig(), front=0, token_budget=1000)
    assert small.memory == 100
    assert allot(BudgetConfig(), front=0, token_budget=1000, frozen=300).memory == 300
    assert allot(BudgetConfig(), front=0, token_budget=1000, frozen=50).memory == 100
    assert allot(BudgetConfig(), front=0, token_budget=1000, frozen=300, least=800).memory == 100, (
        "there is no space for it"
    )


def test_the_models_context_window_is_the_limit():
    with pytest.raises(InvalidInput, match="Allow at least 6000"):
        allot(BudgetConfig(context=5000, reply=1000), front=6000)
