"""Measure how useful a memory was in the turns that used it: how much of the answer came only from the memory.

Without a model: the share of the memory's unique words in the window that the answer contains. With a model: how much
the answer changes without the memory, minus its change between two equal calls.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from cuebook.engine.core.recall import embed_queries
from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import MEMORY, read_recorded
from cuebook.engine.replay.redecide import Without, ask_model, redecide
from cuebook.engine.turn.compare import render_again
from cuebook.errors import InvalidInput
from cuebook.memory.tokenizer import words
from cuebook.records.conversation import Conversation
from cuebook.records.expression import Expression
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Turn

#: Model calls for a turn with one memory: two with it, one without.
LEAST_CALLS: Final = 3
#: Tokens of an answer compared with another.
ANSWER: Final = 300
#: The day before a memory's text, which is not part of its words.
_DAY: Final = Expression(r"^- \[[^\]]{1,20}\] ")
#: Method of measurement.
WORDS, MODEL = "words", "model"


class Use(Struct, frozen=True, kw_only=True):
    """A memory's use in a turn, from 0 (the answer is the same without it) to 1."""

    memory: str
    conversation: str
    turn: int
    score: float
    by: str


def said_in(manifest: Manifest) -> list[str]:
    """Return the ids of the memories in a window."""
    return [text.source.removeprefix(MEMORY) for text in manifest.volatile if text.source.startswith(MEMORY)]


async def uses_by_words(
    services: Services, scope: Scope, conversation: Conversation, turn: Turn, answer: str
) -> list[Use]:
    """Measure a turn's memories by its answer; skip those whose words all occur elsewhere in the window.

    Raises NotFound if a part was erased.
    """
    manifest = turn.steps[-1].manifest
    window = await render_again(services, scope, conversation.id, manifest, owner=conversation.user)
    spoken = set(words(answer))
    block_words = [(block.source, set(words(_DAY.sub("", block.text)))) for block in window.blocks]
    uses: list[Use] = []
    for source, own in block_words:
        if source.startswith(MEMORY):
            alone = own.difference(*(other for name, other in block_words if name != source))
            if alone:
                uses.append(_use(source, conversation, turn, len(alone & spoken) / len(alone), WORDS))
    return uses


async def uses_by_asking(
    services: Services, scope: Scope, conversation: Conversation, turn: Turn, memories: Sequence[str]
) -> list[Use]:
    """Measure a turn's memories by calling the model with and without each: two calls plus one per memory.

    Raises NotFound, InvalidInput if the window cannot be rebuilt, and the model's errors.
    """
    recorded = await read_recorded(services, scope, conversation, turn)
    diffs = [await redecide(services, scope, recorded, [Without((each,))]) for each in memories]
    if refused := next((each.refused for each in diffs if each.after is None), ""):
        raise InvalidInput(refused)
    windows = [diffs[0].before, diffs[0].before, *(each.after for each in diffs if each.after)]
    answers = [await ask_model(services, recorded, each, temperature=0.0, max_tokens=ANSWER) for each in windows]
    alike = await _alike(services, answers)
    noise = 1.0 - alike[0]
    return [
        _use(memory, conversation, turn, max(0.0, 1.0 - same - noise), MODEL)
        for memory, same in zip(memories, alike[1:], strict=True)
    ]


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


def _use(source: str, conversation: Conversation, turn: Turn, score: float, by: str) -> Use:
    memory = source.removeprefix(MEMORY)
    return Use(memory=memory, conversation=conversation.id, turn=turn.n, score=round(score, 4), by=by)
