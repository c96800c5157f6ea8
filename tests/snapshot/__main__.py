"""Saves a snapshot of all public surfaces, and shows changes since the last one.

scripts/snapshot            show differences; exit with 1 if there are any
scripts/snapshot --prose    show changed sentences too, not only their number
scripts/snapshot --save     save the current state
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))

import answers
import difference
import surfaces

SAVED = Path(__file__).parent / "saved"
#: Characters of a line in a saved file.
WIDTH = 160


def collect() -> dict[str, Any]:
    """Return the whole snapshot: a value for each surface."""
    first, second = (run_answers() for _ in range(2))
    found = {name: collect_surface() for name, collect_surface in surfaces.SURFACES.items()}
    found["schema"] = first.pop("schema")
    second.pop("schema")
    recorded = {f"answers-{name}": difference.mask(each, second[name]) for name, each in first.items()}
    return json.loads(json.dumps(found | recorded, default=repr))


def run_answers() -> dict[str, Any]:
    """Return every recorded answer of one run, and the schema of the database it made."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        found: dict[str, Any] = asyncio.run(answers.record())
        found["cli"] = answers.record_commands(folder)
        found["schema"] = surfaces.schema(folder / "project/.cuebook/cuebook.db")
        return found


def load() -> dict[str, Any]:
    """Return the saved snapshot, or an empty one."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(SAVED.glob("*.json"))}


def save(found: dict[str, Any]) -> None:
    """Replace the saved snapshot."""
    SAVED.mkdir(exist_ok=True)
    for path in SAVED.glob("*.json"):
        path.unlink()
    for name, value in found.items():
        (SAVED / f"{name}.json").write_text(write_json(value) + "\n", encoding="utf-8")


def write_json(value: Any, indent: str = "") -> str:
    """Return JSON for diffs: short values are on one line, longer ones have a line per member."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + len(indent) <= WIDTH or not value or not isinstance(value, dict | list):
        return short
    inner = indent + " "
    if isinstance(value, dict):
        rows = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {write_json(each, inner)}" for key, each in value.items()
        ]
    else:
        rows = [f"{inner}{write_json(each, inner)}" for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, ",\n".join(rows), indent + closing])


def main() -> int:
    """Run the command. Return 1 if there are unsaved differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--save", action="store_true", help="save what is there now")
    parser.add_argument("--prose", action="store_true", help="show changed sentences, not only their number")
    chosen = parser.parse_args()
    saved, found = load(), collect()
    names = dict.fromkeys([*saved, *found])
    changes = {name: difference.compare(name, saved.get(name), found.get(name)) for name in names}
    count = sum(map(len, changes.values()))
    print(difference.render(changes, prose=chosen.prose) or "no difference")
    calls = sum(len(each) for name, each in found.items() if name.startswith("answers-"))
    print(f"{calls} answers, {len(found)} surfaces, {count} differences")
    if chosen.save:
        save(found)
        print(f"saved in {SAVED.relative_to(Path.cwd()) if SAVED.is_relative_to(Path.cwd()) else SAVED}")
        return 0
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
