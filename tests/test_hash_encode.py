"""The six HashEncode ops against the float64 oracle, on every device, over the case table."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import cases
from tests.oracles import hash_encode as oracle

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# op: (its inputs before `inputs, embeddings, hashmap_offsets`, the oracle, whether the result is of the table's dtype)
OPS = {
    "HashEncode": ((), oracle.encode, True),
    "HashEncodeGrad": (("g",), oracle.grad, True),
    "HashEncodePointGrad": (("g",), oracle.point_grad, False),
    "HashEncodeJvp": (("v",), oracle.jvp, True),
    "HashEncodeJvpGrad": (("v", "g"), oracle.jvp_grad, True),
    "HashEncodeJvpPointGrad": (("v", "g"), oracle.jvp_point_grad, False),
}
RAW_NAMES = {
    "HashEncode": "hash_encode",
    "HashEncodeGrad": "hash_encode_grad",
    "HashEncodePointGrad": "hash_encode_point_grad",
    "HashEncodeJvp": "hash_encode_jvp",
    "HashEncodeJvpGrad": "hash_encode_jvp_grad",
    "HashEncodeJvpPointGrad": "hash_encode_jvp_point_grad",
}


def run(op: str, arrays: dict, grid: metal_ops.HashGrid) -> tf.Tensor:
    # Tensors, as generated wrappers turn NumPy's float16 into the attribute's default, float32.
    inputs = [tf.convert_to_tensor(arrays[name]) for name in (*OPS[op][0], "points", "table")]
    return getattr(raw_ops, RAW_NAMES[op])(*inputs, grid.offsets, **grid.op_attributes)


def check(op: str, result, arrays: dict, grid: oracle.Grid, dtype: str) -> None:
    before = [arrays[name] for name in OPS[op][0]]
    expected, bound = OPS[op][1](*before, arrays["points"], arrays["table"], grid)
    cases.assert_close(result, expected, bound, dtype if OPS[op][2] else "float32", op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("case", cases.HASH_ENCODE_CASES, ids=str)
def test_matches_oracle(device, case, op):
    result = run(op, case.arrays, case.grid)
    assert result.dtype == (case.dtype if OPS[op][2] else "float32")
    check(op, result, case.arrays, case.oracle_grid, case.dtype)


def test_cases_cover_every_pair():
    import itertools

    rows = [vars(case) for case in cases.HASH_ENCODE_CASES]
    for a, b in itertools.combinations(cases.AXES, 2):
        wanted = set(itertools.product(cases.AXES[a], cases.AXES[b]))
        wanted -= {(v, w) for x, v, y, w in cases.IMPOSSIBLE if (x, y) == (a, b)}
        assert wanted <= {(row[a], row[b]) for row in rows}, (a, b)


BASE = cases.Case(37, 3, 2, 3, "float32", "linear", "hash")


def with_points(points) -> dict:
    points = np.asarray(points, np.float32)
    n, width = len(points), BASE.n_levels * BASE.n_features
    return {
        **BASE.arrays,
        "points": points,
        "g": np.linspace(0.5, 1.5, n * width, dtype=np.float32).reshape(n, width),
        "v": np.linspace(-1, 2, n * 3, dtype=np.float32).reshape(n, 3),
    }


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "scale",
    [2, 1e3, 1e6, 3e9, 1e30],
    ids=["near", "far", "uint24", "past int32", "past everything"],
)
def test_points_outside_the_unit_cube(device, op, scale):
    points = np.random.default_rng(1).uniform(-scale, scale, (37, 3)).astype(np.float32)
    arrays = with_points(points)
    check(op, run(op, arrays, BASE.grid), arrays, BASE.oracle_grid, "float32")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", OPS)
def test_points_that_are_no_numbers_harm_only_themselves(device, op, bad):
    points = np.random.default_rng(2).uniform(size=(37, 3)).astype(np.float32)
    good = with_points(points)
    expected = run(op, good, BASE.grid).numpy()
    points = points.copy()
    points[5, 1] = points[36, 0] = bad
    result = run(op, {**good, "points": points}, BASE.grid).numpy()
    if op.endswith("Grad") and not op.endswith("PointGrad"):
        # The table's rows that such a point touches are spoiled, the others are not.
        spoiled = np.isnan(result).any(axis=1)
        assert 0 < np.count_nonzero(spoiled) <= 2 * 8 * BASE.n_levels
        untouched = ~spoiled
        kept = [row for row in range(37) if row not in (5, 36)]
        without = {
            name: good[name][kept] if name in ("points", "g", "v") else good[name] for name in good
        }
        check_rows = run(op, without, BASE.grid).numpy()
        np.testing.assert_allclose(result[untouched], check_rows[untouched], rtol=1e-5, atol=1e-6)
    else:
        others = np.ones(37, bool)
        others[[5, 36]] = False
        np.testing.assert_array_equal(result[others], expected[others])
        assert np.isnan(result[~others]).any(axis=1).all()


def unaligned(arrays: dict, offset: int) -> dict:
    """The same values in tensors that begin `offset` elements behind a multiple of 64 bytes."""
    tensors = {}
    for name, values in arrays.items():
        padded = np.zeros(values.size + 64, values.dtype)
        start = offset + (-padded.ctypes.data // values.itemsize) % (64 // values.itemsize)
        view = padded[start : start + values.size].reshape(values.shape)
        view[:] = values
        assert view.ctypes.data % 64 == offset * values.itemsize
        tensors[name] = tf.experimental.dlpack.from_dlpack(view.__dlpack__())
    return tensors


@pytest.mark.parametrize("op", OPS)
def test_unaligned_tensors(op):
    """Tensors that begin anywhere: TensorFlow aligns its own, but other frameworks' memory arrives as it is."""
    arrays = dict(BASE.arrays)
    expected = run(op, arrays, BASE.grid)
    # Shaders add to a table in any order, but under op determinism: on_device/test_determinism.py.
    any_order = "GPU" in expected.device and op in ("HashEncodeGrad", "HashEncodeJvpGrad")
    for offset in (1, 3):
        result = run(op, unaligned(arrays, offset), BASE.grid)
        check(op, result, arrays, BASE.oracle_grid, "float32")
        if not any_order:
            np.testing.assert_array_equal(result.numpy(), expected.numpy())


def test_slices_of_bigger_tensors(device):
    grid, table = BASE.grid, tf.constant(BASE.arrays["table"])
    points = tf.constant(np.random.default_rng(3).uniform(size=(101, 3)).astype(np.float32))
    whole = metal_ops.hash_encode(points, table, grid).numpy()
    for begin, end in ((1, 101), (7, 8), (33, 66), (100, 100)):
        part = metal_ops.hash_encode(points[begin:end], table, grid)
        np.testing.assert_array_equal(part.numpy(), whole[begin:end])


@pytest.mark.parametrize("shape", [(3,), (1, 3), (4, 5, 3), (2, 0, 3), (2, 1, 4, 3)], ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["static", "unknown shape"])
def test_leading_dimensions(shape, known):
    grid, table = BASE.grid, tf.constant(BASE.arrays["table"])
    points = np.random.default_rng(4).uniform(size=shape).astype(np.float32)
    flat = metal_ops.hash_encode(points.reshape(-1, 3), table, grid).numpy()

    def encode(points, table):
        return metal_ops.hash_encode(points, table, grid)

    if not known:
        encode = tf.function(encode, input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    result = encode(tf.constant(points), table)
    assert result.shape == (*shape[:-1], grid.output_dim)
    np.testing.assert_array_equal(result.numpy().reshape(flat.shape), flat)


def test_static_shape_is_known_as_far_as_it_can_be():
    grid, table = BASE.grid, tf.constant(BASE.arrays["table"])
    function = tf.function(lambda points: metal_ops.hash_encode(points, table, grid))
    signature = tf.TensorSpec([None, 5, 3])
    assert function.get_concrete_function(signature).output_shapes.as_list() == [None, 5, 6]


def test_takes_what_users_have():
    """Lists, NumPy's float64, tf.Variable: all mean the same."""
    grid = BASE.grid
    points = np.random.default_rng(5).uniform(size=(4, 3)).astype(np.float32)
    table = BASE.arrays["table"]
    expected = metal_ops.hash_encode(tf.constant(points), tf.constant(table), grid).numpy()
    for given in (points, points.astype(np.float64), points.tolist(), tf.Variable(points)):
        for table_given in (table, tf.Variable(table)):
            np.testing.assert_array_equal(metal_ops.hash_encode(given, table_given, grid), expected)


def test_many_threads_and_sessions_at_once():
    """Eager calls, a tf.function and sessions on one graph, from 8 threads: each gets the same as alone."""
    grid, table = BASE.grid, BASE.arrays["table"]
    inputs = [
        np.random.default_rng(i).uniform(size=(500 + i, 3)).astype(np.float32) for i in range(8)
    ]
    expected = [metal_ops.hash_encode(points, table, grid).numpy() for points in inputs]
    function = tf.function(
        lambda points: metal_ops.hash_encode(points, tf.constant(table), grid),
        input_signature=[tf.TensorSpec([None, 3])],
    )
    graph = tf.Graph()
    with graph.as_default():
        fed = tf.compat.v1.placeholder(tf.float32, [None, 3])
        fetched = metal_ops.hash_encode(fed, tf.constant(table), grid)
    session = tf.compat.v1.Session(graph=graph)
    wrong: list[str] = []

    def work(i: int) -> None:
        ways = {
            "eager": lambda: metal_ops.hash_encode(inputs[i], table, grid).numpy(),
            "function": lambda: function(tf.constant(inputs[i])).numpy(),
            "session": lambda: session.run(fetched, {fed: inputs[i]}),
        }
        for _ in range(20):
            for way, call in ways.items():
                try:
                    if not np.array_equal(call(), expected[i]):
                        wrong.append(f"thread {i}, {way}: another result")
                except Exception as error:
                    wrong.append(f"thread {i}, {way}: {error}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def test_big_random_table_against_tiny_cuda_nn_numbers():
    """The default 16..524288 grid: resolutions, sizes and offsets that tiny-cuda-nn's defaults give."""
    grid = metal_ops.HashGrid()
    assert grid.resolutions[:4].tolist() == [16, 32, 64, 128]
    assert grid.level_sizes[:5].tolist() == [4096, 32768, 262144, 524288, 524288]
    arrays = {
        "points": np.random.default_rng(6).uniform(size=(500, 3)).astype(np.float32),
        "table": np.random.default_rng(7).uniform(-1, 1, grid.table_shape).astype(np.float32),
    }
    described = oracle.Grid(grid.offsets, 1.0, 16)
    check("HashEncode", run("HashEncode", arrays, grid), arrays, described, "float32")
