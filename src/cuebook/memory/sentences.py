"""How a post's text is cut into the sentences and clauses that memory may keep, word for word."""

import re
from typing import Final

from cuebook.records.expression import Expression

#: What recalled memory is wrapped in when it enters a window; a text that holds such a mark is never ingested again
#: (MISSION L6).
FENCE: Final = Expression(
    r"</?\s*(?:recalled|recall|memory|memories|cuebook|retrieved)[\w:-]*[^>\n]{0,200}>|\[\[?/?(?:recalled|"
    r"memory|cuebook)\b"
    r"|\bBEGIN (?:RECALLED|MEMORY)|\bcuebook[-_:](?:fence|recall|memory)",
    re.IGNORECASE,
)
_FENCED_PAIR = Expression(
    r"<\s*((?:recalled|recall|memory|memories|cuebook|retrieved)[\w:-]*)[^>\n]{0,200}>.*?</\s*\1[^>\n]{0,200}>",
    re.IGNORECASE | re.DOTALL,
)
_CODE = Expression(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED_LINE = Expression(r"^\s{0,3}>.*$", re.MULTILINE)
#: Material handed over to be worked on is not a statement about the speaker: from "proofread this:" to the post's end.
_MATERIAL = Expression(
    r"\b(?:proofread|translate|rewrite|rephrase|summari[sz]e|paraphrase|shorten|polish|edit|fix|review|"
    r"check|debug|explain|"
    r"here(?:'s| is| are)|this is|wrote me|sent me|says|said|reads|goes like|lyrics|poem|"
    r"quote)\b[^\n:]{0,80}:\s*\n.*\Z",
    re.IGNORECASE | re.DOTALL,
)
_COLON_AT_END = Expression(r":\s*\n")
_BULLET = Expression(r"^\s*(?:[-*•+–]|\d{1,2}[.)]|#{1,6})\s+")
_MARKUP = Expression(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
#: A full stop after these ends no sentence.
_ABBREVIATIONS: Final = frozenset(
    "dr mr mrs ms prof st vs etc eg ie e.g i.e approx ca cf no nr fig vol jr sr inc ltd co dept apt ave jan feb mar "
    "apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur fri sat min max tel ext est bzw z.b usw str".split()
)
_MONTH_NEXT = Expression(
    (
        r"\s*(?:jan|feb|mar|mär|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz]|ene|abr|ago|dic|gen|giu|lug|set|"
        r"ott|fév|avr|aoû|déc)"
    ),
    re.IGNORECASE,
)
_END = Expression(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+[」』”]*|\n+")
_BLANK = Expression(r"\n\s*\n")
_CLAUSE = Expression(
    r"\s*;\s+|\s+[-–—]+\s+|\s*—\s*"
    r"|,?\s+(?=(?:but|so|because|since|although|though)\s+(?:then\s+)?(?:i|i'm|i've|i'll|i'd|we|we're|"
    r"we've|we'll|my|our|her|his|their)\b)"
    r"|,\s+(?=(?:but|and|so|which means)\s)"
    r"|,\s+(?=(?:i|i'm|i've|i'll|we|we're|we've|we'll|my|our)\s)",
    re.IGNORECASE,
)
#: Openers that carry no fact; dropped as long as words stay after them.
_OPENER = Expression(
    r"^(?:(?:oh|ah|aha|hey|hi|hello|hiya|yo|yeah|yep|yes|yup|ye|ya|nope|nah|no|ok|okay|alright|right|well|"
    r"so|anyway|anyways|btw|by the way|"
    r"also|and|but|plus|um|uh|hmm+|haha+|hehe|lol|ugh|wow|good morning|good evening|morning|evening|"
    r"thanks|thank you|ty|thx|cool|great|perfect|nice|"
    r"sure|sorry|listen|look|quick (?:one|thing|question|note|update|heads[- ]up)|small thing|funny thing|"
    r"good news|bad news|fun fact|guess what)"
    r"(?:\s+(?:so much|a lot|again|there|then|so|anyway|btw))?\s*(?:[,!.:…–—-]+\s+|\s+(?=(?:so|and|btw|i|"
    r"i'm|my|we|the|also|please|pls)\b)))+",
    re.IGNORECASE,
)
_EMOJI = Expression(r"^[\W_]*[\U0001F000-\U0001FAFF☀-➿]+\s*|\s*[\U0001F000-\U0001FAFF☀-➿️]+$")
_QUOTED = Expression(r"[“\"][^”\"\n]{12,}[”\"]")

#: What a picture shows is described by whoever keeps it.
_CAPTION = Expression(r"\[image:[^\]\n]{0,2000}\]")

#: Longest stretch of text read of one post; what follows is material, not conversation.
MAX_READ: Final = 20_000


#: Longest sentence kept in one piece, in characters; spoken text without full stops is cut into such pieces.
LONGEST: Final = 400


def clean(text: str) -> str:
    """Return the part of a post that its author states: no code, no quoted lines, no recalled memory, no pasted
    material.
    """
    text = text[:MAX_READ]
    if FENCE.search(text):
        text = _FENCED_PAIR.sub("\n", text)
        if FENCE.search(text):
            return ""
    text = _CAPTION.sub(" ", _QUOTED_LINE.sub("", _CODE.sub("\n", text)))
    head = _MATERIAL.search(text) if _COLON_AT_END.search(text) else None
    return text[: head.start()] if head else text


def paragraphs(text: str) -> list[list[str]]:
    """Return the sentences of each paragraph: a blank line is where a speaker turns to something else."""
    return [found for part in _BLANK.split(text) if (found := sentences(part))]


def sentences(text: str) -> list[str]:
    """Return the sentences of `text` in order, with their end marks, without bullets and markup."""
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match[0][0] != "\n" and not _ends(text, match):
            continue
        found.append(text[start : match.end()])
        start = match.end()
    found.append(text[start:])
    plain = (" ".join(_MARKUP.sub("", _BULLET.sub("", part)).split()) for part in found)
    return [piece for part in plain if part for piece in _pieces(part)]


def _pieces(sentence: str) -> list[str]:
    """Return a sentence, or, where one never ends, pieces of it, cut at a comma, an "and" or at least a space."""
    pieces: list[str] = []
    while len(sentence) > LONGEST:
        cut = max(sentence.rfind(mark, LONGEST // 2, LONGEST) for mark in (", ", " and ", " but ", " so "))
        cut = cut if cut > 0 else sentence.rfind(" ", 1, LONGEST)
        cut = cut if cut > 0 else LONGEST
        pieces.append(sentence[:cut].rstrip(" ,"))
        sentence = sentence[cut:].lstrip(" ,")
    return [*pieces, sentence] if sentence else pieces


def clauses(sentence: str) -> list[str]:
    """Return the clauses of a sentence: the places where another statement may begin."""
    return [part.strip(" ,;") for part in _CLAUSE.split(sentence) if part and part.strip(" ,;")]


def trim(sentence: str) -> str:
    """Return a sentence without openers such as "yeah," and without emoji at its ends."""
    text = (sentence if sentence.isascii() else _EMOJI.sub("", _EMOJI.sub("", sentence))).strip()
    rest = _OPENER.sub("", text, count=1).strip(" ,")
    return rest if len(rest.split()) >= 2 else text


def quoted_share(sentence: str) -> float:
    """Return the share of a sentence that stands in quotation marks: someone else's words."""
    return sum(len(match[0]) for match in _QUOTED.finditer(sentence)) / max(1, len(sentence))


def _ends(text: str, match: re.Match[str]) -> bool:
    """Tell whether this mark ends a sentence: no abbreviation, initial, ordinal before a month, or dot inside a
    number.
    """
    if match[0][0] != ".":
        return True
    if match[0] == "..":
        return False
    before = text[max(0, match.start() - 12) : match.start()]
    word = before.split()[-1].lower().lstrip("(\"'") if before.split() else ""
    if match[0] == "." and word.isdigit() and len(word) <= 2 and _MONTH_NEXT.match(text, match.end()):
        return False
    if match[0] == "." and word in {"a.m", "p.m", "am", "pm"}:
        following = text[match.end() :].lstrip()[:1]
        return not following or following.isupper()
    return not (match[0] == "." and (word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "i")))
