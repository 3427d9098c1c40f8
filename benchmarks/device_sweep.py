"""Every op of the device in every dtype combination that it has kernels for, called twice with a few numbers, beside
the results of TensorFlow's CPU; and the errors of floats, for docs/errors.md and test_every_kernel.py.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import device_arguments
from benchmarks.device_calls import Types, call, combinations, on_cpu, typed_arguments

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
    ("Tile", {"T": "uint16"}, "the CPU's kernel is registered and refuses to run: test_ops.py"),
    ("ArgMax", {"Tidx": "int16"}, "the CPU's reads two of them as one: below"),
    ("Round", {"T": "int32 int64"}, "the CPU's makes zeros of them: test_elementwise.py"),
    ("StatelessRandomUniformFullInt", {"Tseed": "uint32 uint64"}, "the CPU refuses these seeds"),
]  # fmt: skip
# Ops of whose results only shapes and dtypes are alike.
UNLIKE = {
    "Empty": "nothing is written",
    "Random(Gamma|PoissonV2|Shuffle|StandardNormal|Uniform|UniformInt)|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial":
        "other numbers with each call: test_random.py, test_variates.py",
    "FractionalMaxPool": "other windows with each call: test_fractional.py",
}  # fmt: skip
# Ops that depend on the dtype by more than rounding: the CPU has the same one.
SAME = "NextAfter|Bitcast|UnsortedSegment(Max|Min)|Stateless.*|Stateful.*"
# Outputs that are compared, where others are not.
OUTPUTS = {
    "SelfAdjointEigV2": [0],  # vectors of any sign: test_linalg.py
    "FusedBatchNorm(V2|V3)?": [0, 1, 2, 3, 4],  # outputs reserved for cuDNN hold nothing
    "FusedBatchNormGrad(V2|V3)?": [0, 1, 2],
}
# Dtypes whose errors are measured, and one unit in the last place of them.
UNIT = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex64": 2.0**-23}
APART = "apart"
ByDtype = dict[str, dict[str, float]]
Figures = dict[str, ByDtype]


def of(table: dict, op: str):
    return next((found for pattern, found in table.items() if re.fullmatch(pattern, op)), None)


def named(rows: list[tuple[str, dict[str, str], str]], op: str, types: Types) -> bool:
    return any(
        re.fullmatch(pattern, op)
        and all(types.get(name) in dtypes.split() for name, dtypes in attributes.items())
        for pattern, attributes, _ in rows
    )


def called(op: str, kernel_list: list[Any]) -> Iterator[tuple[Types, set[str]]]:
    """The combinations that an op is called with: attributes, and the inputs in host memory then."""
    device_arguments.begin_anew()
    for types, host in combinations(op, kernel_list):
        if not named(NOT_CALLED, op, types):
            yield types, host


@dataclass
class Results:
    """Results of one combination: the device's, twice, and the CPU's, in the widest floats that it has kernels for, and
    in the given ones.

    The CPU's are None where it has no kernel, or was not asked.
    """

    got: list[np.ndarray]
    again: list[np.ndarray]
    want: list[np.ndarray] | None
    cpu: list[np.ndarray] | None

    def errors(self, i: int) -> dict[str, float]:
        """Differences of a result, as parts of its largest number: errors, or how far apart the devices are."""
        assert self.want is not None
        want = wide(self.want[i])
        if self.want[i].dtype == self.got[i].dtype:
            return {APART: largest_error(self.got[i], want)}
        found = {"GPU": largest_error(self.got[i], want)}
        if self.cpu is not None:
            found["CPU"] = largest_error(self.cpu[i], want)
        return found


def results(
    op: str, types: Types, host: set[str], with_cpu: bool = True, twice: bool = True
) -> Results:
    """`with_cpu`: the CPU's in the same floats, too; `twice`: another call of the device's, or `again` is the first."""
    given = typed_arguments(op, types)
    tensors = call(op, given, "GPU:0", host)
    again = call(op, given, "GPU:0", host) if twice else tensors
    assert all(x.device.endswith("GPU:0") for x in tensors)
    alone = named(ALONE, op, types)
    want = None if alone else on_cpu(op, given, types, same=bool(re.fullmatch(SAME, op)))
    cpu = None
    if with_cpu and not alone:
        with contextlib.suppress(tf.errors.OpError):
            cpu = [x.numpy() for x in call(op, given, "CPU:0")]
    return Results([x.numpy() for x in tensors], [x.numpy() for x in again], want, cpu)


def compared(op: str, found: Results) -> list[int]:
    """The results that are compared with the CPU's."""
    if found.want is None or of(UNLIKE, op):
        return []
    return of(OUTPUTS, op) or list(range(len(found.got)))


def add_errors(figures: ByDtype, op: str, found: Results) -> None:
    """The largest, by dtype of the result and by device."""
    for i in compared(op, found):
        dtype = found.got[i].dtype.name
        if dtype in UNIT:
            of_dtype = figures.setdefault(dtype, {})
            for key, error in found.errors(i).items():
                of_dtype[key] = max(of_dtype.get(key, 0.0), error)


def measure(kernels: dict[str, list[Any]]) -> Figures:
    """{op: {dtype: {device: largest error, or "apart": difference}}} of the ops that give floats."""
    figures: Figures = {}
    for op, kernel_list in kernels.items():
        if not of(ELSEWHERE, op):
            of_op: ByDtype = {}
            for types, host in called(op, kernel_list):
                add_errors(of_op, op, results(op, types, host))
            if of_op:
                figures[op] = {
                    dtype: {key: float(f"{error:.3g}") for key, error in by_key.items()}
                    for dtype, by_key in of_op.items()
                }
    return figures


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("complex128" if x.dtype.kind == "c" else "float64")


def largest_error(got: np.ndarray, want: np.ndarray) -> float:
    """Over finite values; that infinities and NaN are where they should be is for the test to see."""
    finite = np.isfinite(want)
    off, size = (np.abs(x[finite]).max(initial=0) for x in (wide(got) - want, want))
    return float(off / (size or 1.0))
