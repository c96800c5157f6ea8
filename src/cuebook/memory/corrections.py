"""What somebody corrected or forgot by hand in a conversation: its posts say what it was, memory what holds instead.

The old words are kept as hashes only, by which the same is recognized when posts are read again.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from cuebook.languages import detect, language
from cuebook.memory.item_keys import item_id, normal, subject_of
from cuebook.records.memory import Correction, Item, Line, Memory

#: Two texts say the same of a post where they share more than this part of the words of the shorter one.
ALIKE: Final = 0.5
#: Places whose memories are one user's own.
OWN: Final = ("user", "persona")
#: Letters by which the forms of a word are one: "allergy" and "allergic".
_LETTERS: Final = 4


def correction_of(conversation: str, posts: Iterable[str], said: str, text: str) -> Correction:
    """Return that what posts said holds as `text` from now on; "" = it is forgotten."""
    named, marks = tuple(sorted(set(posts))), tuple(sorted(_marks(said, conversation)))
    return Correction(conversation=conversation, posts=named, marks=marks, text=text, before=said)


def corrections_of(memory: Memory, text: str) -> tuple[Correction, ...]:
    """Return the same of a user's memory in each conversation it comes from; what others share is theirs to say."""
    posts: dict[str, list[str]] = {}
    for source in memory.sources if memory.place.kind in OWN else ():
        if source.conversation:
            posts.setdefault(source.conversation, []).append(source.post)
    return tuple(correction_of(name, found, memory.text, text) for name, found in sorted(posts.items()))


def says(text: str, correction: Correction) -> bool:
    """Return whether a text says what was corrected."""
    own, wrong = _marks(text, correction.conversation), frozenset(correction.marks)
    return bool(own) and len(own & wrong) > ALIKE * min(len(own), len(wrong))


def corrected(
    items: Sequence[Item], corrections: Sequence[Correction], *, news: bool = False, since: int = 0
) -> list[Item]:
    """Return items as they hold: one that a corrected post says is what a hand wrote, or gone.

    `news`: they were read from posts just now; what another post says too is said anew then, and stays. Corrections up
    to the number `since` are known to the items.
    """
    fresh = [each for each in corrections if each.no > since]
    if not fresh:
        return list(items)
    written = {normal(each.text) for each in corrections if each.text}
    found: dict[str, Item] = {}
    for item in sorted(items, key=lambda each: each.valid_to is not None):  # what holds comes first
        said = item if normal(item.text) in written else _said(item, fresh, news=news)
        if said is None:
            continue
        before = found.get(said.id)
        if before is not None and before.valid_to is None and said.valid_to is None:
            said = replace(before, sources=tuple(dict.fromkeys((*before.sources, *said.sources))))
        found[said.id] = said if before is None or said.valid_to is None else before
    return list(found.values())


def untold(lines: Sequence[Line], corrections: Sequence[Correction]) -> list[Line]:
    """Return the lines that may be quoted as they are: no correction is of them."""
    posts = {post for each in corrections for post in each.posts}
    return [line for line in lines if line.id not in posts]


def unquoted(markdown: str, corrections: Sequence[Correction]) -> str:
    """Return a summary without the lines that say what was corrected."""
    written = {normal(each.text) for each in corrections if each.text}
    return "\n".join(
        line
        for line in markdown.split("\n")
        if normal(line.removeprefix("- ")) in written or not any(says(line, each) for each in corrections)
    )


def _said(item: Item, corrections: Sequence[Correction], *, news: bool) -> Item | None:
    for each in corrections:
        own = set(item.sources)
        if not (own.issubset(each.posts) if news else own.intersection(each.posts)) or not says(item.text, each):
            continue
        if not each.text:
            return None
        return replace(
            item,
            id=item_id(item.category, each.text),
            text=each.text,
            subject=subject_of(each.text),
            trust="user",
            confidence=1.0,
            weight=1.0,
        )
    return item


def _marks(text: str, conversation: str) -> frozenset[str]:
    """Return a text's words as hashes, others in each conversation."""
    said = {word[:_LETTERS] for word in language(detect(text)).content(text)} or {normal(text)}
    keyed = (f"{conversation}\x00{word}".encode("utf-8", "surrogatepass") for word in said if word)
    return frozenset(hashlib.sha256(each).hexdigest()[:12] for each in keyed)
