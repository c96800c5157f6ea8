"""Judge what a summarizing model claims: whose words support an item, and which quotes it may end or merge.

A model may cite any post for any text, and may repeat a page, a tool or the assistant. So an item counts as a person's
own statement only if what they state themselves in the posts that it cites contains its words: no quotation, no
question and no hypothetical case.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.languages import Language, detect, language, words_of
from cuebook.memory.quotes import assertions, own_words, read_signs
from cuebook.memory.schema import MemoryAnswer
from cuebook.memory.scopes import filed
from cuebook.memory.supersede import LETTERS, nearest
from cuebook.memory.tokenizer import item_id, normal, subject_of
from cuebook.records.memory import CATEGORIES, Category, Item, Line, Trust

#: Stored quotes that a model sees for each new quote.
NEAR: Final = 8
#: Shortest beginning that identifies a word in another form: "live" and "lives".
SHORTEST: Final = 3
#: How a model refers to the speaker; the speaker's name is another way.
_SPEAKER: Final = "user"
_TRUSTS: Final[tuple[Trust, ...]] = ("tool", "assistant", "participant", "user")
#: Weight of an item that a model writes.
_WEIGHT: Final = 0.5


def offered(kept: Iterable[Item], new: Sequence[Item]) -> dict[str, Item]:
    """Return the quotes that a model sees by short ids: the new ones, after the stored ones that are close to them."""
    stored = [each for each in kept if each.valid_to is None and each.trust in ("user", "participant")]
    near = nearest([each.text for each in new], [each.text for each in stored], NEAR)
    shown = [*(stored[place] for place in sorted(near)), *new]
    return {f"q{number}": each for number, each in enumerate(shown, 1)}


def items_of(
    memory: Mapping[str, Any],
    *,
    when: float,
    lines: Sequence[Line] = (),
    held: Sequence[Item] = (),
    quotes: Mapping[str, Item] | None = None,
) -> list[Item]:
    """Return the items of a `memory_json`, without those that restate one quote, dated by their newest post.

    `when` (Unix seconds) is the date of an item whose posts are unknown. `held` are the conversation's items, with the
    quotes of `lines`. A source may also be an id in `quotes`.
    """
    evidence = _Evidence(lines, held, quotes or {})
    items = (_item(category, raw, evidence, when=when) for category in CATEGORIES for raw in memory[category])
    return [each for each in items if not evidence.restates(each)]


class Action(Struct, frozen=True, kw_only=True):
    """A model's change of quotes, by their item ids: it ended one, or merged several into another, for its `reason`."""

    event: Literal["end", "merge"]
    items: tuple[str, ...]
    into: str = ""
    reason: str


def act(
    items: Sequence[Item],
    answer: MemoryAnswer,
    *,
    quotes: Mapping[str, Item],
    lines: Sequence[Line],
    restored: Collection[str] = (),
) -> tuple[list[Item], list[Action], list[str]]:
    """Return the items without the quotes that an answer ends or merges, the actions, and why others are refused.

    Quotes that were `restored` by hand (normalized texts) stay.
    """
    known, actions, refused = {each.id: each for each in items}, list[Action](), list[str]()

    def current(names: Iterable[str]) -> list[Item]:
        chosen = [known[quotes[name].id] for name in names if name in quotes]
        return [each for each in chosen if each.valid_to is None and normal(each.text) not in restored]

    for place, raw in enumerate(answer.ended):
        later = {post for name in raw["sources"] for post in (quotes[name].sources if name in quotes else (name,))}
        ended = _ended(current([raw["id"]]), [line for line in lines if line.id in later])
        if not (ended and raw["reason"]):
            refused.append(f"ended[{place}] names no current quote with a reason and a later post of its speaker")
            continue
        known[ended.id] = ended
        actions.append(Action(event="end", items=(ended.id,), reason=raw["reason"]))
    for place, raw in enumerate(answer.merged):
        parts = current(raw["sources"])
        merged = _merged(parts, raw["text"])
        if not (merged and raw["reason"]):
            refused.append(f"merged[{place}] names no current quotes of one speaker with a reason and their words")
            continue
        gone = [each for each in parts if each.id != merged.id]
        known |= {each.id: replace(each, valid_to=merged.valid_from, superseded_by=merged.id) for each in gone}
        if merged.id not in known or known[merged.id].valid_to is not None:
            known[merged.id] = merged
        ids = tuple(each.id for each in gone)
        actions.append(Action(event="merge", items=ids, into=merged.id, reason=raw["reason"]))
    return list(known.values()), actions, refused


def _ended(quotes: Sequence[Item], lines: Sequence[Line]) -> Item | None:
    """Return a quote as ended by what its own speaker stated later, None without it. Health needs a word in common."""
    for quote in quotes:
        lists = language(detect(quote.text))
        words = lists.content(quote.text) if read_signs(quote.text, lists)["health"] else []
        own = (
            line for line in lines if _voice(line) == quote.trust and (not quote.voice or line.speaker == quote.voice)
        )
        later = [line.when for line in own if line.seq > quote.seq and _denies(assertions(line.text), words, lists)]
        return replace(quote, valid_to=max(*later, quote.valid_from)) if later else None
    return None


def _denies(stated: Sequence[str], words: Sequence[str], lists: Language) -> bool:
    """Return whether statements may end a quote: there is one, and one of the words occurs if there are any."""
    spoken = [word for each in stated for word in lists.content(each)]
    return bool(stated) and (
        not words or any(_same_word(one, other, spaced=lists.spaced) for one in words for other in spoken)
    )


def _merged(quotes: Sequence[Item], text: str) -> Item | None:
    """Return the item that replaces several quotes of one speaker, one of them or a new one in their words."""
    if len(quotes) <= 1 or len({(each.trust, each.voice) for each in quotes}) > 1:
        return None
    for each in quotes:
        if normal(each.text) == normal(text):
            return each
    newest = max(quotes, key=lambda each: (each.seq, each.valid_from))
    category = max(quotes, key=lambda each: each.weight).category
    if not supports([each.text for each in quotes], text):
        return None
    return replace(
        newest,
        id=item_id(category, text, newest.voice),
        category=category,
        text=text,
        sources=tuple(dict.fromkeys(source for each in quotes for source in each.sources)),
        subject=subject_of(text),
        supersedes=newest.id,
        superseded_by=None,
        weight=max(each.weight for each in quotes),
    )


def supports(own: Sequence[str], text: str, *, speaker: str = "") -> bool:
    """Return whether sentences contain the content words of a text in its order, and agree with its negation."""
    lists = language(detect(text))
    omitted = {_SPEAKER, *words_of(speaker)}
    sought = [word for word in lists.content(text) if re.split("['’]", word)[0] not in omitted]
    if not sought:
        return any(normal(text) in normal(sentence) for sentence in own)
    denies = lists.signs(text)["negation"] > 0
    return any(_contain(each, sought, lists, denies=denies) for each in (*((sentence,) for sentence in own), own))


def _contain(own: Sequence[str], sought: Sequence[str], lists: Language, *, denies: bool) -> bool:
    place = 0
    for sentence in own:
        before = place
        for word in lists.content(sentence):
            if place < len(sought) and _same_word(sought[place], word, spaced=lists.spaced):
                place += 1
        if place > before and (lists.signs(sentence)["negation"] > 0) != denies:
            return False
    return place == len(sought)


def _same_word(one: str, other: str, *, spaced: bool) -> bool:
    """Return whether two words are equal or, unless they contain a figure, forms of one word."""
    if one == other or not (spaced and one.isalpha() and other.isalpha()):
        return one == other
    short, long = sorted((one[:LETTERS], other[:LETTERS]), key=len)
    return len(short) >= SHORTEST and long.startswith(short)


class _Evidence:
    """The posts and quotes that an answer may cite, and the own sentences of people in them."""

    def __init__(self, lines: Sequence[Line], held: Sequence[Item], quotes: Mapping[str, Item]) -> None:
        self.lines = {line.id: line for line in lines}
        self.quotes = quotes
        self.held: dict[str, list[Item]] = {}
        for item in held:
            for source in item.sources if item.valid_to is None else ():
                self.held.setdefault(source, []).append(item)

    def posts(self, cited: Iterable[str]) -> tuple[str, ...]:
        """Return the cited posts, with those of cited quotes, once each."""
        expanded = (self.quotes[each].sources if each in self.quotes else (each,) for each in cited)
        return tuple(dict.fromkeys(post for posts in expanded for post in posts))

    def trust(self, posts: Sequence[str], text: str) -> tuple[Trust, str]:
        """Return whose words an item repeats, with the person's name: theirs if they support it, else at most the
        assistant's.
        """
        for trust in ("user", "participant"):
            for speaker in self._speakers(posts, trust):
                if supports(self._own(posts, trust, speaker), text, speaker=speaker):
                    return trust, speaker
        return min((self._origin(post) for post in posts), key=_TRUSTS.index, default="tool"), ""

    def restates(self, item: Item) -> bool:
        """Return whether one quote of an item's posts contains all of it."""
        quotes = [each for post in item.sources for each in self.held.get(post, ()) if each.trust == item.trust]
        return any(supports([each.text], item.text, speaker=item.speaker) for each in quotes)

    def newest(self, posts: Sequence[str]) -> tuple[int, float] | None:
        """Return the seq and the time of the newest post, None if no post is known."""
        known = [(self.lines[post].seq, self.lines[post].when) for post in posts if post in self.lines]
        known += [(each.seq, each.valid_from) for post in posts for each in self.held.get(post, ())]
        return max(known, default=None)

    def _speakers(self, posts: Sequence[str], trust: Trust) -> list[str]:
        """Return the names of the people with a trust who wrote the cited posts."""
        names = [self.lines[post].speaker for post in posts if post in self.lines and _voice(self.lines[post]) == trust]
        names += [each.speaker for post in posts for each in self.held.get(post, ()) if each.trust == trust]
        return list(dict.fromkeys(names))

    def _own(self, posts: Sequence[str], trust: Trust, speaker: str) -> list[str]:
        own: list[str] = []
        for post in posts:
            line = self.lines.get(post)
            if line is None:
                quotes = [each for each in self.held.get(post, ()) if each.trust == trust]
                own += [each.text for each in quotes if trust == "user" or each.speaker == speaker]
            elif _voice(line) == trust and (trust == "user" or line.speaker == speaker):
                own += assertions(line.text)
        return own

    def _origin(self, post: str) -> Trust:
        """Return the trust of an item that no person's words support: its text may come from what they pasted."""
        line = self.lines.get(post)
        if line is not None and line.role != "assistant":
            return "tool" if line.role != "user" or own_words(line.text) != line.text else "assistant"
        held: list[Trust] = [each.trust for each in self.held.get(post, ())]
        return min([*held, "assistant"], key=_TRUSTS.index) if line or held else "tool"


def _voice(line: Line) -> Trust:
    """Return the trust of a post's own words."""
    if line.role == "user":
        return "user" if line.own else "participant"
    return "assistant" if line.role == "assistant" else "tool"


def _item(category: Category, raw: Mapping[str, Any], evidence: _Evidence, *, when: float) -> Item:
    named = category in {"people", "projects"}
    text = ": ".join(filter(None, (raw["name"], raw.get("notes", "")))) if named else raw["text"]
    sources = evidence.posts(raw["sources"])
    seq, since = evidence.newest(sources) or (0, when)
    category = filed(category, text) if category in {"decisions", "projects"} else category
    trust, speaker = evidence.trust(sources, text)
    return Item(
        id=item_id(category, text, speaker if trust == "participant" else ""),
        category=category,
        text=text,
        sources=sources,
        subject=subject_of(text),
        trust=trust,
        speaker=speaker,
        confidence=float(raw.get("confidence", 0.5)),
        valid_from=since,
        name=raw.get("name", "") if named else "",
        status=raw.get("status", ""),
        seq=seq,
        weight=_WEIGHT,
    )
