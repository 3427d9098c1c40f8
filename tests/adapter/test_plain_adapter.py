"""Kernels know no TensorFlow: the same sources run behind an adapter of plain C++, and give TensorFlow's bits."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.processes import ROOT

# The hash encoding's vectors take a minute to compile.
HASH_SOURCES = (
    "kernels/hash_encode/hash_encode_cpu.cc",
    "kernels/hash_encode/hash_encode_forward_simd.cc",
    "kernels/hash_encode/hash_encode_layout_simd.cc",
    "kernels/hash_encode/hash_encode_op.cc",
    "kernels/hash_encode/hash_encode_points_simd.cc",
    "kernels/hash_encode/hash_encode_table_simd.cc",
)
of_hash_encoding = pytest.mark.full("compiling the hash encoding takes a minute")
SOURCES = (
    "tests/adapter/plain_adapter.cc",
    "kernels/runtime/declared_op.cc",
    "kernels/simd/float_types_simd.cc",
    "kernels/scale_slope/scale_slope_cpu.cc",
    "kernels/scale_slope/scale_slope_op.cc",
    "kernels/softshrink/softshrink_op.cc",
    "kernels/zero_out/zero_out_cpu.cc",
    "kernels/zero_out/zero_out_op.cc",
)
MOST_DIMS = 4
RANDOM = np.random.default_rng(0)


class Array(ctypes.Structure):
    """As in plain_adapter.cc."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dims", ctypes.c_int64 * MOST_DIMS),
        ("rank", ctypes.c_int32),
        ("type", ctypes.c_int32),
    ]

    @classmethod
    def of(cls, array: np.ndarray) -> Array:
        dims = (ctypes.c_int64 * MOST_DIMS)(*array.shape)
        return cls(array.ctypes.data, dims, array.ndim, tf.as_dtype(array.dtype).as_datatype_enum)

    def numpy(self) -> np.ndarray:
        dtype = np.dtype(tf.as_dtype(self.type).as_numpy_dtype)
        shape = tuple(self.dims[: self.rank])
        content = ctypes.string_at(self.data, int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(content, dtype).reshape(shape)


def highway_flags() -> list[str]:
    """Homebrew's folders are not searched by themselves."""
    if sys.platform != "darwin":
        return ["-lhwy"]
    asked = subprocess.run(["brew", "--prefix", "highway"], capture_output=True, text=True)
    prefix = asked.stdout.strip()
    return ["-isystem", f"{prefix}/include", f"-L{prefix}/lib", "-lhwy"]


Run = Callable[..., np.ndarray]  # run(op, attributes, inputs, threads): the only output


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(SOURCES, tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def run_hash(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled((*SOURCES, *HASH_SOURCES), tmp_path_factory.mktemp("adapter"))


def compiled(sources: Sequence[str], folder: Path) -> Run:
    library = folder / "plain.so"
    # No undefined symbol is left, and no folder of TensorFlow's headers is given.
    strict = [] if sys.platform == "darwin" else ["-Wl,-z,defs"]
    command = [
        os.environ.get("CXX", "c++"),
        *("-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-pthread", "-I."),
        *sources,
        *("-o", str(library), *strict, *highway_flags()),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = ctypes.CDLL(str(library))
    plain.run_op.restype = ctypes.c_char_p

    def run(
        op: str, attributes: dict[str, float | str], inputs: Sequence[np.ndarray], threads: int = 1
    ) -> np.ndarray:
        given = (Array * len(inputs))(*map(Array.of, inputs))
        output = Array()
        text = " ".join(f"{name}={value}" for name, value in attributes.items())
        error = plain.run_op(op.encode(), text.encode(), given, ctypes.byref(output), threads)
        if error:
            raise ValueError(error.decode())
        try:
            return output.numpy()
        finally:
            plain.free_array(ctypes.byref(output))

    return run


def array(dtype: str, *shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


# op: attributes beside T, shapes of the inputs. Large enough for every thread to have several pieces.
CASES: dict[str, tuple[dict[str, float], tuple[tuple[int, ...], ...]]] = {
    "Softshrink": ({"lambd": 0.25}, ((77, 101),)),
    "SoftshrinkGrad": ({"lambd": 0.25}, ((77, 101), (77, 101))),
    "ScaleSlope": ({}, ((700,), (700, 11))),
    "ScaleSlopeSum": ({}, ((7000,), (7000, 11), (11,))),
    "ZeroOut": ({}, ((5, 3),)),
}
RAW: dict[str, Callable[..., tf.Tensor]] = {
    "Softshrink": raw_ops.softshrink,
    "SoftshrinkGrad": raw_ops.softshrink_grad,
    "ScaleSlope": raw_ops.scale_slope,
    "ScaleSlopeSum": raw_ops.scale_slope_sum,
    "ZeroOut": raw_ops.zero_out,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", CASES)
def test_equals_tensorflow(run: Run, op: str, dtype: str) -> None:
    attributes, shapes = CASES[op]
    inputs = [array(dtype, *shape) for shape in shapes]
    if op == "ScaleSlopeSum":
        inputs[2] = inputs[2].astype(np.float32)
    with tf.device("CPU:0"):
        expected = RAW[op](*map(tf.constant, inputs), **attributes).numpy()
    given = {"T": tf.as_dtype(dtype).as_datatype_enum, **attributes}
    assert np.any(expected != 0)
    for threads in (1, 3):
        actual = run(op, given, inputs, threads)
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        assert actual.tobytes() == expected.tobytes()


GRID = metal_ops.HashGrid(
    n_dims=3, n_levels=5, log2_hashmap_size=9, base_resolution=4, per_level_scale=1.6
)
POINTS = RANDOM.random((700, 3)).astype(np.float32)
# The inputs of each op before those that all have.
HASH: dict[str, tuple[Callable[..., tf.Tensor], tuple[tuple[str, int], ...]]] = {
    "HashEncode": (raw_ops.hash_encode, ()),
    "HashEncodeGrad": (raw_ops.hash_encode_grad, (("T", 10),)),
    "HashEncodePointGrad": (raw_ops.hash_encode_point_grad, (("T", 10),)),
    "HashEncodeJvp": (raw_ops.hash_encode_jvp, (("float32", 3),)),
    "HashEncodeJvpGrad": (raw_ops.hash_encode_jvp_grad, (("float32", 3), ("T", 10))),
    "HashEncodeJvpPointGrad": (raw_ops.hash_encode_jvp_point_grad, (("float32", 3), ("T", 10))),
}


@of_hash_encoding
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", HASH)
def test_hash_encoding_equals_tensorflow(run_hash: Run, op: str, dtype: str) -> None:
    raw, first = HASH[op]
    inputs = [array(dtype if kind == "T" else kind, len(POINTS), width) for kind, width in first]
    inputs += [POINTS, array(dtype, *GRID.table_shape), np.asarray(GRID.offsets, np.int32)]
    with tf.device("CPU:0"):
        expected = raw(*map(tf.constant, inputs), **GRID.op_attributes).numpy()
    given = {"T": tf.as_dtype(dtype).as_datatype_enum, **GRID.op_attributes}
    assert np.any(expected != 0)
    for threads in (1, 3):
        assert run_hash(op, given, inputs, threads).tobytes() == expected.tobytes()


X, Y = array("float32", 3), array("float32", 4)
TABLE, OFFSETS = array("float32", *GRID.table_shape), np.asarray(GRID.offsets, np.int32)


def assert_same_words(run: Run, op: str, attributes: dict[str, Any], inputs: list[Any]) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as theirs:
        raw = RAW[op] if op in RAW else HASH[op][0]
        raw(*map(tf.constant, inputs), **attributes)
    with pytest.raises(ValueError) as ours:
        run(op, {"T": 1, **attributes}, inputs)
    assert str(ours.value) and str(ours.value) in str(theirs.value)


def test_refuses_in_the_same_words(run: Run) -> None:
    assert_same_words(run, "Softshrink", {"lambd": -1.0}, [X])
    assert_same_words(run, "SoftshrinkGrad", {"lambd": 0.5}, [Y, X])


@of_hash_encoding
def test_hash_encoding_refuses_in_the_same_words(run_hash: Run) -> None:
    for inputs in ([POINTS, TABLE[:-1], OFFSETS], [POINTS[0], TABLE, OFFSETS]):
        assert_same_words(run_hash, "HashEncode", GRID.op_attributes, inputs)
