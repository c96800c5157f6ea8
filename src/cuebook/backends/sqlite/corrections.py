"""The corrections of a conversation as rows: they are kept with what they correct, and go with it."""

import json
import sqlite3
from collections.abc import Collection

from cuebook.backends.sqlite.base import one, rows, run
from cuebook.records.memory import Correction, Scope


def of(connection: sqlite3.Connection, tenant: str, no: int, conversation: str) -> tuple[Correction, ...]:
    """Read a conversation's corrections, in the order they were made."""
    return tuple(
        Correction(
            conversation=conversation,
            posts=tuple(json.loads(each["posts"])),
            marks=tuple(json.loads(each["marks"])),
            text=each["text"],
            no=each["no"],
        )
        for each in rows(connection, "corrections_of", tenant=tenant, no=no)
    )


def last(connection: sqlite3.Connection, tenant: str, no: int) -> int:
    """Give the number of a conversation's newest correction, 0 for none."""
    return int(run(connection, "correction_last", tenant=tenant, no=no).fetchone()[0])


def keep(connection: sqlite3.Connection, scope: Scope, correction: Correction) -> bool:
    """Keep a correction; False where the conversation is gone."""
    row = one(connection, "conversation_by_id", tenant=scope.tenant, id=correction.conversation)
    if row is None:
        return False
    place = {"tenant": scope.tenant, "no": row["no"]}
    run(connection, "correction_again", **place, before=correction.before, text=correction.text)
    newest = of(connection, scope.tenant, row["no"], correction.conversation)[-1:]
    if [(each.posts, each.marks, each.text) for each in newest] == [
        (correction.posts, correction.marks, correction.text)
    ]:
        return True  # a memory of the same was corrected with it
    posts, marks = json.dumps(correction.posts, ensure_ascii=False), json.dumps(correction.marks)
    run(connection, "correction_insert", **place, posts=posts, marks=marks, text=correction.text)
    return True


def lose(connection: sqlite3.Connection, tenant: str, no: int, posts: Collection[str]) -> None:
    """Let posts be corrected no more: their words are gone."""
    for each in of(connection, tenant, no, ""):
        left = [post for post in each.posts if post not in posts]
        if not left:
            run(connection, "correction_delete", no=each.no)
        elif len(left) < len(each.posts):
            run(connection, "correction_posts", no=each.no, posts=json.dumps(left, ensure_ascii=False))
