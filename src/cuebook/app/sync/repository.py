"""Write and verify a project's signed repository: TUF metadata by python-tuf, DSSE envelopes by securesystemslib.

All functions block. They work on a folder with `metadata/` and `targets/`; `locations.py` moves repositories.
"""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from cuebook.app.files import write_whole
from cuebook.errors import BackendError, Conflict, CuebookError, InvalidInput, SyncRefused, UnknownSigner
from cuebook.prompts.names import check_slug
from cuebook.prompts.revisions import Revision, check_history, read_revision
from cuebook.providers.clock_and_ids import database_key

#: Maximum bytes of a file, such as all revisions of a prompt, and of a repository.
MAX_TARGET: Final = 4 * 1024 * 1024
MAX_TOTAL: Final = 64 * 1024 * 1024
#: Maximum number of key rotations.
_MAX_ROOTS: Final = 256
PAYLOAD_TYPE: Final = "application/vnd.cuebook.prompt+json"
#: Folder and ending of the targets with prompts.
PROMPTS, JSON = "prompts/", ".json"
#: The key in the targets metadata that names the project.
_PROJECT: Final = "x-cuebook-project"
_ROLES: Final = ("root", "targets", "snapshot", "timestamp")
#: A fingerprint: the SHA-256 of a raw public key.
_FINGERPRINT: Final = re.compile(r"(?:SHA256:)?([0-9a-f]{64})", re.IGNORECASE)

#: Returns a file of a repository by its path, at most MAX_TARGET bytes. Raises FileNotFoundError, CuebookError.
Fetch = Callable[[str], bytes]


class Published(Struct, frozen=True, kw_only=True):
    """A verified repository: the project's name, its files by path, its expiry, and fingerprints of its keys.

    `signers` signed the newest root, the newest key last. `replaced` signed earlier roots only.
    """

    project: str
    signers: Sequence[str]
    replaced: Collection[str]
    files: Mapping[str, bytes]
    expires_at: float
    keys: Any  # the securesystemslib keys that may sign its envelopes

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of its newest key."""
        return self.signers[-1]


def check_installed() -> None:
    """Check that the extra `sync` is installed. Raises InvalidInput."""
    try:
        import securesystemslib
        import tuf
    except ImportError as error:
        msg = "Prompt sync is not installed. Install cuebook[sync]."
        raise InvalidInput(msg, where="sync") from error
    _ = securesystemslib, tuf


# ---- keys -----------------------------------------------------------------------------------------------------------


def signers_of(folder: Path) -> list[Any]:
    """Return the signers of a project, the current key first; the key is created once, with mode 0600."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import CryptoSigner

    files = [folder / "key", *filter(Path.exists, [folder / "key.old"])]
    return [CryptoSigner(Ed25519PrivateKey.from_private_bytes(database_key(file))) for file in files]


def own_fingerprint(folder: Path) -> str:
    """Return the fingerprint of a project's current key."""
    return fingerprint_of(signers_of(folder)[0].public_key)


def published_fingerprint(folder: Path) -> str:
    """Return the fingerprint of the newest key that a project has published, "" before its first sync."""
    root, _ = _newest_root(folder / "own" / "metadata")
    return _root_signers(root)[-1] if root else ""


def rotate(folder: Path) -> None:
    """Replace a project's key by a new one. The current one becomes the old one, until the next rotation.

    Raises Conflict if others have not got the current one yet: they accept only a key that the last one signed.
    """
    if published_fingerprint(folder) not in ("", own_fingerprint(folder)):
        msg = "The last new key is not published yet. Run `cuebook prompt sync`, then rotate again."
        raise Conflict(msg)
    database_key(folder / "key")
    (folder / "key").replace(folder / "key.old")
    database_key(folder / "key")


def fingerprint_of(key: Any) -> str:
    """Return the fingerprint of an Ed25519 key. Raises SyncRefused for another kind of key."""
    if (key.keytype, key.scheme) != ("ed25519", "ed25519"):
        msg = f"Unsupported key type {key.keytype!r}. Cuebook verifies Ed25519 signatures."
        raise SyncRefused(msg, reason="bad-signature")
    return f"SHA256:{hashlib.sha256(bytes.fromhex(key.keyval['public'])).hexdigest()}"


def read_fingerprints(text: str, *, where: str) -> set[str]:
    """Parse fingerprints separated by spaces or commas. Raises InvalidInput."""
    found = set()
    for each in text.replace(",", " ").split():
        match = _FINGERPRINT.fullmatch(each)
        if match is None:
            msg = f"{where}: {each!r} is not a fingerprint. Copy one from `cuebook prompt sync --status`."
            raise InvalidInput(msg, where=where)
        found.add(f"SHA256:{match[1].lower()}")
    return found


# ---- envelopes ------------------------------------------------------------------------------------------------------


def seal(payloads: Iterable[bytes], signers: Iterable[Any]) -> bytes:
    """Return payloads as a JSON list of DSSE envelopes."""
    from securesystemslib.dsse import Envelope

    keys, envelopes = list(signers), []
    for payload in payloads:
        envelope = Envelope(payload, PAYLOAD_TYPE, {})
        for signer in keys:
            envelope.sign(signer)
        envelopes.append(envelope.to_dict())
    return json.dumps(envelopes, separators=(",", ":")).encode()


def unseal(data: bytes, keys: Any, *, project: str, name: str) -> list[bytes]:
    """Return the payloads of the DSSE envelopes in a file. Raises SyncRefused for one that none of the keys signed."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    try:
        envelopes = [Envelope.from_dict(each) for each in json.loads(data)]
        for envelope in envelopes:
            envelope.payload_type = PAYLOAD_TYPE  # it is signed too, so another type fails
            envelope.verify(list(keys), 1)
    except (Error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise refusal(project, f"has a bad signature of a version in {name!r}", "bad-signature") from error
    return [each.payload for each in envelopes]


# ---- writing --------------------------------------------------------------------------------------------------------


def write_repository(
    folder: Path, files: Mapping[str, bytes], signers: list[Any], *, project: str, now: float, expires_s: float
) -> bool:
    """Write the next version of a repository with these targets. Return whether anything changed.

    Unchanged targets are signed again when half of their time has passed.
    """
    from tuf.api.metadata import Metadata, Root, Snapshot, TargetFile, Targets, Timestamp

    metadata, targets = folder / "metadata", folder / "targets"
    metadata.mkdir(parents=True, exist_ok=True)
    expires = datetime.fromtimestamp(int(now + expires_s), UTC)
    halfway = datetime.fromtimestamp(int(now + expires_s / 2), UTC)
    root, versions = _newest_root(metadata)
    keyids = [each.public_key.keyid for each in signers]
    current = root and root.signed.roles["root"].keyids == keyids[::-1] and root.signed.expires >= halfway
    listed = {path: TargetFile.from_data(path, data, ["sha256"]) for path, data in files.items()}
    before, old = _last_published(metadata)
    same = old and old.targets == listed and old.unrecognized_fields.get(_PROJECT) == project
    if current and same and before.expires >= halfway:
        return False
    if not current:
        root = Metadata(Root(version=versions + 1, expires=expires))
        for role in _ROLES:
            for signer in reversed(signers):
                root.signed.add_key(signer.public_key, role)
        _put(metadata / f"{versions + 1}.root.json", _sign(root, signers))
    version = before.version + 1 if before else 1
    for path, each in listed.items():
        for prefixed in each.get_prefixed_paths():
            _put(targets / prefixed, files[path])
    fields = {_PROJECT: project}
    targets_md = Metadata(Targets(version=version, expires=expires, targets=listed, unrecognized_fields=fields))
    data = _sign(targets_md, signers)
    _put(metadata / f"{version}.targets.json", data)
    snapshot_md = Metadata(Snapshot(version=version, expires=expires, meta={"targets.json": _meta(version, data)}))
    data = _sign(snapshot_md, signers)
    _put(metadata / f"{version}.snapshot.json", data)
    timestamp_md = Metadata(Timestamp(version=version, expires=expires, snapshot_meta=_meta(version, data)))
    _put(metadata / "timestamp.json", _sign(timestamp_md, signers))
    _remove_old(folder, version, {prefixed for each in listed.values() for prefixed in each.get_prefixed_paths()}, old)
    return True


def _sign(metadata: Any, signers: Iterable[Any]) -> bytes:
    for signer in signers:
        metadata.sign(signer, append=True)
    return bytes(metadata.to_bytes())


def _meta(version: int, data: bytes) -> Any:
    from tuf.api.metadata import MetaFile

    return MetaFile.from_data(version, data, ["sha256"])


def _newest_root(metadata: Path) -> tuple[Any, int]:
    """Return a folder's newest root metadata and its version, None and 0 for none."""
    from tuf.api.metadata import Metadata

    version = max((int(each.name.split(".")[0]) for each in metadata.glob("*.root.json")), default=0)
    return (Metadata.from_bytes((metadata / f"{version}.root.json").read_bytes()) if version else None), version


def fetch_own(fetch: Fetch, name: str, own: Path, copy: Path, signers: Sequence[Any]) -> bool:
    """Fetch this project's repository to `copy` if it is newer than `own`, which was restored from a backup.

    It may have expired. `name` is its name in errors. Raises Conflict if another project or newer keys signed it,
    SyncRefused if it is damaged.
    """
    from tuf.api.exceptions import RepositoryError, UnsignedMetadataError
    from tuf.api.metadata import Metadata

    def copy_signed(path: str) -> Any:
        metadata: Any = Metadata.from_bytes(data := fetch(path))
        if not any(_signed(metadata, each.public_key) for each in signers):
            raise UnsignedMetadataError(path)
        _put(copy / path, data)
        return metadata.signed

    _copy_own_roots(fetch, name, own, copy, {fingerprint_of(each.public_key) for each in signers})
    before, _ = _last_published(own / "metadata")
    try:
        timestamp = copy_signed("metadata/timestamp.json")
    except (FileNotFoundError, RepositoryError):
        return False  # nobody accepts it
    if before and (timestamp.version < before.version or timestamp == before):
        return False
    try:
        copy_signed(f"metadata/{timestamp.version}.snapshot.json")
        for each in copy_signed(f"metadata/{timestamp.version}.targets.json").targets.values():
            path = f"targets/{each.get_prefixed_paths()[0]}"
            each.verify_length_and_hashes(data := fetch(path))
            _put(copy / path, data)
    except (FileNotFoundError, RepositoryError) as error:
        msg = f"Project {name} is newer than this copy of it, and damaged ({error}). Restore its folder there."
        raise SyncRefused(msg, reason="bad-signature") from error
    return True


def _copy_own_roots(fetch: Fetch, name: str, own: Path, copy: Path, keys: set[str]) -> None:
    """Copy the roots of this project's repository, each signed by the one before. Raises Conflict as above."""
    from tuf.api.exceptions import RepositoryError

    chain: list[Any] = []
    with suppress(RepositoryError):
        for data, root in _roots(fetch):
            if chain:
                chain[-1].signed.verify_delegate("root", root.signed_bytes, root.signatures)
            chain.append(root)
            _put(copy / f"metadata/{len(chain)}.root.json", data)
    first = Path("metadata/1.root.json")
    same = chain and (own / first).exists() and (own / first).read_bytes() == (copy / first).read_bytes()
    if not same and all(keys.isdisjoint(_root_signers(each)) for each in chain):
        msg = f"The name {name} is taken, by another project or folder. Set another `name` under [sync]."
        raise Conflict(msg)
    if len(chain) > _newest_root(own / "metadata")[1] and keys.isdisjoint(_root_signers(chain[-1])):
        msg = f"Project {name} has newer keys than this copy of it. Restore the newest backup of `cuebook.db.sync/key`."
        raise Conflict(msg)


def _last_published(metadata: Path) -> tuple[Any, Any]:
    """Return the timestamp and the targets of a folder's metadata, None for none."""
    from tuf.api.metadata import Metadata

    try:
        timestamp = Metadata.from_bytes((metadata / "timestamp.json").read_bytes()).signed
    except FileNotFoundError:
        return None, None
    return timestamp, Metadata.from_bytes((metadata / f"{timestamp.version}.targets.json").read_bytes()).signed


def _remove_old(folder: Path, version: int, listed: Collection[str], before: Any) -> None:
    """Delete the files of versions before the last one, which somebody may be reading."""
    kept = {
        *listed,
        *(path for each in (before.targets.values() if before else ()) for path in each.get_prefixed_paths()),
    }
    for file in (folder / "targets").rglob("*.*"):
        if file.is_file() and file.relative_to(folder / "targets").as_posix() not in kept:
            file.unlink()
    for file in folder.glob("metadata/*.*.json"):
        number, _, role = file.name.partition(".")
        if role in ("targets.json", "snapshot.json") and int(number) < version - 1:
            file.unlink()


def _put(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, [data], private=False)


# ---- verifying ------------------------------------------------------------------------------------------------------


def verify(fetch: Fetch, trusted: Path, project: str, *, accepted: set[str] | None) -> Published:
    """Fetch and verify a project's repository, and update the folder of its `trusted` metadata.

    One of the `accepted` keys (None: any key) must have signed the first root. `project` "" is any project.
    Raises SyncRefused, UnknownSigner, BackendError.
    """
    from tuf.api.exceptions import DownloadError, RepositoryError, UnsignedMetadataError
    from tuf.api.metadata import Metadata
    from tuf.ngclient import Updater, UpdaterConfig

    trusted.mkdir(parents=True, exist_ok=True)
    config = UpdaterConfig(max_root_rotations=_MAX_ROOTS)
    try:
        bootstrap = None if (trusted / "root.json").exists() else _first_root(fetch, project, accepted)
        updater = Updater(
            str(trusted), "metadata", str(trusted), "targets", _fetcher(fetch), config, bootstrap=bootstrap
        )
        updater.refresh()
        verified: dict[str, Any] = {
            role: Metadata.from_bytes((trusted / f"{role}.json").read_bytes()) for role in _ROLES
        }
        root, targets = verified["root"].signed, verified["targets"].signed
        signers = _root_signers(verified["root"])
        roots = [Metadata.from_bytes(each.read_bytes()) for each in (trusted / "root_history").iterdir()]
        named = str(targets.unrecognized_fields.get(_PROJECT))
        files = {}
        check_sizes(project, {path: each.length for path, each in targets.targets.items()})
        for path, each in targets.targets.items():
            file = trusted / "target"
            updater.download_target(each, str(file))
            files[path] = file.read_bytes()
            file.unlink()
    except (RepositoryError, DownloadError, OSError, ValueError, TypeError, KeyError) as error:
        if isinstance(error.__cause__, CuebookError):
            raise error.__cause__ from error
        if project and isinstance(error, UnsignedMetadataError):
            known = _root_signers(Metadata.from_bytes((trusted / "root.json").read_bytes()))
            for key in root_keys(fetch)[-1:]:
                if key not in known:
                    msg = str(unknown_signer(f"project {project!r}, which has a new key", project, key))
                    raise SyncRefused(msg, reason="bad-signature") from error
        raise _refusal_of(error, project) from error
    if project and named != project:
        raise refusal(project, f"has the repository of {named!r}", "mix-and-match")
    keys = [root.keys[each] for each in root.roles["targets"].keyids]
    return Published(
        project=named,
        signers=signers,
        replaced={key for each in roots for key in _root_signers(each)}.difference(signers),
        files=files,
        expires_at=min(each.signed.expires for each in verified.values()).timestamp(),
        keys=keys,
    )


def check_sizes(project: str, sizes: Mapping[str, int]) -> None:
    """Check the paths and sizes of targets before they are downloaded. Raises SyncRefused."""
    for path, size in sizes.items():
        try:
            check_slug(path.removeprefix(PROMPTS).removesuffix(JSON) if path.endswith(JSON) else "")
        except InvalidInput as error:
            raise refusal(project, f"has the file {path!r}, which is not a valid name ({error})", "path") from error
        if size > MAX_TARGET and project:  # all prompts of a bundle are one file
            raise refusal(project, f"has {path!r} with {size:,} bytes (limit {MAX_TARGET:,})", "oversize")
    if (size := sum(sizes.values())) > MAX_TOTAL:
        raise refusal(project, f"has {size:,} bytes (limit {MAX_TOTAL:,})", "oversize")


def _first_root(fetch: Fetch, project: str, accepted: set[str] | None) -> bytes:
    """Return the first root that an accepted key signed. Raises UnknownSigner."""
    signers: list[str] = []
    for data, root in _roots(fetch):
        signers = _root_signers(root)
        if accepted is None or not accepted.isdisjoint(signers):
            return data
    if not signers:
        raise refusal(project, "has no valid root metadata", "bad-signature")
    raise unknown_signer(f"project {project!r}", project, signers[-1])


def _roots(fetch: Fetch) -> Iterator[tuple[bytes, Any]]:
    """Yield the roots of a repository as bytes and metadata, oldest first, up to a missing or invalid one."""
    from tuf.api.exceptions import RepositoryError
    from tuf.api.metadata import Metadata

    with suppress(FileNotFoundError, RepositoryError):
        for version in range(1, _MAX_ROOTS + 1):
            data = fetch(f"metadata/{version}.root.json")
            yield data, Metadata.from_bytes(data)


def root_keys(fetch: Fetch) -> list[str]:
    """Return the fingerprints of the keys that signed the roots of a repository, the newest key last."""
    return [key for _, root in _roots(fetch) for key in _root_signers(root)]


def unknown_signer(name: str, project: str, fingerprint: str) -> UnknownSigner:
    """Return the error for a repository whose key is not trusted yet."""
    ignore = "" if name == "the bundle" else " To ignore a project, add it to sync.blocked."
    msg = (
        f"Unknown signer of {name}: {fingerprint}. Compare it with the fingerprint that `cuebook prompt sync --status`"
        f" shows in that project, then run this command again with --trust FINGERPRINT.{ignore}"
    )
    return UnknownSigner(msg, project=project, fingerprint=fingerprint)


def _root_signers(root: Any) -> list[str]:
    """Return the fingerprints of the keys of the root role that signed a root, the newest key last."""
    keys = [root.signed.keys.get(each) for each in root.signed.roles["root"].keyids]
    return [fingerprint_of(each) for each in keys if each is not None and _signed(root, each)]


def _signed(metadata: Any, key: Any) -> bool:
    """Return whether a key signed metadata."""
    from securesystemslib.exceptions import UnverifiedSignatureError

    if key.keyid not in metadata.signatures:
        return False
    try:
        key.verify_signature(metadata.signatures[key.keyid], metadata.signed_bytes)
    except UnverifiedSignatureError:
        return False
    return True


def _fetcher(fetch: Fetch) -> Any:
    """Return python-tuf's fetcher of a repository's files."""
    from tuf.api.exceptions import DownloadHTTPError
    from tuf.ngclient import FetcherInterface

    class Fetcher(FetcherInterface):
        def _fetch(self, url: str) -> Iterator[bytes]:
            try:
                return iter([fetch(url)])
            except FileNotFoundError as error:
                raise DownloadHTTPError(f"{url} does not exist", 404) from error

    return Fetcher()


def revisions_of(peers: Iterable[Published]) -> dict[str, dict[str, list[Revision]]]:
    """Return the revisions of all prompts, parents first, by slug and project. Raises SyncRefused."""
    remote: dict[str, dict[str, list[Revision]]] = {}
    for peer in peers:
        for path, data in peer.files.items():
            slug = path.removeprefix(PROMPTS).removesuffix(JSON)
            payloads = unseal(data, peer.keys, project=peer.project, name=slug)
            revisions = [read_revision(each) for each in payloads]
            check_history(revisions, slug)
            if revisions:
                remote.setdefault(slug, {})[peer.project] = revisions
    return remote


def own_revisions(folder: Path) -> dict[str, list[Revision]]:
    """Return the revisions that this project has published, by slug, parents first; none before its first sync."""
    _, targets = _last_published(folder / "metadata")
    revisions = {}
    for path, target in (targets.targets if targets else {}).items():
        envelopes = json.loads((folder / "targets" / target.get_prefixed_paths()[0]).read_bytes())
        slug = path.removeprefix(PROMPTS).removesuffix(JSON)
        revisions[slug] = [read_revision(b64decode(each["payload"])) for each in envelopes]
    return revisions


def refusal(project: str, what: str, reason: str) -> SyncRefused:
    """Return the error for a project's repository, or for a bundle if `project` is ""."""
    name, advice = f"Project {project!r}", "Ask it to run `cuebook prompt sync`. To ignore it, add it to sync.blocked."
    return SyncRefused(
        f"{name if project else 'The bundle'} {what}. {advice if project else 'Ask for a new one.'}", reason=reason
    )


def _refusal_of(error: Exception, project: str) -> CuebookError:
    """Return an error of python-tuf as one that names the project, the failed check and what to do."""
    from tuf.api import exceptions

    for kind, reason, what in (
        (exceptions.ExpiredMetadataError, "expired", "has expired: nobody renewed it, or newer files are withheld"),
        (exceptions.BadVersionNumberError, "rollback", "is older than before: it was rolled back"),
        (exceptions.LengthOrHashMismatchError, "mix-and-match", "has a changed file, or files of different versions"),
        (exceptions.UnsignedMetadataError, "bad-signature", "has a bad signature: its metadata was changed"),
        (exceptions.DownloadLengthMismatchError, "oversize", "has a file that is larger than its metadata says"),
        (exceptions.DownloadHTTPError, "rollback", "is incomplete: a file is missing"),
    ):
        if isinstance(error, kind):
            return refusal(project, what, reason)
    if isinstance(error, exceptions.DownloadError | OSError):
        name = f"project {project!r}" if project else "the bundle"
        return BackendError(f"Cannot read {name} ({error}). Try again.", retryable=True)
    return refusal(project, "has invalid metadata", "bad-signature")
