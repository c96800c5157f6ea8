"""Cluster prompts by topic, with the configured embedder or by their words, and find near duplicates."""

import asyncio
import logging
from array import array
from collections.abc import Mapping, Sequence
from math import sqrt
from operator import mul
from typing import Final, Literal

from msgspec import Struct

from cuebook.app.prompts.compare import families_of
from cuebook.engine.core.recall import AT_ONCE, embed
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces import Embedder
from cuebook.languages import reads
from cuebook.prompts.clusters import LEAST, MOST, Group, by_words, group, near_duplicates, weigh
from cuebook.records.prompt import Version

#: Characters per embedded piece, about the limit of a small model. A prompt's vector is the mean of its pieces.
PIECE: Final = 1_000
#: Timeout of the embedder for all prompts in seconds; afterwards words are used.
TIME_S: Final = 60.0

log = logging.getLogger("cuebook.prompts")


class Twins(Struct, frozen=True, kw_only=True):
    """Two near-duplicate prompts: the share of four-word sequences that both contain."""

    a: str
    b: str
    similarity: float


class Clusters(Struct, frozen=True, kw_only=True, rename="camel"):
    """Groups of prompts about the same topic, prompts without a group, and near duplicates.

    `by` is the method, `least` the mean similarity from which groups were merged, `instead` the reason why words
    replaced the embedder for all or some prompts.
    """

    by: Literal["meaning", "words"]
    least: float
    prompts: int
    groups: tuple[Group, ...]
    alone: tuple[str, ...]
    near_duplicates: tuple[Twins, ...]
    instead: str = ""


async def clusters_of(services: Services, *, prefix: str = "", least: float | None = None) -> Clusters:
    """Return clusters of the prompts whose ids begin with `prefix`, by `main`'s active version. Raises InvalidInput."""
    families = await families_of(services, None)
    chosen = [each for slug, each in families.items() if slug.startswith(prefix)]
    if len(chosen) > MOST:
        msg = f"prefix: {len(chosen):,} prompts exceed the limit of {MOST}. Use a longer prefix."
        raise InvalidInput(msg, where="prefix")
    corpus = {name: _text(each) for name, each in services.settings.builtin.items()}  # more texts to weigh words by
    corpus |= {each.slug: _text(each.version() or each.active[0]) for each in families.values() if each.active}
    texts = {each.slug: corpus[each.slug] for each in chosen if each.active}
    vectors, instead = await _vectors(services, texts)
    min_similarity = services.embedder.akin if vectors and services.embedder is not None else None
    return await asyncio.to_thread(_clusters, corpus, texts, vectors, akin=min_similarity, least=least, instead=instead)


def _text(version: Version) -> str:
    """Return a version's own text without inherited parts, so that siblings do not look similar because of them."""
    return "\n".join((dict(version.sections) | dict(version.override_sections)).values())


def _clusters(
    corpus: Mapping[str, str],
    texts: Mapping[str, str],
    vectors: Mapping[str, Sequence[float]],
    *,
    akin: float | None,
    least: float | None,
    instead: str,
) -> Clusters:
    weights = weigh(corpus)

    def likeness(one: str, other: str) -> float:
        if akin is None:
            return by_words(weights, one, other)
        if one in vectors and other in vectors:
            return max(0.0, float(sum(map(mul, vectors[one], vectors[other]))))
        return min(1.0, by_words(weights, one, other) * akin / LEAST)  # scaled like the embedder's similarities

    least = least if least is not None else LEAST if akin is None else akin
    groups, alone = group(texts, weights, likeness, least=least)
    twins = [Twins(a=a, b=b, similarity=round(similarity, 4)) for a, b, similarity in near_duplicates(texts)]
    return Clusters(
        by="words" if akin is None else "meaning",
        least=least,
        prompts=len(texts),
        groups=tuple(groups),
        alone=tuple(alone),
        near_duplicates=tuple(sorted(twins, key=lambda each: (-each.similarity, each.a, each.b))),
        instead=instead,
    )


async def _vectors(services: Services, texts: Mapping[str, str]) -> tuple[dict[str, Sequence[float]], str]:
    """Return unit vectors of the texts whose language the embedder supports, and why the others have none."""
    embedder = services.embedder
    if embedder is None or not texts:
        return {}, ""
    known = {name: services.writer.clean(text) for name, text in texts.items() if reads(embedder.languages, text)}
    unknown = len(texts) - len(known)
    instead = f"the embedder does not support the language of {unknown} of {len(texts)}" if unknown else ""
    try:
        async with asyncio.timeout(TIME_S):
            return await _embedded(embedder, known), instead
    except TimeoutError:
        return {}, f"{embedder.name} took longer than {TIME_S:g} s"
    except BackendError as error:
        reason = services.writer.clean(str(error))
        log.warning("Clustering prompts by words only: %s", reason)
        return {}, reason


async def _embedded(embedder: Embedder, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
    pieces = [(name, text[at : at + PIECE]) for name, text in texts.items() for at in range(0, len(text), PIECE)]
    pieces = [(name, piece) for name, piece in pieces if piece.strip()]
    read: list[bytes] = []
    for first in range(0, len(pieces), AT_ONCE):
        read += await embed(embedder, [piece for _, piece in pieces[first : first + AT_ONCE]])
    sums: dict[str, list[float]] = {}
    for (name, _), vector in zip(pieces, read, strict=True):
        own = array("f", vector)
        sums[name] = [one + other for one, other in zip(sums[name], own, strict=True)] if name in sums else list(own)
    results: dict[str, Sequence[float]] = {}
    for name, summed in sums.items():
        length = sqrt(sum(map(mul, summed, summed))) or 1.0
        results[name] = array("f", [each / length for each in summed])
    return results
