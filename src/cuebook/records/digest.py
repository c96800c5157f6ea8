"""How things are named by what they say: 16-byte digests."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

#: Bytes of a digest: 128 bits, collision-free for any number of posts a machine can hold.
SIZE = 16


def digest_of(body: bytes) -> bytes:
    """Return the digest of a body."""
    return hashlib.blake2b(body, digest_size=SIZE).digest()


def keyed_digest(body: bytes, key: bytes) -> bytes:
    """Return the digest of a body under a key: nobody without it can try out what the body was."""
    return hashlib.blake2b(body, digest_size=SIZE, key=key[:64]).digest()


def text_digest(text: str) -> str:
    """Return the digest of a text in hex, as manifests name it."""
    return digest_of(text.encode("utf-8", "surrogatepass")).hex()


def chain(start: bytes, digests: Iterable[bytes]) -> bytes:
    """Return the digest of a path: that of the path before it and of the posts that follow."""
    hasher = hashlib.blake2b(start, digest_size=SIZE)
    for digest in digests:
        hasher.update(digest)
    return hasher.digest()


def messages_digest(messages: Sequence[bytes]) -> str:
    """Return the digest (hex) of rendered messages, their lengths in front so that boundaries count.

    SHA-256, cut to the size of the others: there is much to read, and processors do that one themselves.
    """
    hasher = hashlib.sha256(msgspec.json.encode(list(map(len, messages))))
    hasher.update(b"".join(messages))
    return hasher.digest()[:SIZE].hex()


def fence_of(key: bytes, conversation: str, turn: int) -> str:
    """Return the fence of a turn's volatile block: keyed, so that no stored text can guess it (DESIGN §6)."""
    return hashlib.blake2b(
        f"{conversation}\x00{turn}".encode("utf-8", "surrogatepass"), key=key[:64], digest_size=8
    ).hexdigest()
