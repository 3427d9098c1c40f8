"""Segments, partitions, stitches, reversed sequences, and other moves by tensors of indices, against the
CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import FLOATS, INTEGERS, wide
from tests.device.on_device.test_moves import same
from tests.device.on_device.test_ops import MOVABLE, on_device, put, random

raw = tf.raw_ops
ALL = [*MOVABLE, "int32"]
NUMBERS = [*FLOATS, *INTEGERS, "int32"]
KINDS = ("int32", "int64")


# ---- segments -------------------------------------------------------------------------------------------------------

IDS = [[0], [0, 0, 1, 3, 3], [2, 2, 2, 5], sorted(np.arange(300) % 7)]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_segments_in_order(dtype):
    for ids in [*IDS, []]:
        for inner in [(), (3,), (2, 5), (0,)]:
            x = random((len(ids), *inner), dtype)
            for kind in KINDS:
                for op in (raw.SegmentMax, raw.SegmentMin):
                    same(op, {"data": x, "segment_ids": np.array(ids, kind)})


@pytest.mark.parametrize("dtype", [*NUMBERS, "complex64"])
@pytest.mark.parametrize("name", ["SegmentSum", "SegmentMean", "SegmentProd"])
def test_segments_joined(name, dtype):
    """A segment of no rows has 0, and 1 as a product."""
    op = getattr(raw, name)
    for ids in [*IDS, []]:
        for inner in [(), (3,), (2, 5), (0,), (70,)]:
            x = random((len(ids), *inner), dtype)
            if name == "SegmentProd":  # of 43 rows that are neither large nor nothing
                x = np.where(x == 0, x.dtype.type(1), x)
                x = x if dtype in INTEGERS or dtype == "int32" else (x / np.abs(x)).astype(x.dtype)
            elif dtype in INTEGERS or dtype == "int32":
                x = (x // 50).astype(dtype)  # of which a mean's sum has all bits
            for kind in KINDS:
                given = np.array(ids, kind)
                with tf.device("GPU:0"):
                    placed = put(x), put(given)
                    got, again = (
                        on_device(op(data=placed[0], segment_ids=placed[1])) for _ in range(2)
                    )
                np.testing.assert_array_equal(got, again)
                with tf.device("CPU:0"):  # which rounds half and bfloat every time
                    exact = x if dtype in INTEGERS or dtype == "int32" else wide_of(x)
                    want = op(data=tf.constant(exact), segment_ids=tf.constant(given)).numpy()
                assert got.dtype == x.dtype and got.shape == want.shape
                if exact is x:
                    np.testing.assert_array_equal(got, want)
                    continue
                rtol = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype, 4e-6)
                np.testing.assert_allclose(got.astype(want.dtype), want, rtol=rtol, atol=20 * rtol)


def wide_of(x):
    return x.astype("complex128" if x.dtype.kind == "c" else "float64")


def sums(dtype, ids, inner, kind, kind_of_ids):
    rng = np.random.default_rng(len(ids))
    x = random((11, *inner), dtype)
    index = rng.integers(0, 11, len(ids)).astype(kind)
    return {"data": x, "indices": index, "segment_ids": np.array(ids, kind_of_ids)}


def test_a_segment_with_nan_is_nan():
    """Wherever in it that lies; on the CPU it depends on where."""
    x = np.ones((5, 3), "f")
    x[[0, 1, 2, 4], [0, 1, 2, 2]] = np.nan
    for op in (raw.SegmentMax, raw.SegmentMin):
        with tf.device("GPU:0"):
            got = op(data=tf.constant(x), segment_ids=tf.constant([0, 0, 0, 1, 1]))
        np.testing.assert_array_equal(np.isnan(got), [[True] * 3, [False, False, True]])


@pytest.mark.parametrize("dtype", FLOATS)
def test_sparse_segments(dtype):
    for ids in IDS:
        for inner in [(), (3,), (2, 5)]:
            for kind, kind_of_ids in itertools.product(KINDS, KINDS):
                tensors = sums(dtype, ids, inner, kind, kind_of_ids)
                # The CPU in float32: it rounds half and bfloat every time.
                single = tensors | {"data": wide(tensors["data"]).astype("float32")}
                for name in ("Sum", "Mean", "SqrtN"):
                    for given in ({}, {"num_segments": 9}):
                        op = getattr(
                            raw, f"SparseSegment{name}{'WithNumSegments' if given else ''}"
                        )
                        with tf.device("CPU:0"):
                            want = op(**single, **given).numpy()
                        placed = {k: put(v) for k, v in tensors.items()}
                        got, again = op(**placed, **given), op(**placed, **given)
                        np.testing.assert_array_equal(on_device(got), on_device(again))
                        ulp = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
                        np.testing.assert_allclose(
                            wide(got.numpy()), want, rtol=ulp, atol=20 * ulp, err_msg=name
                        )


@pytest.mark.parametrize("name", ["Sum", "Mean", "SqrtN"])
def test_gradients_of_sparse_segments(name):
    for ids in IDS:
        for kind in KINDS:
            tensors = sums("float32", ids, (3,), kind, kind)
            grad = random((max(ids) + 1, 3), "float32")
            same(
                getattr(raw, f"SparseSegment{name}Grad"),
                {"grad": grad, "indices": tensors["indices"], "segment_ids": tensors["segment_ids"]},
                exact=False,
                output_dim0=13,
            )  # fmt: skip


# ---- ops that write into their input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL)
def test_parallel_stack(dtype):
    """Each row is written into the memory that all of them share."""
    for shape, n in [((), 1), ((3,), 2), ((0, 2), 3), ((5, 7), 9), ((70001,), 3)]:
        rows = [random(shape, dtype, i) for i in range(n)]

        @tf.function
        def stacked(*rows):
            with tf.device("GPU:0"):
                return tf.parallel_stack(rows)

        for _ in range(2):
            got = stacked(*(put(row) for row in rows))
            np.testing.assert_array_equal(on_device(got), np.stack(rows))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_rows_changed_in_place(dtype):
    """Counted around the tensor; the input is the result."""
    ops = {"InplaceUpdate": lambda old, new: new}
    if dtype not in ("bool", "float64", "complex64", "complex128"):
        ops |= {"InplaceAdd": lambda old, new: old + new, "InplaceSub": lambda old, new: old - new}
    for shape in [(7,), (4, 3), (2, 3, 70), (2, 0)]:
        for rows in ([1], [0, -1], [9, -8, 0], [0, 0, 1], []):
            x, v = random(shape, dtype), random((len(rows), *shape[1:]), dtype, 1)
            for name, change in ops.items():
                want = x.copy()
                for k, row in enumerate(rows):
                    row %= len(x)
                    want[row] = change(want[row], v[k])
                placed = raw.DeepCopy(x=put(x))
                got = getattr(raw, name)(x=placed, i=tf.constant(rows, tf.int32), v=put(v))
                np.testing.assert_array_equal(on_device(got), want)
                np.testing.assert_array_equal(on_device(placed), want)


# ---- moves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL)
def test_partitions_and_stitches(dtype):
    rng = np.random.default_rng(1)
    shapes = [((7,), 1, 3), ((4, 3), 1, 2), ((3, 4, 5), 2, 6), ((0, 2), 1, 2), ((9001, 2), 1, 4)]
    for shape, rank, parts in shapes:
        x = random(shape, dtype)
        index = rng.integers(0, parts, shape[:rank]).astype("int32")
        same(raw.DynamicPartition, {"data": x, "partitions": index}, num_partitions=parts)
        if not x.size:
            continue
        # Back again; two rows are named twice, and the last counts.
        rows = rng.permutation(index.size).astype("int32").reshape(index.shape)
        more = random((2, *shape[rank:]), dtype, 5)
        for indices, data in [([rows], [x]), ([rows, np.array([0, 2], "int32")], [x, more])]:
            with tf.device("CPU:0"):
                want = raw.DynamicStitch(indices=indices, data=[tf.constant(d) for d in data])
            for op in (raw.DynamicStitch, raw.DynamicStitch, raw.ParallelDynamicStitch):
                with tf.device("GPU:0"):
                    got = op(indices=indices, data=[put(d) for d in data])
                np.testing.assert_array_equal(on_device(got), want.numpy())


def test_stitches_with_holes_are_zero_there():
    with tf.device("GPU:0"):
        got = raw.DynamicStitch(indices=[[3], [1]], data=[put(np.ones((1, 2), "f"))] * 2)
    np.testing.assert_array_equal(on_device(got), [[0, 0], [1, 1], [0, 0], [1, 1]])


@pytest.mark.parametrize("dtype", ALL)
def test_reverse_sequence(dtype):
    shapes = [((3, 5), 0, 1), ((4, 3, 2), 1, 0), ((2, 3, 4, 5), 3, 1), ((2, 6, 3, 2), 0, 2)]
    for shape, batch, sequence in [*shapes, ((0, 3), 0, 1)]:
        for kind in KINDS:
            lengths = (np.arange(shape[batch]) * 2 % (shape[sequence] + 1)).astype(kind)
            same(raw.ReverseSequence, {"input": random(shape, dtype), "seq_lengths": lengths},
                 seq_dim=sequence, batch_dim=batch)  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_gradient_of_mirrored_edges(dtype):
    shapes = [((9,), [[2, 3]]), ((6, 8), [[1, 2], [0, 3]]), ((3, 4), [[0, 0], [0, 0]])]
    # With so many rows those that mirror nothing are copied.
    shapes += [
        ((25,), [[2, 3]]),
        ((3, 24, 2), [[0, 0], [0, 3], [0, 0]]),
        ((20, 17), [[1, 2], [3, 0]]),
    ]
    for shape, paddings in [*shapes, ((4, 5, 9), [[0, 0], [1, 1], [3, 2]])]:
        for mode in ("REFLECT", "SYMMETRIC"):
            for kind in KINDS:
                if dtype in ("int32", "uint32", "uint64", "uint16") and kind == "int64":
                    continue
                same(
                    raw.MirrorPadGrad,
                    {"input": random(shape, dtype)},
                    exact=dtype not in FLOATS,
                    paddings=np.array(paddings, kind),
                    mode=mode,
                )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_cross(dtype):
    for shape in [(3,), (5, 3), (2, 0, 3), (33, 7, 3)]:
        if dtype in ("uint32", "uint64", "float16", "bfloat16"):
            a, b = (np.abs(random(shape, dtype, i)) // 8 for i in range(2))  # exact
        else:
            a, b = (random(shape, dtype, i) for i in range(2))
        same(raw.Cross, {"a": a, "b": b}, exact=dtype != "float32")


def test_diagonal_tensors():
    for dtype in ("float32", "float16", "float64", "complex64", "complex128", "int32", "int64"):
        for shape in [(1,), (5,), (2, 3), (2, 1, 2), (0,)]:
            x = random(shape, dtype)
            same(raw.Diag, {"diagonal": x})
            if x.size:
                same(raw.DiagPart, {"input": random((*shape, *shape), dtype)})


def test_unravel_index():
    for kind in KINDS:
        for dims in ([5], [3, 4], [2, 3, 4, 5]):
            sizes = np.array(dims, kind)
            index = np.arange(np.prod(dims))[:: max(1, len(dims) - 1)].astype(kind)
            same(raw.UnravelIndex, {"indices": index}, dims=sizes)
            same(raw.UnravelIndex, {"indices": index[-1]}, dims=sizes)


def test_bitcast_and_snapshot():
    for source, target in [("float32", "int32"), ("float16", "uint16"), ("int64", "float64"), ("complex64", "int16"),
                           ("uint8", "float32"), ("bfloat16", "uint8"), ("int8", "int64")]:  # fmt: skip
        for shape in [(8,), (3, 8), (0, 8)]:
            x = random(shape, source)
            ratio = tf.as_dtype(target).size / tf.as_dtype(source).size
            x = x[..., : int(ratio)] if ratio > 1 else x
            got = on_device(raw.Bitcast(input=put(x), type=target))
            with tf.device("CPU:0"):
                want = raw.Bitcast(input=tf.constant(x), type=target).numpy()
            assert got.shape == want.shape
            assert got.tobytes() == want.tobytes()
    for dtype in ALL:
        for shape in [(), (7,), (0,)]:
            same(raw.Snapshot, {"input": random(shape, dtype)})
            if dtype != "int32":
                same(raw.DeepCopy, {"x": random(shape, dtype)})


NUMBERS_OF_NO_USE = {
    "NaN": [np.nan],
    "Inf": [np.inf],
    "-Inf": [-np.inf],
    "all": [np.nan, np.inf, -np.inf],
    "two": [np.nan, np.inf],
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_check_numerics(dtype):
    for op in (raw.CheckNumerics, raw.CheckNumericsV2):
        for shape in [(), (0,), (9000,)]:
            same(op, {"tensor": random(shape, dtype)}, message="there")
        for special in NUMBERS_OF_NO_USE.values():
            x = random((9000,), dtype)
            x[17 : 17 + len(special)] = special
            said = []
            for device in ("CPU:0", "GPU:0"):
                with tf.device(device), pytest.raises(tf.errors.InvalidArgumentError) as caught:
                    op(tensor=tf.identity(tf.constant(x)), message="there")
                said.append(caught.value.message.split("there")[-1].split(" [Op")[0])
            assert said[0] == said[1]


# ---- products by other names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_and_biases(dtype):
    x, y = random((2, 3, 4), dtype), random((2, 4, 5), dtype, 1)
    same(raw.BatchMatMul, {"x": x, "y": y}, exact=False)
    same(raw.BatchMatMul, {"x": x, "y": y.swapaxes(1, 2).copy()}, exact=False, adj_y=True)
    if dtype != "float16":  # the CPU has none
        kind = tf.as_dtype(dtype)
        same(raw.BatchMatMulV3, {"x": x, "y": y[:1]}, exact=False, Tout=kind)
    for shape in [(3, 5), (2, 3, 4, 5), (0, 5)]:
        same(raw.BiasAddV1, {"value": random(shape, dtype), "bias": random((5,), dtype)})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.math.segment_max(x, put(np.array([0, 0, 2]))),
        lambda x: tf.sparse.segment_mean(x, put(np.array([2, 0, 0])), put(np.array([0, 0, 1]))),
        lambda x: tf.reverse_sequence(x, put(np.array([2, 4, 0])), 1),
        lambda x: tf.pad(x, [[1, 1], [2, 0]], "REFLECT"),
        lambda x: tf.dynamic_stitch([[0, 2], [1]], tf.dynamic_partition(x, [0, 1, 0], 2)),
        lambda x: tf.linalg.cross(x[:, :3], x[:, 1:]),
        lambda x: tf.debugging.check_numerics(x, "there"),
        lambda x: tf.math.top_k(x, 2)[0],
    ],
)
def test_gradients(function):
    tf.config.set_soft_device_placement(True)  # gradients slice shapes, int32
    try:
        with tf.device("GPU:0"):
            theory, numeric = tf.test.compute_gradient(
                lambda v: function(v), [put(random((3, 4), "float32"))]
            )
    finally:
        tf.config.set_soft_device_placement(False)
    np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-2, atol=1e-2)
    assert np.abs(theory[0]).max() > 0.4


BAD = {
    "SegmentMax": (lambda x: raw.SegmentMax(data=x, segment_ids=[0]), "same size"),
    "SegmentMin: negative": (
        lambda x: raw.SegmentMin(data=x, segment_ids=put(np.array([-2, -2]))),
        ">= 0",
    ),
    "SparseSegmentSum": (
        lambda x: raw.SparseSegmentSum(data=x, indices=[0], segment_ids=[0, 1]),
        "same size",
    ),
    "SparseSegmentMeanWithNumSegments": (
        lambda x: raw.SparseSegmentMeanWithNumSegments(
            data=x, indices=[0], segment_ids=[0], num_segments=-1
        ),
        "num_segments|non-negative",
    ),
    "DynamicPartition": (
        lambda x: raw.DynamicPartition(data=x, partitions=[0, 5], num_partitions=2),
        r"not in \[0, 2\)",
    ),
    "DynamicPartition: shapes": (
        lambda x: raw.DynamicPartition(data=x, partitions=[0], num_partitions=2),
        "must start with",
    ),
    "DynamicStitch": (lambda x: raw.DynamicStitch(indices=[[-1]], data=[x[:1]]), "out of range"),
    "ReverseSequence": (
        lambda x: raw.ReverseSequence(input=x, seq_lengths=[1], seq_dim=1),
        "seq_lengths|seq_lens",
    ),
    "MirrorPadGrad": (
        lambda x: raw.MirrorPadGrad(input=x, paddings=[[1, 1], [0, 0]], mode="REFLECT"),
        "paddings",
    ),
    "Cross": (lambda x: raw.Cross(a=x[:, :2], b=x[:, :2]), "3-element"),
    "DiagPart": (lambda x: raw.DiagPart(input=x), "rank|half|dimensions"),
    "UnravelIndex": (lambda x: raw.UnravelIndex(indices=[1], dims=[2, 0]), "zero"),
    "UnravelIndex: 2^32": (
        lambda x: raw.UnravelIndex(indices=[1], dims=[2**16, 2**16]),
        "dims product is causing integer overflow",
    ),
    "UnravelIndex: 2^64": (
        lambda x: raw.UnravelIndex(
            indices=tf.constant([1], tf.int64), dims=tf.constant([2**32, 2**32], tf.int64)
        ),
        "dims product is causing integer overflow",
    ),
    "InplaceAdd": (lambda x: raw.InplaceAdd(x=x, i=[[0]], v=x), "i must be a vector"),
    "InplaceUpdate": (lambda x: raw.InplaceUpdate(x=x, i=[0], v=x[:, :1]), "shape doesn't match"),
    "InplaceSub": (lambda x: raw.InplaceSub(x=x, i=[0], v=x), "i and x shape doesn't match"),
    "Bitcast": (lambda x: raw.Bitcast(input=x, type=tf.int64), "bitcast"),
    "BiasAddV1": (lambda x: raw.BiasAddV1(value=x, bias=x[0, :2]), "bias"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, message = BAD[name]
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(put(np.ones((2, 3), "f")))
