"""How chosen experiences stand in a window: in the volatile block beside the query, each whole or not at all."""

from collections.abc import Sequence

from cuebook.assembly.tokens import Counter
from cuebook.assembly.window import Text
from cuebook.records.experience import Experience
from cuebook.records.turn import Dropped

SOURCE = "experience:"
#: Of the volatile block's room they take at the most; the rest is what is recalled.
SHARE = 2 / 3


def advice_of(experience: Experience) -> Text:
    """Give an experience as it is said. Only `what` is: `when` was for choosing."""
    told = f"Advice of this assistant's authors for such messages ({experience.exp_id}):\n{experience.what}"
    return Text(kind="experience", source=SOURCE + experience.exp_id, text=told, role="user")


def fit_advice(texts: Sequence[Text], room: int, count: Counter) -> tuple[list[Text], list[Dropped], int]:
    """Give those that fit, best first, those that do not, and the tokens that are left for what is recalled."""
    most = left = max(0, int(room * SHARE))
    kept: list[Text] = []
    dropped: list[Dropped] = []
    for text in texts:
        size = count(text.text) + 1
        if size > left:
            reason = f"experiences take {most} tokens of this window at the most"
            dropped.append(Dropped(kind=text.kind, source=text.source, tokens=size, reason=reason))
            continue
        left -= size
        kept.append(text)
    return kept, dropped, room - (most - left)


def experiences_in(texts: Sequence[Text]) -> list[str]:
    """Give the ids of the experiences among texts of a window."""
    return [text.source.removeprefix(SOURCE) for text in texts if text.kind == "experience"]
