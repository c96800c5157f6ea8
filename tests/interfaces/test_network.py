"""Tests of upstream connections: ordered reads, timeouts, TLS, and errors with httpcore's names."""

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
    """Yield a stream to a server that handles its end of the connection with `serve`."""

    async def handle(reader, writer):
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    stream = await Network().connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], timeout=60)
    try:
        yield stream
    finally:
        await stream.aclose()
        server.close()
        await server.wait_closed()


async def read_to_end(reader, _):
    await reader.read()


async def read_all(stream):
    received = bytearray()
    while piece := await stream.read(65536, timeout=60):
        assert len(piece) <= 65536
        received += piece
    return bytes(received)


async def test_data_is_read_in_order_to_its_end():
    async def serve(_, writer):
        writer.write(MUCH)
        await writer.drain()

    async with connected(serve) as stream:
        await asyncio.sleep(0.05)
        assert stream._size <= 2 * FULL  # noqa: SLF001  the buffer is limited
        assert await read_all(stream) == MUCH
        assert await stream.read(10, timeout=60) == b""


async def test_large_body_is_written_at_the_readers_pace():
    got = bytearray()
    done = asyncio.Event()

    async def serve(reader, _):
        await asyncio.sleep(0.05)
        while len(got) < len(MUCH):
            got.extend(await reader.read(1 << 20))
        done.set()
        await reader.read()

    async with connected(serve) as stream:
        await stream.write(MUCH, timeout=60)
        await stream.write(b"", timeout=60)
        await asyncio.wait_for(done.wait(), 60)
    assert bytes(got) == MUCH


async def test_read_timeout_leaves_the_connection_usable():
    go = asyncio.Event()

    async def serve(reader, writer):
        await go.wait()
        writer.write(b"late")
        await reader.read()

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(10, timeout=0.02)
        go.set()
        assert await stream.read(2, timeout=60) == b"la"
        assert await stream.read(2) == b"te"


async def test_read_timeout_starts_with_each_read():
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
        assert await stream.read(10) == b"late"  # without a timeout, no earlier timeout applies


async def test_write_times_out_when_the_peer_reads_nothing():
    over = asyncio.Event()

    async def serve(_reader, _writer):
        await over.wait()

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(MUCH, timeout=0.05)
        over.set()


async def test_reset_connection_raises_read_and_write_errors():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(b"some")
        await writer.drain()
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with connected(serve) as stream:
        await stream.write(b"1")
        assert await stream.read(10, timeout=60) == b"some"
        await stream.write(b"2")
        with pytest.raises(httpcore2.ReadError):
            await stream.read(10, timeout=60)
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"3")


async def wait_until_readable(stream):
    while not stream.get_extra_info("is_readable"):  # noqa: ASYNC110  no event signals this state
        await asyncio.sleep(0.001)


async def test_idle_connection_with_data_or_end_is_readable():
    say, end = asyncio.Event(), asyncio.Event()

    async def serve(_, writer):
        await say.wait()
        writer.write(b"408")
        await end.wait()

    async with connected(serve) as stream:
        assert not stream.get_extra_info("is_readable")
        say.set()
        await wait_until_readable(stream)
        assert await stream.read(10) == b"408"
        assert not stream.get_extra_info("is_readable")
        end.set()
        await wait_until_readable(stream)
        await stream.aclose()
        assert stream.get_extra_info("is_readable")


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b", "a" * 70 + ".test"])
async def test_closed_port_and_invalid_host_raise_connect_error(host):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
        with pytest.raises(httpcore2.ConnectError):
            await Network().connect_tcp(host, closed.getsockname()[1], timeout=60)


async def test_connect_times_out_and_leaves_nothing_open():
    with socket.socket() as full, socket.socket() as inside:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        inside.connect(full.getsockname())  # fills the backlog
        with pytest.raises(httpcore2.ConnectTimeout):
            await Network().connect_tcp(*full.getsockname(), timeout=0.05)


def tls_contexts(tmp_path, name):
    """Return server and client TLS contexts with a self-signed certificate for a name."""
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


async def test_tls_connection_works_and_a_wrong_name_is_rejected(tmp_path):
    theirs, ours = tls_contexts(tmp_path, "models.test")

    async def serve(reader, writer):
        writer.write(await reader.readexactly(4) + MUCH)
        await writer.drain()

    async with connected(serve, tls=theirs) as stream:
        assert await stream.start_tls(ours, "models.test", timeout=60) is stream
        await stream.write(b"ping", timeout=60)
        assert await read_all(stream) == b"ping" + MUCH
    async with connected(read_to_end, tls=theirs) as stream:
        with pytest.raises(httpcore2.ConnectError, match="certificate"):
            await stream.start_tls(ours, "other.test", timeout=60)
