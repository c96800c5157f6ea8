"""What stands at the front of a GGUF file: whether it is one, and how many tokens its model reads."""

import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

from cuebook.errors import InvalidInput

MAGIC: Final = b"GGUF"
#: How GGUF's scalars are read (its specification, "Metadata value types"), by the number of their type.
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
#: The longest name or text that is read; a longer one is no header.
_LONGEST: Final = 1 << 24
_ARCHITECTURE: Final = "general.architecture"


def context_of(file: Path) -> int:
    """Give the tokens a model was trained to read, 0 where its file does not say. Raises InvalidInput for no GGUF."""
    try:
        with file.open("rb") as opened:
            if opened.read(4) != MAGIC:
                raise _refused(file, "is no GGUF file: it begins with other bytes")
            return _context(opened)
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})") from None
    except (struct.error, UnicodeDecodeError, KeyError):
        raise _refused(file, "is no whole GGUF file: its header cannot be read") from None


def _context(opened: BinaryIO) -> int:
    """Read names and values up to the one that is sought; what a file tells of its words stands behind it."""
    _, _, count = struct.unpack("<IQQ", opened.read(20))
    known: dict[str, Any] = {}
    for _ in range(count):
        name = _text(opened)
        known[name] = _value(opened, _read(opened, "<I"))
        context = known.get(f"{known.get(_ARCHITECTURE)}.context_length")
        if isinstance(context, int):
            return context
    return 0


def _value(opened: BinaryIO, kind: int) -> Any:
    """Read a value; a list is passed over."""
    if kind == _STRING:
        return _text(opened)
    if kind != _ARRAY:
        return _read(opened, _SCALARS[kind])
    inner, length = _read(opened, "<I"), _read(opened, "<Q")
    if inner in _SCALARS:
        opened.seek(length * struct.calcsize(_SCALARS[inner]), 1)
        return None
    for _ in range(length):
        _value(opened, inner)
    return None


def _text(opened: BinaryIO) -> str:
    length = _read(opened, "<Q")
    if length > _LONGEST:
        raise struct.error
    raw = opened.read(length)
    if len(raw) != length:
        raise struct.error
    return raw.decode()


def _read(opened: BinaryIO, form: str) -> Any:
    return struct.unpack(form, opened.read(struct.calcsize(form)))[0]


def _refused(file: Path, why: str) -> InvalidInput:
    return InvalidInput(f"model.name: {str(file)!r} {why}; name the GGUF file of a chat model", where="model.name")
