"""What callers give to the Python API: each value's kind is looked at before anything is done with it."""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, get_args

from cuebook.config import Config
from cuebook.engine.drafts import Posted, check_name, check_text
from cuebook.engine.request import Call
from cuebook.engine.zones import read_zone
from cuebook.errors import InvalidInput
from cuebook.memory.scopes import SCOPES
from cuebook.ports.analyzer import Analyzer
from cuebook.prompts.names import check_project
from cuebook.records.conversation import Part, Role
from cuebook.records.turn import Ask
from cuebook.signals.judged import NAME as BY_MODEL

_TEXTS = ("text", "conversation", "user", "persona", "mode", "organization", "idempotency_key", "time_zone")
_NEEDED = ("text", "conversation")
_ROLES = get_args(Role)
#: How a file of SQLite begins, and how its name may end.
_SQLITE = b"SQLite format 3\x00"
_DATABASES = frozenset({".db", ".sqlite", ".sqlite3"})
#: The most hits one search gives.
MOST_HITS = 200
#: Characters of a wrong value that are shown.
_SHOWN = 60


def check_ask(ask: object) -> None:
    """Refuse what is no Ask, and one whose fields cannot be. Raises InvalidInput."""
    if not isinstance(ask, Ask):
        msg = f"ask: {_shown(ask)} is no Ask; give one: Ask(text, conversation)"
        raise InvalidInput(msg, where="ask")
    for name in _TEXTS:
        text = getattr(ask, name)
        _expect(text, str, name, "a string", optional=name not in _NEEDED)
        (check_text if name == "text" else check_name)(text or "", name)
    if not ask.conversation:
        msg = "conversation: empty; name the conversation"
        raise InvalidInput(msg, where="conversation")
    if ask.project is not None:
        check_project(ask.project)
    if ask.time_zone is not None:
        read_zone(ask.time_zone)
    _expect(ask.memory_control, Mapping, "memory_control", "a mapping", optional=True)
    _expect(ask.signals, Mapping, "signals", "a mapping", optional=True)
    signals: Mapping[str, object] = ask.signals or {}
    for name, value in signals.items():
        if not isinstance(value, float | int) or not 0.0 <= value <= 1.0:
            msg = f"signals.{name}: {value!r} is no signal; give a number from 0 to 1"
            raise InvalidInput(msg, where=f"signals.{name}")
    _check_parts(ask.attachments, "attachments")
    if not ask.text and not ask.attachments:
        msg = "text: empty; say something"
        raise InvalidInput(msg, where="message")
    if ask.token_budget is not None:
        _check_budget(ask.token_budget)


def check_call(call: Call) -> None:
    """Refuse a request of the OpenAI wire whose headers name what there cannot be. Raises InvalidInput."""
    check_project(call.project or "", where="X-Cuebook-Project")
    if call.time_zone is not None:
        read_zone(call.time_zone, "X-Time-Zone")


def check_append(conversation: object, posts: object, **names: object) -> None:
    """Refuse posts that are none. `names` are strings or None. Raises InvalidInput."""
    _expect(conversation, str, "conversation", "a string")
    check_name(str(conversation), "conversation")
    for name, value in names.items():
        _expect(value, str, name, "a string", optional=True)
        check_name(str(value or ""), name)
    if isinstance(posts, str | bytes | Mapping | Posted) or not isinstance(posts, Sequence):
        msg = f"posts: expected a list of posts, got {_shown(posts)}; put a single one into a list"
        raise InvalidInput(msg, where="posts")
    for number, post in enumerate(posts):
        _check_post(post, f"posts[{number}]")


def _check_post(post: object, place: str) -> None:
    if isinstance(post, Posted):
        for name in ("sender", "recipient", "message", "id"):
            _expect(getattr(post, name), str, f"{place}.{name}", "a string")
        if not post.sender and post.wire is None:
            msg = f"{place}.sender: empty; say who sends it"
            raise InvalidInput(msg, where=f"{place}.sender")
        _expect(post.created_at, Real, f"{place}.created_at", "seconds since 1970", optional=True)
        if post.role is not None and post.role not in _ROLES:
            msg = f"{place}.role: {_shown(post.role)} is no role; there are {', '.join(_ROLES)}"
            raise InvalidInput(msg, where=f"{place}.role")
        _check_parts(post.parts, f"{place}.parts")
    elif isinstance(post, Mapping):
        _expect(post.get("id"), str, f"{place}.id", "a string", optional=True)
        _expect(post.get("timestamp"), Real, f"{place}.timestamp", "seconds since 1970", optional=True)
    else:
        said = "Posted(sender=…, message=…), or a chat message such as {'role': 'user', 'content': …}"
        msg = f"{place}: {_shown(post)} is no post; give {said}"
        raise InvalidInput(msg, where=place)


def _check_parts(parts: object, place: str) -> None:
    if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Sequence):
        msg = f"{place}: expected a tuple of Part, got {_shown(parts)}"
        raise InvalidInput(msg, where=place)
    for number, part in enumerate(parts):
        at = f"{place}[{number}]"
        _expect(part, Part, at, "a Part(type, content)")
        _expect(part.type, str, f"{at}.type", "a string")
        _expect(part.content, str, f"{at}.content", "a string")


def check_search(query: object, limit: object, token_budget: object, scopes: object) -> None:
    """Refuse what cannot be looked for. Raises InvalidInput."""
    _expect(query, str, "query", "a string")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_HITS:
        msg = f"limit: {limit!r} is not between 1 and {MOST_HITS}"
        raise InvalidInput(msg, where="limit")
    if token_budget is not None:
        _check_budget(token_budget)
    if isinstance(scopes, str) or not isinstance(scopes, Sequence | None):
        msg = f"scopes: expected a list of scopes, got {_shown(scopes)}; put a single one into a list"
        raise InvalidInput(msg, where="scopes")
    for scope in scopes or ():
        if scope not in SCOPES:
            msg = f"scopes: no scope {scope!r}; there are {', '.join(SCOPES)}"
            raise InvalidInput(msg, where="scopes")


def _check_budget(budget: object) -> None:
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        msg = f"token_budget: {budget!r} is no number of tokens"
        raise InvalidInput(msg, where="tokenBudget")


def check_users(users: object) -> None:
    """Refuse what is no list of users' names. Raises InvalidInput."""
    if isinstance(users, str) or not isinstance(users, Sequence):
        msg = f"participants: expected a list of users, got {_shown(users)}"
        raise InvalidInput(msg, where="participants")
    for number, user in enumerate(users):
        _expect(user, str, f"participants[{number}]", "a string")
        check_name(user, f"participants[{number}]")
        if not user:
            msg = f"participants[{number}]: empty; name a user"
            raise InvalidInput(msg, where=f"participants[{number}]")


def check_settle(conversation: object, timeout: object) -> None:
    """Refuse what names no conversation and no time. Raises InvalidInput."""
    _expect(conversation, str, "conversation", "a string", optional=True)
    _expect(timeout, Real, "timeout", "a number of seconds")


def check_where(where: object, arguments: object) -> None:
    """Refuse what names no book: not a path of settings, not a Config, not nothing. Raises InvalidInput."""
    _expect(arguments, Mapping, "arguments", "a mapping such as {'budget.context': 100_000}", optional=True)
    if where is None:
        return
    if not isinstance(where, str | Path | Config):
        msg = f"where: {_shown(where)} names no book; give the path of a cuebook.toml or its folder, or a Config"
        raise InvalidInput(msg, where="where")
    if isinstance(where, Config) or not _is_database(Path(where)):
        return
    file = str(where)
    told = f"to keep a book in this file: Cuebook.open(arguments={{'store.url': {file!r}}})"
    msg = f"where: {file!r} is no cuebook.toml and no folder; {told}"
    raise InvalidInput(msg, where="where")


def _is_database(file: Path) -> bool:
    if file.is_dir():
        return False
    if file.suffix in _DATABASES:
        return True
    try:
        with file.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def check_parts_of(config: object, **given: object) -> None:
    """Refuse parts of a book that cannot do their work. Raises InvalidInput."""
    _expect(config, Config, "config", "a Config (Cuebook.open(path) reads one)")
    for name, needed in _PARTS.items():
        part = given.get(name)
        missing = [each for each in needed if part is not None and not hasattr(part, each)]
        if missing:
            msg = f"{name}: {_shown(part)} has no {missing[0]!r}; give an object with {', '.join(needed)}"
            raise InvalidInput(msg, where=name)


#: What each part of a book must have (`cuebook.ports`).
_PARTS = {
    "model": ("name", "stream", "aclose"),
    "embedder": ("name", "dimension", "languages", "akin", "embed", "aclose"),
    "upstream": ("base_url", "send", "aclose"),
    "clock": ("now",),
    "dice": ("new_id",),
}


def check_analyzers(analyzers: object) -> dict[str, Analyzer]:
    """Give the methods of sentiment given to a book by name; one may stand for a built-in one. Raises InvalidInput."""
    if isinstance(analyzers, str | bytes | Mapping) or not isinstance(analyzers, Sequence):
        msg = f"analyzers: expected a list of analyzers, got {_shown(analyzers)}; put a single one into a list"
        raise InvalidInput(msg, where="analyzers")
    found: dict[str, Analyzer] = {}
    for number, each in enumerate(analyzers):
        at = f"analyzers[{number}]"
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not callable(getattr(each, "read", None)):
            msg = f"{at}: {_shown(each)} is no analyzer; give an object with a name and `read(text) -> Sentiment`"
            raise InvalidInput(msg, where=at)
        if not name or name in found or name == BY_MODEL:
            reason = "is empty" if not name else "is the name of two" if name in found else "is what asks a model"
            msg = f"{at}: the name {name!r} {reason}; give it a name of its own"
            raise InvalidInput(msg, where=at)
        found[name] = each
    return found


def _expect(value: Any, kind: type, place: str, wanted: str, *, optional: bool = False) -> None:
    fits = isinstance(value, kind) and not (kind is Real and isinstance(value, bool))
    if not fits and not (optional and value is None):
        msg = f"{place}: expected {wanted}, got {_shown(value)}"
        raise InvalidInput(msg, where=place)


def _shown(value: object) -> str:
    """Show a wrong value with its kind, cut where it is long."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"
