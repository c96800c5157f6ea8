"""Who died, as a clause says it, and whether another clause is about the dead: a pet, somebody by name, "my X"."""

import re
from collections.abc import Iterator
from typing import Final

from cuebook.memory.slots import WORD, stem
from cuebook.memory.vocabulary import STOP
from cuebook.records.expression import Expression

#: Words before who parted or died that name nobody.
NO_NAME: Final = frozenset(
    "i me my we our and so then sadly yesterday today last night week month unfortunately the finally well".split()
)
#: Somebody or an animal is dead.
_DIED: Final = Expression(
    r"(?P<who>\b(?:(?:[Mm]y|[Oo]ur|[Tt]he|[Hh]is|[Hh]er|[Tt]heir|"
    r"[A-ZÀ-Þ][\w-]+['’]s) )?(?:[\w-]+['’]s )?(?:[\w-]+ ){0,2}?"
    r"[\w-]+)(?: has| had|['’]s| was| is)?(?: sadly| just| recently| finally)? (?:died|passed away|dead|put down|"
    r"put to sleep|passed on)\b(?! (?:down|out|of laughter|laughing))"
    r"|\b(?:had|have|has) to put (?P<who2>(?:(?:my|our|the) )?(?:[\w-]+ ){1,3}?)(?:down|to sleep)\b"
)
#: Whose somebody is.
_OWNER: Final = Expression(r"\b([\w-]+)['’]s\b(?! (?:an?|the|called|named|\d|not|my|our)\b)")
_OWN: Final = Expression(
    r"\b(?:(?:my|our|the)|(?:have|has|got|own|adopted|keep|bought) (?:an?|one)) (?:[\w-]+ ){0,2}"
    r"(?:(?:and|,) an? (?:[\w-]+ ){0,2})?$",
    re.IGNORECASE,
)


def deaths(clause: str) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Give who died as stems: whose they were (empty: the speaker's, or nobody's), and what they are called."""
    for match in _DIED.finditer(clause):
        whom = match["who"] or match["who2"]
        yield frozenset(stem(word) for word in _OWNER.findall(whom)), frozenset(_called(whom))


def of_the_dead(owner: frozenset[str], dead: frozenset[str], clause: str) -> bool:
    """Tell whether a clause is about the dead: "my X", "the X" or the name, not their kind."""
    owners = {stem(word) for word in _OWNER.findall(clause)} - dead
    if owners != owner and (owner or owners) and not owner & owners:
        return False
    for match in WORD.finditer(clause):
        named = match[0][:1].isupper()
        if stem(match[0]) not in dead or (not named and match[0].endswith("s")):
            continue
        if named or _OWN.search(clause[: match.start()]):
            return True
    return False


def _called(phrase: str) -> list[str]:
    bare = re.sub(r"\b[\w-]+['’]s\b", " ", phrase)
    found = [word for word in WORD.findall(bare) if word.lower() not in STOP and word.lower() not in NO_NAME]
    return [stem(word) for word in found[-2:]]
