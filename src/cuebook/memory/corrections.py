"""Apply a user's corrections and deletions of memories: old posts keep the old words, memory has the correction.

The old words are stored as hashes only. The hashes recognize the same statement when posts are read again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from cuebook.languages import detect, language
from cuebook.memory.tokenizer import normal, subject_of
from cuebook.records.memory import Correction, Item, Line, Memory

#: Two texts of a post state the same if they share more than this part of the shorter one's words.
ALIKE: Final = 0.5
#: Kinds of places whose memories belong to one user.
OWN: Final = ("user", "persona")
#: Leading letters that identify a word in all its forms: "allergy" and "allergic".
_LETTERS: Final = 4


def correction_of(conversation: str, posts: Iterable[str], content: str, text: str) -> Correction:
    """Return the correction of what posts said to `text`; "" = it is forgotten."""
    named, marks = tuple(sorted(set(posts))), tuple(sorted(_marks(content, conversation)))
    return Correction(conversation=conversation, posts=named, marks=marks, text=text, before=content)


def corrections_of(memory: Memory, text: str) -> tuple[Correction, ...]:
    """Return the corrections of a user's memory, one per source conversation; none for a shared memory."""
    posts: dict[str, list[str]] = {}
    for source in memory.sources if memory.place.kind in OWN else ():
        if source.conversation:
            posts.setdefault(source.conversation, []).append(source.post)
    return tuple(correction_of(name, results, memory.text, text) for name, results in sorted(posts.items()))


def restoration_of(conversation: str, item: Item) -> Correction:
    """Return the correction that makes an ended item current again. Without marks, it changes no other text."""
    return Correction(conversation=conversation, posts=item.sources, marks=(), text=item.text)


def kept_name(name: str, text: str) -> str:
    """Return the name of a memory after its text was corrected, "" if the text no longer has it."""
    return name if name.casefold() in text.casefold() else ""


def restored(items: Sequence[Item], corrections: Sequence[Correction], *, since: int, now: float) -> list[Item]:
    """Return the items after restorations later than number `since`: if a restored item was merged, the merged item
    ends, and all its parts are current again.
    """
    texts = {normal(each.text) for each in corrections if each.no > since and each.text and not each.marks}
    current = {each.id: each for each in items if each.valid_to is None}
    ended = [each for each in items if each.valid_to is not None]
    undone = {each.superseded_by for each in ended if normal(each.text) in texts and is_part(each, current)}
    back = {each.id for each in ended if normal(each.text) in texts}
    back |= {each.id for each in ended if each.superseded_by in undone and is_part(each, current)}
    return [
        replace(each, valid_to=None, superseded_by=None)
        if each.id in back
        else replace(each, valid_to=now)
        if each.id in undone
        else each
        for each in items
    ]


def is_part(item: Item, current: Mapping[str, Item]) -> bool:
    """Return whether the item that superseded another is its merged form, which has its sources."""
    merged = current.get(item.superseded_by or "")
    return merged is not None and set(item.sources) <= set(merged.sources)


def says(text: str, correction: Correction) -> bool:
    """Return whether a text states what was corrected."""
    own, wrong = _marks(text, correction.conversation), frozenset(correction.marks)
    return bool(own) and len(own & wrong) > ALIKE * min(len(own), len(wrong))


def corrected(
    items: Sequence[Item], corrections: Sequence[Correction], *, news: bool = False, since: int = 0
) -> list[Item]:
    """Return items with corrections applied: an item that a corrected post states is replaced or removed.

    `news`: the items were extracted just now; a statement that another post repeats is new and stays. The items already
    contain the corrections up to number `since`.
    """
    fresh = [each for each in corrections if each.no > since]
    if not fresh:
        return list(items)
    written = {normal(each.text) for each in corrections if each.text}
    entries: dict[tuple[str, str], Item] = {}
    for item in sorted(items, key=lambda each: each.valid_to is not None):  # current items come first
        said = item if normal(item.text) in written else _said(item, fresh, news=news)
        if said is None:
            continue
        key = (said.category, normal(said.text))
        before = entries.get(key)
        if before is not None and before.valid_to is None and said.valid_to is None:
            said = replace(before, sources=tuple(dict.fromkeys((*before.sources, *said.sources))))
        entries[key] = said if before is None or said.valid_to is None else before
    return list(entries.values())


def untold(lines: Sequence[Line], corrections: Sequence[Correction]) -> list[Line]:
    """Return the lines that may be quoted verbatim: those that no correction concerns."""
    posts = {post for each in corrections for post in each.posts}
    return [line for line in lines if line.id not in posts]


def unquoted(markdown: str, corrections: Sequence[Correction]) -> str:
    """Return a summary without the lines that state what was corrected."""
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
            text=each.text,
            name=kept_name(item.name, each.text),
            subject=subject_of(each.text),
            trust="user",
            confidence=1.0,
            weight=1.0,
        )
    return item


def _marks(text: str, conversation: str) -> frozenset[str]:
    """Return the hashes of a text's words, salted by the conversation."""
    values = {word[:_LETTERS] for word in language(detect(text)).content(text)} or {normal(text)}
    keyed = (f"{conversation}\x00{word}".encode("utf-8", "surrogatepass") for word in values if word)
    return frozenset(hashlib.sha256(each).hexdigest()[:12] for each in keyed)
