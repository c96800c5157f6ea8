"""Run the examples of docs/integrations.md."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/integrations.md"


def examples_of(title: str) -> list[str]:
    """Return the Python examples of a section."""
    section = PAGE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```python\n(.+?)^```", section, re.MULTILINE | re.DOTALL)
    assert found, f"{title} has no example"
    return found
