"""Tests of documents by the public API."""

import pytest

from cuebook import Conflict, Cuebook, InvalidInput
from cuebook.records.document import DocumentChange


async def test_a_change_is_stored_over_the_expected_value_only():
    async with Cuebook.open() as cue:
        first = DocumentChange(space=("a",), key="k", value={"n": 1, "none": None}, new=True)
        assert await cue.documents.put([first]) == 0
        with pytest.raises(Conflict, match="Document 'k' in 'a' has another value"):
            await cue.documents.put([first])
        second = {"space": ["a"], "key": "k", "value": {"n": 2}, "expected": {"n": 1, "none": None}}
        assert await cue.documents.put([second]) == 1
        with pytest.raises(Conflict):
            await cue.documents.put([second])
        with pytest.raises(InvalidInput, match=r"changes\[0\].expected: a new document has no earlier value"):
            await cue.documents.put([second | {"new": True}])
        assert (await cue.documents.get(("a",), "k")).value == {"n": 2}
