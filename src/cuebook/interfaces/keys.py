"""Protocols for API keys, stored without their secrets, and for settings of organizations."""

from msgspec import Struct

from cuebook.records.key import Key


class PresentedKey(Struct, frozen=True):
    """A presented API key. `configured`: whether any keys exist, including revoked ones."""

    configured: bool
    key: Key | None = None
    digest: bytes = b""
