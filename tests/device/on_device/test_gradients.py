"""Gradients of every op of the device that has one: TensorFlow's gradient functions of the device's ops against
differences of the op's results.

An op is called along two directions through all of its floats at once, and its results are summed up with two sets of
weights: any element of any gradient that is wrong shows, in five calls instead of thousands.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops as framework

from benchmarks import device_arguments
from benchmarks.device_arguments import arguments, chosen_types, placed
from benchmarks.device_ops import gpu_kernels, only_in_graphs
from metal_ops._placement import functions, short

of_device = functools.cache(gpu_kernels)  # which asks TensorFlow for all of its kernels
SIDE = 8
# Small, as an element that passes another one has no derivative there; rounding is divided by it.
STEP = 2**-12
STEPS = {"Max.*|.*Segment(Max|Min)|FloorMod": 2**-14, "Cast": 0.25}

# Ops with a gradient function, but not one of a derivative of given numbers.
OTHERS = {
    "Switch|Merge|Enter|Exit|NextIteration|PlaceholderWithDefault|PreventGradient|Optional.*|Ragged.*|"
    "DebugGradientIdentity|CheckNumerics": "control flow, variants, what only watches",
    "FakeQuant.*|QuantizeAndDequantize.*": "it passes through as if nothing were rounded",
    "Resource.*|ReadVariableOp": "of variables: test_state.py",
    "FusedBatchNormGrad.*": "what is reserved depends on x",
    "Reshape": "TensorFlow's own",
    "RandomGamma|StatelessParameterizedTruncatedNormal": "of the distribution: other numbers are rejected beside it",
    "CudnnRNNV3": "test_rnn.py",
    "FractionalMaxPool": "of other windows with each call: test_fractional.py",
    "BlockLSTM(V2)?": "TensorFlow's gradient of it, on the CPU, too, is not quite one: test_layers.py compares these",
}
# For complex numbers TensorFlow's functions for these are not their derivatives; that of the last one is, where
# nothing depends on the phases of eigenvectors: test_linalg.py.
REAL = ["EuclideanNorm", "Sign", "SquaredDifference", "SelfAdjointEigV2"]
# Inputs that TensorFlow's gradient functions take for constants.
CONSTANTS = {
    "Betainc": ["a", "b"],
    "Igamma(c)?": ["a"],
    "Zeta": ["x"],
    "Polygamma": ["a"],
    "MaxPool.*Grad.*": ["orig_input", "orig_output"],
    "ImageProjectiveTransformV.": ["transforms", "fill_value"],
    "Matrix(Diag|DiagPart)V.": ["padding_value"],
    "PadV2": ["constant_values"],
}
# Outputs that have gradients, where others have none.
OUTPUTS = {
    "CTCLoss(V2)?": [0],
    "FusedBatchNorm(V2|V3)?": [0],
    "SoftmaxCrossEntropyWithLogits": [0],
    "SparseSoftmaxCrossEntropyWithLogits": [0],
}
FLAT = "Floor|Ceil|Rint|Round|Sign|FloorDiv|TruncateDiv"  # whose derivative is 0


def of(table: dict, op: str):
    return next((found for pattern, found in table.items() if re.fullmatch(pattern, op)), None)


def has_gradient(op: str) -> bool:
    try:
        return framework._gradient_registry.lookup(op) is not None
    except LookupError:
        return False


def cases() -> list[tuple[str, str]]:
    found = []
    for op, kernels in sorted(of_device().items()):
        if (
            not hasattr(tf.raw_ops, op)
            or only_in_graphs(op)
            or not has_gradient(op)
            or of(OTHERS, op)
        ):
            continue
        registered = {
            t
            for kernel in kernels
            for constraint in kernel.constraint
            if constraint.name == "T"
            for t in constraint.allowed_values.list.type
        }
        both = {tf.float32.as_datatype_enum, tf.complex64.as_datatype_enum} <= registered
        found += [(op, "complex64")] * (both and op not in REAL) + [(op, "float32")]
    return found


def flows(x) -> bool:
    return tf.is_tensor(x) and (x.dtype.is_floating or x.dtype.is_complex)


def numbers(rng, shape, dtype) -> tf.Tensor:
    x = rng.normal(size=shape)
    return tf.constant(x + 1j * rng.normal(size=shape) if dtype.is_complex else x, dtype)


# Gradient functions calculate with shapes, whose int32 are the host's.
@pytest.mark.usefixtures("soft_placement")
@pytest.mark.parametrize("op, dtype", cases())
def test_gradient(op, dtype, monkeypatch):
    monkeypatch.setattr(device_arguments, "_random", np.random.default_rng(0))
    kernels = of_device()[op]
    types = chosen_types(op, kernels)
    if dtype == "complex64":
        types["T"] = dtype
    host = {name for kernel in kernels for name in kernel.host_memory_arg}
    rng = np.random.default_rng(0)
    raw = arguments(op, types, SIDE)
    if op in ("TensorScatterUpdate", "InplaceUpdate"):  # of elements named twice the last counts
        raw["indices"] = rng.permutation(SIDE)[:, None]
    if op == "SoftmaxCrossEntropyWithLogits":  # the gradient takes labels for shares of 1
        raw["labels"] /= raw["labels"].sum(1, keepdims=True)
    if dtype == "complex64":
        raw = {k: np.complex64(v) if isinstance(v, np.float32) else v for k, v in raw.items()}
        if op == "Qr":  # which turns the last row around, beside a real matrix
            raw["input"] = raw["input"] + 1j * rng.normal(size=raw["input"].shape).astype("f")
    given = placed(raw, "GPU:0", host, [])
    moving = [k for k in given if k not in (of(CONSTANTS, op) or [])]
    outputs, weights = of(OUTPUTS, op), {}
    ways = {}

    def direction(x):
        way = numbers(rng, (2, *x.shape), x.dtype)
        return way + tf.linalg.adjoint(way) if op == "Cholesky" else way

    def moved(x, way, t):
        return x + tf.tensordot(tf.cast(t, x.dtype), way, 1)

    for name in moving:
        value = given[name]
        if isinstance(value, list) and value and flows(value[0]):
            ways[name] = [direction(x) for x in value]
        elif flows(value):
            ways[name] = direction(value)

    def called(t):
        now = {
            k: [moved(*pair, t) for pair in zip(given[k], way, strict=True)]
            if isinstance(way, list)
            else moved(given[k], way, t)
            for k, way in ways.items()
        }
        with tf.device("GPU:0"):
            results = getattr(tf.raw_ops, op)(**(given | now))
        results = list(results) if isinstance(results, list | tuple) else [results]
        results = [x for i, x in enumerate(results) if flows(x) and (not outputs or i in outputs)]
        assert all(x.device.endswith("GPU:0") for x in results)
        return results

    def weighed(results):
        total = tf.zeros(2, tf.float64)
        for i, x in enumerate(results):
            if i not in weights:
                weights[i] = numbers(rng, (2, *x.shape), x.dtype)
            # The lowest number stands for places without a maximum.
            x = tf.where(tf.abs(x) < 1e30, x, tf.zeros_like(x))
            term = tf.cast(tf.math.real(weights[i]), tf.float64) * tf.cast(
                tf.math.real(x), tf.float64
            )
            if x.dtype.is_complex:
                term += tf.cast(tf.math.imag(weights[i]), tf.float64) * tf.cast(
                    tf.math.imag(x), tf.float64
                )
            total += tf.reduce_sum(term, range(1, len(term.shape)))
        return total

    assert ways
    start = tf.zeros(2)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(start)
        results = called(start)
        if not results:
            return
        sums = tf.unstack(weighed(results))
    theory = [tape.gradient(x, start, unconnected_gradients="zero").numpy() for x in sums]
    step = of(STEPS, op) or STEP
    ahead, behind = (
        [weighed(called(tf.constant(sign * step * way, tf.float32))).numpy() for way in np.eye(2)]
        for sign in (1, -1)
    )
    numeric = (np.array(ahead) - behind).T / (2 * step)
    size = np.abs(numeric).max()
    np.testing.assert_allclose(theory, numeric, rtol=1e-2, atol=1e-2 * size)
    assert (size > 0.1) != bool(re.fullmatch(FLAT, op))


# Ops of TensorFlow's gradient functions that the device has no kernel for, by why. All else has one.
FALLS_BACK = {
    "MatrixInverse": ("ImageProjectiveTransformV[23]", "of 3 x 3 transforms, a few numbers an image"),
    "SparseSlice": ("ExtractVolumePatches", "of sparse tensors, which are the CPU's"),
}  # fmt: skip


def gradients_in_a_graph(op: str, given: dict, moving: dict) -> list:
    @tf.function(autograph=False)
    def gradients(moving):
        with tf.GradientTape() as tape:
            tape.watch(moving)
            results = tf.nest.flatten(getattr(tf.raw_ops, op)(**(given | moving)))
            results = [x for x in results if flows(x)]
        return [x for x in tf.nest.flatten(tape.gradient(results, moving)) if x is not None]

    return gradients(moving)


@pytest.mark.full("traces a graph of each gradient, whose values test_gradient compares")
@pytest.mark.usefixtures("soft_placement")
def test_what_gradients_are_made_of_has_kernels(monkeypatch):
    """In the graph that runs no op that computes floats is on the CPU, except those of the table."""
    on_cpu: dict[str, set[str]] = {}
    seen = 0
    for op, dtype in [*cases(), ("RandomGamma", "float32")]:
        monkeypatch.setattr(device_arguments, "_random", np.random.default_rng(0))
        kernels = of_device()[op]
        types = chosen_types(op, kernels)
        raw = arguments(op, types, SIDE)
        if dtype == "complex64":
            types["T"] = dtype
            raw = {
                k: np.complex64(v) if isinstance(v, np.float32) else v
                for k, v in arguments(op, types, SIDE).items()
            }
        given = placed(raw, "GPU:0", {n for kernel in kernels for n in kernel.host_memory_arg}, [])
        moving = {
            k: v for k, v in given.items() if flows(v) or isinstance(v, list) and v and flows(v[0])
        }

        with functions() as graphs, tf.device("GPU:0"):
            seen += bool(gradients_in_a_graph(op, given, moving))
        for node in (node for graph in graphs for node in graph if short(node.device) == "CPU:0"):
            floats = any(tf.as_dtype(a.type).is_floating or tf.as_dtype(a.type).is_complex
                         for a in node.attr.values() if a.type)  # fmt: skip
            if floats and node.op[0] != "_" and node.op not in ("Const", "Identity", "Shape"):
                on_cpu.setdefault(node.op, set()).add(op)
    assert seen > 200
    assert set(on_cpu) == set(FALLS_BACK)
    for made, ops in on_cpu.items():
        assert all(re.fullmatch(FALLS_BACK[made][0], op) for op in ops), (made, ops)


def test_most_ops_are_here():
    assert len(cases()) > 250
