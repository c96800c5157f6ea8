"""Search posts by full text and vectors, with caches; the cost depends on the search scope, not on the store's size."""

import json
import math
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.interfaces.store import MemoryMatches, SearchLook
from cuebook.memory.query import Query, read_query, topic_of
from cuebook.memory.recall import BESIDE, NEIGHBORS_OF, REACH, REACH_TOKENS, WIDE, akin_among
from cuebook.memory.tokenizer import key_pattern
from cuebook.records.conversation import Part, text_with_calls
from cuebook.records.memory import PostMatch, SearchResult
from cuebook.storage.access import ConversationRow, by_no, current_epoch
from cuebook.storage.database.columns import decode
from cuebook.storage.database.transaction import Transaction
from cuebook.storage.tree import SHIFT, Runs, on_path, owner_token, read_body, runs_to, tenant_token
from cuebook.storage.vectors import CLOSEST, Close, Matrices, in_turn, scope_of, scopes_of, usual

NOTHING = SearchResult()
_SEQ = (1 << SHIFT) - 1
#: A conversation with at most so many posts is searched for every query word.
SMALL = 2_000
#: A larger one is searched for the rarest words, up to about so many posts in total: a word that occurs everywhere
#: is no use, and reading its posts would make a search cost the whole conversation (docs/design/005).
MATCHES = 2_000
#: Share of the words of matches at most BESIDE posts away that counts for a match: evidence is often split among posts.
ADJACENT = 0.5
#: Newest conversations of a user whose vectors are searched if no conversation is named.
CONVERSATIONS = 200
#: Newest joined conversations of others that are searched.
JOINED = 1_000
#: Most cached word counts.
REMEMBERED = 20_000

# ---- words of places (memory owners) --------------------------------------------------------------------------------


#: A place with at most so many memories is cached whole; a larger one uses full-text search.
SMALL_PLACE = 1_000
#: Most cached numbers of memories with rare words, for a large place: 0.5 MB.
ROWS = 64_000
#: Most places in the cache (LRU); a whole one takes about 1 MB.
PLACES = 64


class Words(Struct):
    """The cached words of a place. `holding` maps a word to its memories (numbers), None for a large place.

    `keys` are the memories' search keys.
    """

    generation: int
    held: int
    holding: Mapping[str, Sequence[int]] | None = None
    keys: Mapping[int, str] = {}
    counts: dict[str, int] = {}
    rows: dict[str, Sequence[int]] = {}  # of rare words of a large place: their memories


def sharing(words: Words, query: Query, limit: int) -> MemoryMatches:
    """Find the memories of a small place that share words with a query."""
    holding = words.holding or {}
    matching = {term: nos for term in query.terms if (nos := _memories_with(words, holding, term))}
    counts = {term: len(nos) for term, nos in matching.items()}
    shared = Counter(no for nos in matching.values() for no in nos)
    best = sorted(((count, no) for no, count in shared.items()), reverse=True)
    results = [no for _, no in best[:limit]]
    keys = {no: words.keys[no] for no in results}
    return MemoryMatches(found=tuple(results), held=words.held, frequencies=counts, keys=keys)


def _memories_with(words: Words, holding: Mapping[str, Sequence[int]], term: str) -> Sequence[int]:
    """Return the numbers of the memories that contain a search term, which may be a prefix."""
    if not term.endswith("*"):
        return holding.get(term, ())
    pattern = key_pattern(term)
    return [no for no, key in words.keys.items() if pattern in key.partition(" |")[2]]


class PlaceWords:
    """An LRU cache of the words of places. Erased data remains until its tenant is searched again."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str, str], Words] = OrderedDict()
        self._epochs: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, transaction: Transaction, values: Mapping[str, str]) -> Words:
        """Return a place's words in this snapshot. `values` are its columns."""
        self._see(transaction)
        key = (transaction.scope.tenant, values["kind"], values["owner"])
        generation = int(transaction.value("place_generation", **values) or 0)
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.generation == generation:
                self._held.move_to_end(key)
                return held
        keys = transaction.run("memory_keys", **{**values, "limit": SMALL_PLACE + 1}).fetchall()
        words = _words(transaction, values, generation, keys)
        with self._lock:
            self._held[key] = words
            self._held.move_to_end(key)
            while len(self._held) > PLACES:
                self._held.popitem(last=False)
        return words

    def owners(self) -> list[str]:
        """Return the owners of cached places, most recently used last."""
        with self._lock:
            return [owner for _, _, owner in self._held]

    def _see(self, transaction: Transaction) -> None:
        """Drop a tenant's cached places if data of it was erased since."""
        epoch, tenant = current_epoch(transaction), transaction.scope.tenant
        with self._lock:
            if self._epochs.setdefault(tenant, epoch) != epoch:
                self._epochs[tenant] = epoch
                for key in [key for key in self._held if key[0] == tenant]:
                    del self._held[key]


def words_at(transaction: Transaction, values: Mapping[str, str], at: float) -> Words:
    """Return the words of a place's memories that were valid at a time."""
    keys = transaction.run("memory_keys_at", **{**values, "at": at, "limit": SMALL_PLACE + 1}).fetchall()
    return _words(transaction, values, 0, keys)


def _words(
    transaction: Transaction, values: Mapping[str, str], generation: int, keys: Sequence[tuple[int, str]]
) -> Words:
    if len(keys) > SMALL_PLACE:
        return Words(generation, transaction.value("memory_held", **values))
    holding: dict[str, list[int]] = {}
    for no, key in keys:
        for term in set(key.split()):
            holding.setdefault(term, []).append(no)
    return Words(generation, len(keys), holding, dict(keys))


def rarest_words(
    transaction: Transaction, words: Words, query: Query, token: str
) -> tuple[Query, dict[str, int], list[int] | None]:
    """Return a query reduced to its rarest words in a large place, and the number of memories with each word.

    Counting costs the memories with a word, or on PostgreSQL perhaps all, once for each state of the place. Return also
    the numbers of the memories with the rarest words if the cache has all of them, else None.
    """
    if missing := [term for term in query.terms if term not in words.counts]:
        words.counts |= dict.fromkeys(missing, 0)
        for term, count, nos in transaction.run("memory_counts", words=json.dumps(missing), token=token, most=MATCHES):
            words.counts[term] = count
            if nos is not None:
                words.rows[term] = array("q", nos)
    counts = {term: words.counts[term] for term in query.terms}
    chosen = rarest(counts)
    found = [nos for term in chosen if (nos := words.rows.get(term)) is not None]  # another thread may clear it
    among = sorted({no for nos in found for no in nos}) if len(found) == len(chosen) else None
    if sum(map(len, list(words.rows.values()))) > ROWS:
        words.rows.clear()
    return Query(text=query.text, terms=tuple(chosen)), counts, among


# ---- posts -----------------------------------------------------------------------------------------------------------


class SearchCache:
    """The search cache: vectors, and the number of posts with a word per conversation.

    Counts change slowly, and counting costs the posts with the word.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[int, int]] = {}
        self.matrices = Matrices()
        self.words = PlaceWords()

    def counts(self, row: ConversationRow, terms: Sequence[str]) -> dict[str, int]:
        """Return the counts of terms. One is counted again if it was 0, or after growth by a quarter."""
        known = {term: self._known.get((row.no, term)) for term in terms}
        old = [term for term, each in known.items() if each is None or row.last_seq > each[1] * 1.25 + 100]
        counts = {term: each[0] for term, each in known.items() if each is not None}
        if old:
            counts |= dict(row.transaction.run("search_counts", words=json.dumps(old), **rows_of(row.no)).fetchall())
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known |= {(row.no, term): (counts[term], row.last_seq) for term in old if counts[term]}
        return counts


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the rarest words that occur in about MATCHES posts in total, at least one word."""
    chosen: list[str] = []
    total = 0
    for term, count in sorted(counts.items(), key=lambda each: (each[1], each[0])):
        if count == 0:
            continue
        if chosen and total + count > MATCHES:
            break
        chosen.append(term)
        total += count
    return chosen


def search(row: ConversationRow, runs: Runs, search_look: SearchLook, search_cache: SearchCache) -> SearchResult:
    """Find posts of one path, each with its neighbors."""
    posts = row.last_seq
    query = read_query(search_look.text, speakers=row.speakers)
    terms, frequencies = topic_of(query), dict[str, int]()
    if posts > SMALL:
        frequencies = search_cache.counts(row, query.terms)
        terms = rarest({term: frequencies[term] for term in terms})
    rows = {**rows_of(row.no), "last": row.no << SHIFT | (runs[0][1] if runs else 0)}
    matched = _rows_by_term(row.transaction, "search_posts", terms, search_look, **rows)
    if sum(last - first + 1 for first, last in runs) < posts:
        matched = {term: on for term, nos in matched.items() if (on := [no for no in nos if on_path(runs, no & _SEQ)])}
    frequencies = frequencies or {term: len(nos) for term, nos in matched.items()}
    hits = [no & _SEQ for no in _best(matched, search_look.limit)]
    close = _close(row, search_look, search_cache)
    if close is not None:
        hits = in_turn(hits, close.best(min(search_look.limit, CLOSEST), runs))
    post_matches = _with_neighbors(row, runs, hits, hits[:WIDE])
    mean, deviation = usual([close]) if close else (0.0, 0.0)
    return SearchResult(
        found=tuple(_placed(post_matches, close)),
        posts=posts,
        speakers=row.speakers,
        frequencies=frequencies,
        mean_cosine=mean,
        cosine_deviation=deviation,
        akin=akin_among(search_look.dense.akin, len(close.seqs) if close else 0) if search_look.dense else 1.0,
    )


def _rows_by_term(
    transaction: Transaction, statement: str, terms: Iterable[str], search_look: SearchLook, **place: Any
) -> dict[str, list[int]]:
    """Return the numbers of the rows that contain each term, newest first, at most MATCHES for a term.

    Terms without rows are omitted.
    """
    values = {"words": json.dumps(list(terms)), "until": search_look.until, "limit": MATCHES}
    rows = transaction.run(statement, **values, **place)
    return {term: nos for term, listed in rows if listed and (nos := json.loads(listed))}


def _best(matched: Mapping[str, Sequence[int]], limit: int) -> list[int]:
    """Return at most `limit` rows that explain most of a query by their words and those of adjacent matches.

    The best is first, and of equal ones the newest. The rarer a word, the more it explains.
    """
    scores: dict[int, float] = {}
    for nos in matched.values():
        information = math.log(1 + MATCHES / len(nos))
        for no in nos:
            scores[no] = scores.get(no, 0.0) + information
    total, order = dict(scores), sorted(scores)
    for distance in range(1, BESIDE + 1):
        pairs = zip(order, order[distance:], strict=False)
        for no, other in [(no, other) for no, other in pairs if other - no <= BESIDE]:
            total[no] += ADJACENT * scores[other]
            total[other] += ADJACENT * scores[no]
    return nlargest(limit, reversed(order), key=total.__getitem__)


def _close(row: ConversationRow, search_look: SearchLook, search_cache: SearchCache) -> Close | None:
    """Compare the query's vector, if any, with those of a conversation."""
    if search_look.dense is None:
        return None
    return search_cache.matrices.close(row.transaction, scope_of(row.no), search_look.dense)


def _placed(post_matches: Sequence[PostMatch], close: Close | None) -> Sequence[PostMatch]:
    """Return posts with their cosines."""
    if close is None:
        return post_matches
    cosines = close.of([each.seq for each in post_matches])
    return [
        msgspec.structs.replace(each, cosine=cosines[each.seq], part=close.part_of(each.seq))
        if each.seq in cosines
        else each
        for each in post_matches
    ]


def search_owned(transaction: Transaction, search_look: SearchLook, search_cache: SearchCache) -> SearchResult:
    """Find posts in all conversations of a user, owned or joined, or in all conversations if no user is named.

    Only head paths are searched. Vectors are compared in the conversations with full-text hits and in the newest.
    """
    tenant, user = transaction.scope.tenant, transaction.scope.user
    statement, owner, joined = "search_posts_of_tenant", tenant_token(tenant), list[int]()
    if user is not None:
        joined = [no for (no,) in transaction.run("conversations_joined", limit=JOINED)]
        statement, owner = "search_posts_of_owner", owner_token(tenant, user)
    scope = " OR ".join([f'"{owner}"', *(f'"c{no}"' for no in joined)])
    place = {"scope": scope, "owner": owner, "joined": json.dumps(joined)}
    matched = _rows_by_term(transaction, statement, topic_of(read_query(search_look.text)), search_look, **place)
    by_conversation: dict[int, list[int]] = {}
    best = _best(matched, search_look.limit)
    for rowid in best:
        by_conversation.setdefault(rowid >> SHIFT, []).append(rowid & _SEQ)
    if search_look.dense is not None and transaction.scope.user:
        own = scopes_of(transaction, transaction.scope.user, search_look.dense.model, limit=CONVERSATIONS)
        for no in (*own, *joined[:CONVERSATIONS]):
            by_conversation.setdefault(no, [])
    post_matches: list[PostMatch] = []
    posts, speakers = 0, dict[str, None]()
    compared: list[Close] = []
    closest = _closest(transaction, by_conversation, search_look, search_cache)
    for no, (row, runs, close, closest_posts) in closest.items():
        seqs = in_turn(by_conversation[no], closest_posts)
        if not seqs:
            continue
        wide = [rowid & _SEQ for rowid in best[:WIDE] if rowid >> SHIFT == no]
        post_matches.extend(_placed(_with_neighbors(row, runs, seqs, wide), close))
        posts += row.last_seq
        speakers |= dict.fromkeys(row.speakers)
        if close is not None:
            compared.append(close)
    mean, deviation = usual(compared) if compared else (0.0, 0.0)
    return SearchResult(
        found=tuple(post_matches),
        posts=posts,
        speakers=tuple(speakers),
        mean_cosine=mean,
        cosine_deviation=deviation,
        akin=akin_among(search_look.dense.akin, sum(len(each.seqs) for each in compared)) if search_look.dense else 1.0,
    )


def _closest(
    transaction: Transaction, numbers: Iterable[int], search_look: SearchLook, search_cache: SearchCache
) -> dict[int, tuple[ConversationRow, Runs, Close | None, list[int]]]:
    """Return existing conversations, each with its path and its share of the CLOSEST posts of all."""
    results: dict[int, tuple[ConversationRow, Runs, Close | None, list[int]]] = {}
    ranked: list[tuple[float, int, int]] = []
    for no in numbers:
        row = by_no(transaction, no)
        if row is None:
            continue
        runs, close = runs_to(row, row.head), _close(row, search_look, search_cache)
        best = close.best(CLOSEST, runs) if close else []
        cosines = close.of(best) if close else {}
        ranked += [(-cosines[seq], no, seq) for seq in best]
        results[no] = (row, runs, close, [])
    for _, no, seq in sorted(ranked)[: min(search_look.limit, CLOSEST)]:
        results[no][3].append(seq)
    return results


def rows_of(no: int) -> dict[str, int]:
    """Return the row range of a conversation in the index.

    It limits a search without an additional term.
    """
    return {"first": no << SHIFT, "last": no << SHIFT | _SEQ}


def _with_neighbors(row: ConversationRow, runs: Runs, hits: Sequence[int], wide: Sequence[int]) -> list[PostMatch]:
    """Load hits on a path, best first, and neighbors of the best ones, by seq: more of those that are `wide`.

    Each side of a hit has at most REACH_TOKENS. So a long post, which neither needs its neighbors nor helps them
    (docs/design/031), is not ranked beside them.
    """
    visible = [seq for seq in hits if on_path(runs, seq)]
    direct = set(visible)
    reaches = [(seq, REACH if seq in wide else BESIDE) for seq in visible[:NEIGHBORS_OF]]
    sides = [side for seq, reach in reaches for side in neighbors(runs, seq, reach)]
    near = json.dumps(sorted(set(chain(*sides)) - direct))
    place = {"base": row.no << SHIFT, "most": REACH_TOKENS}
    posts = row.run("found_posts", seqs=json.dumps(sorted(direct)), near=near, **place).fetchall()
    seqs = direct | _within_reach(sides, {post[0]: post[7] for post in posts})
    post_matches = []
    for seq, id_, role, sender, message, parts, created_at, tokens, parent, digest, key in sorted(posts):
        if seq not in seqs:
            continue
        body = (message, parts) if message is not None else read_body(row.transaction, digest)[:2]
        calls = decode(tuple[Part, ...], body[1]) if body[1] and seq in direct else ()
        match = PostMatch(
            seq,
            sender,
            created_at,
            key or "",
            parent,
            row.no,
            id=id_,
            role=role,
            text=text_with_calls(body[0], calls) if calls else body[0],
            tokens=tokens,
            direct=seq in direct,
            conversation=row.id,
        )
        post_matches.append(match)
    return post_matches


def _within_reach(sides: Iterable[Sequence[int]], tokens: Mapping[int, int]) -> set[int]:
    """Return the posts of each side, nearest first, as long as they have at most REACH_TOKENS in total."""
    found: set[int] = set()
    for side in sides:
        left = REACH_TOKENS
        for seq in side:
            left -= tokens.get(seq, left + 1)  # a longer post was not loaded
            if left < 0:
                break
            found.add(seq)
    return found


def neighbors(runs: Runs, seq: int, reach: int) -> tuple[list[int], list[int]]:
    """Return the seqs of up to `reach` posts before and after a post on a path, nearest first. Runs: newest first."""
    at = next(place for place, (first, last) in enumerate(runs) if first <= seq <= last)
    before = (near for first, last in runs[at:] for near in range(min(last, seq - 1), first - 1, -1))
    after = (near for first, last in runs[at::-1] for near in range(max(first, seq + 1), last + 1))
    return [*islice(before, reach)], [*islice(after, reach)]
