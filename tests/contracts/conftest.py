"""Assertions of the shipped contract say what they compared, as those of a test do."""

import pytest

for module in ("contract_memory", "contract_posts", "contract_reading", "contract_scopes", "contract_turns", "compare"):
    pytest.register_assert_rewrite(f"cuebook.testing.{module}")
