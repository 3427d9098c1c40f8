"""Losses, activations and encodings as their users write them, in TensorFlow, JAX and PyTorch alike.

`m` is the library: its functions under one set of names (`Library` below, filled in by cases/ and peer_formulas.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

try:
    from benchmarks import ray_formulas
except ImportError:  # in a worker, which is run as a script beside this file
    import ray_formulas


@dataclass(frozen=True)
class Library:
    """The functions of a library that a formula needs."""

    where: Any
    abs: Any
    sign: Any
    maximum: Any
    exp: Any
    log1p: Any
    expm1: Any
    sin: Any
    cos: Any
    sigmoid: Any
    softplus: Any
    log_softmax: Any  # over the last axis
    mean: Any  # of everything
    sum_last: Any
    stack_last: Any  # of a list
    concat_last: Any
    power: Any
    sum_axis_1: Any
    cumsum: Any  # over axis 1
    cumprod: Any  # over axis 1
    take: Any  # rows by number
    floor: Any
    to_int: Any
    minimum: Any
    to_wide: Any  # float64
    to_float: Any  # float32
    cumsum_0: Any  # over axis 0
    segment_sum: Any  # of rows, by their segments' numbers, into so many
    relu: Any
    attention: Any  # of q, k and v, [batch, heads, length, size], as the library has it


def softshrink(m: Library, x: Any, lambd: float = 0.5) -> Any:
    return m.where(x > lambd, x - lambd, m.where(x < -lambd, x + lambd, 0.0 * x))


def softshrink_sign(m: Library, x: Any, lambd: float = 0.5) -> Any:
    return m.sign(x) * m.maximum(m.abs(x) - lambd, 0.0 * x)


def robust(m: Library, x: Any, y: Any, alpha: float = 1.5, scale: float = 0.3) -> Any:
    """Barron's equation 8 for one fixed alpha that is none of the special ones."""
    b = abs(alpha - 2)
    z = ((x - y) / scale) ** 2
    return m.mean(b / alpha * (m.power(z / b + 1, alpha / 2) - 1))


def robust_adaptive(m: Library, x: Any, y: Any, alpha: Any, scale: Any) -> Any:
    """With a trained alpha: as Barron's own code does, all cases and a choice among them."""
    tiny = 1e-6
    z = ((x - y) / scale) ** 2
    b = m.maximum(m.abs(alpha - 2), 0 * alpha + tiny)
    safe = m.where(m.abs(alpha) < tiny, 0 * alpha + tiny, alpha)
    general = b / safe * (m.power(z / b + 1, safe / 2) - 1)
    loss = m.where(alpha == 0, m.log1p(z / 2), general)
    return m.mean(m.where(alpha == 2, z / 2, loss))


def sigmoid_focal(m: Library, x: Any, y: Any, alpha: float = 0.25, gamma: float = 2.0) -> Any:
    """As torchvision and Keras have it."""
    entropy = m.softplus(-x) + (1 - y) * x
    p = m.sigmoid(x)
    q = y * (1 - p) + (1 - y) * p
    return m.mean((y * alpha + (1 - y) * (1 - alpha)) * q**gamma * entropy)


def softmax_focal(m: Library, x: Any, y: Any, alpha: float = 0.25, gamma: float = 2.0) -> Any:
    """Targets are one value per class."""
    log_p = m.log_softmax(x)
    return m.mean(m.sum_last(-alpha * y * (1 - m.exp(log_p)) ** gamma * log_p))


def sh_degree_4(m: Library, directions: Any) -> Any:
    """The first four bands written out, as torch-ngp and tiny-cuda-nn do."""
    x, y, z = directions[..., 0], directions[..., 1], directions[..., 2]
    xx, yy, zz = x * x, y * y, z * z

    def k(value: float) -> float:
        return math.sqrt(value / math.pi)

    return m.stack_last(
        [
            0 * x + k(1 / 4),
            -k(3 / 4) * y,
            k(3 / 4) * z,
            -k(3 / 4) * x,
            k(15 / 4) * x * y,
            -k(15 / 4) * y * z,
            k(5 / 16) * (3 * zz - 1),
            -k(15 / 4) * x * z,
            k(15 / 16) * (xx - yy),
            k(35 / 32) * y * (yy - 3 * xx),
            k(105 / 4) * x * y * z,
            k(21 / 32) * y * (1 - 5 * zz),
            k(7 / 16) * z * (5 * zz - 3),
            k(21 / 32) * x * (1 - 5 * zz),
            k(105 / 16) * z * (xx - yy),
            -k(35 / 32) * x * (xx - 3 * yy),
        ]
    )


def frequencies(m: Library, x: Any, count: int = 10) -> Any:
    """NeRF's own: a sine and a cosine an octave."""
    blocks = [x]
    for k in range(count):
        phase = x * (math.pi * 2.0**k)
        blocks += [m.sin(phase), m.cos(phase)]
    return m.concat_last(blocks)


def relu_layers(m: Library, x: Any, *kernels: Any) -> Any:
    """Dense layers without biases, ReLU between them."""
    for kernel in kernels[:-1]:
        x = m.relu(x @ kernel)
    return x @ kernels[-1]


def attention(m: Library, q: Any, k: Any, v: Any) -> Any:
    return m.attention(q, k, v)


def swiglu(m: Library, gate: Any, up: Any) -> Any:
    return gate * m.sigmoid(gate) * up


def rope(m: Library, x: Any, sines: Any, cosines: Any) -> Any:
    """As in Hugging Face's Llama, with sines and cosines that were made before."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return m.concat_last([a * cosines - b * sines, a * sines + b * cosines])


FORMULAS = {
    "attention": attention,
    "swiglu": swiglu,
    "rope": rope,
    "relu_layers": relu_layers,
    "softshrink": softshrink,
    "softshrink_sign": softshrink_sign,
    "robust": robust,
    "robust_adaptive": robust_adaptive,
    "sigmoid_focal": sigmoid_focal,
    "softmax_focal": softmax_focal,
    "sh_degree_4": sh_degree_4,
    "frequencies": frequencies,
    **ray_formulas.FORMULAS,
}
