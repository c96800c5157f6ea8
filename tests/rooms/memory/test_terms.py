from datetime import UTC, datetime

import pytest

from cuebook.memory.terms import lapses

SAID = datetime(2026, 7, 10, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("They'll pay the rest, 3,560, before the end of August.", datetime(2026, 9, 1, tzinfo=UTC)),
        ("Ana will send the plans by 3 August.", datetime(2026, 8, 4, tzinfo=UTC)),
        ("My mother is staying with us until 2 January.", datetime(2027, 1, 3, tzinfo=UTC)),
    ],
)
def test_what_others_promise_holds_until_its_term(text, until):
    assert lapses(text, SAID) == until.timestamp()


@pytest.mark.parametrize(
    "text", ["We'll be out of the flat by 31 August.", "I must pay by 3 August.", "Ana lives in Porto."]
)
def test_one_s_own_duties_do_not_lapse(text):
    assert lapses(text, SAID) is None
