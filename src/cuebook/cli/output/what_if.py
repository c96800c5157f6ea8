"""Print a what-if replay: token change, blocks added, removed or changed, and both answers."""

from typing import Any

from cuebook.cli.output import screen

#: Characters of a block's first words.
WORDS = 80
_LISTS = (("left out", "leftOut"), ("let in", "letIn"), ("changed", "changed"))


def draw(said: dict[str, Any], *, reply: str) -> None:
    """Print a counterfactual from its JSON form; `reply` is the original answer."""
    if not said["reproduced"]:
        screen.say("not byte for byte as it was sent: a setting, or what memory knows of words, is other by now")
    if said["refused"]:
        screen.say(f"it would have been refused: {said['refused']}")
        return
    tokens = said["tokens"]
    screen.say(f"tokens: {tokens['before']:,} before, {tokens['after']:,} after ({tokens['change']:+,})")
    moved = [_blocks(name, said[key]) for name, key in _LISTS]
    if not any(moved):
        screen.say("the prompt would have been the same")
    posts = said["postsLeftOut"]
    screen.say(f"posts of the path left out: {posts['before']:,} before, {posts['after']:,} after")
    if said["answer"] is not None:
        screen.heading("\nanswered then")
        screen.say(reply)
        screen.heading("\nanswered to this")
        screen.say(said["answer"])


def _blocks(name: str, blocks: list[dict[str, Any]]) -> bool:
    if not blocks:
        return False
    screen.say(f"{name}: {sum(each['tokens'] for each in blocks):,} tokens")
    rows = [
        (each["kind"], each["source"], f"{each['tokens']:,}", screen.line_of(each["text"], WORDS)) for each in blocks
    ]
    screen.table(("kind", "source", "tokens", "first words"), rows, right=("tokens",), fold=("source",))
    return True
