"""What of a post is embedded: short posts whole, long ones in passages, each with who said it."""

from typing import Final

from cuebook.memory.words import spans_of

#: Characters of a passage: about 120 words, what the model was trained on.
PASSAGE: Final = 700
#: A post so much longer than a passage is still one.
WHOLE: Final = 900
#: Passages of a post, spread over all of it where there are more: embedding costs what they cost.
PASSAGES: Final = 8


def passages_of(speaker: str, text: str) -> list[str]:
    """Give the texts that stand for a post or a memory, none for an empty one. `speaker` is who said it, or its name.

    The speaker is worth 13 points of R@10 (notes).
    """
    bare, head = text.strip(), f"{speaker}: " if speaker else ""
    if not bare:
        return []
    if len(bare) <= WHOLE:
        return [head + bare]
    cuts: list[tuple[int, int]] = []
    for first, last in spans_of(bare):
        if cuts and last - cuts[-1][0] <= PASSAGE:
            cuts[-1] = (cuts[-1][0], last)
        else:
            cuts.append((first, last))
    if len(cuts) > PASSAGES:
        step = (len(cuts) - 1) / (PASSAGES - 1)
        cuts = [cuts[round(step * at)] for at in range(PASSAGES)]
    return [head + bare[first:last].strip() for first, last in cuts]
