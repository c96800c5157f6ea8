"""Recognize utility calls by a frame of words that came before around other content, in any language.

A template puts changing content between constant words. A conversation stores keyed digests of the first and last
words of its first message, so that messages with the same frame are found without comparing all. Only messages of the
same user are compared.
"""

import unicodedata
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, takewhile
from typing import Final

from cuebook.engine.core.services import Services, Settings
from cuebook.engine.turn.request import TurnRequest

#: Least width of a frame, and the width of the words at each end that are looked up. A wide letter (Chinese, Japanese,
#: Korean) counts as three, so that this is about 14 words of English.
FRAME: Final = 80
END: Final = FRAME // 2
#: Least width of contents of which a single other one makes a frame. Of shorter contents it takes CONTENTS others: a
#: person may correct a word in a long message.
CONTENT: Final = 30
CONTENTS: Final = 3
#: Two contents are the same one edited if they share this part of their letter sequences.
EDITED: Final = 1 / 3
#: Letters of such a sequence: two different long texts of a language share few.
SEQUENCE: Final = 12
#: Letters of each end of a message that are compared, and earlier messages compared.
COMPARED: Final = 4_000
EARLIER: Final = 8


async def has_known_frame(services: Services, request: TurnRequest) -> bool:
    """Return whether the frame of a request's only message came before around other content."""
    whole, offload = request.history[0].content.message, services.offload
    text = await offload.run(len(whole), partial(services.writer.clean, whole))
    frame = await offload.run(len(text), partial(frame_of, services.settings, text))
    if frame is None:
        return False
    earlier = await services.store.framed_texts(request.scope, frame, user=request.ask.user, limit=EARLIER)
    return await offload.run(len(text), partial(is_framed, text, earlier))


def frame_of(settings: Settings, text: str | None) -> tuple[bytes, bytes] | None:
    """Return keyed digests of a message's first and last words, or None for a message too short to have a frame."""
    plain = _plain(text or "")
    if _width(plain[:FRAME]) < FRAME:
        return None
    opening, ending = plain[: _reach(plain)], plain[::-1][: _reach(plain[::-1])]
    digests = (settings.request_digest(each.encode("utf-8", "surrogatepass")) for each in (opening, ending))
    return next(digests), next(digests)


def is_framed(text: str, earlier: Sequence[str]) -> bool:
    """Return whether earlier messages have the frame of this one around other content."""
    plain = _plain(text)
    framed = [each for each in dict.fromkeys(map(_plain, earlier)) if _contents(plain, each) is not None]
    if any(_is_other(contents, least=CONTENT) for each in framed if (contents := _contents(plain, each))):
        return True
    contents = _contents(plain, *framed) if len(framed) >= CONTENTS else None
    return contents is not None and sum(_is_other((contents[0], each)) for each in contents[1:]) >= CONTENTS


def _contents(*texts: str) -> list[str] | None:
    """Return what texts have between the words that all share at both ends, or None if they share no frame."""
    first, *others = texts
    start = min(_common(first, each) for each in others)
    rests = [each[start:] for each in texts]
    end = min(_common(rests[0][::-1], each[::-1]) for each in rests[1:])
    if _width(first[:start]) + _width(first[len(first) - end :]) < FRAME:
        return None
    contents = [each[: len(each) - end].strip() for each in rests]
    return contents if all(contents) else None


def _is_other(contents: Sequence[str], *, least: int = 1) -> bool:
    """Return whether two contents are at least so wide, and not the same one edited."""
    if min(map(_width, contents)) < least:
        return False
    one, other = ({each[n : n + SEQUENCE] for n in range(max(1, len(each) - SEQUENCE + 1))} for each in contents)
    return len(one & other) <= EDITED * min(len(one), len(other))


def _common(one: str, other: str) -> int:
    """Return the length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _plain(text: str) -> str:
    """Return a text in lower case with single spaces; of a long one both ends."""
    ends = text if len(text) <= 2 * COMPARED else text[:COMPARED] + text[-COMPARED:]
    return " ".join(ends.casefold().split())


def _width(text: str) -> int:
    return sum(3 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _reach(text: str) -> int:
    """Return how many letters are at least END wide."""
    widths = accumulate(map(_width, text[:END]))
    return next((n for n, width in enumerate(widths, 1) if width >= END), END)
