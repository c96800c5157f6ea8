"""Extract the facts of posts for an evaluation, and check texts for them, independently of memory's rules."""

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from cuebook.languages import detect, language
from cuebook.memory.compress import facts_in, visible
from cuebook.memory.quotes import names_of, values_of

#: Where a text is split into candidate sentences.
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
#: Excluded from facts: fenced code and quoted lines.
_HANDED = re.compile(r"```.*?(?:```|\Z)|^\s{0,3}>.*$", re.DOTALL | re.MULTILINE)
_SECRET = re.compile(r"\[\[secret:[^\]]*\]\]")
#: Minimum number of surrounding words required with a value: the value alone may belong to something else.
SHARED = 2
#: With fewer content words beside it, a name is only an address: "Hey Caroline, great!" states no fact.
ADDRESS = 3


class FactToken(Struct, frozen=True):
    """A literal value in a post, its sentence, and the other content words of that sentence."""

    value: str
    sentence: str
    about: frozenset[str]

    def in_text(self, text: str) -> bool:
        """Return whether a text contains it: the whole value, and up to SHARED of the surrounding words."""
        return visible(_folded(self.value), _folded(text)) and len(self.about & content(text)) >= min(
            SHARED, len(self.about)
        )


@lru_cache(maxsize=1 << 14)
def content(text: str) -> frozenset[str]:
    """Return a text's content words and numbers in lower case."""
    return frozenset(language(detect(text)).content(text))


def values_in(text: str) -> list[str]:
    """Return the values that a shorter form must keep verbatim: memory's kinds of fact, amounts, numbers, and names."""
    results = facts_in(text)
    rest = _SECRET.sub(" ", text)
    for _, value in values_of(rest):
        if len(value) > 1 and not any(value in known or known in value for known in results):
            results.append(value)
    for name in names_of(rest, language(detect(rest))):
        if not any(name in known for known in results):
            results.append(name)
    return list(dict.fromkeys(results))


def tokens_of(text: str) -> Iterator[FactToken]:
    """Yield the facts that a post states, each value once; exclude questions, quotes and code."""
    known: set[str] = set()
    for sentence in sentences_of(text):
        for value in values_in(sentence):
            about = content(sentence) - content(value)
            told = len(about) >= ADDRESS or any(map(str.isdigit, value)) or value in facts_in(sentence)
            if told and value.lower() not in known:
                known.add(value.lower())
                yield FactToken(value, sentence, about)


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a post that state something."""
    for sentence in _SENTENCE.split(_HANDED.sub("\n", text)):
        stated = sentence.strip()
        if stated and not stated.endswith("?"):
            yield stated


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
