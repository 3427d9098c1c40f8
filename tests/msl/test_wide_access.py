"""Shader code for GPUs alone, wide accesses and levels dealt out anew: run on the CPU, it gives the CPU's results."""

from __future__ import annotations

import re

import numpy as np
import pytest

from metal_ops.metal.launch import Kernel
from tests.processes import ROOT

from .shaders import library

LEVEL = np.dtype(
    [("scale", "f4"), ("resolution", "u4"), ("offset", "u4"), ("size", "u4"), ("factors", "4u4"), ("hashed", "u4"),
     ("mask", "u4"), ("reciprocal", "u4"), ("reserved", "u4")]
)  # fmt: skip
PRIMES = (1, 2654435761, 805459861, 3674653429)
PARAMS = np.dtype([("n_points", "u4"), ("n_levels", "u4"), ("smoothstep", "u4")])
# Rows of each level: pairs are one access where offset and size are even. Six levels are dealt out by four or two.
LEVELS = [
    ("dense", 128),
    ("hashed", 64),
    ("dense", 125),
    ("hashed", 61),
    ("hashed", 33),
    ("dense", 126),
]
RESOLUTION, N_POINTS, DIMS = 5, 70, 3
RNG = np.random.default_rng(3)


def levels() -> np.ndarray:
    out = np.zeros(len(LEVELS), LEVEL)
    offset = 0
    for row, (kind, size) in zip(out, LEVELS, strict=True):
        strides = (1, RESOLUTION, RESOLUTION**2, 0)
        row["scale"], row["resolution"] = RESOLUTION - 1, RESOLUTION
        row["offset"], row["size"] = offset, size
        row["factors"] = strides if kind == "dense" else PRIMES
        row["hashed"], row["mask"] = kind == "hashed", size - 1 if size & (size - 1) == 0 else 0
        row["reciprocal"] = 2**32 // size
        offset += size
    return out


def aligned(array: np.ndarray) -> np.ndarray:
    """The same at a multiple of 16, as buffers lie."""
    memory = np.zeros(array.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    out = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def run(kernel: Kernel, **arrays: np.ndarray) -> None:
    """Bound by name, and with the shader's sizes: a struct that has changed is not read as its old
    version."""
    arguments = {a["name"]: a for a in kernel.arguments}
    sizes = {name: arguments[name]["size"] for name in arrays}
    assert {name: array.itemsize for name, array in arrays.items()} == sizes
    buffers = {arguments[name]["index"]: array for name, array in arrays.items()}
    kernel.run((N_POINTS, len(LEVELS)), (16, 1), buffers)


@pytest.mark.parametrize("file", ["hash_encode", "hash_encode_table"])
@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("n_features", [1, 2, 4, 8])
def test_hash_encode(n_features: int, dtype: str, file: str) -> None:
    # Compiled for the tested instances alone: a fifth of the time.
    source = (ROOT / f"kernels/hash_encode/{file}.metal").read_text()
    source = re.sub(r"INSTANTIATE_DIMS\(T, [24]\)|INSTANTIATE_TYPE\(bfloat\)", "", source)
    # Checked: an access beyond a buffer fails the test and not the process.
    narrow = library(source, checked=True, include=(str(ROOT),))
    wide = library("#undef __METAL_CPU__\n" + source, checked=True, include=(str(ROOT),))
    kind = {"float": np.float32, "half": np.float16}[dtype]
    rows = sum(size for _, size in LEVELS)
    shared = {
        "params": np.array([(N_POINTS, len(LEVELS), 0)], PARAMS),
        "levels": levels(),
        "inputs": aligned(RNG.uniform(0, 1, (N_POINTS, DIMS)).astype("f4")),
    }
    table = aligned(RNG.normal(size=(rows, n_features)).astype(kind))
    features = aligned(RNG.normal(size=(N_POINTS, len(LEVELS), n_features)).astype(kind))
    results = []
    for shader in (narrow, wide):
        if file == "hash_encode":
            out = aligned(np.zeros_like(features))
            kernel = shader[f"hash_encode_{dtype}_{DIMS}_{n_features}"]
            run(kernel, embeddings=table, outputs=out, **shared)
        else:
            out = aligned(np.zeros((rows, n_features), np.float32))
            kernel = shader[f"hash_encode_grad_add_{dtype}_{DIMS}_{n_features}"]
            width = np.array([n_features], np.uint32)
            run(kernel, d_outputs=features, sums=out, n_features=width, **shared)
        results.append(out.astype(np.float64))
    assert np.count_nonzero(results[0]) > 0.5 * results[0].size
    limit = 2e-3 if out.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(results[1], results[0], rtol=limit, atol=limit)
