"""The file of a backup: a compressed tar archive that begins with a manifest of digests, and can be encrypted.

Encryption is AES-256-GCM in chunks under a key that scrypt derives from the passphrase. A chunk's nonce is its number
and whether it is the last one (STREAM, as in the age format), so that a moved, missing or cut chunk is noticed.
"""

import gzip
import io
import os
import secrets
import shutil
import tarfile
import zlib
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Literal, Self, cast

import msgspec
from msgspec import Struct

from cuebook.errors import Conflict, InvalidInput, StoreFull
from cuebook.providers.regular_files import open_regular

MANIFEST: Final = "manifest.json"
#: The first bytes of an encrypted archive.
_MAGIC: Final = b"cuebook backup 1\n"
_SALT, _CHUNK, _TAG, _COUNTER = 16, 1 << 16, 16, 11
_BLOCK = 1 << 20
#: Most bytes of a manifest: it has about 150 bytes per file.
_MOST = 64 << 20


class ArchivedFile(Struct, frozen=True):
    """A file of the archive: its path in the project, its size in bytes and its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a backup. `outside` are settings whose files are outside of the project, which it lacks."""

    format: Literal[1] = 1
    created_at: str  # ISO 8601 UTC
    cuebook: str  # the version that made it
    database: Literal["sqlite", "postgresql"]
    database_file: str  # the database or its dump among the files
    schema: int
    key_file: str = ""  # the key of API keys and the audit log among the files
    with_keys: bool
    outside: tuple[str, ...] = ()
    files: tuple[ArchivedFile, ...] = ()


# ---- write ----------------------------------------------------------------------------------------------------------


def write_archive(target: Path, folder: Path, manifest: Manifest, *, passphrase: str = "") -> Manifest:
    """Write all files of a folder to a new archive, readable by its owner only. Return the manifest with its files.

    Raises Conflict if the archive exists, OSError.
    """
    names = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
    whole = msgspec.structs.replace(manifest, files=tuple(_described(folder, name) for name in names))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            sealed = _Sealing(file, passphrase) if passphrase else file
            with (
                gzip.GzipFile(fileobj=cast("IO[bytes]", sealed), mode="wb", compresslevel=1, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                document = msgspec.json.encode(whole)
                archive.addfile(_member(MANIFEST, len(document)), io.BytesIO(document))
                for each in whole.files:
                    with (folder / each.name).open("rb") as content:
                        archive.addfile(_member(each.name, each.size), content)
            if sealed is not file:
                sealed.close()
            file.flush()
            os.fsync(file.fileno())
        _publish(beside, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        beside.unlink(missing_ok=True)
    return whole


def _described(folder: Path, name: str) -> ArchivedFile:
    digest, size = sha256(), 0
    with (folder / name).open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return ArchivedFile(name, size, digest.hexdigest())


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def _publish(beside: Path, target: Path) -> None:
    """Rename a finished file, unless its name is taken."""
    try:
        os.link(beside, target)
    except FileExistsError:
        raise exists(target) from None
    except OSError:  # a file system without hard links
        if target.exists():
            raise exists(target) from None
        beside.replace(target)


def exists(target: Path) -> Conflict:
    """Return the error that a file exists."""
    return Conflict(f"File exists: {str(target)!r}. Choose another name.")


# ---- read -----------------------------------------------------------------------------------------------------------


def is_encrypted(file: Path) -> bool:
    """Return whether an archive is encrypted. Raises OSError."""
    with open(file, "rb", opener=open_regular) as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


def read_archive(file: Path, into: Path, *, passphrase: str = "") -> Manifest:
    """Extract an archive to an empty folder, and check each file against the manifest. Return the manifest.

    Raises InvalidInput for a wrong passphrase, or if anything is missing, changed or not in the manifest, and StoreFull
    if its files do not fit.
    """
    try:
        with open(file, "rb", opener=open_regular) as opened:
            source: Any = opened
            if opened.read(len(_MAGIC)) == _MAGIC:
                source = io.BufferedReader(_Opening(opened, passphrase), _CHUNK)
            else:
                opened.seek(0)
            with (
                gzip.GzipFile(fileobj=source) as packed,
                tarfile.open(fileobj=packed, mode="r|", tarinfo=_BoundedHeader) as archive,
            ):
                manifest = _extract_all(archive, into)
                if len(packed.read(_BLOCK)) == _BLOCK:  # to the end, whose checksum also counts
                    raise _damaged("the end")
            names = {each.name for each in manifest.files}
            for name in filter(None, (manifest.database_file, manifest.key_file)):
                if name not in names:  # it may be outside of the folder
                    raise _damaged(name)
            return manifest
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        msg = f"{str(file)!r} is not a backup, or it is damaged ({error}). Use another backup."
        raise InvalidInput(msg, where="file") from error


class _BoundedHeader(tarfile.TarInfo):
    """A header of the archive. Extended ones, which tarfile reads at once, have a limit."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header. Raises HeaderError."""
        header = super().frombuf(buf, encoding, errors)
        if not header.isreg() and header.size > _BLOCK:
            msg = f"a header has {header.size:,} bytes"
            raise tarfile.HeaderError(msg)
        return header


def _extract_all(archive: tarfile.TarFile, into: Path) -> Manifest:
    members = iter(archive)
    first = next(members, None)
    if first is None or first.name != MANIFEST or first.size > _MOST:
        msg = "The backup has no manifest. Use a file that `cuebook backup` made."
        raise InvalidInput(msg, where="file")
    try:
        manifest = msgspec.json.decode(_content(archive, first).read(), type=Manifest)
    except ValueError as error:  # of msgspec, or not UTF-8
        msg = f"The manifest of the backup is not valid ({error}). A newer version of Cuebook may have made it."
        raise InvalidInput(msg, where="file") from error
    needed, free = sum(each.size for each in manifest.files), shutil.disk_usage(into).free
    if needed > free:
        msg = f"The backup needs {needed:,} bytes in {str(into)!r}, which has {free:,}. Free some space."
        raise StoreFull(msg)
    missing = {each.name: each for each in manifest.files}
    for member in members:
        expected = missing.pop(member.name, None)
        if expected is None or not _is_safe(member.name) or member.size != expected.size:
            raise _damaged(member.name)
        _extract(_content(archive, member), into / member.name)
        if _described(into, member.name) != expected:
            raise _damaged(member.name)
    if missing:
        raise _damaged(next(iter(missing)))
    return manifest


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise _damaged(member.name)
    return content


def _extract(content: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while block := content.read(_BLOCK):
            file.write(block)


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and not any(each in name for each in "\\:\x00")


def _damaged(name: str) -> InvalidInput:
    msg = f"The backup is damaged: {name!r} is missing, was changed or is not in its manifest. Use another backup."
    return InvalidInput(msg, where="file")


# ---- encryption -----------------------------------------------------------------------------------------------------


def _cipher(passphrase: str, salt: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode()))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(_COUNTER) + bytes([last])


class _Sealing(io.RawIOBase):
    """Encrypts what is written to a file. `close` writes the last chunk."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        salt = secrets.token_bytes(_SALT)
        file.write(_MAGIC + salt)
        self._file = file
        self._cipher = _cipher(passphrase, salt)
        self._number = 0
        self._plain = bytearray()

    def write(self, data: Any) -> int:
        """Encrypt all full chunks but the last one, which may be the end."""
        self._plain += data
        while len(self._plain) > _CHUNK:
            self._seal(bytes(self._plain[:_CHUNK]), last=False)
            del self._plain[:_CHUNK]
        return len(data)

    def close(self) -> None:
        """Write the last chunk. The file stays open."""
        if not self.closed:
            self._seal(bytes(self._plain), last=True)
        super().close()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, None))
        self._number += 1


class _Opening(io.RawIOBase):
    """Decrypts a file from its salt on. Raises InvalidInput for a wrong passphrase or a changed file."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        self._file = file
        self._cipher = _cipher(passphrase, file.read(_SALT))
        self._number = 0
        self._plain = b""
        self._next = file.read(_CHUNK + _TAG)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Decrypt the next chunk if nothing is left of the previous one."""
        from cryptography.exceptions import InvalidTag

        while not self._plain and self._next:
            chunk, self._next = self._next, self._file.read(_CHUNK + _TAG)
            try:
                self._plain = self._cipher.decrypt(_nonce(self._number, last=not self._next), chunk, None)
            except InvalidTag:
                msg = "The backup cannot be decrypted: the passphrase is wrong, or the file is damaged."
                raise InvalidInput(msg, where="passphrase") from None
            self._number += 1
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count
