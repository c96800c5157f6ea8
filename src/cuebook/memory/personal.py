"""Classify statements about a person's private life: body, diet, faith, money, family, feelings. They are filed as
neither decisions nor projects, and are never shared with an organization.
"""

import re
from typing import Final, Literal

from cuebook.languages import english_lines, english_pattern
from cuebook.records.expression import Expression, lowered
from cuebook.records.memory import Category

Matter = Literal["health", "diet", "identity", "money", "contact", "family", "feeling"]


def _any_of(name: str) -> Expression:
    """Return an expression that finds a pattern in lower-case text. Alternatives that start with a word boundary are
    tried only at one.
    """
    return Expression(lambda: _edged(english_lines("private", name)))


def _edged(patterns: tuple[str, ...]) -> str:
    edged = [pattern.removeprefix(r"\b") for pattern in patterns if pattern.startswith(r"\b")]
    others = [pattern for pattern in patterns if not pattern.startswith(r"\b")]
    return "|".join([rf"\b(?:{'|'.join(edged)})", *others] if edged else others)


def _pattern(name: str, flags: re.RegexFlag = re.NOFLAG) -> Expression:
    return Expression(lambda: english_pattern("private", name), flags)


#: What somebody may not or cannot do, is, or has.
BOUND: Final = _any_of("bound")
_SOMEBODY: Final = _any_of("somebody")
_NAMED: Final = _pattern("named")
_FAMILY: Final = _any_of("family")
_ALONG: Final = _pattern("along")
_SETTLED: Final = _pattern("settled")
_MYSELF: Final = _pattern("myself")
_MAKES: Final = _pattern("makes")
_THING: Final = _pattern("thing", re.IGNORECASE)
_OTHER: Final = _pattern("other", re.IGNORECASE)
_MATTERS: Final[tuple[tuple[Matter, Expression], ...]] = (
    ("health", _any_of("health")),
    ("diet", _any_of("diet")),
    ("identity", _any_of("identity")),
    ("money", _any_of("money")),
    ("contact", _any_of("contact")),
    ("feeling", _any_of("feeling")),
)


def matter_of(text: str) -> Matter | None:
    """Return the private topic of a statement, None if it is about a team, a thing, or people in general."""
    lower = lowered(text)
    theirs = _MAKES.search(lower) or (_SETTLED.search(lower) and not _MYSELF.search(lower))
    if not theirs and (_SOMEBODY.search(lower) or _NAMED.search(text)):
        for matter, pattern in _MATTERS:
            if pattern.search(lower):
                return matter
    return "family" if _FAMILY.search(_ALONG.sub(" ", lower)) else None


def filed(category: Category, text: str) -> Category:
    """Return the category under which a statement is filed: private statements are never decisions or projects.

    Attributes of other people go to `people`, diets to `preferences`. A statement with a thing's name is not private.
    """
    if category == "people" and _THING.search(text):
        return "facts"
    matter = matter_of(text) if category in {"decisions", "projects", "facts"} else None
    if matter is None:
        return category
    if matter == "family" or _OTHER.search(text) or _NAMED.search(text):
        return "people"
    return "preferences" if matter == "diet" else "facts"
