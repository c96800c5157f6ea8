"""Read and publish repositories in a folder (`file:///`) or at a server (`klp://`, `https://`). All functions block."""

import ipaddress
import os
import re
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx2
from msgspec import Struct

from cuebook.app.files import ZIP_ERRORS, open_zip, read_bytes
from cuebook.app.sync.repository import MAX_TARGET, MAX_TOTAL
from cuebook.errors import BackendError, Denied, InvalidInput, SyncRefused, TooLarge, Unproven
from cuebook.prompts.names import check_project
from cuebook.wire.answer import as_dict, read_json

#: The port of `klp://`, and the path of its spaces.
PORT: Final = 8760
PATH: Final = "/klp/v1"
TIMEOUT_S: Final = 30.0
#: Ending of a file that is not complete yet.
_NEW: Final = ".new"
_PIECE: Final = 64 * 1024
#: A file of a repository: `metadata/3.targets.json`, `targets/prompts/persona/HASH.kind.json`.
_FILE: Final = re.compile(r"(?:metadata|targets)(?:/[a-z0-9_][a-z0-9_.-]*)+")


class Location(Struct, frozen=True, kw_only=True):
    """A space: a folder, or the address of a server."""

    address: str
    folder: Path | None = None
    url: str = ""
    key: str = ""

    def projects(self) -> list[str]:
        """Return the names of the projects that publish here. Raises SyncRefused for a name that is a path."""
        names: object
        if self.folder is not None:
            try:
                names = [each.name for each in self.folder.iterdir() if (each / "metadata").is_dir()]
            except FileNotFoundError:
                if not self.folder.parent.is_dir():  # a stick that is not there
                    msg = f"{self.address}: the folder {str(self.folder.parent)!r} does not exist. Create it first."
                    raise InvalidInput(msg, where="location") from None
                names = []
            except NotADirectoryError as error:
                msg = f"Not a folder: {self.address}. Choose another location."
                raise InvalidInput(msg, where="location") from error
            except OSError as error:
                raise _unreadable(self.address, error) from error
        else:
            names = as_dict(read_json(self._get(f"{self.url}/"))).get("projects")
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            msg = f"{self.address} is not a Cuebook server. Check the address."
            raise InvalidInput(msg, where="location")
        return sorted(check_name(each) for each in names)

    def has(self, project: str, names: Collection[str]) -> bool:
        """Return whether a project's place is in use, also by other files. Raises SyncRefused for a link in it."""
        if self.folder is None:
            return project in names
        check_links(self.folder / project)
        return any(not each.is_dir() and not each.name.endswith(_NEW) for each in (self.folder / project).rglob("*"))

    def fetch(self, project: str, path: str) -> bytes:
        """Return a project's file. Raises FileNotFoundError, BackendError, SyncRefused."""
        if self.folder is not None:
            return read_repository_file(self.folder / project, path)
        return self._get(f"{self.url}/{project}/{check_file(path)}")

    def publish(self, project: str, repository: Path) -> None:
        """Publish a repository. Raises Denied, BackendError, SyncRefused."""
        if self.folder is not None:
            try:
                copy_repository(repository, self.folder / project)
            except OSError as error:
                msg = f"{self.address} cannot be written ({error.strerror}). Check its permissions."
                raise BackendError(msg) from error
            return
        headers = {"content-type": "application/zip"}
        with suppress(FileNotFoundError):
            newest = self.fetch(project, "metadata/timestamp.json")
            if newest == (repository / "metadata/timestamp.json").read_bytes():
                return
        with self._client() as client:
            try:
                response = client.put(f"{self.url}/{project}", content=pack(repository), headers=headers)
            except httpx2.HTTPError as error:
                raise _unreadable(self.address, error) from error
        self._check(response, response.content)

    def _get(self, url: str) -> bytes:
        data = bytearray()
        with self._client() as client:
            try:
                with client.stream("GET", url) as response:
                    for piece in response.iter_bytes(_PIECE):
                        data += piece
                        if len(data) > MAX_TARGET:
                            msg = f"{url} has more than {MAX_TARGET:,} bytes."
                            raise SyncRefused(msg, reason="oversize")
            except httpx2.HTTPError as error:
                raise _unreadable(self.address, error) from error
        if response.status_code == 404 and url != f"{self.url}/":
            raise FileNotFoundError(url)
        self._check(response, bytes(data))
        return bytes(data)

    def _client(self) -> httpx2.Client:
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx2.Client(headers=headers, timeout=TIMEOUT_S)

    def _check(self, response: httpx2.Response, data: bytes) -> None:
        """Raise the error of a server's answer."""
        if response.is_success:
            return
        detail = str(as_dict(read_json(data)).get("detail") or "") or f"HTTP status {response.status_code}"
        if response.status_code == 401:
            what = "rejected the API key. Check" if self.key else "requires an API key. Set"
            msg = f"{self.address} {what} the environment variable that sync.api_key_env names."
            raise Unproven(msg)
        if response.status_code == 403:
            raise Denied(f"{self.address}: {detail}")
        if response.status_code in (400, 409, 413):
            raise SyncRefused(f"{self.address} refused the prompts: {detail}", reason="hub")
        detail = detail.rstrip(".")
        raise BackendError(f"{self.address}: {detail}. Check the address.", retryable=response.status_code >= 500)


def _unreadable(address: str, error: Exception) -> BackendError:
    cause = getattr(error, "strerror", None) or str(error).partition("] ")[2] or str(error)  # without an errno
    if "wrong version number" in cause:
        cause = "the server does not use TLS"
    return BackendError(f"Cannot reach {address}: {cause}. Check the address.", retryable=True)


def read_location(address: str, environment: Mapping[str, str] | None = None, key_env: str = "") -> Location:
    """Parse an address. `key_env` names the variable with the API key. Raises InvalidInput."""
    where = "location"
    try:
        parts = urlsplit(address)
    except ValueError as error:  # brackets around something that is no address
        msg = f"Unknown address {address!r} ({error}). Use klp://HOST[:PORT]/SPACE."
        raise InvalidInput(msg, where=where) from None
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            msg = f"{address!r} is not a folder. Write it like file:///media/stick/prompts."
            raise InvalidInput(msg, where=where)
        return Location(address=address, folder=Path(unquote(parts.path)))
    host, name = parts.hostname or "", parts.path.strip("/")
    if parts.scheme not in ("klp", "https", "http") or not host or not name or parts.query or parts.username:
        msg = f"Unknown address {address!r}. Use klp://HOST[:PORT]/SPACE, https://HOST/klp/v1/SPACE or file:///DIR."
        raise InvalidInput(msg, where=where)
    try:
        port = parts.port
    except ValueError:
        msg = f"{address!r}: the port is not a number from 1 to 65535."
        raise InvalidInput(msg, where=where) from None
    local = is_loopback(host)
    if parts.scheme == "http" and not local:
        msg = f"{address!r} is not encrypted. Use https://; plain HTTP works on this machine only."
        raise InvalidInput(msg, where=where)
    if parts.scheme == "klp":
        check_project(name, where=where, what="space name")
        scheme, place = "http" if local else "https", f"{PATH}/{name}"
        port = port or PORT
    else:
        scheme, place = parts.scheme, f"/{name}"
    shown = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{shown}{f':{port}' if port else ''}{place}"
    key = (environment if environment is not None else os.environ).get(key_env, "")
    return Location(address=address, url=url, key=key)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_name(name: str, what: str = "project name") -> str:
    """Return a project's or space's name. Raises SyncRefused for one that is not a part of an id, such as a path."""
    try:
        return check_project(name or "/", what=what)
    except InvalidInput as error:
        raise SyncRefused(f"{error}.", reason="path") from error


def check_file(path: str) -> str:
    """Return the path of a repository's file. Raises SyncRefused for one outside of it."""
    if not _FILE.fullmatch(path) or ".." in path:
        msg = f"{path!r} is not a file of a repository, and could lead out of its folder. Do not use it."
        raise SyncRefused(msg, reason="path")
    return path


def read_repository_file(folder: Path, path: str, *, most: int = MAX_TARGET) -> bytes:
    """Return a file of a repository's folder. Raises FileNotFoundError, and SyncRefused for a link out of it."""
    file = folder / check_file(path)
    if not file.exists():
        raise FileNotFoundError(path)
    if not file.resolve().is_relative_to(folder.resolve()):
        msg = f"The file {path!r} is a link out of its repository. Remove it."
        raise SyncRefused(msg, reason="path")
    try:
        return read_bytes(file, f"{folder.name}/{path}", most=most, advice="Publish it again.")
    except TooLarge as error:
        raise SyncRefused(str(error), reason="oversize") from error


def check_links(folder: Path) -> None:
    """Check that a folder is no link and has none: a write would follow it. Raises SyncRefused."""
    for each in (folder, *folder.rglob("*")):
        if each.is_symlink():
            raise SyncRefused(f"{str(each)!r} is a link. Sync writes into no links: remove it.", reason="path")


def copy_repository(source: Path, target: Path) -> None:
    """Copy a repository over another, so that a reader sees the old or the new one: `timestamp.json` comes last.

    Raises OSError, and SyncRefused for a link in the target.
    """
    check_links(target)
    files = sorted(
        files_of(source),
        key=lambda each: (each == "metadata/timestamp.json", ".root.json" not in each, "metadata/" in each),
    )
    for path in files:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}{_NEW}")
        new.unlink(missing_ok=True)
        with new.open("xb") as stream:  # fails at a link that somebody has made meanwhile
            stream.write((source / path).read_bytes())
        new.replace(place)
    wanted = set(files)
    for path in files_of(target):
        if path not in wanted:
            (target / path).unlink()


def files_of(repository: Path) -> list[str]:
    """Return the paths of a repository's files."""
    paths = (each.relative_to(repository).as_posix() for each in repository.rglob("*") if each.is_file())
    return sorted(each for each in paths if _FILE.fullmatch(each))


# ---- archives -------------------------------------------------------------------------------------------------------


def pack(repository: Path) -> bytes:
    """Return a repository as a zip archive."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files_of(repository):
            archive.writestr(zipfile.ZipInfo(path), (repository / path).read_bytes(), zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Extract an archive into a new folder. Raises SyncRefused for a member outside of it, and for too much data."""
    try:
        with open_zip(BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(each.file_size for each in members) > MAX_TOTAL:
                raise SyncRefused(f"The archive has more than {MAX_TOTAL:,} bytes.", reason="oversize")
            for each in members:
                place = folder / check_file(each.filename)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(each))
    except ZIP_ERRORS as error:
        msg = f"Not a bundle of prompts ({error}). Create one with `cuebook prompt bundle FILE`."
        raise InvalidInput(msg, where="file") from error
