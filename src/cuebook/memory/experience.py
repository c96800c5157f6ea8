"""Select the experiences (handwritten advice) that fit a query, without a model: by words and by embeddings.

A `when` is split into clauses, without framing words ("Use when the user asks for …"), and its best clause counts. By
words, the score is the part of the clause that the query contains. A word weighs more if few experiences have it, and
little if it is a framing word. With an embedder, cosine similarity is added. A threshold decides whether anything fits;
a margin to the best score decides what else does. `what` is not used. The numbers are tuned on
`tests/unit/memory/experience_pairs.py` and measured in docs/design/014.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.languages import english, english_expression
from cuebook.memory.tokenizer import stop_words, words
from cuebook.records.answers import LONGEST, repair_json, without_reasoning
from cuebook.records.persona import Experience
from cuebook.validate import Fault, Name, validate

E = TypeVar("E", bound=Experience)

# ---- weights of words -----------------------------------------------------------------------------------------------


#: Share of its weight that a framing word keeps. A list of the most frequent English words at 0.3 beside it improved
#: nothing (docs/design/014).
FRAMING_SHARE: Final = 0.1


def share_of(word: str) -> float:
    """Return the share of its weight that a stemmed word keeps, in (0, 1]."""
    return FRAMING_SHARE if word in _framing() else 1.0


@cache
def _framing() -> frozenset[str]:
    lists = english("words")
    little = (" ".join(stop_words(code)) for code in ("de", "fr", "es"))
    return frozenset(stem for text in (lists["framing"], lists["framing_foreign"], *little) for stem in words(text))


#: Without embeddings: the share of a clause's weight that a query must contain, and the share of the best score that
#: others need. Precision first (best F0.5): advice that does not fit is worse than none (docs/design/014).
BY_WORDS: Final = 0.32
BESIDE_WORDS: Final = 0.6
#: The score is the cosine plus WORDS times the score by words, where there is an embedder.
BY_MEANING: Final = 0.36
BESIDE_MEANING: Final = 0.8
WORDS: Final = 0.1
#: The cosine from which texts are about the same topic, for the embedder that the thresholds were tuned for.
AKIN: Final = 0.5
#: Minimum number of texts for word statistics: with a single `when`, every word would be in all texts.
FEWEST: Final = 4
#: Minimum weight of a clause: everyday words alone say little, however many of them match.
SLIGHT: Final = 0.5
#: The share of a word's weight that remains if all experiences contain it: they may all be about one topic.
COMMON: Final = 0.5
#: Maximum characters of a query and of a `when` that are used.
READ: Final = 4_000
#: Maximum clauses of a `when` that are compared.
MOST_CLAUSES: Final = 12

_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE: Final = re.compile(r", (?:or )?|; |: ")
_pattern = partial(english_expression, "replies", flags=re.IGNORECASE)
_FRAME: Final = _pattern("frame")


class ScoredExperience(Struct, frozen=True, kw_only=True):
    """An experience with its score: `score` decides, `by_words` and `by_meaning` are its parts."""

    exp_id: str
    score: float
    by_words: float  # 0..1
    by_meaning: float | None = None  # a cosine; None = no embedder
    chosen: bool = False
    reason: str = ""


# ---- parse a file ---------------------------------------------------------------------------------------------------


_Text = Annotated[str, Meta(pattern="^[^\x00\ud800-\udfff]*$", description="a text without NUL and lone surrogates")]
_When = Annotated[_Text, Meta(max_length=4_000)]


class _ExperienceDocument(Struct, frozen=True, kw_only=True):
    """An experience in a file."""

    exp_id: Name
    who: tuple[Name, ...] = ()
    when: _When = ""
    what: Annotated[_Text, Meta(max_length=20_000)] = ""
    experience_text: _When = ""


_KEYS: Final = frozenset(_ExperienceDocument.__struct_fields__)


def read_experience(document: object, *, file: str) -> tuple[Experience, tuple[str, ...]]:
    """Return a parsed experience and its unknown keys. Legacy `experience_text` sets both `when` and `what`.

    Raises InvalidInput naming the file and the key in it.
    """
    if isinstance(document, Mapping) and isinstance(who := document.get("who"), str):
        document = {**document, "who": [who] if who else []}
    read, faults = validate(document, _ExperienceDocument)
    unknown = tuple(str(key) for key in document if key not in _KEYS) if isinstance(document, Mapping) else ()
    if read is not None:
        texts = {"when": read.when or read.experience_text, "what": read.what or read.experience_text}
        for key, text in texts.items():
            if not text.strip() and not faults:
                near = get_close_matches(key, unknown, n=1)
                says = "when the experience helps" if key == "when" else "what it advises"
                faults.append(Fault(key, f"missing. State {says}.{f' Did you mean {near[0]!r}?' if near else ''}"))
    if faults or read is None:
        msg = f"{file}: {faults[0]}"
        raise InvalidInput(msg, where=f"{file}:{faults[0].path.partition('[')[0]}".rstrip(":"))
    who = tuple(dict.fromkeys(name.strip() for name in read.who))
    texts = {key: text.strip() for key, text in texts.items()}
    return Experience(exp_id=read.exp_id.strip(), who=who, **texts), unknown


def offered(experiences: Iterable[E], names: Collection[str]) -> tuple[E, ...]:
    """Return the experiences for one of these names (a persona's id and role), ignoring letter case."""
    own = {name.casefold() for name in names}
    return tuple(each for each in experiences if not each.who or own & {name.casefold() for name in each.who})


# ---- fit to a query -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def clauses(when: str) -> tuple[str, ...]:
    """Return the topics of a `when`: its sentences and their alternatives, without framing phrases."""
    results: list[str] = []
    for sentence in map(str.strip, _SENTENCE.split(when[:READ])):
        parts = _CLAUSE.split(sentence)
        whole = [sentence, *parts] if len(parts) > 1 else parts
        results += [_FRAME.sub("", part, 1).strip() or part.strip() for part in whole if part.strip()]
    return tuple(dict.fromkeys(results))[:MOST_CLAUSES]


def score(
    query: str, experiences: Sequence[Experience], closeness: Mapping[str, float] | None = None, *, akin: float = AKIN
) -> list[ScoredExperience]:
    """Return the experiences scored against a query, best first. `closeness` is the best cosine by id, None without
    embeddings; `akin` is the embedder's cosine from which two texts are about the same topic.
    """
    asked = set(words(query[:READ]))
    read = [_words_of(each.when) for each in experiences]
    weights = _weights(read)
    scoreds = []
    for each, texts in zip(experiences, read, strict=True):
        by_words = max((_held(asked, text, weights) for text in texts), default=0.0)
        cosine = None if closeness is None else closeness.get(each.exp_id, 0.0) * AKIN / (akin or AKIN)
        total = by_words if cosine is None else cosine + WORDS * by_words
        scoreds.append(
            ScoredExperience(
                exp_id=each.exp_id,
                score=round(total, 4),
                by_words=round(by_words, 4),
                by_meaning=None if cosine is None else round(cosine, 4),
            )
        )
    return sorted(scoreds, key=lambda one: (-one.score, one.exp_id))


@lru_cache(maxsize=4096)
def _words_of(when: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words(clause)) for clause in clauses(when))


def _weights(read: Sequence[Sequence[frozenset[str]]]) -> Mapping[str, float]:
    """Return each word's weight: BM25's idf among the offered, relative to a unique word, times the framing share."""
    counts = Counter(word for texts in read for word in frozenset[str]().union(*texts))
    total = max(len(read), FEWEST)
    most = math.log(1 + (total - 0.5) / 1.5)
    return {
        word: (COMMON + (1 - COMMON) * math.log(1 + (total - n + 0.5) / (n + 0.5)) / most) * share_of(word)
        for word, n in ((word, min(n, total)) for word, n in counts.items())
    }


def _held(asked: set[str], text: frozenset[str], weights: Mapping[str, float]) -> float:
    whole = max(SLIGHT, sum(weights[word] for word in text))
    return sum(weights[word] for word in text & asked) / whole


def choose(scored: Sequence[ScoredExperience], *, most: int) -> list[ScoredExperience]:
    """Return the scored experiences, each with whether it is chosen and why; `scored` is best first."""
    best = scored[0].score if scored else 0.0
    meaning = any(each.by_meaning is not None for each in scored)
    least = BY_MEANING if meaning else BY_WORDS
    beside = round(best * (BESIDE_MEANING if meaning else BESIDE_WORDS), 4)
    chosen = 0
    scoreds = []
    for each in scored:
        if each.score < least:
            fits, why = False, f"below the threshold of {least:g}"
        elif each.score < beside:
            fits, why = False, f"too far below the best score, {best:.2f}"
        elif chosen == most:
            fits, why = False, f"fits, but at most {most} are chosen"
        else:
            fits, why, chosen = True, f"fits: at least {least:g}", chosen + 1
        scoreds.append(replace(each, chosen=fits, reason=why))
    return scoreds


# ---- the reply of a model that selects ------------------------------------------------------------------------------


_YES: Final = _pattern("yes")
#: Keys of a record that hold its candidate's id, and keys that hold its verdict; letter case aside.
_IDS: Final = ("id", "exp_id", "experience_id", "experience", "name")
_VERDICTS: Final = ("relevant", "is_relevant", "selected", "chosen", "applicable", "applies", "use", "score", "verdict")

_REPLY_CLAUSE, _NEGATION, _NOTHING = _pattern("clause"), _pattern("negation"), _pattern("nothing")
_EXCLUDES_NEXT, _JOINS_NEXT = _pattern("excludes_next"), _pattern("joins_next")


def read_reply(text: str, offered: Sequence[str]) -> tuple[str, ...] | None:
    """Return the offered ids that a reply selects, each once, in its order; None if it mentions none of them.

    In JSON, an id may also be its number in the list, from 1. Of two verdicts on one id the later holds. An empty tuple
    means that the reply selects none.
    """
    text = without_reasoning(text[:LONGEST])
    ids = {name.casefold(): name for name in offered if name} | {name: name for name in offered if name}
    value = repair_json(text)
    numbers = {str(number): name for number, name in enumerate(offered, 1) if name}
    verdicts = dict(_in_json(value, numbers | ids, selected=True))
    if not verdicts and not _selects_nothing(value):
        verdicts = dict(_in_prose(text, ids))
    if verdicts:
        return tuple(name for name, selected in verdicts.items() if selected)
    if _selects_nothing(value) or isinstance(value, list) or _NOTHING.search(text):
        return ()
    return None


def _in_json(value: Any, ids: Mapping[str, str], *, selected: bool) -> Iterator[tuple[str, bool]]:
    """Yield each offered id in a JSON value and whether it is selected."""
    if isinstance(value, str):
        if name := _offered_id(value, ids):
            yield name, selected
    elif isinstance(value, list):
        for entry in value:
            if isinstance(entry, int) and (name := _offered_id(entry, ids)):
                yield name, selected
            else:
                yield from _in_json(entry, ids, selected=selected)
    elif isinstance(value, dict):
        fields = {key.casefold(): entry for key, entry in value.items()}
        if name := next((name for key in _IDS if (name := _offered_id(fields.get(key), ids))), None):
            yield name, selected and all(_selects(fields[key]) for key in _VERDICTS if key in fields)
            return
        for key, entry in value.items():
            if name := _offered_id(key, ids):
                yield name, selected and _selects(entry)
            else:
                negated = _NEGATION.search(key.replace("_", " "))
                yield from _in_json(entry, ids, selected=selected and not negated)


def _offered_id(value: Any, ids: Mapping[str, str]) -> str | None:
    """Return the offered id that a value is, letter case aside."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return ids.get(text) or ids.get(text.casefold())


def _selects(verdict: Any) -> bool:
    """Return whether a verdict selects its candidate: `true`, a text that begins with yes, or a record of such."""
    if isinstance(verdict, dict):
        return any(_selects(entry) for key, entry in verdict.items() if key.casefold() in _VERDICTS)
    if isinstance(verdict, str):
        return _YES.match(verdict) is not None
    return isinstance(verdict, int | float) and verdict >= 0.5


def _selects_nothing(value: Any) -> bool:
    """Return whether an object is a selection although it names no offered id: empty, or of booleans or empty lists."""
    entries = value.values() if isinstance(value, dict) else ()
    return value == {} or any(isinstance(entry, bool) or entry in ([], None) for entry in entries)


def _in_prose(text: str, ids: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield each offered id in prose and whether it is selected, clause by clause."""
    names = "|".join(map(re.escape, sorted(ids, key=len, reverse=True))) or "(?!)"
    mention = re.compile(rf"(?<![\w-])({names})(?![\w-])", re.IGNORECASE)
    for clause in _REPLY_CLAUSE.split(text):
        opening, *rest = mention.split(clause)  # then each id, and the text behind it
        excludes_all = _NEGATION.search(opening.rpartition(",")[2])  # "Neither exp-1 nor exp-2 applies"
        results: list[tuple[str, bool]] = []  # from the last to the first: ids that are joined share the verdict behind
        for at in range(len(rest) - 2, -1, -2):
            before, behind = rest[at - 1] if at else opening, rest[at + 1]
            own = _EXCLUDES_NEXT.sub("", behind) if results else behind
            selected = not (excludes_all or _EXCLUDES_NEXT.search(before) or _NEGATION.search(own))
            joined = bool(results) and _JOINS_NEXT.fullmatch(behind) is not None
            results.append((rest[at], selected and (not joined or results[-1][1])))
        yield from ((name, selected) for each, selected in reversed(results) if (name := _offered_id(each, ids)))
