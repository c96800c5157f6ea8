"""Select the time zone of a request: its own, else the conversation's, else the project's.

Names are those of the IANA database, which includes daylight saving time.
"""

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from cuebook.errors import InvalidInput
from cuebook.memory.tokenizer import redated
from cuebook.records.conversation import Conversation, Draft

#: Key of a conversation's time zone in its metadata, and field name on the wire.
KEPT: Final = "timeZone"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:[_/][A-Za-z0-9+-]+){0,6}")
#: Zone files that are not places, or that count leap seconds.
_NO_PLACE = ("posix/", "right/", "localtime", "posixrules", "Factory")
_LONGEST: Final = 64


def read_zone(name: object, where: str = KEPT) -> tzinfo:
    """Return the time zone of a name. Raises InvalidInput naming the field."""
    if isinstance(name, str) and len(name) <= _LONGEST and _NAME.fullmatch(name) and not name.startswith(_NO_PLACE):
        try:
            return UTC if name == "UTC" else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # the name is a directory
    msg = f"{where}: unknown time zone {name!r:.80}. Use an IANA name such as Europe/Amsterdam, or UTC."
    raise InvalidInput(msg, where=where)


def zone_of(label: str | None, conversation: Conversation | None, otherwise: tzinfo) -> tzinfo:
    """Return the effective time zone. A stored name unknown to this machine is ignored. Raises InvalidInput."""
    if label is not None:
        return read_zone(label)
    name: Any = conversation.metadata.get(KEPT) if conversation else None
    if name is None:
        return otherwise
    try:
        return read_zone(name)
    except InvalidInput:
        return otherwise


def dated(drafts: Sequence[Draft], zone: tzinfo) -> tuple[Draft, ...]:
    """Return drafts with a search key for their day in a time zone."""
    if zone is UTC:
        return tuple(drafts)
    return tuple(
        msgspec.structs.replace(each, key=redated(each.key, each.created_at, zone)) if each.key else each
        for each in drafts
    )
