"""Measure how useful a memory was in the turns that used it: how much of the answer came only from the memory.

Without a model: the share of the memory's unique words in the window that the answer contains. With a model: how much
the answer changes without the memory, minus its change between two equal calls.
"""

from collections.abc import Sequence
from typing import Final

from cuebook.engine.core.recall import embed_queries
from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import read_recorded
from cuebook.engine.replay.redecide import ask_model, redecide
from cuebook.engine.turn.compare import render_again
from cuebook.errors import InvalidInput
from cuebook.memory.tokenizer import words
from cuebook.records.conversation import Conversation
from cuebook.records.expression import Expression
from cuebook.records.memory import MEMORY, Scope
from cuebook.records.turn import Manifest, Turn

#: Model calls for a turn with one memory: two with it, one without.
LEAST_CALLS: Final = 3
#: Tokens of an answer compared with another.
ANSWER: Final = 300
#: The day before a memory's text, which is not part of its words.
_DAY: Final = Expression(r"^- \[[^\]]{1,20}\] ")


def said_in(manifest: Manifest) -> list[str]:
    """Return the ids of the memories in a window."""
    return [text.source.removeprefix(MEMORY) for text in manifest.volatile if text.source.startswith(MEMORY)]


async def scores_by_words(
    services: Services, scope: Scope, conversation: Conversation, turn: Turn, answer: str
) -> dict[str, float]:
    """Measure a turn's memories by its answer; skip those whose words all occur elsewhere in the window.

    A score is from 0 (the answer is the same without the memory) to 1, by the memory's id.
    Raises NotFound if a part was erased.
    """
    manifest = turn.steps[-1].manifest
    window = await render_again(services, scope, conversation.id, manifest, owner=conversation.user)
    spoken = set(words(answer))
    block_words = [(block.source, set(words(_DAY.sub("", block.text)))) for block in window.blocks]
    scores: dict[str, float] = {}
    for source, own in block_words:
        if source.startswith(MEMORY):
            alone = own.difference(*(other for name, other in block_words if name != source))
            if alone:
                scores[source.removeprefix(MEMORY)] = len(alone & spoken) / len(alone)
    return scores


async def scores_by_asking(
    services: Services, scope: Scope, conversation: Conversation, turn: Turn, memories: Sequence[str]
) -> dict[str, float]:
    """Measure a turn's memories by calling the model with and without each: two calls plus one per memory.

    Raises NotFound, InvalidInput if the window cannot be rebuilt, and the model's errors.
    """
    recorded = await read_recorded(services, scope, conversation, turn)
    diffs = [await redecide(services, scope, recorded, without=[each]) for each in memories]
    if refused := next((each.refused for each in diffs if each.after is None), ""):
        raise InvalidInput(refused)
    windows = [diffs[0].before, diffs[0].before, *(each.after for each in diffs if each.after)]
    answers = [await ask_model(services, recorded, each, temperature=0.0, max_tokens=ANSWER) for each in windows]
    alike = await _alike(services, answers)
    noise = 1.0 - alike[0]
    return {memory: max(0.0, 1.0 - same - noise) for memory, same in zip(memories, alike[1:], strict=True)}


async def _alike(services: Services, answers: Sequence[str]) -> list[float]:
    """Return the similarity of each later answer to the first, from 0 to 1: the smaller of word overlap and, with an
    embedder, similarity of meaning. One word may be the only difference.
    """
    first, *others = [set(words(each)) for each in answers]
    sums = [(len(first & other), len(first) + len(other)) for other in others]
    shared = [2 * both / total if total else 1.0 for both, total in sums]  # Dice's coefficient
    vectors = await embed_queries(services, answers)
    if vectors is None:
        return shared
    one = memoryview(vectors[0].vector).cast("f")
    meant = [sum(x * y for x, y in zip(one, memoryview(each.vector).cast("f"), strict=True)) for each in vectors[1:]]
    return [min(word, max(0.0, meaning)) for word, meaning in zip(shared, meant, strict=True)]
