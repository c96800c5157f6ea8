"""Recognize answers that a client changed before it resent them: a summary inside other text, or a rewritten answer.

Both compare what is left without layout: letters and digits in lower case. So prefixes, wrapped lines, other quotation
marks, indentation and markup change nothing.
"""

import html
import re
from typing import Final

from cuebook.records.conversation import Post
from cuebook.wire.chat_messages import MessageContent, read_call

#: Letters of a piece of a summary that is sought in the message. Headings that many summaries share are shorter.
PIECE: Final = 40
#: Least share of the pieces, and least letters, of a resent summary. Measured in `tests/unit/test_resent_answers.py`:
#: a third of a summary in any layout has a share of 0.31 or more, another text with a sentence of it at most 0.05.
SHARE: Final = 0.2
LEAST: Final = 150
#: Letters of a message that are searched.
SEARCHED: Final = 100_000
#: Least share of an answer's words that its rewritten form has.
WORDS: Final = 0.8
_WORD: Final = re.compile(r"\w+")


def contains_summary(text: str, summary: str) -> bool:
    """Return whether a message contains enough of a summary, in whatever layout."""
    whole, sought = letters(text[:SEARCHED]), letters(summary)
    share = share_of(sought, whole)
    return share >= SHARE and share * len(sought) >= LEAST


def share_of(sought: str, whole: str) -> float:
    """Return the share of the pieces of some letters that others contain."""
    pieces = range(max(0, len(sought) - PIECE + 1))
    there = {whole[n : n + PIECE] for n in range(max(0, len(whole) - PIECE + 1))}
    return sum(sought[n : n + PIECE] in there for n in pieces) / len(pieces) if pieces else 0.0


def letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, without character references."""
    return "".join(_WORD.findall(html.unescape(text).casefold())).replace("_", "")


def is_rewritten(answer: Post, content: MessageContent) -> bool:
    """Return whether a message says an answer's text and calls in another form, such as calls written as text."""
    calls = [read_call(part) for part in answer.calls]
    words = _words(answer.message, *(call.arguments for call in calls)) or _words(*(call.name for call in calls))
    again = _words(content.message, *(part.content for part in content.parts))
    return bool(words) and len(words & again) >= WORDS * len(words)


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in _WORD.findall((text or "").casefold())}
