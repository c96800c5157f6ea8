"""How a body that was packed for its way is read."""

import zlib

from cuebook.errors import InvalidInput

#: How zlib is told to find out what it reads: a header of gzip or zlib, or none.
_ANY, _BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS


def unpacked(body: bytes, encoding: str, *, most: int) -> bytes:
    """Give a body without its Content-Encoding; one that was cut short, as far as it goes.

    Raises InvalidInput for an encoding that is not read here, and for more than `most` bytes.
    """
    for each in reversed([name.strip().lower() for name in encoding.split(",") if name.strip()]):
        if each == "identity":
            continue
        if each not in ("gzip", "x-gzip", "deflate"):
            msg = f"Content-Encoding: {each!r} is not read here; gzip and deflate are"
            raise InvalidInput(msg, where="Content-Encoding")
        body = _inflated(body, each, most)
    return body


def _inflated(body: bytes, name: str, most: int) -> bytes:
    for bits in (_ANY, _BARE) if name == "deflate" else (_ANY,):
        reader = zlib.decompressobj(bits)
        try:
            plain = reader.decompress(body, most)
        except zlib.error:
            continue
        if reader.unconsumed_tail:
            msg = f"the body holds more than {most} bytes behind its packing"
            raise InvalidInput(msg, where="body")
        return plain
    msg = f"the body is no {name}, though its Content-Encoding says so"
    raise InvalidInput(msg, where="Content-Encoding")
