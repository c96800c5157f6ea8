"""How a remembered text is said in a summary's one line: the stretch of its own words that tells most, order kept."""

import re
from typing import Final, NamedTuple

from cuebook.memory.extract import dependent
from cuebook.memory.sentences import sentences, trim
from cuebook.memory.slots import WORD, topic, values
from cuebook.records.expression import Expression

#: A line of so many characters is short enough; a longer stretch is cut to about this.
ENOUGH: Final = 64
WIDTH: Final = 110
#: Lead-ins that announce a statement and tell nothing.
_LEAD: Final = Expression(
    r"^(?:(?:just )?so you know|for the record|for your information|fyi|by the way|btw|to be (?:clear|honest|fair)|"
    r"(?:plot|plan) (?:twist|change)|(?:one|another|last|small|quick|other|more) (?:more )?(?:thing|change|point|news|"
    r"update|note|question)[^,.:;!]{0,30}|(?:good|bad|great|big|sad|more|better|other) news[^,.:;!]{0,24}|new one|"
    r"(?:relief|news|joke|surprise|shock) of the (?:day|week|year)|down to earth|less perfect|and finally|finally|"
    r"as (?:you know|i said|promised)|in other news|confession|correction|update|note to self|before i forget|"
    r"remember(?: that| this)?|also|and|so|well|then|oh|ugh|right|okay|anyway|now|on \d+|meanwhile|"
    r"and that means[^,.:;!]{0,30})(?:[,:.!;]|\s[-–—])+\s+",
    re.IGNORECASE,
)
_PIECE: Final = Expression(r"(?<=[,;:])\s+|\s+[-–—]\s+|\s+(?=(?:because|although|which|who|so that|even though)\s)")
#: What a cut must not leave at an end.
_DANGLES: Final = Expression(
    r"(?:[\s,;:–—-]|\b(?:and|but|so|or|because|which|that|with|the|a|my|our))+$", re.IGNORECASE
)
_JOINS: Final = Expression(r"^(?:and|but|so|then)\s+(?!that\b)", re.IGNORECASE)


class _Piece(NamedTuple):
    start: int
    end: int
    worth: float


def brief(text: str) -> str:
    """Return a text's one line: without its lead-in, and of a long text the stretch around what tells most."""
    flat = " ".join(text.split())
    line = _JOINS.sub("", _led(flat))
    if len(line) <= ENOUGH:
        return line
    pieces = _pieces(line)
    best = max(range(len(pieces)), key=lambda place: (pieces[place].worth, -place))
    first, last = _window(line, pieces, best)
    cut = _DANGLES.sub("", line[pieces[first].start : pieces[last].end])
    cut = _JOINS.sub("", _led(cut)) if first else _led(cut)
    return cut if len(WORD.findall(cut)) >= 3 else line


def anchors(text: str) -> int:
    """Return how many kinds of values a text gives: dates, money, names."""
    return len({kind.split()[0] for kind, _ in values(text)})


def _led(text: str) -> str:
    """Return a text without the lead-ins before its first statement."""
    for _ in range(3):
        rest = trim(_LEAD.sub("", text, count=1))
        if rest == text or len(WORD.findall(rest)) < 3:
            break
        text = rest
    return text


def _pieces(line: str) -> list[_Piece]:
    """Return the clauses of a line by their place, each with what it tells: values, and words of its own."""
    found: list[_Piece] = []
    at = 0
    for sentence in sentences(line):
        start = line.find(sentence[:12], at)
        at = start if start >= 0 else at
        end = min(len(line), at + len(sentence))
        inner = at
        for match in _PIECE.finditer(line, at, end):
            found.append(_piece(line, inner, match.start()))
            inner = match.end()
        found.append(_piece(line, inner, end))
        at = end
    return [piece for piece in found if piece.end > piece.start] or [_Piece(0, len(line), 0.0)]


def _piece(line: str, start: int, end: int) -> _Piece:
    part = line[start:end]
    return _Piece(start, end, anchors(part) + 0.3 * min(5, len(topic(part))))


def _window(line: str, pieces: list[_Piece], best: int) -> tuple[int, int]:
    """Return the first and last piece of the stretch around the best one: it stands alone, and tells all the way."""
    first = last = best
    while first and dependent(line[pieces[first].start : pieces[last].end]):
        first -= 1
    while True:
        after = last + 1 < len(pieces) and pieces[last + 1].worth >= 1.0
        if after and pieces[last + 1].end - pieces[first].start <= WIDTH:
            last += 1
        elif first and pieces[first - 1].worth >= 0.6 and pieces[last].end - pieces[first - 1].start <= WIDTH:
            first -= 1
        else:
            return first, last
