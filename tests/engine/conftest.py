"""Make the helper modules of this folder importable and freeze the tests' clock."""

import sys
from pathlib import Path

import pytest

from cuebook.testing import FrozenClock

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()
