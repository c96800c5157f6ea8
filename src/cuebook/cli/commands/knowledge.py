"""Commands `cuebook knowledge put|list|use|decay`: store facts under a category and a key."""

from datetime import datetime
from typing import Annotated

import typer

from cuebook.app.memories import json_shapes as shapes
from cuebook.cli.group import DAYS, Cursor, User, command, new_app, seconds
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

app = new_app(
    "Store, list and decay facts under a category and a key.",
    'cuebook knowledge put domain api.rate "100 a minute"',
    "cuebook knowledge list --search rate",
)


@command(
    app,
    'cuebook knowledge put domain api.rate "100 a minute"',
    "cuebook knowledge put user_preference tone short --user ann",
)
def put(
    state: State,
    category: Annotated[
        str,
        typer.Argument(
            metavar="CATEGORY",
            help="One of domain, execution_pattern, user_preference, website_knowledge, error_pattern.",
        ),
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the fact.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Value of the fact.")],
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Store it for this user. Default: for the project.")
    ] = None,
    confidence: Annotated[
        float | None, typer.Option("--confidence", metavar="0..1", min=0.0, max=1.0, help="Confidence in the fact.")
    ] = None,
) -> None:
    """Store a fact. The same value again raises its confidence; a new value supersedes the old one."""
    with state.open() as cue:
        entry = shapes.knowledge(cue.memories.put(category, key, value, user=user, confidence=confidence))
    if state.json:
        screen.say_json(entry)
    else:
        screen.say(f"{entry['id']} {category} {entry['key']}: confidence {entry['confidence']:.2f}")


@command(app, "cuebook knowledge list", "cuebook knowledge list --search rate --category domain", name="list")
def list_(
    state: State,
    *,
    search: Annotated[
        str | None, typer.Option("--search", metavar="WORDS", help="Show facts that match these words.")
    ] = None,
    category: Annotated[
        str | None, typer.Option("--category", metavar="NAME", help="Show only facts of this category.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="Show at most N facts.")] = 50,
    cursor: Cursor = None,
    user: User = None,
) -> None:
    """List the facts of the project or of a user."""
    with state.open() as cue:
        memories, more = cue.memories.knowledge(search, category=category, user=user, limit=limit, cursor=cursor)
    items = [shapes.knowledge(each) for each in memories]
    if state.json:
        screen.say_json({"items": items} | ({"next": more} if more else {}))
        return
    if not items:
        none = "no facts. Run `cuebook knowledge put CATEGORY KEY VALUE` to store one."
        screen.say("no matching facts" if search or category or cursor else none)
        return
    rows = [
        (
            each["id"],
            each["category"],
            f"{each['confidence']:.2f}",
            str(each["usageCount"]),
            each["key"],
            each["value"],
        )
        for each in items
    ]
    screen.table(("id", "category", "confidence", "uses", "key", "value"), rows, right=("uses",), fold=("id",))
    if more:
        screen.say(f"more results: --cursor {more}")


@command(app, "cuebook knowledge use 1f0c9a7be2d44c31")
def use(
    state: State,
    memory: Annotated[str, typer.Argument(metavar="ID", help="ID from `cuebook knowledge list`.")],
    *,
    user: User = None,
) -> None:
    """Record a use of a fact. It raises the confidence by 0.05."""
    with state.open() as cue:
        entry = shapes.knowledge(cue.memories.use(memory, user=user))
    if state.json:
        screen.say_json(entry)
    else:
        screen.say(f"{entry['key']}: confidence {entry['confidence']:.2f} after {counted(entry['usageCount'], 'use')}")


@command(app, "cuebook knowledge decay", "cuebook knowledge decay --as-of 2027-01-31")
def decay(
    state: State,
    *,
    as_of: Annotated[
        datetime | None,
        typer.Option(
            "--as-of", metavar="DATE", formats=DAYS, help="Compute the decay as of this date (UTC). Default: now."
        ),
    ] = None,
) -> None:
    """Lower the confidence of unused facts. Each 30 days without use subtract 0.1; facts below 0.1 are deleted."""
    with state.open() as cue:
        decayed = cue.memories.decay(as_of=seconds(as_of))
    if state.json:
        screen.say_json({"lost": decayed.lost, "gone": decayed.gone})
    else:
        screen.say(f"lowered the confidence of {counted(decayed.lost, 'fact')}, deleted {decayed.gone:,}")
