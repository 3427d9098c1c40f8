"""The transformer: its variables, a pass over text, and a pass that goes on from a cache."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import KVCache, QuantizedWeights

from .config import VOCABULARY, ModelConfig


class Transformer(tf.Module):
    """A decoder as Llama's (Touvron et al. 2023, [arXiv:2302.13971](https://arxiv.org/abs/2302.13971)), over bytes.

    Args:
      config: Its sizes.
      seed: Seed of the initial values.

    Attributes:
      dynamic: Whether inputs of quantized matrices of the layers are rounded to 8 bits, see `quantized_matmul`.
      at_once: Whether a text has to be read at once, as its positions depend on its length.

    Example:
      >>> from metal_ops.lm.config import ModelConfig
      >>> model = Transformer(ModelConfig(width=16, layers=1, heads=2, kv_heads=1, hidden=32))
      >>> model(tf.constant([[72, 105]])).shape
      TensorShape([1, 2, 256])
    """

    dynamic = False
    at_once = False

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__(name="transformer")
        self.config = config
        random = np.random.default_rng(seed)
        width, head = config.width, config.width // config.heads
        shapes = {
            "qkv": (width, (config.heads + 2 * config.kv_heads) * head),
            "out": (width, width),
            "gate_up": (width, 2 * config.hidden),
            "down": (config.hidden, width),
        }

        def normal(name: str, shape: tuple[int, ...], deviation: float) -> tf.Variable:
            values = deviation * random.standard_normal(shape, np.float32)
            return tf.Variable(values.astype(np.float32), name=name)

        self.embedding = normal("embedding", (VOCABULARY, width), 0.02)
        self.matrices: list[dict[str, Any]] = []
        self.norms: list[dict[str, tf.Variable]] = []
        for i in range(config.layers):
            layer = {}
            for name, shape in shapes.items():
                # The addends of the stream are smaller the more layers add to it (Radford et al. 2019).
                depth = (2 * config.layers) ** -0.5 if name in ("out", "down") else 1.0
                layer[name] = normal(f"layer{i}_{name}", shape, depth * shape[0] ** -0.5)
            self.matrices.append(layer)
            self.norms.append(
                {
                    name: tf.Variable(tf.ones([width]), name=f"layer{i}_{name}_norm")
                    for name in ("attention", "feed_forward")
                }
            )
        self.last_norm = tf.Variable(tf.ones([width]), name="last_norm")

    def state(self) -> dict[str, tf.Variable]:
        """All variables by name."""
        return {variable.name.split(":")[0]: variable for variable in self.trainable_variables}

    def __call__(self, tokens: tf.Tensor) -> tf.Tensor:
        """Logits [batch, length, 256] of the byte behind each one of [batch, length] integers."""
        tokens = tf.convert_to_tensor(tokens)
        sizes = self._sizes(tokens)
        x = self._embedded(tf.reshape(tokens, [-1]))
        for i in range(self.config.layers):
            q, k, v = self._heads(i, x, sizes, None)
            heads = metal_ops.scaled_dot_product_attention(
                q, k, v, causal=True, **self._attention(i)
            )
            x += self._joined(i, heads)
            x += self._feed_forward(i, x)
        logits = self._logits(x)
        return tf.reshape(logits, [*sizes, logits.shape[-1]])

    def caches(self, capacity: int, batch: int = 1) -> list[KVCache]:
        """Empty ones, for `extend`."""
        config = self.config
        size = config.width // config.heads
        return [KVCache(batch, config.kv_heads, capacity, size) for _ in range(config.layers)]

    def extend(self, tokens: tf.Tensor, caches: list[KVCache]) -> tf.Tensor:
        """Appends [batch, n] tokens to the caches; the logits [batch, 256] of the byte behind the last."""
        batch, n = sizes = self._sizes(tokens)
        x = self._embedded(tf.reshape(tokens, [-1]))
        positions = caches[0].positions(n)
        for i, cache in enumerate(caches):
            options = self._attention(i)
            options.pop("window", None)  # which the cache knows
            x += self._joined(i, cache.attend(*self._heads(i, x, sizes, positions), **options))
            x += self._feed_forward(i, x)
        if tokens.shape[1] != 1:
            x = tf.reshape(x, [batch, n, x.shape[-1]])[:, -1]
        return self._logits(x)

    def attention_weights(self, tokens: tf.Tensor) -> tf.Tensor:
        """[layers, heads, length, length], for pictures: the attention of each byte of [length]."""
        tokens = tf.convert_to_tensor(tokens)
        x, sizes = self._embedded(tokens), self._sizes(tokens[None])
        group = self.config.heads // self.config.kv_heads
        found = []
        for i in range(self.config.layers):
            q, k, v = self._heads(i, x, sizes, None)
            options = self._attention(i)
            scores = tf.matmul(q, tf.repeat(k, group, axis=1), transpose_b=True)
            scores *= options.get("scale") or q.shape[-1] ** -0.5
            window = options.get("window")
            before = -1 if window is None else window[0]
            behind = tf.linalg.band_part(tf.ones_like(scores), before, 0) == 0
            weights = tf.nn.softmax(tf.where(behind, scores.dtype.min, scores))
            found.append(weights[0])
            x += self._joined(i, tf.matmul(weights, tf.repeat(v, group, axis=1)))
            x += self._feed_forward(i, x)
        return tf.stack(found)

    def quantized(self, bits: int, block: int = 32) -> Transformer:
        """The same with matrices of `bits` bits in its layers; it shares the embedding and the norms."""
        other = copy.copy(self)
        other.matrices = [
            {name: metal_ops.quantize(matrix, bits, block) for name, matrix in layer.items()}
            for layer in self.matrices
        ]
        return other

    def n_quantized(self) -> int:
        """Quantized matrices of the layers."""
        matrices = [matrix for layer in self.matrices for matrix in layer.values()]
        return sum(isinstance(matrix, QuantizedWeights) for matrix in matrices)

    def n_bytes(self) -> int:
        """Bytes of all weights, as they are held."""
        matrices = [matrix for layer in self.matrices for matrix in layer.values()]
        rest = [
            self.embedding,
            self.last_norm,
            *(n for layer in self.norms for n in layer.values()),
        ]
        return sum(
            one.n_bytes
            if isinstance(one, QuantizedWeights)
            else one.dtype.size * one.shape.num_elements()
            for one in (*matrices, *rest)
        )

    def _product(self, x: tf.Tensor, layer: int, name: str) -> tf.Tensor:
        return self._times(x, self.matrices[layer][name], self.dynamic)

    @staticmethod
    def _times(x: tf.Tensor, matrix: Any, dynamic: bool = False) -> tf.Tensor:
        if isinstance(matrix, QuantizedWeights):
            return metal_ops.quantized_matmul(x, matrix, dynamic=dynamic)
        if callable(matrix):  # a layer: see adapted.py
            return matrix(x)
        return tf.matmul(x, matrix)

    def _embedded(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.embedding, tokens)

    def _heads(
        self, i: int, x: tf.Tensor, sizes: list[Any], positions: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """q, k and v of a layer, [batch, heads, length, size], q and k turned by their positions."""
        config = self.config
        normal = metal_ops.rms_norm(x, self.norms[i]["attention"])
        both = self._product(normal, i, "qkv")
        both = self._apart(both, sizes, config.heads + 2 * config.kv_heads)
        turned, v = tf.split(both, [config.heads + config.kv_heads, config.kv_heads], 1)
        turned = metal_ops.rope(turned, positions, config.rope_base)
        q, k = tf.split(turned, [config.heads, config.kv_heads], 1)
        return q, k, v

    @staticmethod
    def _apart(x: tf.Tensor, sizes: list[Any], heads: int) -> tf.Tensor:
        """[batch length, heads size] as [batch, heads, length, size]."""
        batch, length = sizes
        size = x.shape[-1] // heads
        if isinstance(length, int) and length == 1:  # which lies like that
            return tf.reshape(x, [batch, heads, 1, size])
        return tf.transpose(tf.reshape(x, [batch, length, heads, size]), [0, 2, 1, 3])

    def _attention(self, i: int) -> dict[str, Any]:
        """Options of a layer's `scaled_dot_product_attention`."""
        return {}

    def _joined(self, i: int, heads: tf.Tensor) -> tf.Tensor:
        width = heads.shape[1] * heads.shape[3]
        if heads.shape[2] != 1:
            heads = tf.transpose(heads, [0, 2, 1, 3])
        return self._product(tf.reshape(heads, [-1, width]), i, "out")

    def _feed_forward(self, i: int, x: tf.Tensor) -> tf.Tensor:
        normal = metal_ops.rms_norm(x, self.norms[i]["feed_forward"])
        return self._product(metal_ops.swiglu(self._product(normal, i, "gate_up")), i, "down")

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        normal = metal_ops.rms_norm(x, self.last_norm)
        return tf.matmul(normal, self.embedding, transpose_b=True)

    @staticmethod
    def _sizes(x: tf.Tensor) -> list[Any]:
        """Batch and length."""
        known, sizes = x.shape.as_list()[:2], tf.shape(x)
        return [sizes[i] if size is None else size for i, size in enumerate(known)]
