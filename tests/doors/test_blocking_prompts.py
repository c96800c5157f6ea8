"""The prompt book without `await`: each method once."""

import pytest

from cuebook import BlockingCuebook, Conflict, NotFound


def test_a_prompt_is_written_read_compared_chosen_and_rolled_back() -> None:
    with BlockingCuebook.open(worker=False) as book:
        prompts = book.prompts
        first = prompts.save("a", {"body": "Be $tone."}, params=["tone"], author="ann", base=0)
        assert first.number == 1
        second = prompts.save("a", {"body": "Be very $tone."})
        with pytest.raises(Conflict, match="head is 2"):
            prompts.save("a", {"body": "mine"}, base=1)
        assert prompts.get("a", version=1).digest == first.digest
        assert [each.name for each in prompts.diff("a", 1).sections] == ["body"]
        assert prompts.resolve("a").lineage == (second.source,)
        assert prompts.render("a", {"tone": "warm"}).text == "Be very warm."
        assert prompts.fork("a", "try", version=1, by="ann").branched_from == "main:1"
        assert prompts.merge("a", "try")[0] is not None
        assert prompts.label("a", "production", version=1).number == 1
        assert prompts.select("a", {}, seed=1) == prompts.select("a", {}, seed=1)
        assert prompts.observe("a", sentiment=1.0, outcome="success").edge_weight == pytest.approx(0.55)
        assert prompts.weights("a")[0].points[0][1:] == pytest.approx((1.0, 0.55))
        assert prompts.roll_back("a", reason="worse").active == 2
        assert prompts.clear("a", 3).rolled_back == ()
        assert [each.slug for each in prompts.page().items] == ["a"]
        assert {each.name for each in prompts.family("a").branches} == {"main", "try"}
        assert len(prompts.versions("a", branch="main")) == 3
        assert prompts.events("a", limit=1)[0].kind == "clear"
        assert prompts.get("a", label="production").number == 1
        assert prompts.rating("a").parts[0].name == "lint"
        assert isinstance(prompts.lint("a"), list)
        logged = prompts.render("a", {"tone": "warm"}, log=True, by="ann", idempotency_key="k")
        assert prompts.render("a", {"tone": "warm"}, log=True, by="ann", idempotency_key="k") == logged
        prompts.check([first])
        assert prompts.store([first], if_changed=True)[0].number == 4
        with pytest.raises(NotFound):
            prompts.get("b")
