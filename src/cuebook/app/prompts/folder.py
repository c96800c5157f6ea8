"""Read and write the prompt files of a project's `prompts/` folder, atomically and never outside of it.

| what | rule |
| --- | --- |
| a prompt | `**/*.md`; its id is the `name` in its front matter, else its path |
| ignored | names that begin with a dot (editors' files, `.objects`), `README.md`, other suffixes except `.MD` |
| `x@trial.md` | the branch `trial` of `x`, unless the front matter names a branch |
| refused by name | links to a folder or outside, special files, files that are empty, incomplete or not UTF-8, two files of one prompt, invalid ids |
"""  # noqa: E501  # a table

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shutil import SpecialFileError

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.files import write_whole
from cuebook.errors import BackendError, InvalidInput, TooLarge
from cuebook.prompts import registry as registries
from cuebook.prompts.files import read_file, read_stated
from cuebook.prompts.names import ENDING, check_branch, check_slug
from cuebook.prompts.pages import MAX_FILE
from cuebook.providers.regular_files import open_regular
from cuebook.records.prompt import MAIN, BranchPlace, Version

#: Documentation for people, not a prompt.
README = "README.md"
#: Maximum file size in bytes: a character has at most four.
MAX_BYTES = 4 * MAX_FILE


class PromptFile(Struct, frozen=True, kw_only=True):
    """A prompt file: its path in the folder, its content, and the keys set in its front matter."""

    path: str
    data: bytes
    version: Version
    keys: frozenset[str] = frozenset()


class Contents(Struct, frozen=True, kw_only=True):
    """A folder's content. `fault` is the error of an unreadable registry, `invalid` has invalid files with reasons."""

    prompts: tuple[PromptFile, ...]
    invalid: tuple[tuple[str, str], ...] = ()
    registry: registries.Registry | None = None
    fault: InvalidInput | None = None


class PromptFolder:
    """The folder of prompt files. All methods block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inner: set[Path] = set()  # folders verified to be inside

    def display_name(self, path: str) -> str:
        """Return a file's path for messages, with the folder's name."""
        return f"{self.root.name}/{path}"

    def located(self, message: str, path: str) -> str:
        """Return a message prefixed with the file's path."""
        plain = f"{path.partition('@')[0].removesuffix(ENDING)}{ENDING}"
        for name in (path, plain):
            if message.startswith(name):
                return f"{self.display_name(path)}{message.removeprefix(name)}"
        return f"{self.display_name(path)}: {message}"

    # ---- reading

    def read(self, *, lenient: bool = False) -> Contents:
        """Parse all prompt files. Return them by path.

        Raises InvalidInput naming an invalid file, BackendError for an unreadable one; `lenient` collects them instead.
        """
        registry, fault = self._registry()
        entries = {entry.path: entry for entry in registry.entries} if registry else {}
        results: dict[BranchPlace, PromptFile] = {}
        invalid: list[tuple[str, str]] = []
        for path, why in self._paths():
            try:
                each = self._prompt(path, why, entries.get(path), fault)
                self._check_alone(each, results.setdefault(each.version.place, each))
            except (InvalidInput, BackendError) as error:
                if not lenient:
                    raise
                invalid.append((self.display_name(path), str(error)))
        return Contents(prompts=tuple(results.values()), invalid=tuple(invalid), registry=registry, fault=fault)

    def _check_alone(self, each: PromptFile, other: PromptFile) -> None:
        """Check that no two files contain the same prompt. Raises InvalidInput."""
        if other is not each:
            slug, branch = each.version.place
            name = slug if branch == MAIN else f"{slug}@{branch}"
            both = f"{self.display_name(other.path)} and {self.display_name(each.path)}"
            msg = f"{both} both contain prompt {name!r}. Change the `name` of one, or delete it."
            raise InvalidInput(msg, where=self.display_name(each.path))

    def objects(self) -> dict[str, bytes]:
        """Return the bytes of all objects by path."""
        objects = self.root / registries.OBJECTS
        listed = sorted(objects.glob("*/*")) if objects.is_dir() else []
        return {name: self.bytes_of(name) for name in (file.relative_to(self.root).as_posix() for file in listed)}

    def rebuilt(self, prompts: Iterable[PromptFile]) -> registries.Registry:
        """Return the registry that the front matter of these files and of all objects implies; skip invalid objects."""
        texts = {each.path: each.version for each in prompts}
        for path, data in self.objects().items():
            with suppress(InvalidInput):
                if registries.is_object(path, data):
                    texts[path] = read_file(data, path=path)
        return registries.rebuilt(texts)

    def bytes_of(self, path: str) -> bytes:
        """Return the bytes of a file of this folder. Raises InvalidInput, BackendError naming it."""
        text, file = self.display_name(path), self._inside(path)
        try:
            with open(file, "rb", opener=open_regular) as stream:  # a Path takes no opener
                before = os.fstat(stream.fileno())
                if before.st_size > MAX_BYTES:
                    raise TooLarge(f"{text}: {before.st_size:,} bytes exceed the limit of {MAX_FILE:,}.", where=text)
                data = stream.read(MAX_BYTES + 1)
                after = os.fstat(stream.fileno())
        except SpecialFileError as error:
            raise InvalidInput(f"{text}: not a regular file. Remove it.", where=text) from error
        except OSError as error:
            raise BackendError(f"{text}: cannot be read ({error.strerror}). Repair or remove it.") from error
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or len(data) != after.st_size:
            raise InvalidInput(f"{text}: is being written. Try again later.", where=text)
        return data

    def _registry(self) -> tuple[registries.Registry | None, InvalidInput | None]:
        if not (self.root / registries.FILE).exists():
            return None, None
        try:
            return registries.read(self.bytes_of(registries.FILE)), None
        except InvalidInput as error:
            return None, InvalidInput(
                self.located(str(error), registries.FILE), where=self.display_name(registries.FILE)
            )

    def _paths(self) -> list[tuple[str, str]]:
        """Return the sorted paths of all prompt files and of what must not be there, each with its fault, "" for none.

        Raises BackendError.
        """
        results: list[tuple[str, str]] = []
        for folder, inner, names in os.walk(self.root, onerror=self._refuse) if self.root.is_dir() else ():
            below = Path(folder).relative_to(self.root)
            inner[:] = [name for name in inner if not name.startswith(".")]
            links = [name for name in inner if (self.root / below / name).is_symlink()]
            results += [((below / name).as_posix(), "link to a folder. Move the folder itself here.") for name in links]
            for name in names:
                if name.startswith(".") or name == README or not name.lower().endswith(ENDING):
                    continue
                if name.endswith(ENDING):
                    results.append(((below / name).as_posix(), ""))
                elif name.lower() != README.lower():
                    why = f"the suffix must be {ENDING!r}. Rename the file."
                    results.append(((below / name).as_posix(), why))
        return sorted(results)

    def _refuse(self, error: OSError) -> None:
        below = Path(error.filename).relative_to(self.root).as_posix()
        raise BackendError(f"{self.display_name(below)}: cannot be read ({error.strerror})") from error

    def _prompt(
        self, path: str, why: str, entry: registries.RegistryEntry | None, fault: InvalidInput | None
    ) -> PromptFile:
        file_name = self.display_name(path)
        if why:
            raise InvalidInput(f"{file_name}: {why}", where=file_name)
        data = self.bytes_of(path)
        if not data.strip(b"\x00 \t\r\n\xef\xbb\xbf"):
            raise InvalidInput(f"{file_name}: empty. Write its text, or delete it.", where=file_name)
        folder, _, name = path.removesuffix(ENDING).rpartition("/")
        name, at, branch = name.partition("@")
        branch = registries.from_file(branch)
        plain = f"{folder}/{name}" if folder else name
        check_slug(plain, where=file_name)
        check_branch(branch or MAIN, where=file_name)
        version, keys = read_stated(data, path=file_name, slug=plain)
        if at and "branch" not in keys:
            version = replace(version, branch=branch)
        if not keys and fault is not None:
            way = f"repair {registries.FILE}, or delete it, and `cuebook prompt push` recreates it"
            raise InvalidInput(f"{fault}; {file_name} has no front matter and needs it: {way}", where=fault.where)
        if not keys and entry is not None:
            version = replace(registries.complete(version, entry), number=0)
        return PromptFile(path=path, data=data, version=version, keys=keys)

    # ---- writing

    def write(self, path: str, text: str) -> bool:
        """Write a file atomically. Return False if it has this content already.

        Raises InvalidInput for a path whose link leads outside, BackendError if it cannot be written.
        """
        place = self._inside(path)
        try:
            if place.is_file() and place.read_bytes() == text.encode():
                return False
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, [text], durable=not path.startswith(registries.OBJECTS), private=False)
        except OSError as error:
            raise BackendError(f"{self.display_name(path)}: cannot be written ({error.strerror})") from error
        return True

    def _inside(self, path: str) -> Path:
        """Return a file's path if it is inside this folder after resolving links."""
        place = self.root / path
        if place.parent in self._inner and not place.is_symlink():
            return place
        file_name = self.display_name(path)
        try:
            real = place.resolve()
        except (OSError, RuntimeError) as error:  # a link to itself
            raise InvalidInput(f"{file_name}: broken link. Remove it.", where=file_name) from error
        if not real.is_relative_to(self.root.resolve()):
            raise InvalidInput(f"{file_name}: link to outside of the folder. Move the file here.", where=file_name)
        if place.is_symlink() and not real.exists():
            raise InvalidInput(f"{file_name}: broken link. Remove it.", where=file_name)
        if not place.is_symlink():
            self._inner.add(place.parent)
        return place
