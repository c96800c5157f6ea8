"""How erased texts leave the audit's mirror: the file is written anew beside itself and put in its place at once.

Lines the table does not hold, or cannot read, stay byte for byte: they are somebody's proof.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from shutil import copymode

import msgspec

from cuebook.errors import InvalidInput
from cuebook.prompts.chain import erase, mirror_line, parse_mirror
from cuebook.records.audit import Record

_BLOCK = 1 << 20


def is_erased(record: Record) -> bool:
    """Whether a record's texts are gone, and its commitments are not."""
    return not record.texts and bool(record.input_context or record.interpolated_text or record.output_summary)


def rewrite(file: Path, erased: Collection[str]) -> bool:
    """Take the texts off the lines of records with these hashes; answers with whether there were any.

    Killed in between, the old file stands or the new one. The old one's bytes are written over. Raises OSError.
    """
    beside = file.with_name(f"{file.name}.new")  # what a killed process left is written over
    changed = False
    with file.open("r+b") as old:
        with beside.open("wb") as new:
            for line in old:
                record = _read(line) if line.strip() else None
                if record is not None and record.texts and record.hash in erased:
                    new.write(mirror_line(erase(record)).encode())
                    changed = True
                else:
                    new.write(line)
            new.flush()
            os.fsync(new.fileno())
        if not changed:
            beside.unlink()
            return False
        copymode(file, beside)
        beside.replace(file)
        _keep_folder(file.parent)
        _blank(old.fileno())
    return True


def _blank(file: int) -> None:
    """Write over what nobody can open any more."""
    left = os.lseek(file, 0, os.SEEK_END)
    os.lseek(file, 0, os.SEEK_SET)
    while left > 0:
        left -= os.write(file, bytes(min(left, _BLOCK)))
    os.fsync(file)


def _keep_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system opens folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(line: bytes) -> Record | None:
    try:
        return parse_mirror(line)
    except (InvalidInput, msgspec.MsgspecError):
        return None
