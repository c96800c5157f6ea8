"""How full text finds posts: the scope is a column of the index, so that a search costs its scope and not the store."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from cuebook.backends.sqlite.base import SQL, one
from cuebook.backends.sqlite.rows import Row, decode_body
from cuebook.backends.sqlite.tree import SHIFT, Runs, bodies, on_path, owner_token, runs_to, tenant_token
from cuebook.memory.recall import NEIGHBOURS_OF, REACH, Query, match_expression, read_query
from cuebook.ports.store import Found, SearchLook, SearchResult
from cuebook.records.memory import Scope

NOTHING = SearchResult()
_SEQ = (1 << SHIFT) - 1
_ALL_ROWS = {"first": 0, "last": (1 << 63) - 1}
#: A conversation up to so many posts is searched for every word of a query.
SMALL = 2_000
#: In a larger one the rarest words are searched for, as many as stand in about so many posts: a word that stands
#: everywhere tells little, and scoring its posts would make a search cost the conversation (docs/design/005).
MATCHES = 2_000
#: Words whose counts are remembered.
REMEMBERED = 20_000


class TermCounts:
    """In how many posts of a conversation words stand, remembered.

    Counts change slowly, and counting costs their posts.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[int, int]] = {}

    def count(self, connection: sqlite3.Connection, no: int, term: str, *, posts: int) -> int:
        """Give a word's count; counted anew when the conversation has grown by a quarter since."""
        known = self._known.get((no, term))
        if known is not None and posts <= known[1] * 1.25 + 100:
            return known[0]
        values = {"match": match_expression(Query(text="", terms=(term,)), None), **rows_of(no)}
        found: int = connection.execute(SQL["search_count"], values).fetchone()[0]
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[no, term] = (found, posts)
        return found


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Give the rarest words that stand in about MATCHES posts together, at least one."""
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


def search(
    connection: sqlite3.Connection, conversation: Row, runs: Runs, look: SearchLook, counts: TermCounts
) -> SearchResult:
    """Find posts of one path, each with its neighbours."""
    no, posts = conversation["no"], conversation["last_seq"]
    query = read_query(look.text, speakers=json.loads(conversation["speakers"]))
    frequencies: dict[str, int] = {}
    if posts > SMALL:
        frequencies = {term: counts.count(connection, no, term, posts=posts) for term in query.terms}
        query = _rarer(query, frequencies)
    hits = [rowid & _SEQ for rowid in _match(connection, query, None, rows_of(no), look.limit)]
    if posts <= SMALL and len(hits) >= look.limit:
        frequencies = {term: counts.count(connection, no, term, posts=posts) for term in query.terms}
    return SearchResult(
        found=tuple(_with_neighbours(connection, conversation, runs, hits)),
        posts=posts,
        mean_words=max(1.0, conversation["words"] / max(1, posts)),
        frequencies=frequencies,
    )


def _rarer(query: Query, counts: Mapping[str, int]) -> Query:
    """Give a query that looks for its rarest words only; speakers' names are no words to look for by themselves."""
    chosen = rarest({term: count for term, count in counts.items() if term not in query.names})
    return Query(text=query.text, terms=tuple(chosen)) if chosen else query


def search_owned(connection: sqlite3.Connection, scope: Scope, look: SearchLook) -> SearchResult:
    """Find posts of all of a user's conversations, or of all there are where nobody is named.

    Each on its head's path.
    """
    token = tenant_token(scope.tenant) if scope.user is None else owner_token(scope.tenant, scope.user)
    by_conversation: dict[int, list[int]] = {}
    for rowid in _match(connection, read_query(look.text), token, _ALL_ROWS, look.limit):
        by_conversation.setdefault(rowid >> SHIFT, []).append(rowid & _SEQ)
    found: list[Found] = []
    posts = words = 0
    for no, seqs in by_conversation.items():
        row = one(connection, "conversation_by_no", tenant=scope.tenant, no=no)
        if row is None:
            continue
        runs = runs_to(connection, scope.tenant, no, row["head"])
        found.extend(_with_neighbours(connection, row, runs, seqs))
        posts, words = posts + row["last_seq"], words + row["words"]
    return SearchResult(found=tuple(found), posts=posts, mean_words=max(1.0, words / max(1, posts)))


def rows_of(no: int) -> dict[str, int]:
    """Give the range of rows a conversation has in the index.

    It bounds a search without a word that is to be counted.
    """
    return {"first": no << SHIFT, "last": no << SHIFT | _SEQ}


def _match(
    connection: sqlite3.Connection, query: Query, token: str | None, bounds: Mapping[str, int], limit: int
) -> list[int]:
    match = match_expression(query, token)
    if match is None:
        return []
    return [rowid for (rowid,) in connection.execute(SQL["search_posts"], {"match": match, "limit": limit, **bounds})]


def _with_neighbours(connection: sqlite3.Connection, conversation: Row, runs: Runs, hits: Sequence[int]) -> list[Found]:
    """Load hits on a path, best first as given, and the posts around the best of them."""
    kept = [seq for seq in hits if on_path(runs, seq)]
    direct = set(kept)
    around = {near for seq in kept[:NEIGHBOURS_OF] for near in neighbours(runs, seq, REACH)} - direct
    return _found(connection, conversation, direct=direct, around=around)


def neighbours(runs: Runs, seq: int, reach: int) -> list[int]:
    """Give the seqs up to `reach` posts before and after one on a path. Runs are newest first."""
    at = next(place for place, (first, last) in enumerate(runs) if first <= seq <= last)
    near: list[int] = []
    place, here = at, seq
    while len(near) < reach:
        here -= 1
        if here < runs[place][0]:
            place += 1
            if place >= len(runs):
                break
            here = runs[place][1]
        near.append(here)
    before = len(near)
    place, here = at, seq
    while len(near) - before < reach:
        here += 1
        if here > runs[place][1]:
            place -= 1
            if place < 0:
                break
            here = runs[place][0]
        near.append(here)
    return near


def _found(connection: sqlite3.Connection, conversation: Row, *, direct: set[int], around: set[int]) -> list[Found]:
    tenant, no, name = conversation["tenant"], conversation["no"], conversation["id"]
    seqs = json.dumps(sorted(direct | around))
    values = {"seqs": seqs, "tenant": tenant, "no": no, "base": no << SHIFT}
    rows = connection.execute(SQL["found_posts"], values).fetchall()
    kept = bodies(connection, tenant, [row[8] for row in rows if row[8] is not None])
    found = []
    for seq, id_, role, sender, message, created_at, tokens, parent, body, key in rows:
        text = decode_body(kept[body])[0] if body is not None and body in kept else message or ""
        near = seq in direct
        found.append(Found(seq, id_, role, sender, text, created_at, tokens, parent, near, name, key or "", no))
    return found
