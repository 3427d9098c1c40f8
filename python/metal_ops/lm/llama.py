"""Llama-like models from files: their sizes, and the passes with weights as the file has them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import KVCache, QuantizedWeights

from .architecture import MATRICES as MATRICES
from .architecture import LlamaConfig as LlamaConfig
from .model import Transformer
from .rope import Rope
from .weights import Packed


class Llama(Transformer):
    """A model whose weights come from a file; floats, or quantized as they are there.

    Args:
      config: Its sizes.
      embedding: float32 [vocabulary, width], or codes of it.
      head: The same for the last matrix; None: it is the embedding.
      layers: For each layer the matrices, [outputs, inputs] or codes, the norms, and the biases as "<matrix>_bias".
      last_norm: float32 [width].
    """

    def __init__(
        self,
        config: LlamaConfig,
        embedding: np.ndarray | Packed,
        head: np.ndarray | Packed | None,
        layers: list[dict[str, Any]],
        last_norm: np.ndarray,
    ) -> None:
        tf.Module.__init__(self, name="llama")
        self.config: Any = config
        # Rows for their gathering, where they are floats: [vocabulary, width].
        rows = isinstance(embedding, np.ndarray)
        self.embedding: Any = tf.constant(embedding) if rows else as_weights(embedding)
        self.head: Any = None if head is None else as_weights(head)
        self.matrices = [{name: as_weights(layer[name]) for name in MATRICES} for layer in layers]
        self.norms = [
            {name: tf.constant(layer[name]) for name in config.norms()} for layer in layers
        ]
        self.biases = [
            {name: tf.constant(layer[f"{name}_bias"]) for name in sorted(config.biases)}
            for layer in layers
        ]
        self.last_norm = tf.constant(last_norm)
        ropes = [config.rope_of(i) for i in range(config.layers)]
        self.at_once = any(
            (rope.long or rope.growth) and rope.limit < config.context for rope in ropes
        )

    def caches(self, capacity: int, batch: int = 1) -> list[KVCache]:
        """Empty ones; of sliding layers those that keep their window, where more is to be written."""
        config = self.config
        sizes: Any = {"batch": batch, "kv_heads": config.kv_heads, "size": config.head_size}

        def of_layer(i: int) -> KVCache:
            window = config.window_of(i)
            if window is None or window >= capacity:
                return KVCache(capacity=capacity, **sizes)
            return KVCache(window=window, **sizes)

        return [of_layer(i) for i in range(config.layers)]

    def quantized(self, bits: int, block: int = 32) -> Llama:
        """The same with `bits` bits for the matrices that are floats; quantized ones stay as they are."""

        def few(matrix: Any) -> Any:
            done = isinstance(matrix, QuantizedWeights)
            return matrix if done else metal_ops.quantize(matrix, bits, block)

        other = copy.copy(self)
        other.matrices = [
            {name: few(matrix) for name, matrix in layer.items()} for layer in self.matrices
        ]
        return other

    def n_bytes(self) -> int:
        biases = [bias for layer in self.biases for bias in layer.values()]
        more = sum(4 * bias.shape.num_elements() for bias in biases)
        if self.head is None:
            return super().n_bytes() + more
        head = self.head
        quantized = isinstance(head, QuantizedWeights)
        more += head.n_bytes if quantized else 4 * head.shape.num_elements()
        return super().n_bytes() + more

    def _embedded(self, tokens: tf.Tensor) -> tf.Tensor:
        found, scale = self._rows(tokens), self.config.embedding_scale
        return found if scale == 1 else found * scale

    def _rows(self, tokens: tf.Tensor) -> tf.Tensor:
        if not isinstance(self.embedding, QuantizedWeights):
            return super()._embedded(tokens)
        weights = self.embedding
        minima = weights.minima
        rows = QuantizedWeights(
            tf.gather(weights.codes, tokens),
            tf.gather(weights.scales, tokens),
            tf.gather(minima, tokens) if minima.shape.rank == 2 else minima,
            inputs=weights.inputs,
            bits=weights.bits,
            block=weights.block,
        )
        return tf.transpose(metal_ops.dequantize(rows))

    def _product(self, x: tf.Tensor, layer: int, name: str) -> tf.Tensor:
        found, bias = super()._product(x, layer, name), self.biases[layer].get(name)
        return found if bias is None else found + bias

    def _attention(self, i: int) -> dict[str, Any]:
        config, window = self.config, self.config.window_of(i)
        return {
            "scale": config.attention_scale,
            "window": None if window is None else (window - 1, None),
        }

    def _heads(
        self, i: int, x: tf.Tensor, sizes: list[Any], positions: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        config = self.config
        normal = self._normal(x, self.norms[i]["attention"])

        def heads(name: str, n: int) -> tf.Tensor:
            return self._apart(self._product(normal, i, name), sizes, n)

        def turned(name: str, n: int) -> tf.Tensor:
            found, norm = heads(name, n), self.norms[i].get(f"{name}_norm")
            if norm is not None:
                found = self._normal(found, norm)
            return _turned(found, config.rope_of(i), positions, config.interleaved)

        return turned("q", config.heads), turned("k", config.kv_heads), heads("v", config.kv_heads)

    def _joined(self, i: int, heads: tf.Tensor) -> tf.Tensor:
        return self._after(i, super()._joined(i, heads), "attention_after")

    def _feed_forward(self, i: int, x: tf.Tensor) -> tf.Tensor:
        normal = self._normal(x, self.norms[i]["feed_forward"])
        gate, up = self._product(normal, i, "gate"), self._product(normal, i, "up")
        found = self._product(_gated(gate, up, self.config.activation), i, "down")
        return self._after(i, found, "feed_forward_after")

    def _after(self, i: int, x: tf.Tensor, name: str) -> tf.Tensor:
        """Through the norm of a part's addend, where there is one."""
        norm = self.norms[i].get(name)
        return x if norm is None else self._normal(x, norm)

    def _normal(self, x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return metal_ops.rms_norm(x, scale, self.config.epsilon)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        found, cap = self._last_product(self._normal(x, self.last_norm)), self.config.final_cap
        return found if cap is None else cap * tf.tanh(found / cap)

    def _last_product(self, normal: tf.Tensor) -> tf.Tensor:
        head = self.head
        if head is None:
            rows = self.embedding
            if not isinstance(rows, QuantizedWeights):
                return tf.matmul(normal, rows, transpose_b=True)
            head = rows
        return self._times(normal, head)


def _gated(gate: tf.Tensor, up: tf.Tensor, activation: str) -> tf.Tensor:
    if activation == "silu":
        return metal_ops.swiglu(gate, up)
    if activation == "gelu":
        return 0.5 * gate * (1 + tf.math.erf(gate * 2**-0.5)) * up
    inner = (2 / np.pi) ** 0.5 * gate * (1 + 0.044715 * gate * gate)
    return 0.5 * gate * (1 + tf.tanh(inner)) * up


def _turned(x: tf.Tensor, rope: Rope, positions: tf.Tensor | None, interleaved: bool) -> tf.Tensor:
    """[batch, heads, length, size], turned by their positions; None for 0, 1, ..."""
    found = metal_ops.rope(
        x,
        positions,
        frequencies=_frequencies(rope, x, positions),
        rotary_size=2 * len(rope.frequencies),
        interleaved=interleaved,
    )
    if rope.scale == 1:
        return found
    size, turned = x.shape[-1], 2 * len(rope.frequencies)
    return found * np.where(np.arange(size) < turned, rope.scale, 1).astype(np.float32)


def _frequencies(rope: Rope, x: tf.Tensor, positions: tf.Tensor | None) -> Any:
    """For as many tokens as are seen, where these matter: the last position's number and one."""
    plain = np.array(rope.frequencies)
    if not rope.growth and not rope.long:
        return plain
    with tf.device("CPU:0"):  # no GPU of Metal has doubles
        length = tf.shape(x)[2] if positions is None else tf.reduce_max(positions) + 1
        length = tf.cast(length, tf.float64)
        if rope.long:
            return tf.where(length > rope.limit, np.array(rope.long), plain)
        # For all pairs but the fastest, so that the slowest goes as far in all tokens as in those that it was trained
        # on.
        size = 2 * len(plain)
        grown = tf.maximum(rope.growth * length / rope.limit - (rope.growth - 1), 1)
        return plain * grown ** (-np.arange(0, size, 2) / max(size - 2, 1))


def as_weights(found: np.ndarray | Packed) -> tf.Tensor | QuantizedWeights:
    """[outputs, inputs] of a file as [inputs, outputs]."""
    if isinstance(found, np.ndarray):
        return tf.constant(np.ascontiguousarray(found.T))
    minima = np.zeros([0], found.scales.dtype) if found.minima is None else found.minima
    return QuantizedWeights(
        tf.constant(found.codes),
        tf.constant(found.scales),
        tf.constant(minima),
        inputs=found.codes.shape[1] * 8 // found.bits,
        bits=found.bits,
        block=found.block,
    )
