"""The vault's key, and what is sealed with it: AES-256-GCM, bound to the place a value belongs to."""

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from cuebook.backends.system import KEY_BYTES, read_key
from cuebook.errors import Conflict, InvalidInput

#: Bytes of a nonce (NIST SP 800-38D; random ones are safe for 2^32 values under one key).
_NONCE = 12
_CHECK = b"cuebook vault key 1"


class Box:
    """Seals and opens under one key. `id` tells keys apart and reveals nothing of them: 32 hex digits."""

    def __init__(self, key: bytes, *, name: str = "the key given") -> None:
        """`name` says where the key came from. Raises InvalidInput for one of another length."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) != KEY_BYTES:
            msg = f"{name} is no key of the vault: give {2 * KEY_BYTES} hexadecimal digits, as `cuebook vault key` does"
            raise InvalidInput(msg, where="secrets.vault_key_file")
        self._cipher = AESGCM(key)
        self.name = name
        self.id = hmac.new(key, _CHECK, hashlib.sha256).hexdigest()[:32]

    def seal(self, values: tuple[str, ...], place: tuple[str, ...]) -> bytes:
        """Seal texts to their place."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, json.dumps(values).encode(), _bound(place))

    def open(self, body: bytes, place: tuple[str, ...]) -> tuple[str, ...] | None:
        """Open texts; None where they were sealed with another key, to another place, or altered."""
        from cryptography.exceptions import InvalidTag

        try:
            plain = self._cipher.decrypt(body[:_NONCE], body[_NONCE:], _bound(place))
        except (InvalidTag, ValueError):  # ValueError: shorter than a nonce
            return None
        return tuple(json.loads(plain))


def _bound(place: tuple[str, ...]) -> bytes:
    return json.dumps(place).encode()  # a list of strings: no two places give the same bytes


def new_key() -> str:
    """Make a key, as text."""
    return secrets.token_hex(KEY_BYTES)


def make_key_file(path: Path) -> None:
    """Make a key in a new file, its owner's alone. Raises Conflict where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        msg = f"{str(path)!r} is there already; name a new file, or what it keeps could be opened no more"
        raise Conflict(msg) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(new_key().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def box_from_text(text: str, *, name: str) -> Box:
    """Give the box of a key as text. Raises InvalidInput, never with the key in it."""
    return Box(read_key(text.encode("utf-8", "replace")) or b"", name=name)


def box_from_file(path: Path) -> Box:
    """Give the box of a key's file. Raises InvalidInput where it cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        msg = f"vault key file {str(path)!r} cannot be read ({error.strerror}); `cuebook vault key FILE` makes one"
        raise InvalidInput(msg, where="secrets.vault_key_file") from None
    return Box(read_key(raw) or b"", name=f"vault key file {str(path)!r}")
