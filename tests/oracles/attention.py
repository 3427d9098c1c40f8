"""Scaled dot-product attention and its gradients in float64, with the whole matrix of scores; Philox4x32-10."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Four words of 32 bits of each counter, [..., 4]: Salmon et al. 2011, "Parallel random numbers"."""
    low = np.uint64(0xFFFFFFFF)
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k = [np.uint64(word & 0xFFFFFFFF) for word in key]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ k[0],
            second & low,
            (first >> np.uint64(32)) ^ c[3] ^ k[1],
            first & low,
        ]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, axis=-1)


def kept(shape: tuple[int, ...], rate: float, seed: tuple[int, int]) -> np.ndarray:
    """The factors of weights [batch, heads, queries, keys]."""
    batch, heads, queries, keys = shape
    of, query, key = np.indices((batch * heads, queries, -(-keys // 4)))
    words = philox(np.stack([key, query, of, np.zeros_like(of)], axis=-1), seed)
    words = words.reshape(batch, heads, queries, -1)[..., :keys]
    return np.where(
        words >= int(np.float32(rate) * 2.0**32), 1 / (1 - np.float64(np.float32(rate))), 0.0
    )


def visible(
    shape: tuple[int, ...],
    window: tuple[int | None, int | None] = (None, None),
    key_lengths: Any = None,
) -> np.ndarray:
    batch, _, queries, keys = shape
    lengths = np.full(batch, keys) if key_lengths is None else np.clip(key_lengths, 0, keys)
    key = np.arange(keys)[None, None, None]
    own = np.arange(queries)[None, None, :, None] + lengths[:, None, None, None] - queries
    seen = key < lengths[:, None, None, None]
    if window[0] is not None:
        seen = seen & (key >= own - window[0])
    if window[1] is not None:
        seen = seen & (key <= own + window[1])
    return np.broadcast_to(seen, shape)


@dataclass
class Attention:
    """The outputs, and the values that gradients need."""

    q: Any
    k: Any
    v: Any
    mask: Any = None
    bias: Any = None
    causal: bool = False
    scale: float | None = None
    dropout: float = 0.0
    seed: tuple[int, int] = (0, 0)
    window: tuple[int | None, int | None] = (None, None)
    soft_cap: float | None = None
    key_lengths: Any = None
    outputs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        q, k, v = (np.asarray(x).astype(np.float64) for x in (self.q, self.k, self.v))
        self.sharing = max(q.shape[1] // max(k.shape[1], 1), 1)
        self.wide = q, *(np.repeat(x, self.sharing, axis=1) for x in (k, v))
        q, k, v = self.wide
        self.factor = self.scale if self.scale is not None else q.shape[-1] ** -0.5
        scores = np.einsum("bhqd,bhkd->bhqk", q, k) * self.factor
        self.slope = np.ones_like(scores)
        if self.soft_cap is not None:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
            self.slope = 1 - (scores / self.soft_cap) ** 2
        if self.bias is not None:
            scores = scores + np.asarray(self.bias).astype(np.float64)
        window = (self.window[0], 0 if self.causal else self.window[1])
        seen = visible(scores.shape, window, self.key_lengths)
        if self.mask is not None:
            seen = seen & self.mask
        scores = np.where(seen, scores, -np.inf)
        most = scores.max(axis=-1, initial=-np.inf, keepdims=True)
        weights = np.exp(scores - np.where(np.isneginf(most), 0, most))
        total = weights.sum(axis=-1, keepdims=True)
        self.weights = weights / np.where(total == 0, 1, total)
        with np.errstate(divide="ignore"):
            self.log_sum_exp = (most + np.log(total))[..., 0]  # -infinity where no key is seen
        self.keeps = 1.0
        if self.dropout:
            self.keeps = kept(scores.shape, self.dropout, self.seed)
        self.outputs = np.einsum("bhqk,bhkd->bhqd", self.weights * self.keeps, v)

    def gradients(self, d_outputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Gradients of q, k, v and, if there is one, bias."""
        q, k, v = self.wide
        d_outputs = d_outputs.astype(np.float64)
        d_weights = np.einsum("bhqd,bhkd->bhqk", d_outputs, v) * self.keeps
        mean = (d_weights * self.weights).sum(axis=-1, keepdims=True)
        d_biased = self.weights * (d_weights - mean)
        d_scores = d_biased * self.slope * self.factor

        def shared(x: np.ndarray) -> np.ndarray:
            return x.reshape(
                x.shape[0], x.shape[1] // self.sharing, self.sharing, *x.shape[2:]
            ).sum(axis=2)

        found = [
            np.einsum("bhqk,bhkd->bhqd", d_scores, k),
            shared(np.einsum("bhqk,bhqd->bhkd", d_scores, q)),
            shared(np.einsum("bhqk,bhqd->bhkd", self.weights * self.keeps, d_outputs)),
        ]
        if self.bias is not None:
            shape = np.shape(self.bias)
            d_bias = d_biased
            d_bias = d_bias.sum(axis=tuple(range(4 - len(shape))))
            for axis, size in enumerate(shape):
                if size == 1:
                    d_bias = d_bias.sum(axis=axis, keepdims=True)
            found.append(d_bias)
        return tuple(found)
