"""Stock ops that move elements, take and change them by indices, and sum them up cumulatively, against the CPU.

Moved elements must be the same to the bit, in every dtype. Changes by indices happen in the indices' order, as on
the CPU, so these are the same, too.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import FLOATS, INTEGERS, wide
from tests.device.on_device.test_ops import MOVABLE, ULP, check, on_device, put, random

raw = tf.raw_ops
ALL = [*MOVABLE, "int32"]
NUMBERS = [*FLOATS, *INTEGERS, "int32"]


def flat(results) -> list[tf.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


def same(op, tensors: dict, exact: bool = True, **others) -> None:
    """Twice on the device, and on the CPU; `others` are attributes and inputs in host memory."""
    with tf.device("CPU:0"):
        wanted = [
            x.numpy() for x in flat(op(**{k: tf.constant(v) for k, v in tensors.items()}, **others))
        ]
    placed = {k: put(v) for k, v in tensors.items()}
    for _ in range(2):
        with tf.device("GPU:0"):
            results = flat(op(**placed, **others))
        assert len(results) == len(wanted)
        for result, want in zip(results, wanted, strict=True):
            got = on_device(result)
            assert got.shape == want.shape and got.dtype == want.dtype
            if exact:
                np.testing.assert_array_equal(got, want, f"{op.__name__} {others}")
            else:
                kind = str(result.dtype.name)
                np.testing.assert_allclose(
                    wide(got), wide(want), rtol=8 * ULP.get(kind, 0), atol=8 * ULP.get(kind, 0)
                )


@pytest.mark.parametrize("dtype", ALL)
def test_split(dtype):
    for shape, axis, n in [
        ((6,), 0, 3),
        ((4, 6), -1, 2),
        ((4, 6), 0, 4),
        ((2, 3, 4), 1, 1),
        ((0, 4), 1, 2),
    ]:
        same(raw.Split, {"value": random(shape, dtype)}, axis=axis, num_split=n)
    for shape, axis, sizes in [
        ((6,), 0, [1, 0, 5]),
        ((4, 6), 1, [2, -1, 3]),
        ((2, 0), 0, [1, 1]),
        ((3, 4), -2, [3]),
    ]:
        for kind in (tf.int8, tf.int32, tf.int64):
            same(raw.SplitV, {"value": random(shape, dtype)}, size_splits=tf.constant(sizes, kind), axis=axis,
                 num_split=len(sizes))  # fmt: skip


@pytest.mark.parametrize("dtype", ALL)
def test_reverse_and_roll(dtype):
    for shape, axes in [
        ((7,), [0]),
        ((3, 5), [1]),
        ((3, 5), [0, -1]),
        ((2, 3, 4, 5), [1, 3]),
        ((0, 2), [0]),
    ]:
        x = random(shape, dtype)
        same(raw.ReverseV2, {"tensor": x}, axis=tf.constant(axes, tf.int32))
        dims = [d in [a % len(shape) for a in axes] for d in range(len(shape))]
        if x.size:  # of nothing the CPU refuses it
            same(raw.Reverse, {"tensor": x}, dims=dims)
    for shape, shift, axes in [((7,), [3], [0]), ((7,), [-10], [0]), ((3, 5), [1, 2], [0, 1]), ((3, 5), [1, 4], [1, 1]),
                               ((2, 3, 4), [0], [1]), ((0, 3), [1], [1])]:  # fmt: skip
        same(raw.Roll, {"input": random(shape, dtype)}, shift=shift, axis=axes)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_mirror_pad(dtype):
    if dtype in ("uint32", "uint64"):
        return  # the CPU has none
    for shape, paddings in [
        ((5,), [[2, 3]]),
        ((3, 4), [[1, 2], [0, 3]]),
        ((2, 3, 4), [[0, 0], [2, 0], [1, 1]]),
    ]:
        for mode in ("REFLECT", "SYMMETRIC"):
            if mode == "REFLECT" and any(max(p) >= n for p, n in zip(paddings, shape, strict=True)):
                continue
            same(raw.MirrorPad, {"input": random(shape, dtype)}, paddings=paddings, mode=mode)


@pytest.mark.parametrize("dtype", ALL)
def test_space_depth_and_batch(dtype):
    for shape, block in [((2, 4, 6, 3), 2), ((1, 3, 3, 1), 3), ((0, 4, 4, 2), 2)]:
        x = random(shape, dtype)
        same(raw.SpaceToDepth, {"input": x}, block_size=block)
        y = random((shape[0], shape[1], shape[2], shape[3] * block * block), dtype)
        same(raw.DepthToSpace, {"input": y}, block_size=block)
        for op, value in [(raw.SpaceToDepth, x), (raw.DepthToSpace, y)]:
            got = op(input=put(value.transpose(0, 3, 1, 2)), block_size=block, data_format="NCHW")
            with tf.device("CPU:0"):
                want = op(input=tf.constant(value), block_size=block).numpy()
            np.testing.assert_array_equal(on_device(got), want.transpose(0, 3, 1, 2))
    parts = {"bool": "uint8", "complex64": "float32", "complex128": "float64"}
    if dtype in parts:  # the CPU has none of the rest, except the ops they consist of
        for op, shape, attributes in [
            (raw.SpaceToBatchND, (2, 4, 6, 3), dict(block_shape=[2, 3], paddings=[[1, 1], [0, 0]])),
            (raw.SpaceToBatch, (2, 4, 6, 3), dict(block_size=2, paddings=[[1, 1], [0, 2]])),
            (raw.BatchToSpaceND, (6, 4, 6, 3), dict(block_shape=[2, 3], crops=[[1, 1], [0, 0]])),
            (raw.BatchToSpace, (8, 4, 6, 3), dict(block_size=2, crops=[[1, 1], [0, 2]])),
        ]:
            x = random(shape, dtype)
            with tf.device("CPU:0"):
                want = op(input=tf.constant(x.view(parts[dtype])), **attributes).numpy()
            got = on_device(op(input=put(x), **attributes))
            np.testing.assert_array_equal(got, want.view(dtype))
        return
    for shape, block, pads in [((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]), ((1, 5, 3), [2], [[2, 1]]),
                               ((3, 5), [4], [[5, 2]]), ((1, 3, 3, 2), [1, 2], [[0, 0], [3, 0]])]:  # fmt: skip
        x = random(shape, dtype)
        same(raw.SpaceToBatchND, {"input": x}, block_shape=block, paddings=pads)
        with tf.device("CPU:0"):
            many = raw.SpaceToBatchND(
                input=tf.constant(x), block_shape=block, paddings=pads
            ).numpy()
        same(raw.BatchToSpaceND, {"input": many}, block_shape=block, crops=pads)
        same(raw.BatchToSpaceND, {"input": many}, block_shape=block, crops=np.zeros_like(pads))
    x = random((1, 4, 6, 2), dtype)
    same(raw.SpaceToBatch, {"input": x}, paddings=[[1, 1], [0, 2]], block_size=2)
    same(
        raw.BatchToSpace,
        {"input": random((8, 2, 3, 2), dtype)},
        crops=[[1, 0], [0, 2]],
        block_size=2,
    )


@pytest.mark.parametrize("dtype", ALL)
def test_diagonals(dtype):
    for shape in [(3, 3), (2, 4, 3), (2, 3, 5), (1, 1)]:
        x = random(shape, dtype)
        rows, columns = shape[-2:]
        same(raw.MatrixDiagPart, {"input": x})
        same(
            raw.MatrixSetDiag,
            {"input": x, "diagonal": random((*shape[:-2], min(rows, columns)), dtype, 1)},
        )
        same(raw.MatrixDiag, {"diagonal": x})
        for lower, upper in [(-1, -1), (0, 0), (-1, 1)]:
            same(raw.MatrixBandPart, {"input": x}, num_lower=lower, num_upper=upper)
        for k in [0, 1, -1, (-1, 1), (0, 1), (-1, 0)]:
            low, high = (k, k) if isinstance(k, int) else k
            if low <= -rows or high >= columns:
                continue
            filling = np.asarray(random((), dtype, 3))
            for align in ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"):
                with tf.device("CPU:0"):
                    part = raw.MatrixDiagPartV3(
                        input=x, k=k, padding_value=filling, align=align
                    ).numpy()
                same(raw.MatrixDiagPartV3, {"input": x}, k=k, padding_value=filling, align=align)
                same(
                    raw.MatrixSetDiagV3,
                    {"input": x, "diagonal": part[..., ::-1].copy()},
                    k=k,
                    align=align,
                )
                for sizes in [(-1, -1), (rows, columns)]:
                    same(raw.MatrixDiagV3, {"diagonal": part}, k=k, num_rows=sizes[0], num_cols=sizes[1],
                         padding_value=filling, align=align)  # fmt: skip
            same(raw.MatrixDiagPartV2, {"input": x}, k=k, padding_value=filling)
    # Diagonals that lie outside of the matrix whole.
    for shape, k, sizes in [((4, 3), [0, 3], (3, 3)), ((2, 0), -5, (5, 3))]:
        x = random(shape, dtype)
        same(raw.MatrixDiagV3, {"diagonal": x}, k=k, num_rows=sizes[0], num_cols=sizes[1],
             padding_value=filling)  # fmt: skip


def test_concat_transpose_one_hot_range_and_empty():
    for dtype in ALL:
        if dtype != "int32":
            parts = [put(random((2, n), dtype, n)) for n in (1, 0, 3)]
            with tf.device("GPU:0"):
                got = raw.Concat(concat_dim=1, values=parts)
            np.testing.assert_array_equal(
                on_device(got), np.concatenate([p.numpy() for p in parts], 1)
            )
        if "complex" not in dtype:
            same(raw.ConjugateTranspose, {"x": random((2, 3, 4), dtype)}, perm=[2, 0, 1])
        on, off = random((), dtype), random((), dtype, 5)
        for kind in ("uint8", "int8", "int32", "int64"):
            for shape, axis in [((3, 4), -1), ((3, 4), 1), ((5,), 0), ((), -1), ((0,), 0)]:
                index = (np.arange(np.prod(shape, dtype=int)) % 7 - 1).reshape(shape).astype(kind)
                same(
                    raw.OneHot,
                    {"indices": index, "on_value": on, "off_value": off},
                    depth=5,
                    axis=axis,
                )
        with tf.device("GPU:0"):
            got = raw.Empty(shape=[3, 2], dtype=dtype, init=True)
        np.testing.assert_array_equal(on_device(got), np.zeros((3, 2)))
    for first, end, step in [(0, 7, 1), (3, -8, -2), (5, 5, 1)]:
        for kind in (tf.float32, tf.int64):
            values = [tf.constant(v, kind) for v in (first, end, step)]
            with tf.device("GPU:0"):
                got = on_device(raw.Range(start=values[0], limit=values[1], delta=values[2]))
            np.testing.assert_array_equal(got, np.arange(first, end, step))
    with tf.device("GPU:0"):
        got = on_device(tf.range(0.0, 1.0, 0.1))
        with pytest.raises(tf.errors.InvalidArgumentError, match="delta"):
            tf.range(1.0, 2.0, -1.0)
    np.testing.assert_allclose(got, np.arange(10) / 10, rtol=2e-7)


# A seventh of 7 is 10 or 11 numbers, as the division rounds.
RANGES = [
    (0, 7, 0.7),
    (0, 1, 0.1),
    (1, 0, -0.1),
    (-2, 3, 0.3),
    (5, 5, 1),
    (0, 1000, 1),
    (1.5, 8.6, 0.05),
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_ranges_of_floats(dtype):
    """As many numbers as on the CPU, each with one rounding."""
    for values in RANGES:
        start, limit, delta = (tf.constant(v, dtype) for v in values)
        with tf.device("CPU:0"):
            expected = raw.Range(start=start, limit=limit, delta=delta)
        with tf.device("GPU:0"):
            got = raw.Range(start=start, limit=limit, delta=delta)
        first, step = wide(start.numpy()), wide(delta.numpy())
        assert got.shape == expected.shape
        check(got, first + np.arange(got.shape[0]) * step, dtype, 2)


def floats_range(*numbers):
    start, limit, delta = (tf.constant(number, tf.float32) for number in numbers)
    return raw.Range(start=start, limit=limit, delta=delta)


MOVES_BAD = {
    "Split": (lambda x: raw.Split(axis=1, value=x, num_split=2), "evenly divide"),
    "SplitV": (
        lambda x: raw.SplitV(value=x, size_splits=[1, 1], axis=1, num_split=2),
        "size_splits",
    ),
    "ReverseV2": (lambda x: raw.ReverseV2(tensor=x, axis=[0, -2]), "axis 0 .*more than once"),
    "ReverseV2: axis": (lambda x: raw.ReverseV2(tensor=x, axis=[-3]), "axis -3 is out of"),
    "Roll": (lambda x: raw.Roll(input=x, shift=[1], axis=[2]), "axis 2 is out of range"),
    "Roll: a scalar": (lambda x: raw.Roll(input=1.0, shift=[1], axis=[0]), "input must be 1-D"),
    "Roll: a matrix": (
        lambda x: raw.Roll(input=x, shift=[[1]], axis=[0]),
        "shift must be a scalar or a 1-D vector. Found: .1, 1",
    ),
    "Roll: more shifts": (lambda x: raw.Roll(input=x, shift=[1, 2], axis=[0]), "the same size"),
    "Range: a vector": (
        lambda x: floats_range([0.0], 1.0, 1.0),
        "start must be a scalar, not shape",
    ),
    "Range: 0": (lambda x: floats_range(1.0, 2.0, 0.0), "Requires delta != 0: 0"),
    "Range: down": (
        lambda x: floats_range(1.0, 20.0, -2.0),
        "Requires start >= limit when delta < 0: 1/20",
    ),
    "Range: up": (
        lambda x: floats_range(20.0, 1.0, 2.0),
        "Requires start <= limit when delta > 0: 20/1",
    ),
    "MirrorPad": (
        lambda x: raw.MirrorPad(input=x, paddings=[[0, 0], [3, 0]], mode="REFLECT"),
        "paddings",
    ),
    "SpaceToDepth": (lambda x: raw.SpaceToDepth(input=x, block_size=2), "4 dimensions|rank 4"),
    "SpaceToBatchND": (
        lambda x: raw.SpaceToBatchND(input=x, block_shape=[2], paddings=[[0, 0]]),
        "block|divisible",
    ),
    "BatchToSpaceND": (
        lambda x: raw.BatchToSpaceND(input=x, block_shape=[3], crops=[[0, 0]]),
        "divisible",
    ),
    "MatrixDiagPartV3": (
        lambda x: raw.MatrixDiagPartV3(input=x, k=5, padding_value=0.0),
        "diag_index",
    ),
    "MatrixBandPart": (
        lambda x: raw.MatrixBandPart(input=x, num_lower=9, num_upper=0),
        "num_lower",
    ),
    "GatherNd": (lambda x: raw.GatherNd(params=x, indices=[[0, 0, 0]]), "innermost"),
    "TensorScatterAdd": (
        lambda x: raw.TensorScatterAdd(tensor=x, indices=[[0]], updates=[1.0]),
        "(?i)updates",
    ),
    "ScatterNd": (
        lambda x: raw.ScatterNd(indices=[[0]], updates=[1.0], shape=[-2]),
        "shape|negative",
    ),
    "UnsortedSegmentSum": (
        lambda x: raw.UnsortedSegmentSum(data=x, segment_ids=[0], num_segments=1),
        "segment_ids",
    ),
    "Cumsum": (lambda x: raw.Cumsum(x=x, axis=2), "axis"),
}


MOVES_BAD |= {
    "SplitV: too few sizes": (
        lambda x: raw.SplitV(value=x, size_splits=[1, 2], axis=1, num_split=3),
        "size_splits|Length of size_splits",
    ),
    "SpaceToBatchND: too many blocks": (
        lambda x: raw.SpaceToBatchND(
            input=x, block_shape=[2**31 - 1, 2**31 - 1], paddings=[[0, 0], [0, 0]]
        ),
        "block_shape|dimensions",
    ),
    "MatrixDiagV3: k without end": (
        lambda x: raw.MatrixDiagPartV3(input=x[:, :0], k=[-(2**31), 2**31 - 1], padding_value=0.0),
        "lower_diag_index is out of bound",
    ),
    "MatrixDiagV3: a scalar": (
        lambda x: raw.MatrixDiagV3(diagonal=1.0, k=0, num_rows=2, num_cols=2, padding_value=0.0),
        "diagonal must be at least 1-dim",
    ),
    "MatrixSetDiagV3: a scalar": (
        lambda x: raw.MatrixSetDiagV3(input=x, diagonal=1.0, k=0),
        "diagonal must be at least 1-dim",
    ),
    "MatrixDiagV3: sizes that are none": (
        lambda x: raw.MatrixDiagV3(diagonal=x, k=0, num_rows=[], num_cols=[], padding_value=0.0),
        "num_rows",
    ),
    "UnsortedSegmentSum: too many": (
        lambda x: raw.UnsortedSegmentSum(data=x, segment_ids=[0, 0], num_segments=np.int64(2**62)),
        "2\\^63",
    ),
    # A size of 0 hides no negative one behind it.
    "Fill: negative": (lambda x: raw.Fill(dims=np.int64([0, -1]), value=1.0), "negative|>= 0"),
    "Empty: negative": (
        lambda x: raw.Empty(shape=np.int32([0, -1]), dtype=tf.float32),
        "negative|>= 0",
    ),
    "StridedSliceGrad: negative": (
        lambda x: raw.StridedSliceGrad(
            shape=np.int64([0, -1]),
            begin=np.int64([0]),
            end=np.int64([1]),
            strides=np.int64([1]),
            dy=x,
        ),
        "negative|>= 0",
    ),
    "AvgPoolGrad: negative": (
        lambda x: raw.AvgPoolGrad(
            orig_input_shape=[0, -1, 2, 1],
            grad=tf.zeros([0, 1, 1, 1]),
            ksize=[1, 1, 1, 1],
            strides=[1, 1, 1, 1],
            padding="VALID",
        ),
        ">= 0",
    ),
    "Conv2DBackpropInput: negative": (
        lambda x: raw.Conv2DBackpropInput(
            input_sizes=[0, -1, 2, 1],
            filter=tf.zeros([1, 1, 1, 1]),
            out_backprop=tf.zeros([0, 1, 2, 1]),
            strides=[1, 1, 1, 1],
            padding="VALID",
        ),
        ">= 0",
    ),
    "Sum": (lambda x: raw.Sum(input=x, axis=[0, -2]), "duplicate dimension: 0"),
    "GatherNd": (
        lambda x: raw.GatherNd(params=x[:0], indices=[[0]]),
        "Requested more than 0 entries, but params is empty",
    ),
    "ScatterNd: an index": (lambda x: raw.ScatterNd(indices=1, updates=x, shape=[3]), "vector"),
    "ScatterNd: nothing": (
        lambda x: raw.ScatterNd(indices=[[0, 0]], updates=x[:1, :2], shape=[0, 3, 2]),
        "Indices and updates specified for empty output",
    ),
    "ScatterNd: a scalar": (
        lambda x: raw.ScatterNd(indices=[[0]], updates=x, shape=tf.zeros(0, tf.int32)),
        "Output must be at least 1-D",
    ),
    "ScatterNd: other rows": (
        lambda x: raw.ScatterNd(indices=[[0], [0], [0]], updates=x, shape=[5, 3]),
        r"Dimensions \[0,1\) of indices\[shape=\[3, 1\]\] must match .* of updates\[shape=\[2, 3\]\]",
    ),
    "TensorScatterAdd: other slices": (
        lambda x: raw.TensorScatterAdd(tensor=x, indices=[[0], [1]], updates=x[:, :2]),
        r"Dimensions \[1,2\) of input\[shape=\[2, 3\]\] must match .* of updates\[shape=\[2, 2\]\]",
    ),
    "RandomUniform: negative": (
        lambda x: raw.RandomUniform(shape=np.int32([0, -1]), dtype=tf.float32),
        "negative|>= 0",
    ),
    "RandomUniform: too many": (
        lambda x: raw.RandomUniform(shape=np.int64([2**62, 4]), dtype=tf.float32),
        "2\\^63",
    ),
}


@pytest.mark.parametrize("name", MOVES_BAD)
def test_bad_arguments(name):
    call, message = MOVES_BAD[name]
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(put(np.ones((2, 3), "f")))


# ---- by indices -----------------------------------------------------------------------------------------------------

# A tensor's shape, the indices' without the last dimension, how many dimensions an index names.
ND = [((5,), (3,), 1), ((5, 3), (4,), 1), ((5, 3), (2, 2), 2), ((2, 3, 4, 70), (6,), 2), ((4, 2), (0,), 1),
      ((100, 130), (300,), 1), ((5, 19), (3, 2), 1), ((4, 331), (5,), 1)]  # fmt: skip


def nd_indices(shape, index_shape, depth, kind, seed=3):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, n, index_shape) for n in shape[:depth]], -1).astype(kind)


@pytest.mark.parametrize("dtype", ALL)
def test_gather_nd(dtype):
    for shape, index_shape, depth in ND:
        for kind in ("int32", "int64"):
            index = nd_indices(shape, index_shape, depth, kind)
            same(raw.GatherNd, {"params": random(shape, dtype), "indices": index})
    got = raw.GatherNd(params=put(random((3,), dtype)), indices=put(np.array([[3], [-1]])))
    np.testing.assert_array_equal(on_device(got), np.zeros(2))
    same(raw.Gather, {"params": random((5, 2), dtype), "indices": np.array([[4, 0], [1, 1]])})


@pytest.mark.parametrize("dtype", ALL)
def test_tensor_scatter(dtype):
    names = ["Update"] if dtype not in NUMBERS else ["Update", "Add", "Sub", "Max", "Min"]
    for shape, index_shape, depth in ND:
        for kind in ("int32", "int64"):
            index = nd_indices(shape, index_shape, depth, kind)
            x, updates = random(shape, dtype), random((*index_shape, *shape[depth:]), dtype, 1)
            for name in names:
                if name == "Update":  # of one element twice the CPU's order is open
                    index = np.unique(index.reshape(-1, depth), axis=0)
                    updates = random((len(index), *shape[depth:]), dtype, 1)
                op = getattr(raw, f"TensorScatter{name}")
                same(
                    op,
                    {"tensor": x, "indices": index, "updates": updates},
                    exact=dtype not in FLOATS,
                )
            if dtype in NUMBERS:
                arguments = {"indices": index, "updates": updates}
                same(raw.ScatterNd, arguments, exact=dtype not in FLOATS, shape=shape)
                same(
                    raw.ScatterNdNonAliasingAdd,
                    {"input": x, **arguments},
                    exact=dtype not in FLOATS,
                )


def test_scatter_leaves_its_input_alone_and_skips_what_is_outside():
    x = put(np.arange(4.0, dtype="f"))
    got = raw.TensorScatterAdd(
        tensor=x, indices=put(np.array([[1], [7], [-1]])), updates=put(np.ones(3, "f"))
    )
    np.testing.assert_array_equal(on_device(got), [0, 2, 2, 3])
    np.testing.assert_array_equal(on_device(x), [0, 1, 2, 3])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_variables_by_indices(dtype):
    rng = np.random.default_rng(4)
    for shape, index_shape in [((7,), (3,)), ((5, 3), (2, 2)), ((40, 70), (90,)), ((4, 2), (0,))]:
        for name in [
            "Update",
            "Add",
            "Sub",
            "Mul",
            "Max",
            "Min",
            *(["Div"] if dtype in FLOATS else []),
        ]:
            for kind in ("int32", "int64"):
                start, updates = random(shape, dtype), random((*index_shape, *shape[1:]), dtype, 1)
                updates = np.where(np.abs(updates) < 0.5, updates.dtype.type(1), updates)
                index = rng.integers(0, shape[0], index_shape).astype(kind)
                if name == "Update":
                    index = rng.permutation(shape[0])[: len(index.ravel())].astype(kind)
                    updates = random((len(index), *shape[1:]), dtype, 1)
                results = []
                for device in ("CPU:0", "GPU:0"):
                    with tf.device(device):
                        variable = tf.Variable(start)
                        before = variable.read_value()
                        op = getattr(raw, f"ResourceScatter{name}")
                        op(
                            resource=variable.handle,
                            indices=tf.identity(index),
                            updates=tf.identity(updates),
                        )
                        gathered = raw.ResourceGather(resource=variable.handle, indices=tf.identity(index),
                                                      dtype=dtype)  # fmt: skip
                        assert gathered.device.endswith(device)
                        results.append([wide(t.numpy()) for t in (variable, gathered, before)])
                for got, want in zip(results[1], results[0], strict=True):
                    rtol = 16 * ULP[dtype] if dtype in FLOATS else 0
                    np.testing.assert_allclose(
                        got, want, rtol=rtol, atol=rtol, err_msg=f"{name} {shape}"
                    )
    for name in ("Update", "Add", "Sub", "Max", "Min"):
        results = []
        for device in ("CPU:0", "GPU:0"):
            with tf.device(device):
                variable = tf.Variable(random((4, 3), dtype))
                op = getattr(raw, f"ResourceScatterNd{name}")
                op(
                    ref=variable.handle,
                    indices=tf.identity([[1, 2], [3, 0]]),
                    updates=tf.identity(random((2,), dtype, 1)),
                )
                results.append(wide(variable.numpy()))
        np.testing.assert_allclose(results[1], results[0], rtol=2 * ULP.get(dtype, 0))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_segments(dtype):
    rng = np.random.default_rng(6)
    for shape, ids_rank, segments in [
        ((9,), 1, 4),
        ((5, 3), 1, 2),
        ((4, 3, 2), 2, 30),
        ((300, 70), 1, 7),
        ((0, 2), 1, 3),
    ]:
        ids = rng.integers(-1 if segments > 3 else 0, segments, shape[:ids_rank])
        for name in ("Sum", "Prod", "Max", "Min"):
            x = random(shape, dtype)
            x = (x / 64 + 1).astype(x.dtype) if name == "Prod" and dtype in FLOATS else x
            op = getattr(raw, f"UnsortedSegment{name}")
            tensors = {"data": x, "segment_ids": ids.astype("int32" if shape[0] % 2 else "int64")}
            if dtype in ("float16", "bfloat16") and name in ("Sum", "Prod") and shape[0] > 100:
                continue  # every addition is rounded: the CPU's order is another
            same(
                op,
                tensors,
                exact=dtype not in FLOATS or name in ("Max", "Min"),
                num_segments=segments,
            )


# Gradients slice shapes, int32, which TensorFlow has no kernels for on any GPU.
@pytest.mark.usefixtures("soft_placement")
def test_gradients_by_indices():
    index = put(np.array([[0], [2], [2]]))
    for function in (
        lambda x: tf.gather_nd(x, index),
        lambda x: tf.gather(x, put(np.array([1, 1, 0]))),
        lambda x: tf.math.unsorted_segment_sum(x, put(np.array([1, 0, 1])), 2),
        lambda x: tf.tensor_scatter_nd_add(x, index, put(np.ones((3, 4), "f"))),
        lambda x: tf.cumsum(x, 1, reverse=True),
        lambda x: tf.concat(tf.split(x, 2, 1), 0),
        lambda x: tf.linalg.band_part(tf.roll(x, 1, 0), 1, 0),
        lambda x: tf.linalg.diag(tf.reverse(x, [1])),
    ):
        with tf.device("GPU:0"):
            theory, numeric = tf.test.compute_gradient(
                lambda v, f=function: f(v), [put(random((3, 4), "float32"))]
            )
        np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-2, atol=1e-2)
        assert np.abs(theory[0]).max() > 0.5


# ---- cumulative -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_cumulative(dtype):
    for shape, axis in [
        ((9,), 0),
        ((3, 5), 0),
        ((3, 5), -1),
        ((2, 3, 4), 1),
        ((0, 3), 1),
        ((1025,), 0),
    ]:
        for exclusive in (False, True):
            for reverse in (False, True):
                options = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                x = random(shape, dtype)
                for name in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
                    y = (
                        (1 + x / 256).astype(x.dtype)
                        if name == "Cumprod" and dtype in FLOATS
                        else x
                    )
                    if dtype not in FLOATS:
                        if name != "CumulativeLogsumexp":
                            same(getattr(raw, name), {"x": y}, **options)
                        continue
                    # The CPU in float64: sums that are in float32 and rounded once here are rounded every time there.
                    with tf.device("CPU:0"):
                        want = getattr(raw, name)(x=tf.constant(wide(y)), **options).numpy()
                    got = on_device(getattr(raw, name)(x=put(y), **options))
                    size = np.abs(np.where(np.isfinite(want), want, 0)).max(initial=1)
                    np.testing.assert_allclose(
                        wide(got), want, rtol=ULP[dtype], atol=size * 2e-5, err_msg=name
                    )
