"""Search with a model (`memory.recall_model`): it rewrites and splits the query, and reranks the results.

Queries and results go to the model as JSON data, never into its instructions, and its answers can only name queries
and numbers of results. If it is late, fails or answers wrongly, the results are those without a model, and their `why`
says so.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from cuebook.engine.core.audit_records import answered
from cuebook.engine.core.instructions import BROKEN, checked_answer, instruct, instruction_record
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import Model, ModelRequest
from cuebook.memory.tokenizer import day_of
from cuebook.records.answers import repair_json
from cuebook.records.audit import Record
from cuebook.records.memory import Hit, Scope
from cuebook.records.turn import WorkUsage

T = TypeVar("T")
Search = Callable[[str], Awaitable[Sequence[Hit]]]

log = logging.getLogger("cuebook.recall")

#: Prompt ids of the model's instructions, and its recipient name in the audit log.
QUERIES_KEY, RANKING_KEY, AGENT = "recall_queries", "recall_ranking", "recall model"
#: Most queries that a model may add, and characters of each.
QUERIES, QUERY = 4, 300
#: Results shown to a model, and characters of each text.
CANDIDATES, SHOWN = 40, 600
#: Tokens of the answers.
REPLY_TOKENS = 512
#: Smoothing of reciprocal rank fusion: the textbook value.
RRF = 60
#: Seconds until a model that was late or failed is called again.
AGAIN_S = 30.0


async def search_with_model(services: Services, query: str, search: Search, *, conversation: str = "") -> Sequence[Hit]:
    """Return what `search` finds for a query, with the help of the model if one is set. Raises what `search` raises."""
    plain = await search(query)
    if services.recall_model is None or not query.strip():
        return plain
    now, failed = services.clock.now(), ""
    if now < services.caches.recall_retry_at:
        failed = "the model failed a moment ago"
    else:
        asked = _Asked(services, services.recall_model, conversation)
        limit_s = services.config.memory.recall_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await asked.ranked(query, plain, search)
        except TimeoutError:
            failed = f"model {asked.model.name} timed out after {limit_s:g} s"
        except InvalidInput as error:
            failed = f"model {asked.model.name} returned an unreadable answer: {error}"
        except BackendError as error:
            failed = services.writer.clean(str(error))
        except BROKEN as error:  # a model may be user code, and its error may contain text of memories
            failed = f"model {asked.model.name} failed with {type(error).__name__}"
        finally:
            await asked.close(failed)
        log.warning("Searching without the model: %s", failed)
        services.caches.recall_retry_at = now + AGAIN_S
    return [replace(hit, why=_joined(hit.why, f"without the model: {failed}")) for hit in plain]


class _Asked:
    """The calls of the model for one search, with their audit records and usage."""

    def __init__(self, services: Services, model: Model, conversation: str) -> None:
        self.model = model
        self._services, self._conversation = services, conversation
        self._records: list[Record] = []
        self._usages: list[WorkUsage] = []

    async def ranked(self, query: str, plain: Sequence[Hit], search: Search) -> list[Hit]:
        """Return the results of the query and of those that the model adds, in the order of the model."""
        clean = self._services.writer.clean
        queries = await self._ask(QUERIES_KEY, {"query": clean(query)}, _read_queries, {"most": QUERIES})
        found = [(query, plain), *[(each, await search(each)) for each in queries if each != query]]
        hits = _fused(found)
        if not hits:
            return []
        shown = [
            {
                "n": number,
                "day": day_of(hit.timestamp),
                "speaker": hit.speaker,
                "text": clean(hit.text)[:SHOWN],
            }
            for number, hit in enumerate(hits[:CANDIDATES], 1)
        ]
        data = {"query": clean(query), "results": shown}
        numbers = await self._ask(RANKING_KEY, data, lambda text: _read_numbers(text, len(shown)), {})
        return self._in_order(hits, numbers) if numbers else []

    def _in_order(self, hits: Sequence[Hit], numbers: Sequence[int]) -> list[Hit]:
        """Return the named results first, the others after them. Scores stay in place, so that they fall."""
        named = [hits[number - 1] for number in numbers]
        others = [hit for at, hit in enumerate(hits, 1) if at not in numbers]
        scores = sorted((hit.score for hit in hits), reverse=True)
        whys = [f"{self.model.name}: rank {rank}" for rank in range(1, len(named) + 1)]
        whys += [f"{self.model.name}: not an answer"] * len(others)
        return [
            replace(hit, score=score, why=_joined(hit.why, why))
            for hit, score, why in zip([*named, *others], scores, whys, strict=True)
        ]

    async def _ask(self, key: str, data: Any, read: Callable[[str], T], values: Mapping[str, Any]) -> T:
        """Return the model's parsed answer about some data. Raises InvalidInput and BackendError."""
        services = self._services
        instruction = await instruct(services, Scope(), key, values, agent=AGENT, project=services.settings.project)
        record = instruction_record(services, instruction, agent=AGENT, conversation=self._conversation)
        self._records.append(record)
        messages = (
            msgspec.json.encode({"role": "system", "content": instruction.text}),
            msgspec.json.encode({"role": "user", "content": msgspec.json.encode(data).decode()}),
        )
        request = ModelRequest(messages=messages, purpose=key, max_tokens=REPLY_TOKENS, conversation=self._conversation)
        answer = await checked_answer(services, self.model, request, read, usages=self._usages)
        # without its text: queries may name a person whose data is forgotten later
        self._records += answered(services, [record], "", context={"outcome": answer.outcome})
        return answer.value

    async def close(self, failed: str) -> None:
        """Store the audit records and the usage of the calls, whatever their result."""
        services = self._services
        if failed and self._records:
            context = {"outcome": "refused", "reason": failed}
            self._records += answered(services, self._records[-1:], "", context=context)
        try:
            if self._records:
                await services.audit.append(Scope(), self._records)
            if self._usages and self._conversation:
                await services.store.tuning.add_work(Scope(), self._conversation, self._usages)
        except CuebookError as error:  # the search goes on
            log.warning("Cannot record the calls of a search: %s", services.writer.clean(str(error)))


def _fused(found: Sequence[tuple[str, Sequence[Hit]]]) -> list[Hit]:
    """Return the results of several queries by reciprocal rank fusion, each once; `why` has the query that added it."""
    scores, hits = defaultdict[str, float](float), dict[str, Hit]()
    for number, (query, several) in enumerate(found):
        for rank, hit in enumerate(several, 1):
            scores[hit.memory_id] += 1 / (RRF + rank)
            if hit.memory_id not in hits:
                hits[hit.memory_id] = replace(hit, why=_joined(hit.why, f'query "{query}"')) if number else hit
    ranked = sorted(hits.values(), key=lambda hit: -scores[hit.memory_id])
    own = {(hit.conversation, post) for hit in ranked for post in hit.alone.sources}
    return [hit.alone if any((hit.conversation, each.id) in own for each in hit.nearby) else hit for hit in ranked]


def _read_queries(text: str) -> list[str]:
    value = repair_json(text)
    queries = value.get("queries") if isinstance(value, Mapping) else value
    if not isinstance(queries, list) or not all(isinstance(each, str) for each in queries):
        raise InvalidInput('expected {"queries": [text, …]}', where="queries")
    return list(dict.fromkeys(" ".join(each.split())[:QUERY] for each in queries if each.strip()))[:QUERIES]


def _read_numbers(text: str, most: int) -> list[int]:
    value = repair_json(text)
    numbers = value.get("results") if isinstance(value, Mapping) else value
    if not isinstance(numbers, list) or not all(type(each) is int and 1 <= each <= most for each in numbers):
        raise InvalidInput(f'expected {{"results": [number, …]}} with numbers from 1 to {most}', where="results")
    return list(dict.fromkeys(numbers))


def _joined(why: str, reason: str) -> str:
    return f"{why}; {reason}" if why else reason
