"""sh_encode and frequency_encode against compositions of stock ops."""

from __future__ import annotations

import numpy as np

import metal_ops
from benchmarks import elementwise


def directions(n: int) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((n, 3), np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def sh(n: int) -> elementwise.Work:
    return elementwise.Work(
        ours=lambda x: metal_ops.sh_encode(x, 4),
        stock={"polynomials": "sh_degree_4"},
        arrays=lambda: [directions(n)],
        gradients=(0,),
        # 3 floats in and 16 out; and then 16 and 3 in and 3 out.
        forward_traffic=(3 * n, 16 * n),
        gradient_traffic=(22 * n, 19 * n),
        calls=elementwise.calls_of(16 * n),
    )


def frequencies(n: int) -> elementwise.Work:
    return elementwise.Work(
        ours=lambda x: metal_ops.frequency_encode(x, 10),
        stock={"a sine and a cosine an octave": "frequencies"},
        arrays=lambda: [np.random.default_rng(0).uniform(-1, 1, (n, 3)).astype(np.float32)],
        gradients=(0,),
        forward_traffic=(3 * n, 63 * n),
        gradient_traffic=(69 * n, 66 * n),
        calls=elementwise.calls_of(63 * n),
    )


elementwise.register_cases(
    "encodings",
    "encodings-sh",
    "Spherical harmonics, degree 4, of {} directions",
    sh,
    (1 << 18, 1 << 14),
    "points",
)
elementwise.register_cases(
    "encodings",
    "encodings-frequency",
    "Ten octaves of {} points",
    frequencies,
    (1 << 17, 1 << 13),
    "points",
    # Sines of large phases in float32: the others' are off by up to 2^10 pi 2^-24, ours are exact.
    tolerance=1e-3,
)
