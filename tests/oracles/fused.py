"""Fused products and convolutions in float64, from the definition; and how far float32 sums may lead away from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# (value, sum of the terms' sizes): the second bounds the partial sums, and so the rounding errors, of the first.
Bounded = tuple[np.ndarray, np.ndarray]


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def activate(name: str, x: np.ndarray, alpha: float = 0.2) -> np.ndarray:
    """An activation by TensorFlow's name; "" for none."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        sigmoid = np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
        # 1 + tanh is a quotient that does not cancel.
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        values = {
            "": x,
            "Relu": np.where(x < 0, 0, x),
            "Relu6": np.where(x < 0, 0, np.where(x > 6, 6, x)),
            "Elu": np.where(x < 0, np.expm1(x), x),
            "LeakyRelu": np.where(x < 0, np.float32(alpha).astype(np.float64) * x, x),
            "Sigmoid": sigmoid,
            "Tanh": np.tanh(x),
            "Swish": x * sigmoid,
            "GeluExact": 0.5 * x * _erfc(-x / math.sqrt(2)),
            "GeluApproximate": x / (1 + np.exp(-2 * inner)),
            "Mish": x * np.tanh(np.logaddexp(0, x)),
        }
    return values[name]


def matmul(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> Bounded:
    """[..., m, k] times [..., k, n], after the exchanges that are asked for."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    a = a.swapaxes(-1, -2) if transpose_a else a
    b = b.swapaxes(-1, -2) if transpose_b else b
    return a @ b, np.abs(a) @ np.abs(b)


def sides(
    padding: str | Sequence[int], size: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """(before, after) along height and width. `padding` may be (top, bottom, left, right)."""
    if not isinstance(padding, str):
        return [(padding[0], padding[1]), (padding[2], padding[3])]
    if padding == "VALID":
        return [(0, 0), (0, 0)]
    result = []
    for n, w, s in zip(size, window, strides, strict=True):
        total = max(0, (-(-n // s) - 1) * s + w - n)
        result.append((total // 2, total - total // 2))
    return result


def conv2d(
    x: np.ndarray,
    filters: np.ndarray,
    strides: Sequence[int],
    padding: str | Sequence[int],
    dilations: Sequence[int],
    nchw: bool = False,
) -> Bounded:
    """[n, h, w, c] under [fh, fw, c, k], or [n, c, h, w] with `nchw`; strides and dilations are (height, width)."""
    x, filters = x.astype(np.float64), filters.astype(np.float64)
    x = x.transpose(0, 2, 3, 1) if nchw else x
    fh, fw = filters.shape[:2]
    window = ((fh - 1) * dilations[0] + 1, (fw - 1) * dilations[1] + 1)
    x = np.pad(x, [(0, 0), *sides(padding, x.shape[1:3], window, strides), (0, 0)])
    out_h, out_w = ((x.shape[d + 1] - window[d]) // strides[d] + 1 for d in range(2))
    value = np.zeros((x.shape[0], out_h, out_w, filters.shape[3]))
    bound = np.zeros_like(value)
    for i in range(fh):
        for j in range(fw):
            top, left = i * dilations[0], j * dilations[1]
            part = x[:, top : top + (out_h - 1) * strides[0] + 1 : strides[0]]
            part = part[:, :, left : left + (out_w - 1) * strides[1] + 1 : strides[1]]
            value += part @ filters[i, j]
            bound += np.abs(part) @ np.abs(filters[i, j])
    if nchw:
        return value.transpose(0, 3, 1, 2), bound.transpose(0, 3, 1, 2)
    return value, bound


def finish(
    product: Bounded,
    fused_ops: Sequence[str],
    args: Sequence[np.ndarray],
    epsilon: float = 1e-4,
    alpha: float = 0.2,
    channel_axis: int = -1,
) -> Bounded:
    """The fused_ops on a product, one after the other, in float64."""
    (y, bound), rest = product, [np.asarray(arg, np.float64) for arg in args]

    def channels(values: np.ndarray) -> np.ndarray:
        shape = [1] * y.ndim
        shape[channel_axis] = -1
        return values.reshape(shape)

    for name in fused_ops:
        if name == "BiasAdd":
            bias = channels(rest.pop(0))
            y, bound = y + bias, bound + np.abs(bias)
        elif name == "BatchNorm":
            whole = len(rest) - ("Add" in fused_ops) == 4
            scale, shift = channels(rest.pop(0)), channels(rest.pop(0))
            if whole:
                mean, variance = channels(rest.pop(0)), channels(rest.pop(0))
                y, bound = y - mean, bound + np.abs(mean)
                scale = scale / np.sqrt(variance + np.float64(np.float32(epsilon)))
            y, bound = y * scale + shift, bound * np.abs(scale) + np.abs(shift)
        elif name == "Add":
            residual = rest.pop(0)
            y, bound = y + residual, bound + np.abs(residual)
        else:
            y = activate(name, y, alpha)
    assert not rest, "more args than fused_ops take"
    return y, bound


def shapes_of(fused_ops: Sequence[str], channels: int, output: Sequence[int], whole: Any) -> list:
    """The shapes of args; `whole` says whether BatchNorm has four of them."""
    shapes: list[tuple[int, ...]] = []
    for name in fused_ops:
        if name == "BiasAdd":
            shapes.append((channels,))
        elif name == "BatchNorm":
            shapes += [(channels,)] * (4 if whole else 2)
        elif name == "Add":
            shapes.append(tuple(output))
    return shapes
