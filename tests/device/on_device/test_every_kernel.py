"""Every op of the device in every dtype combination that it has kernels for, called with a few numbers: twice the same,
and what TensorFlow's CPU finds in wider floats. Shapes, special values and bad arguments are in the tests of families.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import device_arguments
from benchmarks.device_calls import WIDER, call, combinations, on_cpu, typed_arguments
from benchmarks.device_ops import gpu_kernels, only_in_graphs, without_cpu_kernel
from metal_ops import raw_ops
from tests.device.on_device.test_ops import ULP

ROOT = Path(__file__).resolve().parents[3]
# TensorFlow has kernels for any GPU: control flow, iterators, and some of int32.
WITHOUT_DEVICE = """
import json
from benchmarks.device_ops import gpu_kernels
print(json.dumps([str(kernel) for of_op in gpu_kernels().values() for kernel in of_op]))
"""


def device_kernels() -> dict[str, list[Any]]:
    """By op, without TensorFlow's own and those of this library's ops."""
    program = [sys.executable, "-c", WITHOUT_DEVICE]
    environment = {k: v for k, v in os.environ.items() if k != "METAL_OPS_DEVICE"}
    done = subprocess.run(program, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    others = {*json.loads(done.stdout.splitlines()[-1])}
    ours = {name.replace("_", "") for name in dir(raw_ops)}
    found = {
        op: [kernel for kernel in of_op if str(kernel) not in others]
        for op, of_op in sorted(gpu_kernels().items())
        if op.lower() not in ours
    }
    return {op: of_op for op, of_op in found.items() if of_op}


KERNELS = device_kernels()

# Ops that are not called here, by why.
ELSEWHERE = {
    "_ParallelConcat(Start|Update)": "what ParallelConcat becomes in graphs: test_rewrites.py",
    "(Sparse)?Apply.*": "steps of TensorFlow 1's variables: test_optimizers.py",
    "Assign(Add|Sub)?|CountUpTo|Scatter(Nd)?(Add|Div|Max|Min|Mul|Sub|Update)|StridedSliceAssign":
        "variables of TensorFlow 1: test_state.py, test_dtypes.py",
    "BatchNormWithGlobalNormalization|RandomPoisson": "only old graphs have them: test_old_graphs.py, test_variates.py",
    "MaxPoolGradGradWithArgmax|CudnnRNN(Backprop)?V3|CTCLossV2":
        "TensorFlow has no CPU kernel: test_volumes.py, test_rnn.py, test_ctc.py",
}  # fmt: skip
# Dtypes of attributes that an op is not called with, by why.
NOT_CALLED = [
    ("AddN|ZerosLike", {"T": "variant"}, "sums and zeros of lists of tensors: test_state.py"),
    ("AssignVariableOp", {"dtype": "qint8 quint8 qint32"}, "no variable begins with quantized numbers"),
    ("Assign(Add|Sub)?VariableOp|Resource(Gather|Scatter(Add|Div|Max|Min|Mul|Sub|Update))", {"dtype": "int32"},
     "such variables are on the CPU, as TensorFlow has them with any GPU"),
    ("Resource(GatherNd|ScatterNd(Add|Max|Min|Sub|Update))", {"dtype": "int32"}, "the same"),
    ("ResourceScatterNd(Add|Max|Min|Sub|Update)", {"T": "int32"}, "the same"),
]  # fmt: skip
# Dtypes that the device is called with alone, by why.
ALONE = [
    ("BatchToSpace(ND)?|SpaceToBatch(ND)?", {"T": "bool complex64 complex128"}, "the CPU has no kernel: test_moves.py"),
    ("MaxPoolGradWithArgmax", {"Targmax": "int32"}, "the CPU has places of int64: test_volumes.py"),
    ("Tile", {"T": "uint16"}, "the CPU's says that it is not implemented: test_ops.py"),
    ("ArgMax", {"Tidx": "int16"}, "the CPU's reads two of them as one: below"),
    ("Round", {"T": "int32 int64"}, "the CPU's makes zeros of them: test_elementwise.py"),
    ("StatelessRandomUniformFullInt", {"Tseed": "uint32 uint64"}, "the CPU refuses these seeds"),
]  # fmt: skip
# Of whose results only shapes and dtypes are alike.
UNLIKE = {
    "Empty": "nothing is written",
    "Random(Gamma|PoissonV2|Shuffle|StandardNormal|Uniform|UniformInt)|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial":
        "other numbers with each call: test_random.py, test_variates.py",
    "FractionalMaxPool": "other windows with each call: test_fractional.py",
}  # fmt: skip
# What depends on the dtype by more than rounding: the CPU has the same one.
SAME = "NextAfter|Bitcast|UnsortedSegment(Max|Min)|Stateless.*|Stateful.*"
# Outputs that are compared, where others are not.
OUTPUTS = {
    "SelfAdjointEigV2": [0],  # vectors of any sign: test_linalg.py
    "FusedBatchNorm(V2|V3)?": [0, 1, 2, 3, 4],  # what is reserved for cuDNN is nothing
    "FusedBatchNormGrad(V2|V3)?": [0, 1, 2],
}
# Units in the last place of the largest number: of sums of a few products. More where series or rotations end.
UNITS = {"float32": 16, "complex64": 16, "float16": 2, "bfloat16": 2, "float64": 0, "complex128": 0}
MORE = {"Betainc|Igammac?|Lu|Qr": 64}


def of(table: dict, op: str):
    return next((found for pattern, found in table.items() if re.fullmatch(pattern, op)), None)


def named(rows: list[tuple[str, dict[str, str], str]], op: str, types: dict[str, str]) -> bool:
    return any(
        re.fullmatch(pattern, op)
        and all(types.get(name) in dtypes.split() for name, dtypes in attributes.items())
        for pattern, attributes, _ in rows
    )


def compare(op: str, got: np.ndarray, want: np.ndarray) -> None:
    kind = got.dtype.name
    if kind not in UNITS:
        np.testing.assert_array_equal(got, want)
        return
    wide = "complex128" if kind.startswith("complex") else "float64"
    want = want.astype(got.dtype).astype(wide)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    units = of(MORE, op) or UNITS[kind]
    unit = ULP[{"complex64": "float32"}.get(kind, kind)] if units else 0
    np.testing.assert_allclose(got.astype(wide), want, rtol=0, atol=units * unit * largest)


@pytest.mark.parametrize("op", [op for op in KERNELS if not of(ELSEWHERE, op)])
def test_kernel(op, monkeypatch):
    monkeypatch.setattr(device_arguments, "_random", np.random.default_rng(0))
    wrong = {}
    for types, host in combinations(op, KERNELS[op]):
        if named(NOT_CALLED, op, types):
            continue
        try:
            given = typed_arguments(op, types)
            results, again = (call(op, given, "GPU:0", host) for _ in range(2))
            assert all(x.device.endswith("GPU:0") for x in results)
            got, second = ([x.numpy() for x in xs] for xs in (results, again))
            alone = named(ALONE, op, types)
            want = second if alone else on_cpu(op, given, types, same=bool(re.fullmatch(SAME, op)))
            assert len(got) == len(second) == len(want) > 0
            for i in of(OUTPUTS, op) or range(len(got)):
                assert got[i].shape == want[i].shape
                assert got[i].dtype == want[i].dtype or got[i].dtype.name in WIDER
                if not of(UNLIKE, op):
                    np.testing.assert_array_equal(got[i], second[i])
                    compare(op, got[i], want[i])
        except Exception as error:
            wrong[str(types)] = f"{type(error).__name__}: {error}"[:400]
    assert not wrong


def test_nothing_else_is_left_out():
    alone = {op for op in KERNELS if only_in_graphs(op)} | without_cpu_kernel(KERNELS)
    assert {op for op in KERNELS if of(ELSEWHERE, op)} == alone
    for table in (ELSEWHERE, UNLIKE, OUTPUTS, MORE):
        for pattern in table:
            assert any(re.fullmatch(pattern, op) for op in KERNELS), pattern
    every = [(op, types) for op in KERNELS for types, _ in combinations(op, KERNELS[op])]
    for row in NOT_CALLED + ALONE:
        assert any(named([row], op, types) for op, types in every), row
    assert len(KERNELS) > 460 and len(every) > 4000


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_indices(dtype):
    """Of int16 they were read as if they were int32, whatever the CPU does."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tf.device("GPU:0"):
        dims = np.array(-1, dtype)
        np.testing.assert_array_equal(tf.raw_ops.ArgMax(input=x, dimension=dims), [3, 3, 3])
        begin, end, strides = (np.array(numbers, dtype) for numbers in ([-1, 0], [0, 4], [-1, 3]))
        part = tf.raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=strides)
        np.testing.assert_array_equal(part, x[-1:0:-1, 0:4:3])
