"""Find and erase what manual corrections of memory concern: summaries, items and memories derived from a post."""

import json
from collections import Counter

from cuebook.memory.corrections import says
from cuebook.records.memory import Correction
from cuebook.records.turn import Manifest
from cuebook.storage.access import ConversationRow, keep_corrections, raise_epoch, unuse
from cuebook.storage.database.columns import decode, encode_json
from cuebook.storage.memories import deliver_anew
from cuebook.storage.tree import tip_at

#: Block kinds made from a summary.
_SUMMARY = "summary:"
#: Turn metadata made from a summary.
_ROLLING = "rollingSummary"


def standing(row: ConversationRow, upto: int) -> int:
    """Return the newest summary version that ends at a post, 0 for none."""
    return int(row.value("summary_ending", mark=upto) or 0)


def forgotten(row: ConversationRow, correction: Correction) -> Counter[str]:
    """Erase a conversation's data derived from erased text; it is derived again from the remaining posts.

    If no derived data contains the text, nothing changes.
    """
    keep_corrections(row.transaction, correction)
    posts = set(correction.posts)
    entries = [
        each
        for each in row.rows("items_of")
        if posts.intersection(json.loads(each["sources"])) and says(each["text"], correction)
    ]
    lines = [line for (text,) in row.run("summaries_told") for line in text.split("\n")]
    if not entries and not any(says(line, correction) for line in lines):
        return Counter()
    items = len({each["id"] for each in entries})
    row.run("delete_items")
    counts = Counter({"items": items, "summaries": row.run("delete_summaries").rowcount})
    counts["texts"] = _from_windows(row)
    row.run("delete_outbox")
    tip = tip_at(row, row.head)
    row.run("conversation_derived_anew", backlog=tip.path_count, backlog_tokens=tip.path_tokens)
    deliver_anew(row.transaction, row.no)
    raise_epoch(row.transaction, "conversation", str(row.no))
    return counts


def _from_windows(row: ConversationRow) -> int:
    """Remove summaries from the windows that showed them; return the number of deleted texts."""
    digests = {
        bytes.fromhex(text.digest)
        for raw, _ in row.run("manifests_of").fetchall()
        for manifest in (decode(Manifest, raw),)
        for text in (*manifest.front, *manifest.volatile)
        if text.source.startswith(_SUMMARY)
    }
    for turn in row.rows("turns_told"):
        value = json.loads(turn["metadata"])
        if value.pop(_ROLLING, None) is not None:
            row.run("turn_metadata", n=turn["n"], metadata=encode_json(value))
    return sum(unuse(row.transaction, row.no, digest) for digest in digests)
