"""Compute a version's digest: the SHA-256 of everything that affects its rendering and its selection.

Included: sections and overrides in order, parameters in any order, engine, type, inherits, and metadata, whose
`context_weights` and model settings affect the selection. Excluded: location (slug, branch, number, file), author,
description, tags, semver and sync. Line ends are LF, so a checkout on Windows creates no new version.
"""

import hashlib
from operator import attrgetter
from typing import Any

import rfc8785
from msgspec.structs import asdict, replace

from cuebook.errors import InvalidInput
from cuebook.records.prompt import Version


def canonical(value: Any, *, where: str = "$") -> bytes:
    """Return a JSON value's canonical form (RFC 8785). Raises InvalidInput if it has none, such as NaN or 2**53."""
    try:
        return rfc8785.dumps(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{where}: no canonical JSON form: {error}", where=where) from error
    except RecursionError as error:
        raise InvalidInput(f"{where}: nested too deeply", where=where) from error


def digest_of(version: Version) -> str:
    """Return a version's digest in hex. Raises InvalidInput naming the field without a canonical form.

    Members are encoded one by one, in RFC 8785's order, so that an error names the member.
    """
    version = level(version)
    form = {
        "engine": version.engine,
        "inherits": version.inherits,
        "metadata": dict(version.metadata),
        "override_sections": list(version.override_sections.items()),
        "params": [asdict(param) for param in sorted(version.params, key=attrgetter("name"))],
        "sections": list(version.sections.items()),
        "type": version.type,
    }
    members = (canonical(field) + b":" + canonical(value, where=field) for field, value in form.items())
    return hashlib.sha256(b"{" + b",".join(members) + b"}").hexdigest()


def sealed(version: Version) -> Version:
    """Return a version in stored form: line ends LF, digest set."""
    unified = level(version)
    return replace(unified, digest=digest_of(unified))


def level(version: Version) -> Version:
    """Return a version with LF for every line end of its texts."""
    return replace(
        version,
        sections={name: unix(text) for name, text in version.sections.items()},
        override_sections={name: unix(text) for name, text in version.override_sections.items()},
        params=tuple(
            replace(param, default=param.default and unix(param.default), description=unix(param.description))
            for param in version.params
        ),
    )


def unix(text: str) -> str:
    """Return a text with LF for each CRLF and each CR."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
