"""BERT forward in numpy: what the model computes where no onnxruntime is installed. Half as fast, the same vectors."""

import re
from typing import Any, Final

from cuebook.backends.minilm.onnx import read_weights

Floats = Any  # a numpy array of float32; numpy is loaded with the model

HEADS: Final = 12
EPSILON: Final = 1e-12  # of the layer norms: BERT's
_MASKED: Final = -1e9
# erf by Abramowitz and Stegun, 7.1.26: within 1.5e-7.
_ERF: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_P: Final = 0.3275911


class Forward:
    """The encoder with its weights, made of an ONNX file whose matrices stand as eight-bit numbers and scales."""

    def __init__(self, model: bytes) -> None:
        """Raise ValueError or KeyError for a file that is not this model."""
        weights = read_weights(model)
        self._words = weights["inner.embeddings.word_embeddings.weight_q"]  # dequantised where it is read: 35 MB less
        self._word_scale = weights["inner.embeddings.word_embeddings.weight_scale"]
        self._positions = _dequantised(weights, "inner.embeddings.position_embeddings.weight")
        self._type = weights["inner.embeddings.token_type_embeddings.weight"][0]
        self._norm = _norm_of(weights, "inner.embeddings.LayerNorm")
        # The exporter numbers the matrices in the order they are used in: query, key, value, output, up and down.
        numbers = sorted(int(found[1]) for name in weights if (found := re.fullmatch(r"val_(\d+)_q", name)))
        matrices = [_dequantised(weights, f"val_{number}") for number in numbers]
        self._layers = [
            _Layer(weights, f"inner.encoder.layer.{at}", matrices[6 * at : 6 * at + 6])
            for at in range(len(matrices) // 6)
        ]

    def run(self, ids: Any, mask: Any) -> Floats:
        """Give the last hidden state of token ids, (texts, tokens) to (texts, tokens, dimension)."""
        import numpy as np

        words = self._words[ids].astype(np.float32) * self._word_scale[ids]
        state = _normalised(words + self._positions[: ids.shape[1]] + self._type, self._norm)
        shield = ((1 - mask)[:, None, None, :] * _MASKED).astype(np.float32)
        for layer in self._layers:
            state = layer.run(state, shield)
        return state


class _Layer:
    def __init__(self, weights: dict[str, Any], name: str, matrices: list[Floats]) -> None:
        places = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
        biases = [weights[f"{name}.{place}.bias"] for place in (*places, "intermediate.dense", "output.dense")]
        self._query, self._key, self._value, self._out, self._up, self._down = zip(matrices, biases, strict=True)
        self._attended = _norm_of(weights, f"{name}.attention.output.LayerNorm")
        self._ended = _norm_of(weights, f"{name}.output.LayerNorm")

    def run(self, state: Floats, shield: Floats) -> Floats:
        import numpy as np

        texts, tokens, size = state.shape
        cut = (texts, tokens, HEADS, size // HEADS)
        query, key, value = (
            (state @ matrix + bias).reshape(cut).transpose(0, 2, 1, 3)
            for matrix, bias in (self._query, self._key, self._value)
        )
        weight = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(size // HEADS)) + shield
        weight = np.exp(weight - weight.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        heard = (weight @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, size)
        state = _normalised(heard @ self._out[0] + self._out[1] + state, self._attended)
        thought = _gelu(state @ self._up[0] + self._up[1])
        return _normalised(thought @ self._down[0] + self._down[1] + state, self._ended)


def _gelu(x: Floats) -> Floats:
    import numpy as np

    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1 / (1 + np.float32(_ERF_P) * z)
    series = np.zeros_like(t)
    for factor in reversed(_ERF):
        series = (series + np.float32(factor)) * t
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    return np.float32(0.5) * x * (1 + erf)


def _normalised(x: Floats, norm: tuple[Floats, Floats]) -> Floats:
    import numpy as np

    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    return centred / spread * norm[0] + norm[1]


def _norm_of(weights: dict[str, Any], name: str) -> tuple[Floats, Floats]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _dequantised(weights: dict[str, Any], name: str) -> Floats:
    return weights[f"{name}_q"].astype("f4") * weights[f"{name}_scale"]
