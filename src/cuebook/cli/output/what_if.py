"""Print a what-if replay: token change, blocks added, removed or changed, and both answers."""

from typing import Any

from cuebook.cli.output import screen

#: Maximum length of a block's preview, in characters.
WORDS = 80
_LISTS = (("removed", "leftOut"), ("added", "letIn"), ("changed", "changed"))


def draw(data: dict[str, Any], *, reply: str) -> None:
    """Print a counterfactual from its JSON form; `reply` is the original answer."""
    if not data["reproduced"]:
        screen.say(
            "The original prompt is not reproduced byte for byte: a setting or the search index has changed since."
        )
    if data["refused"]:
        screen.say(f"This prompt would have been refused: {data['refused']}")
        return
    tokens = data["tokens"]
    screen.say(f"tokens: {tokens['before']:,} before, {tokens['after']:,} after ({tokens['change']:+,})")
    moved = [_blocks(name, data[key]) for name, key in _LISTS]
    if not any(moved):
        screen.say("no change: the prompt would have been the same")
    posts = data["postsLeftOut"]
    screen.say(f"posts left out: {posts['before']:,} before, {posts['after']:,} after")
    if data["answer"] is not None:
        screen.heading("\noriginal answer")
        screen.say(reply)
        screen.heading("\nanswer to the changed prompt")
        screen.say(data["answer"])


def _blocks(name: str, blocks: list[dict[str, Any]]) -> bool:
    if not blocks:
        return False
    screen.say(f"{name}: {sum(each['tokens'] for each in blocks):,} tokens")
    rows = [
        (each["kind"], each["source"], f"{each['tokens']:,}", screen.line_of(each["text"], WORDS)) for each in blocks
    ]
    screen.table(("kind", "source", "tokens", "text"), rows, right=("tokens",), fold=("source",))
    return True
