"""Content hashes: 16-byte digests that identify texts, paths and messages."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

#: Bytes of a digest: 128 bits, collision-free for any number of posts on one machine.
SIZE = 16


def digest_of(body: bytes) -> bytes:
    """Return the digest of a body."""
    return hashlib.blake2b(body, digest_size=SIZE).digest()


def keyed_digest(body: bytes, key: bytes) -> bytes:
    """Return the keyed digest of a body, which cannot be guessed without the key."""
    return hashlib.blake2b(body, digest_size=SIZE, key=key[:64]).digest()


def text_digest(text: str) -> str:
    """Return the digest of a text in hex, as used in manifests."""
    return digest_of(text.encode("utf-8", "surrogatepass")).hex()


def chain(start: bytes, digests: Iterable[bytes]) -> bytes:
    """Return the digest of a path from the digest of the path before it and those of the following posts."""
    hasher = hashlib.blake2b(start, digest_size=SIZE)
    for digest in digests:
        hasher.update(digest)
    return hasher.digest()


def messages_digest(messages: Sequence[bytes]) -> str:
    """Return the digest (hex) of rendered messages, each prefixed with its length to mark boundaries.

    Truncated SHA-256: the input is large, and processors have instructions for it.
    """
    hasher = hashlib.sha256(msgspec.json.encode(list(map(len, messages))))
    hasher.update(b"".join(messages))
    return hasher.digest()[:SIZE].hex()


def fence_of(key: bytes, conversation: str, turn: int) -> str:
    """Return the fence of a turn's volatile block: keyed, so that no stored text can contain it."""
    return hashlib.blake2b(
        f"{conversation}\x00{turn}".encode("utf-8", "surrogatepass"), key=key[:64], digest_size=8
    ).hexdigest()
