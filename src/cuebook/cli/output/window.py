"""Print a prompt window: blocks with sources and token shares, what was left out and why, and cache use."""

from typing import Any

from cuebook.app.turns.explanation import kind_in_words, posts_in_words, source_in_words
from cuebook.cli.output import screen

#: Maximum length of a block's preview, in characters.
WORDS = 60


def draw(window: dict[str, Any], *, full: bool = False) -> None:
    """Print a window from its JSON form; `full` adds the text of each block."""
    tokens, budget = window["tokens"], window["budget"]
    used = f"{tokens / budget:.1%}" if budget else "all"
    screen.say(f"prompt: {tokens:,} tokens, {used} of the budget of {budget:,}")
    blocks = window["blocks"]
    rows = [_row(number, block, tokens) for number, block in enumerate(blocks, 1)]
    if tools := window["toolsTokens"]:
        rows.append(
            ("", "tools", "", "", f"{tools:,}", _share(tools, tokens), "tools and answer format of the request")
        )
    names = ("#", "kind", "source", "role", "tokens", "share", "text")
    screen.table(names, rows, right=("#", "tokens"), fold=("source",))
    for each in window.get("covered", ()):
        screen.say(f"{posts_in_words(each['from'], each['to'])}: in the summary")
    _draw_dropped(window["dropped"], blocks)
    anchors = ", ".join(f"{anchor['name']} after message {anchor['after']}" for anchor in window["anchors"])
    screen.say(f"cache anchors: {anchors or 'none'}")
    if cache := window["cache"]:
        kind = "simulated" if cache.get("simulated") else "reported"
        read, written = cache.get("readTokens") or 0, cache.get("writeTokens") or 0
        cost = f", cost {cache['cost']:,.0f} of {tokens:,}" if "cost" in cache else ""
        screen.say(f"cache ({kind}, {cache.get('rule', 'provider')}): {read:,} tokens read, {written:,} written{cost}")
    screen.say(f"prefix shared with the previous prompt: {window['stablePrefixRatio']:.1%}")
    for number, block in enumerate(blocks if full else (), 1):
        screen.heading(f"\n#{number} {block['kind']} {block['source']} ({block['role']})".strip())
        screen.say(block["text"])


def _row(number: int, block: dict[str, Any], tokens: int) -> tuple[str, ...]:
    return (
        str(number),
        kind_in_words(block),
        block["source"],
        block["role"],
        f"{block['tokens']:,}",
        _share(block["tokens"], tokens),
        screen.line_of(block["text"], WORDS),
    )


def _share(part: int, tokens: int) -> str:
    share = part / tokens if tokens else 0.0
    return f"{screen.bar(share)} {share:>4.0%}"


def _draw_dropped(dropped: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> None:
    if not dropped:
        cut = sum(bool(each.get("cut") or each.get("compressed")) for each in blocks)
        screen.say("left out: nothing" + (f" as a whole; shortened blocks: {cut}" if cut else ""))
        return
    total = sum(each.get("tokens") or 0 for each in dropped)
    screen.say(f"left out: {total:,} tokens")
    rows = [
        (
            each["kind"],
            source_in_words(each),
            f"{each.get('count', 1):,}",
            f"{each.get('tokens') or 0:,}",
            each["reason"],
        )
        for each in dropped
    ]
    screen.table(("kind", "source", "count", "tokens", "reason"), rows, right=("count", "tokens"), fold=("source",))
