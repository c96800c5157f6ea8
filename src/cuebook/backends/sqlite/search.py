"""How full text finds posts: the scope is a column of the index, so that a search costs its scope and not the store."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from cuebook.backends.sqlite.base import SQL, one
from cuebook.backends.sqlite.rows import Row, decode_body
from cuebook.backends.sqlite.tree import SHIFT, Runs, bodies, on_path, owner_token, runs_to
from cuebook.errors import InvalidInput
from cuebook.ports.store import Found, SearchLook, SearchResult
from cuebook.records.memory import Scope

NOTHING = SearchResult()
_SEQ = (1 << SHIFT) - 1
#: A conversation up to so many posts is searched for every word of a query.
SMALL = 2_000
#: In a larger one the rarest words are searched for, as many as stand in about so many posts: a word that stands everywhere
#: tells little, and scoring its posts would make a search cost the conversation (measured: docs/design/005).
MATCHES = 2_000
#: Words whose counts are remembered.
REMEMBERED = 20_000


class TermCounts:
    """In how many posts of a conversation words stand, remembered: counts change slowly, and counting costs their posts."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[int, int]] = {}

    def count(self, connection: sqlite3.Connection, no: int, term: str, *, posts: int) -> int:
        """Give a word's count; counted anew when the conversation has grown by a quarter since."""
        known = self._known.get((no, term))
        if known is not None and posts <= known[1] * 1.25 + 100:
            return known[0]
        match = expression(f"c{no}", [term])
        found: int = connection.execute(SQL["search_count"], {"match": match}).fetchone()[0]
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[no, term] = (found, posts)
        return found


def expression(token: str, terms: Sequence[str]) -> str:
    """Give FTS5's expression for any of some words within a scope."""
    wanted = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
    return f'scope : "{token}" AND key : ({wanted})'


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
    no, tenant, posts = conversation["no"], conversation["tenant"], conversation["last_seq"]
    token = f"c{no}"
    frequencies: dict[str, int] = {}
    match = look.match.replace("{scope}", token)
    if posts > SMALL:
        frequencies = {term: counts.count(connection, no, term, posts=posts) for term in look.terms}
        chosen = rarest(frequencies)
        match = expression(token, chosen) if chosen else match
    hits = [rowid & _SEQ for (rowid,) in _match(connection, match, look.limit)]
    if posts <= SMALL and len(hits) >= look.limit:
        frequencies = {term: counts.count(connection, no, term, posts=posts) for term in look.terms}
    direct = {seq for seq in hits if on_path(runs, seq)}
    around = {near for seq in direct for near in _neighbours(runs, seq) if near} - direct
    return SearchResult(
        found=tuple(_found(connection, tenant, no, conversation["id"], direct=direct, around=around)),
        posts=posts,
        mean_words=max(1.0, conversation["words"] / max(1, posts)),
        frequencies=frequencies,
    )


def search_owned(connection: sqlite3.Connection, scope: Scope, look: SearchLook) -> SearchResult:
    """Find posts of all of a user's conversations, each on its head's path."""
    token = owner_token(scope.tenant, scope.user)
    by_conversation: dict[int, list[int]] = {}
    for (rowid,) in _match(connection, look.match.replace("{scope}", token), look.limit):
        by_conversation.setdefault(rowid >> SHIFT, []).append(rowid & _SEQ)
    found: list[Found] = []
    posts = words = 0
    for no, seqs in by_conversation.items():
        row = one(connection, "conversation_by_no", tenant=scope.tenant, no=no)
        if row is None:
            continue
        runs = runs_to(connection, scope.tenant, no, row["head"])
        direct = {seq for seq in seqs if on_path(runs, seq)}
        found.extend(_found(connection, scope.tenant, no, row["id"], direct=direct, around=set()))
        posts, words = posts + row["last_seq"], words + row["words"]
    return SearchResult(found=tuple(found), posts=posts, mean_words=max(1.0, words / max(1, posts)))


def _match(connection: sqlite3.Connection, match: str, limit: int) -> list[tuple[int]]:
    try:
        values = {"match": match, "limit": limit}
        return connection.execute(SQL["search_posts"], values).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_ERROR":  # what FTS5 cannot read; a broken file or disk has its own name
            msg = f"the search expression cannot be read ({error})"
            raise InvalidInput(msg) from error
        raise


def _neighbours(runs: Runs, seq: int) -> tuple[int, int]:
    """Seqs of the posts before and after one on a path, 0 for none. Runs are newest first."""
    for position, (first, last) in enumerate(runs):
        if first <= seq <= last:
            older = runs[position + 1][1] if position + 1 < len(runs) else 0
            newer = runs[position - 1][0] if position else 0
            return seq - 1 if seq > first else older, seq + 1 if seq < last else newer
    return 0, 0


def _found(
    connection: sqlite3.Connection, tenant: str, no: int, conversation: str, *, direct: set[int], around: set[int]
) -> list[Found]:
    seqs = json.dumps(sorted(direct | around))
    values = {"seqs": seqs, "tenant": tenant, "no": no, "base": no << SHIFT}
    rows = connection.execute(SQL["found_posts"], values).fetchall()
    kept = bodies(connection, tenant, [row[8] for row in rows if row[8] is not None])
    found = []
    for seq, id_, role, sender, message, created_at, tokens, parent, body, key in rows:
        text = decode_body(kept[body])[0] if body is not None and body in kept else message or ""
        near = seq in direct
        found.append(Found(seq, id_, role, sender, text, created_at, tokens, parent, near, conversation, key or "", no))
    return found
