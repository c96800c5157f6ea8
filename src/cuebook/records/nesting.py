"""How deep a JSON document nests, told from its bytes: what is too deep costs stack in whoever reads it."""

from itertools import accumulate

_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")
_OPEN = ord("(")
#: Levels taken off from inside, all at once; what ordinary JSON leaves behind them is little, and counted singly.
_PASSES = 8
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{}')


def nests_deeper(document: bytes, levels: int) -> bool:
    """Whether brackets outside of strings nest deeper than so many levels, more than 8; malformed JSON: either."""
    if document.count(b"[") + document.count(b"{") <= levels:
        return False
    if b"\\" in document:
        document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    quoted = document.translate(_ONE_KIND, _NO_STRUCTURE)
    brackets = b"".join(quoted.split(b'"')[::2])  # every second piece stands outside of strings
    for _ in range(_PASSES):
        brackets = brackets.replace(b"()", b"")
    reached = accumulate(1 if bracket == _OPEN else -1 for bracket in brackets)
    return any(level > levels - _PASSES for level in reached)
