"""Validate the arguments of the Python API: check each value's type before using it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuebook.config import SERVERS, Config, without_secret
from cuebook.engine.core.drafts import Posted, check_name, check_text
from cuebook.engine.core.services import read_zone
from cuebook.engine.proxy.request import RelayCall
from cuebook.errors import InvalidInput
from cuebook.interfaces import Analyzer
from cuebook.prompts.names import check_project
from cuebook.providers.regular_files import open_regular
from cuebook.records.turn import Ask
from cuebook.signals.sentiment import BY_MODEL
from cuebook.validate import check, format_value

#: Types of arguments that may be None.
_MAYBE: Any = str | None
_MAYBE_NUMBER: Any = float | None
_MAYBE_MAPPING: Any = Mapping[str, Any] | None
_NAMES = ("conversation", "user", "persona", "mode", "organization", "idempotency_key", "time_zone")
#: The first bytes of a SQLite file, and its usual name endings.
_SQLITE = b"SQLite format 3\x00"
_DATABASES = frozenset({".db", ".sqlite", ".sqlite3"})


def check_ask(ask: object) -> None:
    """Check an Ask and its fields. Raises InvalidInput."""
    if not isinstance(ask, Ask):
        msg = f"ask: expected Ask(text, conversation), got {format_value(ask)}"
        raise InvalidInput(msg, where="ask")
    check(ask, Ask)
    check_text(ask.text, "text")
    for name in _NAMES:
        check_name(getattr(ask, name) or "", name)
    if not ask.conversation:
        msg = "conversation: empty. Provide a conversation id."
        raise InvalidInput(msg, where="conversation")
    if ask.project is not None:
        check_project(ask.project)
    if ask.time_zone is not None:
        read_zone(ask.time_zone)
    if not ask.text and not ask.attachments:
        msg = "text: empty. Provide the message text."
        raise InvalidInput(msg, where="message")


def check_call(call: RelayCall) -> None:
    """Check the headers of a proxy request. Raises InvalidInput for a value that cannot be a name."""
    if call.project:
        check_project(call.project, where="X-Cuebook-Project")
    if call.time_zone is not None:
        read_zone(call.time_zone, "X-Time-Zone")


def check_append(conversation: object, posts: object, **names: object) -> None:
    """Check the posts to append; `names` must be strings or None. Raises InvalidInput."""
    for name, value in {"conversation": conversation, **names}.items():
        check_name(check(value, _MAYBE, name) or "", name)
    if isinstance(posts, str | bytes | Mapping | Posted) or not isinstance(posts, Sequence):
        msg = f"posts: expected a list of posts, got {format_value(posts)}. Put a single post into a list."
        raise InvalidInput(msg, where="posts")
    for number, post in enumerate(posts):
        _check_post(post, f"posts[{number}]")


def _check_post(post: object, place: str) -> None:
    if isinstance(post, Posted):
        check(post, Posted, place)
        if not post.sender and post.wire is None:
            msg = f"{place}.sender: empty. Provide the sender."
            raise InvalidInput(msg, where=f"{place}.sender")
    elif isinstance(post, Mapping):
        check(post.get("id"), _MAYBE, f"{place}.id")
        check(post.get("timestamp"), _MAYBE_NUMBER, f"{place}.timestamp")
    else:
        text = "Posted(sender=…, message=…), or a chat message such as {'role': 'user', 'content': …}"
        msg = f"{place}: expected {text}, got {format_value(post)}"
        raise InvalidInput(msg, where=place)


def check_users(users: object) -> None:
    """Check a list of user names. Raises InvalidInput."""
    for number, user in enumerate(check(users, tuple[str, ...], "participants")):
        check_name(user, f"participants[{number}]")
        if not user:
            msg = f"participants[{number}]: empty. Provide a user name."
            raise InvalidInput(msg, where=f"participants[{number}]")


def check_settle(conversation: object, timeout: object) -> None:
    """Check the arguments of `settle`. Raises InvalidInput."""
    check(conversation, _MAYBE, "conversation")
    check(timeout, float, "timeout")


def check_where(where: object, arguments: object) -> None:
    """Check `where`: the path of a settings file or its folder, a Config, or None. Raises InvalidInput."""
    check(arguments, _MAYBE_MAPPING, "arguments")
    if where is None:
        return
    if not isinstance(where, str | Path | Config):
        msg = f"where: not a project: {format_value(where)}. Pass a cuebook.toml, its folder, or a Config."
        raise InvalidInput(msg, where="where")
    if isinstance(where, Config):
        if arguments:
            msg = "arguments: not used with a Config. Set these settings in the Config."
            raise InvalidInput(msg, where="arguments")
        return
    place = without_secret(str(where))
    if place.startswith(("http://", "https://")):
        text = "Call a server's HTTP API, or use an adapter of cuebook.integrations, which takes its URL."
    elif place.startswith(SERVERS) or _is_database(Path(where)):
        text = f"To store data there, use Cuebook.open(arguments={{'store.url': {place!r}}})."
    else:
        return
    msg = f"where: not a cuebook.toml or a folder: {place!r}. {text}"
    raise InvalidInput(msg, where="where")


def _is_database(file: Path) -> bool:
    if file.is_dir():
        return False
    if file.suffix in _DATABASES:
        return True
    try:
        with open(file, "rb", opener=open_regular) as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def check_parts_of(config: object, **given: object) -> None:
    """Check that the objects passed to Cuebook implement their protocols. Raises InvalidInput."""
    if not isinstance(config, Config):
        msg = f"config: expected a Config, got {format_value(config)}. Use Cuebook.open(path) to load one."
        raise InvalidInput(msg, where="config")
    for name, needed in _PARTS.items():
        part = given.get(name)
        missing = [each for each in needed if part is not None and not hasattr(part, each)]
        if missing:
            msg = f"{name}: {format_value(part)} has no {missing[0]!r}. Pass an object with {', '.join(needed)}."
            raise InvalidInput(msg, where=name)


#: The required attributes of each object passed to Cuebook (`cuebook.interfaces`).
_PARTS = {
    "model": ("name", "stream", "aclose"),
    "embedder": ("name", "dimension", "languages", "akin", "embed", "aclose"),
    "upstream": ("base_url", "send", "aclose"),
    "clock": ("now",),
    "dice": ("new_id",),
}


def check_analyzers(analyzers: object) -> dict[str, Analyzer]:
    """Return the sentiment analyzers passed to Cuebook, by name. One may replace a built-in one.

    Raises InvalidInput.
    """
    if isinstance(analyzers, str | bytes | Mapping) or not isinstance(analyzers, Sequence):
        msg = f"analyzers: expected a list of analyzers, got {format_value(analyzers)}. Put a single one into a list."
        raise InvalidInput(msg, where="analyzers")
    found: dict[str, Analyzer] = {}
    for number, each in enumerate(analyzers):
        at = f"analyzers[{number}]"
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not callable(getattr(each, "read", None)):
            msg = f"{at}: not an analyzer: {format_value(each)}. It needs a name and `read(text) -> Sentiment`."
            raise InvalidInput(msg, where=at)
        if not name or name in found or name == BY_MODEL:
            reason = "is empty" if not name else "is used twice" if name in found else "is reserved for the model"
            msg = f"{at}: the name {name!r} {reason}. Choose another name."
            raise InvalidInput(msg, where=at)
        found[name] = each
    return found
