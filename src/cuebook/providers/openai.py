"""HTTP client for OpenAI-compatible servers: an upstream to which requests are forwarded, a model and an embedder."""

import os
import sys
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from math import isfinite, sqrt
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces import ModelRequest, Piece, RelayRequest
from cuebook.records.answers import mended
from cuebook.wire.answer import as_dict
from cuebook.wire.chat_answers import read_usage
from cuebook.wire.event_stream import ByteLines, Events, read_event

#: Hop-by-hop headers (RFC 9110, 7.6.1), and those that our HTTP client sets.
_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "proxy-connection", "host", "content-length", "accept-encoding", "expect",
})  # fmt: skip
#: Cuebook's own headers: they contain conversation ids and keys and are not forwarded.
_OURS = (
    "x-cuebook-", "x-conversation-id", "x-user-id", "x-history", "x-time-zone", "x-organization-id", "x-memory-control",
    "idempotency-key", "cookie", "origin", "referer", "sec-fetch-",
)  # fmt: skip
#: Headers of a client's API key: OpenAI's, Anthropic's. Every Anthropic request has a version header.
_KEYS = frozenset({"authorization", "x-api-key"})
_ANTHROPIC = "anthropic-version"
#: Hop-by-hop headers of an answer, including cookies: a client's cookies are never forwarded.
_ANSWER_HOP = frozenset({
    "connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "date", "server",
    "set-cookie",
})  # fmt: skip
#: Those that a verbatim answer keeps because they describe its bytes.
_PACKING = frozenset({"content-length", "content-encoding", "server"})
#: Seconds for which an idle connection is reused: shorter than servers keep it (uvicorn: 5), so that no request is
#: sent on a connection that is being closed.
IDLE_S = 4.0
#: Most idle connections.
IDLE = 64
#: Content codings that are decoded here.
READABLE = ("gzip", "x-gzip", "deflate", "identity")


class HttpAnswer:
    """An upstream's answer, which is streamed."""

    def __init__(self, response: Any, *, verbatim: bool = False) -> None:
        """`verbatim`: keep the bytes encoded, and decode headers as Latin-1."""
        self._response = response
        self._verbatim = verbatim
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = (
            _verbatim_headers(response.headers.raw)
            if verbatim
            else {name.lower(): value for name, value in response.headers.items() if name.lower() not in _ANSWER_HOP}
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes as they arrive. Raises UpstreamError when the answer breaks off."""
        import httpx2

        try:
            packed = (
                not self._verbatim and self._response.headers.get("content-encoding", "identity") != "identity"
            )  # although the request asked for identity
            async for chunk in self._response.aiter_bytes() if packed else self._response.stream:
                yield chunk
        except httpx2.HTTPError as error:
            msg = f"The upstream's answer broke off ({type(error).__name__}: {error})."
            raise UpstreamError(msg, retryable=True) from error

    async def aclose(self) -> None:
        """Stop reading. The connection is closed unless the answer was read to its end."""
        await self._response.aclose()


class HttpUpstream:
    """An OpenAI-compatible server. The HTTP client is imported with the first request."""

    def __init__(
        self,
        base_url: str,
        *,
        forward_auth: bool = True,
        api_key: str = "",
        api_key_env: str = "",
        own_key_first: bool = False,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 300.0,
        idle: int = IDLE,
    ) -> None:
        """`own_key_first`: our key, `api_key` or the one in `api_key_env`, replaces the client's.

        `idle`: most unused connections to keep; 0 for a connection per request.
        """
        self._url = base_url.rstrip("/")
        self.base_url = shown_url(self._url)
        self._forward_auth = forward_auth
        self._api_key, self._api_key_env = api_key, api_key_env
        self._own_key_first = own_key_first
        self._timeouts = (connect_timeout_s, read_timeout_s)
        self._idle = idle
        self._client: Any = None

    async def send(self, request: RelayRequest) -> HttpAnswer:
        """Send a request and wait for the head of its answer. Raises UpstreamError (504 timed out, 502 unreachable)."""
        import httpx2

        client = self._open()
        url = self._url + request.path + (f"?{request.query}" if request.query else "")
        try:
            headers = self._headers(request.headers, verbatim=request.verbatim)
            if request.verbatim:  # `build_request` of a client adds its own headers
                timeout = {"timeout": client.timeout.as_dict()}
                built = httpx2.Request(request.method, url, content=request.body, headers=headers, extensions=timeout)
            else:
                built = client.build_request(request.method, url, content=request.body, headers=headers)
            return HttpAnswer(await client.send(built, stream=True), verbatim=request.verbatim)
        except httpx2.TimeoutException as error:
            msg = f"The upstream {self.base_url} timed out ({type(error).__name__})."
            raise UpstreamError(msg, status=504, retryable=True) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            cause = f"{type(error).__name__}: {error}"
            msg = f"The upstream {self.base_url} cannot be reached ({cause}). Check that it is running."
            raise UpstreamError(msg, status=502, retryable=True) from error

    def _open(self) -> Any:
        from http.cookiejar import CookieJar, DefaultCookiePolicy  # loads urllib's client, ssl and more

        import httpx2

        if self._client is None:
            connect, read = self._timeouts
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(read, connect=connect),
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=self._idle, keepalive_expiry=IDLE_S
                ),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # callers must not share cookies
                follow_redirects=False,
                trust_env=False,
                verify=certificates(self._url),
            )
        return self._client

    def _headers(self, values: Mapping[str, str], *, verbatim: bool = False) -> list[tuple[bytes, bytes]]:
        label = next((value for name, value in values.items() if name.lower() == "connection"), "")
        hop = _HOP | {name.strip().lower() for name in label.split(",")}
        key = self._api_key or (os.environ.get(self._api_key_env, "") if self._api_key_env else "")
        forwards = self._forward_auth and not (key and self._own_key_first)
        headers = {
            name: value
            for name, value in values.items()
            if (name.lower() not in hop or (verbatim and name.lower() == "accept-encoding"))
            and (not name.lower().startswith(_OURS) or (verbatim and name.lower() == "idempotency-key"))
            and (forwards or name.lower() not in _KEYS)
        }
        if not verbatim:
            headers["accept-encoding"] = "identity"
        elif "accept-encoding" in headers:
            headers["accept-encoding"] = _readable(headers["accept-encoding"])
        if key and not _KEYS & (names := {name.lower() for name in headers}):
            name, value = ("x-api-key", key) if _ANTHROPIC in names else ("authorization", f"Bearer {key}")
            headers[name] = value
        # unchanged: header bytes are decoded as Latin-1 and need not be ASCII
        return [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers.items()
        ]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _readable(accepted: str) -> str:
    """Return the codings of an Accept-Encoding header that can be decoded here."""
    named = [each.strip() for each in accepted.split(",")]
    readable = [each for each in named if each.partition(";")[0].strip().lower() in READABLE]
    return accepted if readable == named else ", ".join(readable) or "identity"


def _verbatim_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key not in _ANSWER_HOP or key in _PACKING:
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def certificates(url: str) -> Any:
    """Return the `verify` argument of a client for `url`: no certificates for http, since loading them takes 20 ms.

    That client verifies certificates too, so it rejects every https server.
    """
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http://") else True


def shown_url(url: str) -> str:
    """Return a URL without its user and password, for display. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        shown_url = url.partition("://")[0] + "://…" + url.rpartition("@")[2] if "@" in url else url
        msg = f"Upstream {shown_url!r} is not a valid URL. Use one like http://127.0.0.1:8080/v1."
        raise InvalidInput(msg, where="upstream.url")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class OpenAIModel:
    """A model behind OpenAI's chat completions API, for `ask`, `/api/chat` and background jobs."""

    def __init__(self, name: str, upstream: HttpUpstream) -> None:
        if not name:
            raise InvalidInput("model.name: missing. Set it to a model of the provider.", where="model.name")
        self.name = name
        self._upstream = upstream

    @property
    def base_url(self) -> str:
        """Return the server's URL."""
        return self._upstream.base_url

    async def send(self, request: RelayRequest) -> HttpAnswer:
        """Forward a request to the server. Raises UpstreamError."""
        return await self._upstream.send(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Yield the answer in chunks. Raises UpstreamError for an error answer and for a stream that ends early."""
        answer = await self._upstream.send(
            RelayRequest(
                method="POST",
                path="/chat/completions",
                headers={"content-type": "application/json", "accept": "text/event-stream"},
                body=msgspec.json.encode(request_fields(request) | {"model": request.model or self.name}),
            )
        )
        try:
            if answer.status >= 400:
                body = b"".join([chunk async for chunk in answer.chunks()])
                raise _refused("model", answer.status, body[:500])
            async for piece in read_pieces(_events(answer), self.name):
                yield piece
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()


def request_fields(request: ModelRequest) -> dict[str, Any]:
    """Return the fields of a streamed chat completion, without the model."""
    fields: dict[str, Any] = {
        "messages": [msgspec.Raw(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_tokens:
        fields["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.schema:
        schema = {"name": request.purpose, "schema": request.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return fields


async def read_pieces(events: AsyncIterable[dict[str, Any]], name: str) -> AsyncIterator[Piece]:
    """Yield the pieces of a model's answer. Raises UpstreamError for an error in it, and if it ends early."""
    finished = False
    async for event in events:
        if error := event.get("error"):
            data = error if isinstance(error, dict) else {"message": error}
            status = data.get("code") if isinstance(data.get("code"), int) else None
            msg = f"The model reports: {mended(str(data.get('message')))}"
            raise UpstreamError(msg, status=status, retryable=_is_temporary(status))
        piece = _piece(event)
        finished = finished or bool(piece.finish)
        if piece.text or piece.usage or piece.finish:
            yield piece
    if not finished:
        raise UpstreamError(f"The answer of {name} ended early.", retryable=True)


def _piece(event: dict[str, Any]) -> Piece:
    choices = event.get("choices") or [{}]
    choice = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else {}
    content = as_dict(choice.get("delta") or choice.get("message")).get("content")
    usage = event.get("usage")
    return Piece(
        text=mended(content) if isinstance(content, str) else "",
        finish=str(choice.get("finish_reason") or ""),
        usage=read_usage(usage) if isinstance(usage, dict) else None,
    )


def _refused(who: str, status: int, body: bytes) -> UpstreamError:
    """Return the error for an error answer."""
    msg = f"The {who}'s server answered {status}: {body.decode('utf-8', 'replace')}"
    return UpstreamError(msg, status=status, retryable=_is_temporary(status))


def _is_temporary(status: int | None) -> bool:
    return status is None or status in (408, 409, 425, 429) or status >= 500


async def _events(answer: HttpAnswer) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent-event stream, or the single object of an unstreamed answer."""
    if "text/event-stream" not in answer.headers.get("content-type", "").lower():
        body = b"".join([chunk async for chunk in answer.chunks()])
        event = read_event(body)
        if not isinstance(event, dict):
            msg = f"The model's server sent no JSON object: {body[:200].decode('utf-8', 'replace')!r}"
            raise UpstreamError(msg, retryable=True)
        yield event
        return
    lines, events = ByteLines(), Events()
    async for chunk in answer.chunks():
        for line in lines.feed(chunk):
            if isinstance(event := events.read(line), dict):
                yield event
    if isinstance(event := events.read(lines.rest()), dict):
        yield event


# ---- Embeddings -----------------------------------------------------------------------------------------------------


#: Texts per request: servers accept from 64 (small ones) to 2,048.
AT_ONCE = 64


class _Row(Struct):
    index: int
    embedding: list[float]


class _EmbeddingAnswer(Struct):
    data: list[_Row]


class OpenAIEmbedder:
    """A model behind `/embeddings`. Without `languages` it is assumed to support every language."""

    def __init__(
        self, model: str, upstream: HttpUpstream, *, akin: float, languages: frozenset[str] = frozenset()
    ) -> None:
        if not model:
            msg = "embedder.name: missing. Set it to an embedding model of the provider."
            raise InvalidInput(msg, where="embedder.name")
        self.name = f"{model}@{upstream.base_url}"
        self.akin = akin
        self.languages = languages
        self.dimension = 0
        self._model = model
        self._upstream = upstream

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed in requests of AT_ONCE texts. Raises UpstreamError."""
        results: list[bytes] = []
        for first in range(0, len(texts), AT_ONCE):
            results += await self._ask(texts[first : first + AT_ONCE])
        return results

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _ask(self, texts: Sequence[str]) -> list[bytes]:
        body = msgspec.json.encode({"model": self._model, "input": list(texts), "encoding_format": "float"})
        answer = await self._upstream.send(
            RelayRequest(
                method="POST", path="/embeddings", headers={"content-type": "application/json"}, body=body, query=""
            )
        )
        try:
            raw = b"".join([chunk async for chunk in answer.chunks()])
        finally:
            await answer.aclose()
        if answer.status >= 400:
            raise _refused("embedder", answer.status, raw[:300])
        return self._read(raw, len(texts))

    def _read(self, raw: bytes, count: int) -> list[bytes]:
        """Parse the requested number of vectors, all of one dimension. Raises UpstreamError for anything else."""
        try:
            rows = {row.index: row.embedding for row in msgspec.json.decode(raw, type=_EmbeddingAnswer).data}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            msg = f"The embedder's server sent no embeddings: {raw[:200].decode('utf-8', 'replace')!r}"
            raise UpstreamError(msg, retryable=True) from error
        sizes = {len(row) for row in rows.values()}
        if sorted(rows) != list(range(count)) or len(sizes) != 1 or sizes == {0}:
            msg = f"The embedder's server sent {len(rows)} vectors of {sorted(sizes)} numbers for {count} texts"
            raise UpstreamError(msg, retryable=True)
        size = sizes.pop()
        if self.dimension not in (0, size):
            msg = (
                f"The embedder's server sent vectors of {size} numbers where {self._model} had {self.dimension}: "
                "the model has changed. No vector was stored. Restart Cuebook to embed everything with the new model."
            )
            raise UpstreamError(msg, retryable=True)
        self.dimension = size
        return [unit(rows[at]) for at in range(count)]


def unit(numbers: Sequence[float]) -> bytes:
    """Return a vector normalized to length 1, as little-endian float32. Raises UpstreamError for a zero vector."""
    length = sqrt(sum(number * number for number in numbers))
    if not length or not isfinite(length):
        raise UpstreamError("The embedder's server sent a zero or non-finite vector")
    vector = array("f", (number / length for number in numbers))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector.tobytes()
