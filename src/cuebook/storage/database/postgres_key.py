"""The key of API keys, receipts and audit records in a PostgreSQL database: encrypted, or only its fingerprint."""

import secrets
from hashlib import sha256

from cuebook.errors import InvalidInput
from cuebook.storage.database.postgres import no_tables, schema_of
from cuebook.storage.database.postgres_connection import connected


def stored_key(url: str, secret: str, *, new: bytes = b"") -> bytes:
    """Return the key that a database stores, encrypted with `secret`. If it has none, store `new`.

    Blocks. Raises BackendError, and InvalidInput if there is no key, or for another secret.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    def cipher(salt: bytes) -> AESGCM:
        return AESGCM(Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(secret.encode()))

    with connected(url) as connection:
        if schema_of(connection) is None:
            raise no_tables()
        if new:
            salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
            body = salt + nonce + cipher(salt).encrypt(nonce, new, None)
            connection.execute("INSERT INTO wrapped_key VALUES (1, %s) ON CONFLICT DO NOTHING", (body,))
        row = connection.execute("SELECT body FROM wrapped_key WHERE no = 1").fetchone()
    if row is None:
        msg = "store.url: the database has no key. Run `cuebook db init` with CUEBOOK_KEY_SECRET set."
        raise InvalidInput(msg, where="store.url")
    body = bytes(row[0])
    try:
        return cipher(body[:16]).decrypt(body[16:28], body[28:], None)
    except InvalidTag:
        msg = "CUEBOOK_KEY_SECRET is not the one with which the database's key was stored. Set that one."
        raise InvalidInput(msg, where="CUEBOOK_KEY_SECRET") from None


def confirm_key(url: str, key: bytes, *, store: bool = False) -> None:
    """Check that a key is the one of a database, by its fingerprint; with `store`, store that if there is none. Blocks.

    Raises InvalidInput for another key.
    """
    mark = sha256(b"cuebook key\0" + key).digest()
    with connected(url) as connection:
        if schema_of(connection) is None:
            raise no_tables()
        if store:
            connection.execute("INSERT INTO wrapped_key VALUES (2, %s) ON CONFLICT DO NOTHING", (mark,))
        row = connection.execute("SELECT body FROM wrapped_key WHERE no = 2").fetchone()
    if row is not None and bytes(row[0]) != mark:
        msg = (
            "The database was set up with another key. Copy the key file of a machine that uses it, or set its secret."
        )
        raise InvalidInput(msg, where="secrets.key_file")
