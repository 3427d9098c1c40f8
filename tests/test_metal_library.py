"""metal_library: the kernels of a whole source, or of a .metallib, as functions."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.processes import ROOT

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

SOURCE = """
#include <metal_stdlib>
using namespace metal;
struct Params { float factor; int offset; };
kernel void axpy(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]], device float* z [[buffer(2)]],
                 constant float& a [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  z[i] = a * x[i] + y[i];
}
kernel void scale(device half* x, constant Params& p, uint i [[thread_position_in_grid]]) {
  x[i] = half(x[i] * p.factor + p.offset);
}
kernel void sum(device const float* x, device atomic<float>* out, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(out, x[i], memory_order_relaxed);
}
kernel void turn(device const float* x, device float* y, threadgroup float* shared,
                 uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]],
                 uint n [[threads_per_threadgroup]]) {
  shared[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = shared[n - 1 - t];
}
kernel void minmax(device const int* x, device int* low, device int* high, constant uint& n) {
  low[0] = high[0] = x[0];
  for (uint i = 1; i < n; ++i) { low[0] = min(low[0], x[i]); high[0] = max(high[0], x[i]); }
}
kernel void wide(device const float4* x, device float4* y, uint i [[thread_position_in_grid]]) { y[i] = x[i].wzyx; }
kernel void shaded(texture2d<float, access::read> t, device float* out) { out[0] = t.read(uint2(0, 0)).x; }
kernel void pack(device const float* x, device Params* out) { out[0].factor = x[0]; }
kernel void nothing(device const float* x) {}
"""
X, Y = np.float32([1, 2, 3]), np.float32([10, 20, 30])
PARAMS = np.dtype([("factor", "f4"), ("offset", "i4")])


@pytest.fixture(scope="module")
def lib():
    return metal_ops.metal_library(SOURCE)


def test_names(lib):
    names = ("axpy", "minmax", "nothing", "pack", "scale", "shaded", "sum", "turn", "wide")
    assert lib.functions == names and set(names) < set(dir(lib))
    assert lib.axpy is lib["axpy"]
    assert "axpy(x (float), y (float), z (float, written), a (float))" in repr(lib.axpy)


def test_outputs_by_shape(lib, device):
    for x in (X, tf.constant(X)):
        z = lib.axpy(x, Y, 2.0, outputs={"z": x.shape})
        assert z.device.endswith(device.strip("/"))
        np.testing.assert_array_equal(z, 2 * X + Y)
    np.testing.assert_array_equal(lib.axpy(x, a=2, y=Y, outputs={"z": 2}), (2 * X + Y)[:2])
    np.testing.assert_array_equal(
        lib.axpy(X, Y, np.float64(2), outputs={"z": [3]}, grid=(3, 1)), 2 * X + Y
    )
    spec = tf.TensorSpec([0], tf.float32)
    assert lib.axpy(X[:0], Y[:0], 2.0, outputs={"z": spec}).shape == [0]


def test_a_tensor_that_is_written(lib, device):
    """It stays unchanged; the result begins as its copy."""
    x = tf.constant([1.0, 2.0, 3.0], tf.float16)
    params = np.array((2.0, 5), PARAMS)
    for value in (params, params[()], params.tobytes()):
        np.testing.assert_array_equal(lib.scale(x, value), [7, 9, 11])
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(lib.sum(tf.constant(X), [100.0], grid=3), [106])


def test_threadgroups(lib, device):
    x = np.arange(8, dtype=np.float32)
    y = lib.turn(x, outputs={"y": [8]}, threadgroup=4, threadgroup_memory={"shared": 16})
    np.testing.assert_array_equal(y, [3, 2, 1, 0, 7, 6, 5, 4])


def test_several_outputs(lib, device):
    low, high = lib.minmax([3, -4, 5], n=3, outputs={"low": [1], "high": [1]})
    assert (low.dtype, low.numpy().tolist(), high.numpy().tolist()) == (tf.int32, [-4], [5])


def test_vectors(lib, device):
    y = lib.wide(
        np.arange(8, dtype=np.float32), outputs={"y": tf.TensorSpec([2, 4], tf.float32)}, grid=2
    )
    np.testing.assert_array_equal(y, [[3, 2, 1, 0], [7, 6, 5, 4]])


def test_in_a_function(lib, device):
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def function(x):
        y = lib.axpy(x, x, 2.0, outputs={"z": tf.shape(x)})
        return lib.sum(y, tf.zeros([1]), grid=tf.size(y)), y

    total, y = function(tf.constant(X))
    np.testing.assert_array_equal(y, 3 * X)
    assert total.numpy() == 18


def compiled(tmp_path):
    source, library = tmp_path / "shaders.metal", tmp_path / "shaders.metallib"
    source.write_text(SOURCE)
    gpu = ["--gpu=sm_80"] * os.environ.get("HOSTMETAL_DEVICE", "").startswith("cuda")
    command = [sys.executable, "-m", "metal_ops", "metal", *gpu, str(source), "-o", str(library)]
    subprocess.run(command, check=True, cwd=ROOT)
    return source, library


def test_files(tmp_path, device):
    source, library = compiled(tmp_path)
    for path in (source, str(source), library, str(library)):
        lib = metal_ops.metal_library(path)
        np.testing.assert_array_equal(lib.axpy(X, Y, 2.0, outputs={"z": [3]}), 2 * X + Y)
    library.write_bytes(b"\x7fELF nothing more")
    with pytest.raises(tf.errors.NotFoundError, match=r"\[metal_library\] cannot load"):
        metal_ops.metal_library(library)
    library.write_bytes(b"text")
    with pytest.raises(ValueError, match="is no Metal library; make one"):
        metal_ops.metal_library(library)
    source.write_text("kernel void f(device float* x) {\n  x[0] = y;\n}")
    with pytest.raises(SyntaxError, match="undeclared identifier 'y'") as raised:
        metal_ops.metal_library(source)
    assert (raised.value.filename, raised.value.lineno, raised.value.offset) == (str(source), 2, 10)


REFUSED = {
    "an argument is missing": (lambda lib: lib.axpy(X, outputs={"z": [3]}), TypeError, r"\[axpy\] y: expected an argument"),
    "an output is missing": (lambda lib: lib.axpy(X, Y), TypeError, r"\[axpy\] z: expected .* outputs=\{'z': \.\.\.\}"),
    "too many": (lambda lib: lib.axpy(X, Y, 2.0, 3.0, outputs={"z": [3]}), TypeError, r"expected 3 arguments \(x, y, a\), got 4"),
    "unknown": (lambda lib: lib.axpy(X, Y, b=2.0, outputs={"z": [3]}), TypeError, r"no argument 'b'; it takes x \(float\)"),
    "twice": (lambda lib: lib.axpy(X, Y, 2.0, z=X, outputs={"z": [3]}), TypeError, "z: given as an argument and in outputs"),
    "not written": (lambda lib: lib.axpy(X, Y, 2.0, outputs={"x": [3]}), TypeError, "'x' is not written"),
    "a shape for all outputs": (lambda lib: lib.axpy(X, Y, 2.0, outputs=[3]), TypeError, r"\[axpy\] outputs: expected a dict from"),
    "no dict": (lambda lib: lib.axpy(X, Y, 2.0, outputs=0), TypeError, "names to each one's shape, got 0"),
    "a size for all": (lambda lib: lib.turn(X, outputs={"y": [3]}, threadgroup_memory=12), TypeError, "names to how many bytes each has, got 12"),
    "dtype": (lambda lib: lib.axpy(tf.constant([1]), Y, 2.0, outputs={"z": [3]}), TypeError, "x: expected float32 .*got int32"),
    "dtype of an output": (
        lambda lib: lib.axpy(X, Y, 2.0, outputs={"z": tf.TensorSpec([3], tf.int32)}), TypeError, "expected float32 as in the kernel",
    ),
    "no dtype": (lambda lib: lib.pack(X, outputs={"out": [1]}), TypeError, "8 bytes and no dtype; give tf.TensorSpec"),
    "float64": (lambda lib: lib.axpy(X.astype("f8"), Y, 2.0, outputs={"z": [3]}), TypeError, "x: shaders have no float64"),
    "a struct's size": (lambda lib: lib.scale(tf.zeros([1], tf.float16), b"1234567"), ValueError, "p: expected 8 bytes, got 7"),
    "a number for a struct": (lambda lib: lib.scale(tf.zeros([1], tf.float16), 1.0), TypeError, "p: expected a struct of 8 bytes"),
    "bytes to write to": (lambda lib: lib.scale(b"12", b"12345678"), TypeError, "x: expected a tensor, as it is written"),
    "text": (lambda lib: lib.axpy("x", Y, 2.0, outputs={"z": [3]}), TypeError, r"\[axpy\] x"),
    "threadgroup memory": (lambda lib: lib.turn(X, outputs={"y": [3]}), TypeError, "expected how many bytes 'shared' has"),
    "other threadgroup memory": (
        lambda lib: lib.axpy(X, Y, 2.0, outputs={"z": [3]}, threadgroup_memory={"s": 4}), TypeError, "there is no 's'",
    ),
    "grid": (lambda lib: lib.axpy(X, Y, 2.0, outputs={"z": [3]}, grid=(1, 2, 3, 4)), ValueError, "grid: expected 1 to 3 numbers"),
    "shape": (lambda lib: lib.axpy(X, Y, 2.0, outputs={"z": [-3]}), ValueError, "expected 0 or more, got -3"),
    "writes nothing": (lambda lib: lib.nothing(X), TypeError, r"\[nothing\] writes nothing"),
    "a texture": (lambda lib: lib.shaded(X), TypeError, "t: textures and samplers"),
    "no such kernel": (lambda lib: lib.axpi, AttributeError, "no kernel 'axpi'; it has axpy"),
    "no such file": (lambda _: metal_ops.metal_library("/no/x.metal"), FileNotFoundError, "no file '/no/x.metal'"),
    "no text": (lambda _: metal_ops.metal_library(b"kernel"), TypeError, "expected text or a path, got bytes"),
    "math mode": (lambda _: metal_ops.metal_library("", math_mode="quick"), ValueError, "'safe' or 'fast'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, lib):
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call(lib)


def test_mistake_in_the_text():
    with pytest.raises(SyntaxError, match="undeclared identifier 'y'") as raised:
        metal_ops.metal_library("\nkernel void f(device float* x) { x[0] = y; }")
    error = raised.value
    assert (error.filename, error.lineno, error.offset) == ("<metal_library>", 2, 41)
    assert error.text == "kernel void f(device float* x) { x[0] = y; }"
