"""Remove marks from data that goes into a prompt: a fence's own tags, and the control tokens of chat templates.

Data may hide a mark from this check: in HTML entities, look-alike letters, invisible letters, or inside another mark.
So a text is decoded first, and marks are removed until none is left.
"""

import html
import re
import unicodedata
from typing import Final

from cuebook.records.expression import Expression

#: Replaces a mark. It keeps the text around a mark from forming another one.
_GONE: Final = "…"
#: Levels of entities within entities that are decoded.
_NESTED: Final = 4
#: Invisible characters, direction controls, ASCII's tag twins, variation selectors, and combining marks.
_DROPPED: Final = Expression(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u20d0-\u20f0\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
#: Letters and punctuation that look like ASCII (Unicode TR 39, confusables), each under its twin.
_TWINS: Final = str.maketrans(
    "аеорсухіјѕԁһԛѡӏⲟΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορτικετАВЕКМНОРСТХІЈЅӀԌᎠᏞᎡᎬᎪᏟɑɡıⅼᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ‹⟨〈❮˂ᐸ›⟩〉❯˃ᐳ∕⁄⧸╱ǀ∣│┃❘",
    "aeopcyxijsdhqwloABEZHIKMNOPTYXavoptiketABEKMHOPCTXIJSlGDLREACagilabcdeghijklmnoprstuvwyz<<<<<<>>>>>>////|||||",
)
#: A tag of a fence.
_TAG: Final = Expression(r"<\s{0,9}/?\s{0,9}recalled\b[^<>\n]{0,80}>?", re.IGNORECASE)
#: The tokens that separate roles in the chat templates of models, and headings that name a role.
_CONTROL: Final = Expression(
    r"<\|[^<>|\n]{1,60}\|>|<\|(?:im_|start|end|eot|system|user|assistant)|\[/?INST\]|<</?SYS>>|</?(?:s|bos|eos)>"
    r"|</?(?:start|end)_of_turn>|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]"
    r"|</?(?:system|developer|instructions?|system[-_]?(?:prompt|reminder|message))>"
    r"|(?<!#)#{1,6}[ \t]{0,9}[*_]{0,3}(?:system|developer|instructions?|assistant|user|human|prompt|end of)\b"
    r"|^[ \t\-*]{0,9}(?:system|developer|assistant|human)[*_]{0,3}[ \t]?:",
    re.IGNORECASE | re.MULTILINE,
)
#: What no reader sees: direction controls and zero-width characters. Joiners stay, for emoji and joined scripts.
_UNSEEN: Final = Expression(
    "[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u180e\U000e0000-\U000e007f]"
    "|(?<![^\x00-\u02ff])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\u02ff])"
)
_LINE_BREAKS: Final = Expression("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029\r]")


def plain(text: str) -> str:
    """Return a text as a careless reader sees it: entities decoded, look-alike and invisible letters resolved."""
    for _ in range(_NESTED if "&" in text else 0):
        text = html.unescape(text)
    if text.isascii() and text.isprintable():
        return text
    return _DROPPED.sub("", unicodedata.normalize("NFKD", text).translate(_TWINS))


def without_fence(text: str, fence: str) -> str:
    """Return data that cannot open or close a fence, however it hides the tags."""
    return _without(text, _TAG, fence)


def without_control_marks(text: str) -> str:
    """Return a text for a system role without control tokens, headings that name a role, or unseen letters."""
    return _without(_UNSEEN.sub("", _LINE_BREAKS.sub(" ", text)), _CONTROL)


def _without(text: str, mark: Expression, word: str | None = None) -> str:
    while True:
        while mark.search(text):
            text = mark.sub(_GONE, text)
        text = text.replace(word, _GONE) if word else text
        decoded = plain(text)
        if not mark.search(decoded) and not (word and word in decoded):
            return text
        text = decoded
