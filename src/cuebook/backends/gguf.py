"""What stands at the front of a GGUF file: whether it is one, how many tokens its model reads, and its template."""

import struct
from collections.abc import Callable, Mapping
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
_TEMPLATE: Final = "tokenizer.chat_template"


def context_of(file: Path) -> int:
    """Give the tokens a model was trained to read, 0 where its file does not say. Raises InvalidInput for no GGUF."""
    found = _sought(file, lambda known: f"{known.get(_ARCHITECTURE)}.context_length")
    return found if isinstance(found, int) else 0


def template_of(file: Path) -> str:
    """Give a model's chat template, "" where its file holds none. Raises InvalidInput for no GGUF.

    It stands behind the model's words: to read past 100,000 of them takes 0.1 s.
    """
    found = _sought(file, lambda _: _TEMPLATE)
    return found if isinstance(found, str) else ""


def _sought(file: Path, name: Callable[[Mapping[str, Any]], str]) -> Any:
    """Read names and values up to the one that is sought; None where it is not there."""
    try:
        with file.open("rb") as opened:
            if opened.read(4) != MAGIC:
                raise _refused(file, "is no GGUF file: it begins with other bytes")
            _, _, count = struct.unpack("<IQQ", opened.read(20))
            known: dict[str, Any] = {}
            for _ in range(count):
                key = _text(opened)
                known[key] = _value(opened, _read(opened, "<I"))
                if (sought := name(known)) in known:
                    return known[sought]
            return None
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})") from None
    except (struct.error, UnicodeDecodeError, KeyError):
        raise _refused(file, "is no whole GGUF file: its header cannot be read") from None


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
