"""Connections to an upstream: what comes is read in order and to its end, and what goes wrong has httpcore's names."""

import asyncio
import datetime as dt
import socket
import ssl
import struct
from contextlib import asynccontextmanager

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cuebook.providers.network import FULL, Network

MUCH = bytes(range(256)) * 40_000  # 10 MB: more than the sockets and the reader hold


@asynccontextmanager
async def connected(serve, *, tls=None):
    """Give a stream to a server whose end of the connection `serve` has, until the stream is closed."""

    async def handle(reader, writer):
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    stream = await Network().connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], timeout=10)
    try:
        yield stream
    finally:
        await stream.aclose()
        server.close()
        await server.wait_closed()


async def to_the_end(reader, _):
    await reader.read()


async def read_all(stream):
    found = bytearray()
    while piece := await stream.read(65536, timeout=10):
        assert len(piece) <= 65536
        found += piece
    return bytes(found)


async def test_what_is_sent_is_read_in_order_and_to_its_end_however_late():
    async def serve(_, writer):
        writer.write(MUCH)
        await writer.drain()

    async with connected(serve) as stream:
        await asyncio.sleep(0.05)
        assert stream._size <= 2 * FULL  # noqa: SLF001  no more than that waits in memory
        assert await read_all(stream) == MUCH
        assert await stream.read(10, timeout=10) == b""


async def test_a_large_body_goes_up_as_fast_as_it_is_taken():
    got = bytearray()
    done = asyncio.Event()

    async def serve(reader, _):
        await asyncio.sleep(0.05)
        while len(got) < len(MUCH):
            got.extend(await reader.read(1 << 20))
        done.set()
        await reader.read()

    async with connected(serve) as stream:
        await stream.write(MUCH, timeout=10)
        await stream.write(b"", timeout=10)
        await asyncio.wait_for(done.wait(), 10)
    assert bytes(got) == MUCH


async def test_who_sends_nothing_is_waited_for_so_long_and_may_send_later():
    go = asyncio.Event()

    async def serve(reader, writer):
        await go.wait()
        writer.write(b"late")
        await reader.read()

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(10, timeout=0.02)
        go.set()
        assert await stream.read(2, timeout=10) == b"la"
        assert await stream.read(2) == b"te"


async def test_each_read_is_waited_for_from_its_own_beginning():
    go = asyncio.Event()

    async def serve(reader, writer):
        writer.write(b"soon")
        await go.wait()
        writer.write(b"late")
        await reader.read()

    loop = asyncio.get_running_loop()
    async with connected(serve) as stream:
        assert await stream.read(10, timeout=0.3) == b"soon"
        await asyncio.sleep(0.2)
        began = loop.time()
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(10, timeout=0.3)
        assert loop.time() - began > 0.29
        loop.call_later(0.4, go.set)
        assert await stream.read(10) == b"late"  # without a limit, none of the others' holds


async def test_who_takes_nothing_is_waited_for_so_long():
    over = asyncio.Event()

    async def serve(_reader, _writer):
        await over.wait()

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(MUCH, timeout=0.05)
        over.set()


async def test_a_connection_that_is_cut_says_so():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(b"some")
        await writer.drain()
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with connected(serve) as stream:
        await stream.write(b"1")
        assert await stream.read(10, timeout=10) == b"some"
        await stream.write(b"2")
        with pytest.raises(httpcore2.ReadError):
            await stream.read(10, timeout=10)
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"3")


async def readable(stream):
    while not stream.get_extra_info("is_readable"):  # noqa: ASYNC110  nothing tells when a socket becomes so
        await asyncio.sleep(0.001)


async def test_an_idle_connection_that_ended_or_said_something_is_not_used_again():
    say, end = asyncio.Event(), asyncio.Event()

    async def serve(_, writer):
        await say.wait()
        writer.write(b"408")
        await end.wait()

    async with connected(serve) as stream:
        assert not stream.get_extra_info("is_readable")
        say.set()
        await readable(stream)
        assert await stream.read(10) == b"408"
        assert not stream.get_extra_info("is_readable")
        end.set()
        await readable(stream)
        await stream.aclose()
        assert stream.get_extra_info("is_readable")


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b", "a" * 70 + ".test"])
async def test_a_closed_port_and_a_name_that_is_none_are_refused(host, free_tcp_port):
    with pytest.raises(httpcore2.ConnectError):
        await Network().connect_tcp(host, free_tcp_port, timeout=10)


async def test_who_lets_nobody_in_is_waited_for_so_long_and_nothing_is_left_open():
    with socket.socket() as full, socket.socket() as inside:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        inside.connect(full.getsockname())  # the one that may wait there
        with pytest.raises(httpcore2.ConnectTimeout):
            await Network().connect_tcp(*full.getsockname(), timeout=0.05)


def certified(tmp_path, name):
    """Give both sides' contexts for a certificate of a name that only they know."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file = tmp_path / "both.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(file)
    client.load_verify_locations(cadata=made.public_bytes(pem).decode())
    return server, client


async def test_an_encrypted_connection_reads_and_writes_alike_and_a_wrong_name_is_refused(tmp_path):
    theirs, ours = certified(tmp_path, "models.test")

    async def serve(reader, writer):
        writer.write(await reader.readexactly(4) + MUCH)
        await writer.drain()

    async with connected(serve, tls=theirs) as stream:
        assert await stream.start_tls(ours, "models.test", timeout=10) is stream
        await stream.write(b"ping", timeout=10)
        assert await read_all(stream) == b"ping" + MUCH
    async with connected(to_the_end, tls=theirs) as stream:
        with pytest.raises(httpcore2.ConnectError, match="certificate"):
            await stream.start_tls(ours, "other.test", timeout=10)
