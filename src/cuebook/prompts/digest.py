"""What makes two versions the same: the SHA-256 of all that decides what is rendered and when it is chosen.

In: sections and overrides in their order, parameters (theirs does not count), engine, type, inherits, metadata, for
its `context_weights` and model settings steer. Out: where it stands (slug, branch, number, file), who wrote it, its
description, tags, semver and sync. Line ends are LF, so a checkout on Windows makes no version.
"""

import hashlib
from operator import attrgetter
from typing import Any

import msgspec
import rfc8785

from cuebook.errors import InvalidInput
from cuebook.records.prompt import Param, Version


def canonical(value: Any, *, where: str = "$") -> bytes:
    """Return a JSON value's one form (RFC 8785). Raises InvalidInput for what has none, such as NaN or 2**53."""
    try:
        return rfc8785.dumps(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{where}: no JSON of one form: {error}", where=where) from error
    except RecursionError as error:
        raise InvalidInput(f"{where}: nests too deep", where=where) from error


def digest_of(version: Version) -> str:
    """Return a version's digest in hex. Raises InvalidInput naming the field that has no canonical form.

    Members are written one by one, so that an error names its own; they stand in RFC 8785's order.
    """
    version = level(version)
    form = {
        "engine": version.engine,
        "inherits": version.inherits,
        "metadata": dict(version.metadata),
        "override_sections": list(version.override_sections.items()),
        "params": [msgspec.structs.asdict(param) for param in sorted(version.params, key=attrgetter("name"))],
        "sections": list(version.sections.items()),
        "type": version.type,
    }
    members = (canonical(field) + b":" + canonical(value, where=field) for field, value in form.items())
    return hashlib.sha256(b"{" + b",".join(members) + b"}").hexdigest()


def sealed(version: Version) -> Version:
    """Return a version as it is stored: line ends LF, its digest set."""
    unified = level(version)
    return msgspec.structs.replace(unified, digest=digest_of(unified))


def level(version: Version) -> Version:
    """Return a version with LF for every line end of its texts."""
    return msgspec.structs.replace(
        version,
        sections={name: unix(text) for name, text in version.sections.items()},
        override_sections={name: unix(text) for name, text in version.override_sections.items()},
        params=tuple(_unix_param(param) for param in version.params),
    )


def unix(text: str) -> str:
    """Return a text with LF for each CRLF and each CR."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _unix_param(param: Param) -> Param:
    default = None if param.default is None else unix(param.default)
    return msgspec.structs.replace(param, default=default, description=unix(param.description))
