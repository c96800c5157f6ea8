"""How full text finds posts: the scope is a column of the index, so that a search costs its scope and not the store."""

import sqlite3

from cuebook.backends.sqlite.base import SQL, one
from cuebook.backends.sqlite.rows import Row, decode_body
from cuebook.backends.sqlite.tree import SHIFT, Runs, bodies, on_path, owner_token, runs_to
from cuebook.errors import InvalidInput
from cuebook.ports.store import Found, SearchLook, SearchResult
from cuebook.records.memory import Scope

NOTHING = SearchResult()
_SEQ = (1 << SHIFT) - 1


def search(connection: sqlite3.Connection, conversation: Row, runs: Runs, look: SearchLook) -> SearchResult:
    """Find posts of one path, each with its neighbours."""
    no, tenant = conversation["no"], conversation["tenant"]
    token = f"c{no}"
    hits = [rowid & _SEQ for (rowid,) in _match(connection, look, token)]
    direct = {seq for seq in hits if on_path(runs, seq)}
    around = {near for seq in direct for near in _neighbours(runs, seq) if near} - direct
    found = _found(connection, tenant, no, conversation["id"], direct=direct, around=around)
    posts = conversation["last_seq"]
    return SearchResult(
        found=tuple(found),
        posts=posts,
        mean_words=max(1.0, conversation["words"] / max(1, posts)),
        frequencies=_frequencies(connection, look, token) if len(hits) >= look.limit else {},
    )


def search_owned(connection: sqlite3.Connection, scope: Scope, look: SearchLook) -> SearchResult:
    """Find posts of all of a user's conversations, each on its head's path."""
    token = owner_token(scope.tenant, scope.user)
    by_conversation: dict[int, list[int]] = {}
    for (rowid,) in _match(connection, look, token):
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


def _match(connection: sqlite3.Connection, look: SearchLook, token: str) -> list[tuple[int]]:
    try:
        values = {"match": look.match.replace("{scope}", token), "limit": look.limit}
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


def _frequencies(connection: sqlite3.Connection, look: SearchLook, token: str) -> dict[str, int]:
    """In how many posts of the scope each term stands; counted only where the candidates are not all there is."""
    return {
        term: connection.execute(
            SQL["search_count"], {"match": f"scope : {token} AND key : {_quoted(term)}"}
        ).fetchone()[0]
        for term in look.terms
    }


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _found(
    connection: sqlite3.Connection, tenant: str, no: int, conversation: str, *, direct: set[int], around: set[int]
) -> list[Found]:
    keys = ({"tenant": tenant, "no": no, "seq": seq} for seq in sorted(direct | around))
    rows = [connection.execute(SQL["found_post"], key).fetchone() for key in keys]
    kept = bodies(connection, tenant, [row[8] for row in rows if row and row[8] is not None])
    found = []
    for row in rows:
        if row is None:
            continue
        seq, id_, role, sender, message, created_at, tokens, parent, body = row
        text = decode_body(kept[body])[0] if body is not None and body in kept else message or ""
        key = connection.execute(SQL["found_key"], {"rowid": no << SHIFT | seq}).fetchone()
        words = key[0] if key else ""
        near = seq in direct
        found.append(Found(seq, id_, role, sender, text, created_at, tokens, parent, near, conversation, words, no))
    return found
