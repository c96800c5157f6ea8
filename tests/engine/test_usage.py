"""Tests of the usage of model calls: tokens beside the full history, and cost."""

from cuebook import Ask, Cuebook
from cuebook.app.reports.prices import Price, Prices
from cuebook.app.reports.usage import CallUsage, usage_of
from cuebook.records.answer import to_wire
from cuebook.records.turn import CallUsageRecord, Usage
from cuebook.testing.doubles import ScriptedModel

PRICES = Prices({}, {"pricey": Price(input=10.0, cached_input=1.0, output=20.0)})


def test_a_call_costs_what_its_provider_counted():
    call = CallUsageRecord(
        turn=1, step=1, state="finished", tokens=900, whole=5000, posts=9, reply=40, at=0.0, model="pricey"
    )
    plain, counted = usage_of(call, PRICES), Usage(input=1000, output=50, cache_read=600)
    assert plain.costs == {"USD": (900 * 10 + 40 * 20) / 1e6}
    assert (plain.cached, plain.cache_known) == (0, 0)
    priced = usage_of(
        CallUsageRecord(**{name: getattr(call, name) for name in call.__struct_fields__} | {"usage": counted}), PRICES
    )
    assert priced.costs == {"USD": (400 * 10 + 600 * 1 + 50 * 20) / 1e6}
    assert priced.cache_saved == {"USD": 600 * 9 / 1e6}
    both = plain.plus(priced)
    assert (both.calls, both.tokens, both.whole, both.cached, both.cache_known) == (2, 1800, 10_000, 600, 900)
    assert usage_of(call, Prices({}, {})).costs == {}


async def test_a_prompt_is_compared_with_its_full_history_and_sums_match():
    async with Cuebook.open(model=ScriptedModel(default="Noted.")) as cue:
        for number in range(3):
            await cue.ask(Ask(f"Bed {number} gets tulips.", "garden", user="ann"))
        took = await cue.live.usage("garden", 2, 3, user="ann")
        records = [to_wire(await cue.turns.show("garden", n)) for n in (2, 3)]
        assert [each.tokens for each in took.values()] == [each["window"]["tokens"] for each in records]
        assert [each.posts for each in took.values()] == [3, 5]
        assert took[3].whole >= took[3].tokens  # nothing was summarized: the prompt is the full history
        sums = await cue.live.sums(user="ann")
        assert (sums.turns, sums.all, sums.posts) == (3, True, 6)
        assert sums.taken == CallUsage().plus((await cue.live.usage("garden", 1, 1))[1]).plus(took[2]).plus(took[3])
        assert (await cue.live.sums(user="bob")).turns == 0
