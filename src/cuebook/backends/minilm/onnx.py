"""Reads the weights out of an ONNX file: as much of Protocol Buffers and of ONNX as that takes."""

from collections.abc import Iterator
from typing import Any, Final

# Field numbers of onnx.proto3.
_GRAPH: Final = 7  # of ModelProto
_INITIALIZER: Final = 5  # of GraphProto
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # of TensorProto
_TYPES: Final = {1: "<f4", 3: "<i1", 7: "<i8"}  # TensorProto.DataType: FLOAT, INT8, INT64

Value = int | memoryview


def read_weights(model: bytes) -> dict[str, Any]:
    """Give the graph's named tensors; those of kinds we have no use for are left out. Raises ValueError."""
    try:
        graph = next(_bytes(value) for field, value in _fields(memoryview(model)) if field == _GRAPH)
        tensors = [_bytes(value) for field, value in _fields(graph) if field == _INITIALIZER]
    except (StopIteration, IndexError) as error:
        msg = "no graph of ONNX"
        raise ValueError(msg) from error
    return dict(filter(None, map(_tensor, tensors)))


def _tensor(tensor: memoryview) -> tuple[str, Any] | None:
    import numpy as np

    dims: list[int] = []
    kind, name, raw = 0, "", memoryview(b"")
    for field, value in _fields(tensor):
        if field == _DIMS:
            dims += [value] if isinstance(value, int) else _packed(value)
        elif field == _TYPE and isinstance(value, int):
            kind = value
        elif field == _NAME:
            name = str(_bytes(value), "utf-8")
        elif field == _RAW:
            raw = _bytes(value)
    return (name, np.frombuffer(raw, _TYPES[kind]).reshape(dims)) if kind in _TYPES and raw else None


def _fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Give field numbers and values: a number, or the bytes of what has a length."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == 0:
            number, at = _number(message, at)
            yield tag >> 3, number
            continue
        size, at = _number(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield tag >> 3, message[at : at + size]
        at += size


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Read a varint: seven bits a byte, the lowest first."""
    number = shift = 0
    while True:
        byte = message[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def _packed(value: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(value):
        number, at = _number(value, at)
        found.append(number)
    return found


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        msg = "a number stands where ONNX has bytes"
        raise ValueError(msg)  # noqa: TRY004 - the file is wrong, not the caller
    return value
