"""The six hash-encode ops on the Metal device: against the float64 oracle and against the CPU kernels."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import cases
from tests.oracles import hash_encode as oracle

# op: inputs in order, the oracle, whether the result is float32 whatever T is
OPS: dict[str, tuple[tuple[str, ...], Any, bool]] = {
    "hash_encode": (("points", "table"), oracle.encode, False),
    "hash_encode_grad": (("g", "points", "table"), oracle.grad, False),
    "hash_encode_point_grad": (("g", "points", "table"), oracle.point_grad, True),
    "hash_encode_jvp": (("v", "points", "table"), oracle.jvp, False),
    "hash_encode_jvp_grad": (("v", "g", "points", "table"), oracle.jvp_grad, False),
    "hash_encode_jvp_point_grad": (("v", "g", "points", "table"), oracle.jvp_point_grad, True),
}
TABLE_GRADIENTS = ("hash_encode_grad", "hash_encode_jvp_grad")
# Atomic adds come in any order, so partial sums are rounded at other places than the CPU's; the error of n terms grows
# with sqrt(n), and the sweep has up to 2^15 terms a row.
ATOMIC_SLACK = 2


def run(op: str, case: cases.Case, device: str) -> tf.Tensor:
    """One op on one device, on the case's arrays."""
    names, _, _ = OPS[op]
    with tf.device(device):
        return getattr(raw_ops, op)(
            *(tf.constant(case.arrays[name]) for name in names),
            tf.constant(case.grid.offsets),
            log2_per_level_scale=float(case.grid.log2_per_level_scale),
            resolution_coarsest=case.grid.base_resolution,
            interpolation=case.interpolation,
            grid_kind=case.kind,
        )


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("case", cases.HASH_ENCODE_CASES, ids=str)
def test_sweep(case: cases.Case, op: str) -> None:
    on_device = run(op, case, "GPU:0")
    assert on_device.device.endswith("GPU:0")
    on_cpu = run(op, case, "CPU:0")
    assert on_cpu.device.endswith("CPU:0")
    assert on_device.dtype == on_cpu.dtype

    names, formula, is_float32 = OPS[op]
    dtype = "float32" if is_float32 else case.dtype
    expected, bound = formula(*(case.arrays[name] for name in names), case.oracle_grid)
    if op in TABLE_GRADIENTS:
        bound = bound * ATOMIC_SLACK
    cases.assert_close(on_device.numpy(), expected, bound, dtype, "device against oracle")
    # Two roundings to the dtype lie between the two, one on each side.
    cases.assert_close(
        on_device.numpy(),
        on_cpu.numpy().astype(np.float64),
        2 * bound + 2 * cases.ROUNDING[dtype] / cases.SUM_TOLERANCE * np.abs(expected),
        dtype,
        "device against CPU",
    )


CASE = cases.Case(**cases.NERF, dtype="float32", interpolation="smoothstep")


def call(op: str, device: str, **changes: Any) -> tf.Tensor:
    """One op on CASE, with some arguments replaced."""
    arguments: dict[str, Any] = {
        **CASE.arrays,
        "offsets": CASE.grid.offsets,
        "log2_per_level_scale": float(CASE.grid.log2_per_level_scale),
        "resolution_coarsest": CASE.grid.base_resolution,
        "interpolation": CASE.interpolation,
        **changes,
    }
    attributes = ("log2_per_level_scale", "resolution_coarsest", "interpolation")
    with tf.device(device):
        return getattr(raw_ops, op)(
            *(tf.constant(arguments[name]) for name in (*OPS[op][0], "offsets")),
            **{name: arguments[name] for name in attributes},
        )


INVALID: dict[str, dict[str, Any]] = {
    "rank of points": {"points": np.zeros((5,), np.float32)},
    "five dimensions": {"points": np.zeros((4, 5), np.float32), "v": np.zeros((4, 5), np.float32)},
    "three features": {"table": np.zeros((CASE.grid.table_shape[0], 3), np.float32)},
    "table too small": {"table": np.zeros((8, 2), np.float32)},
    "offsets decrease": {"offsets": np.array([0, 64, 32], np.int32)},
    "offsets negative": {"offsets": np.array([-8, 8], np.int32)},
    "no levels": {"offsets": np.array([0], np.int32)},
    "rank of offsets": {"offsets": np.array([[0, 8]], np.int32)},
    "scale not finite": {"log2_per_level_scale": float("nan")},
    "resolution zero": {"resolution_coarsest": 0},
    "resolution overflows": {"log2_per_level_scale": 40.0},
}


@pytest.mark.instrumented
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID)
def test_invalid_arguments(op: str, changes: dict[str, Any]) -> None:
    messages = []
    for device in ("CPU:0", "GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            call(op, device, **changes).numpy()
        messages.append(caught.value.message.replace(device, "<device>"))
    assert messages[0] == messages[1]  # one voice for all devices


@pytest.mark.instrumented
@pytest.mark.parametrize("op", OPS)
def test_points_outside_the_unit_cube(op: str) -> None:
    points = CASE.arrays["points"].copy()
    points[:12] = np.array(
        [
            [-0.3],
            [1.7],
            [1e9],
            [-1e9],
            [3e38],
            [-3e38],
            [0],
            [1],
            [np.inf],
            [-np.inf],
            [np.nan],
            [2],
        ]
    )
    # Gradients of NaN points would spread over all that they are summed with.
    if op in TABLE_GRADIENTS:
        points[8:11] = 0.5
    results = [call(op, device, points=points).numpy() for device in ("CPU:0", "GPU:0")]
    np.testing.assert_array_equal(np.isfinite(results[0]), np.isfinite(results[1]))
    scale = np.nanmax(
        np.abs(np.where(np.isfinite(results[0]), results[0], 0)), axis=1, keepdims=True
    )
    if op in TABLE_GRADIENTS:
        scale = scale.max()
    difference = np.nan_to_num(np.abs(results[0] - results[1]))
    assert np.all(difference <= 2e-5 * scale)


@pytest.mark.parametrize("op", TABLE_GRADIENTS)
def test_rows_outside_of_the_levels_are_zero(op: str) -> None:
    table = np.ones((CASE.grid.table_shape[0] + 24, 2), np.float32)
    gradient = call(op, "GPU:0", table=table, offsets=CASE.grid.offsets + 8).numpy()
    assert not gradient[:8].any() and not gradient[-16:].any()
    np.testing.assert_allclose(
        gradient,
        call(op, "CPU:0", table=table, offsets=CASE.grid.offsets + 8),
        rtol=1e-4,
        atol=1e-3,
    )


def loss_gradients(device: str) -> list[np.ndarray]:
    """The gradients of an Eikonal loss: of a function of the gradient with respect to the points."""
    with tf.device(device):
        points = tf.constant(CASE.arrays["points"])
        table = tf.constant(CASE.arrays["table"])
        with tf.GradientTape() as outer:
            outer.watch([points, table])
            with tf.GradientTape() as inner:
                inner.watch(points)
                features = metal_ops.hash_encode(points, table, CASE.grid)
            slope = inner.gradient(features, points, output_gradients=tf.constant(CASE.arrays["g"]))
        gradients = outer.gradient(
            slope, [points, table], output_gradients=tf.constant(CASE.arrays["v"])
        )
    assert all(x.device.endswith(device) for x in (features, slope, *gradients))
    return [x.numpy() for x in (features, slope, *gradients)]


def test_second_order_through_the_public_function() -> None:
    for on_cpu, on_device in zip(loss_gradients("CPU:0"), loss_gradients("GPU:0"), strict=True):
        assert np.abs(on_cpu).max() > 0
        np.testing.assert_allclose(on_device, on_cpu, rtol=1e-4, atol=1e-5 * np.abs(on_cpu).max())


@pytest.mark.instrumented
def test_from_many_threads() -> None:
    expected = {op: call(op, "CPU:0").numpy() for op in OPS}

    def work(op: str) -> None:
        for _ in range(5):
            actual = call(op, "GPU:0").numpy()
            atol = 1e-5 * np.abs(expected[op]).max()
            np.testing.assert_allclose(actual, expected[op], rtol=1e-4, atol=atol)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, OPS))


def test_pipelines_are_built_once() -> None:
    library = ctypes.CDLL(str(Path(metal_ops.__file__).parent / "_metal_kernels.so"))
    library.metal_kernels_pipelines_built.restype = ctypes.c_int64
    call("hash_encode", "GPU:0").numpy()
    built = library.metal_kernels_pipelines_built()
    assert built >= 1
    for _ in range(3):
        call("hash_encode", "GPU:0").numpy()
    assert library.metal_kernels_pipelines_built() == built


def test_every_kernel_was_registered() -> None:
    library = ctypes.CDLL(str(Path(metal_ops.__file__).parent / "_metal_kernels.so"))
    library.metal_kernels_error.restype = ctypes.c_char_p
    assert library.metal_kernels_error() == b""
