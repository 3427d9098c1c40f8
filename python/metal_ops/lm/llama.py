"""Llama-like models from files: their sizes, and the passes with weights as the file has them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import KVCache, QuantizedWeights

from .model import Transformer
from .weights import Packed

MATRICES = ("q", "k", "v", "out", "gate", "up", "down")
NORMS = ("attention", "feed_forward")


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model from a file.

    Attributes:
      width: Of what flows from layer to layer.
      layers: How many.
      heads: Of queries.
      kv_heads: Of keys and values.
      head_size: Of each.
      hidden: Width of the feed-forward part.
      vocabulary: Tokens.
      context: Tokens that are seen at once.
      epsilon: Of the RMS norms.
      frequencies: Radians a position of each pair.
      interleaved: Whether a pair are neighbours, as in GGUF, or from both halves, as in Hugging Face's files.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    context: int
    epsilon: float
    frequencies: tuple[float, ...]
    interleaved: bool

    def matrices(self) -> dict[str, tuple[int, int]]:
        """[inputs, outputs] of a layer's."""
        heads, kv_heads = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "q": (self.width, heads),
            "k": (self.width, kv_heads),
            "v": (self.width, kv_heads),
            "out": (heads, self.width),
            "gate": (self.width, self.hidden),
            "up": (self.width, self.hidden),
            "down": (self.hidden, self.width),
        }


class Llama(Transformer):
    """A model whose weights come from a file; floats, or quantized as they are there.

    Args:
      config: Its sizes.
      embedding: float32 [vocabulary, width], or codes of it.
      head: The same for the last matrix; None: it is the embedding.
      layers: Of each layer the matrices, [outputs, inputs] or codes, and the norms, by name.
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
        self.norms = [{name: tf.constant(layer[name]) for name in NORMS} for layer in layers]
        self.last_norm = tf.constant(last_norm)

    def caches(self, capacity: int, batch: int = 1) -> list[KVCache]:
        config = self.config
        return [
            KVCache(batch, config.kv_heads, capacity, config.head_size)
            for _ in range(config.layers)
        ]

    def quantized(self, bits: int, block: int = 32) -> Llama:
        """The same with `bits` bits for the matrices that are floats; what is quantized stays as it is."""

        def few(matrix: Any) -> Any:
            done = isinstance(matrix, QuantizedWeights)
            return matrix if done else metal_ops.quantize(matrix, bits, block)

        other = copy.copy(self)
        other.matrices = [
            {name: few(matrix) for name, matrix in layer.items()} for layer in self.matrices
        ]
        return other

    def n_bytes(self) -> int:
        if self.head is None:
            return super().n_bytes()
        head = self.head
        quantized = isinstance(head, QuantizedWeights)
        return super().n_bytes() + (head.n_bytes if quantized else 4 * head.shape.num_elements())

    def _embedded(self, tokens: tf.Tensor) -> tf.Tensor:
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

    def _heads(
        self, i: int, x: tf.Tensor, sizes: list[Any], positions: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        config = self.config
        normal = self._normal(x, self.norms[i]["attention"])

        def heads(name: str, n: int) -> tf.Tensor:
            found = self._apart(self._product(normal, i, name), sizes, n)
            if name == "v":
                return found
            return metal_ops.rope(
                found,
                positions,
                frequencies=np.array(config.frequencies),
                rotary_size=2 * len(config.frequencies),
                interleaved=config.interleaved,
            )

        return heads("q", config.heads), heads("k", config.kv_heads), heads("v", config.kv_heads)

    def _feed_forward(self, i: int, x: tf.Tensor) -> tf.Tensor:
        normal = self._normal(x, self.norms[i]["feed_forward"])
        gated = metal_ops.swiglu(self._product(normal, i, "gate"), self._product(normal, i, "up"))
        return self._product(gated, i, "down")

    def _normal(self, x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return metal_ops.rms_norm(x, scale, self.config.epsilon)

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        normal, head = self._normal(x, self.last_norm), self.head
        if head is None:
            rows = self.embedding
            if not isinstance(rows, QuantizedWeights):
                return tf.matmul(normal, rows, transpose_b=True)
            head = rows
        return self._times(normal, head)


def as_weights(found: np.ndarray | Packed) -> tf.Tensor | QuantizedWeights:
    """[outputs, inputs] of a file as [inputs, outputs]."""
    if isinstance(found, np.ndarray):
        return tf.constant(np.ascontiguousarray(found.T))
    minima = np.zeros([0], np.float16) if found.minima is None else found.minima
    return QuantizedWeights(
        tf.constant(found.codes),
        tf.constant(found.scales),
        tf.constant(minima),
        inputs=found.codes.shape[1] * 8 // found.bits,
        bits=found.bits,
        block=found.block,
    )
