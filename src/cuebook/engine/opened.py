"""How values of the vault stand in a window: each post's own in that post, what users said in the summary.

Everything else keeps its tokens: cut posts, what tools said, and memories of other conversations.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cuebook.assembly.forms import Placed, messages_of
from cuebook.assembly.tokens import Counter
from cuebook.assembly.window import Sheet, Text, weigh_volatile
from cuebook.records.vault import Opened, Values, put_back, put_back_json

_POST = "post:"


def live_posts(sheet: Sheet, live: Mapping[int, bytes], opened: Opened) -> dict[int, bytes]:
    """Give messages with their secrets, by seq: the live request's own, and stored ones with what the vault keeps."""
    found: dict[int, bytes] = {}
    kept: list[Placed] = []
    for placed in sheet.partition.kept:
        if placed.form == "full" and placed.post.seq in live:
            found[placed.post.seq] = live[placed.post.seq]
        elif placed.form != "cut" and placed.post.id in opened.posts:
            kept.append(placed)
    for placed, message in zip(kept, messages_of(kept, sheet.owner), strict=True):
        found[placed.post.seq] = put_back_json(message, opened.posts[placed.post.id])
    return found


def _values(text: Text, opened: Opened) -> Values:
    if text.kind == "summary":
        return opened.said
    return opened.posts.get(text.source.removeprefix(_POST), {}) if text.source.startswith(_POST) else {}


def live_text(text: Text, opened: Opened) -> str:
    """Give a text as it goes to the model."""
    values = _values(text, opened)
    return put_back(text.text, values) if values else text.text


def with_values(text: Text, opened: Opened) -> Text:
    """Give the same as a Text."""
    return replace(text, text=live_text(text, opened))


def heavier(text: Text, count: Counter, opened: Opened) -> Text:
    """Give a weighed text with what it takes where its values take more than their tokens."""
    live = live_text(text, opened)
    return text if live == text.text else replace(text, tokens=text.tokens + max(0, count(live) - count(text.text)))


def weigh_most(texts: Sequence[Text], fence: str, count: Counter, opened: Opened) -> tuple[Text, ...]:
    """Weigh the volatile texts, each with its values where they take more."""
    return tuple(heavier(text, count, opened) for text in weigh_volatile(texts, fence, count))
