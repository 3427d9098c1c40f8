"""METAL_OPS_SIMD: every instruction set that this processor has can be asked for, and computes the same.

All that is rounded the same way everywhere (half precision, cells of a hash grid) is compared exactly.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import _library, raw_ops
from tests.fused_cases import numpy_type
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

TARGETS = _library.simd_targets()


@pytest.fixture(params=TARGETS)
def target(request):
    """Runs the test with one instruction set."""
    _library.set_simd_target(request.param)
    try:
        yield request.param
    finally:
        # Not by the name that it had: some kernels have a better one without a name.
        _library.set_simd_target(os.environ.get("METAL_OPS_SIMD", ""))


# ---- the choice -----------------------------------------------------------------------------------------------------

CHOSEN = """
from metal_ops import _library
_library.load()
print(_library.simd_target())
"""

# The library by itself, then the package, twice: a library loaded by an attempt that failed must not be taken for good.
REFUSED = """
import json, sys, tensorflow as tf
said = []
try:
    tf.load_op_library(sys.argv[1])
except tf.errors.InvalidArgumentError as error:
    said.append(error.message)
for attempt in range(2):
    try:
        import metal_ops
    except ImportError as error:
        said.append(str(error))
print(json.dumps(said))
"""

# Errors of long sums: the fused product's, those of TensorFlow's own, which is Eigen's with oneDNN off, and those of a
# plain loop.
LONG_SUMS = """
import json
import numpy as np, tensorflow as tf
from metal_ops import _library, raw_ops

random = np.random.default_rng(0)
draw = {"normal": random.standard_normal, "positive": random.random}
found = []

def sizes(got, want):
    error = np.abs(np.asarray(got, np.float64) - want)
    return [float(np.sqrt(np.mean(error**2))), float(error.max())]

for kind, terms in [(kind, terms) for kind in draw for terms in (100, 1000, 2049, 8192)]:
    a, b = (np.float32(draw[kind](shape)) for shape in ((50, terms), (terms, 70)))
    exact = a.astype(np.float64) @ b
    eigen = sizes(tf.matmul(a, b), exact)
    loop = np.cumsum(a[:8, :, None] * b[:, :8], axis=1, dtype=np.float32)[:, -1]
    found.append([f"{kind}, {terms}, a plain loop", sizes(loop, exact[:8, :8]), eigen])
    for target in _library.simd_targets():
        _library.set_simd_target(target)
        got = raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["LeakyRelu"], leakyrelu_alpha=1.0)
        found.append([f"{kind}, {terms}, {target}", sizes(got, exact), eigen])
    if terms != 8192:
        continue
    # Nine runs of 900 terms where they lie, or gathered to one from the other layout.
    x, w = (np.float32(draw[kind](shape)) for shape in ((1, 10, 9, 900), (3, 3, 900, 40)))
    exact = tf.nn.conv2d(x.astype(np.float64), w.astype(np.float64), 1, "VALID").numpy()
    eigen = sizes(tf.nn.conv2d(x, w, 1, "VALID"), exact)
    for target in _library.simd_targets():
        _library.set_simd_target(target)
        for layout, order in (("NHWC", (0, 1, 2, 3)), ("NCHW", (0, 3, 1, 2))):
            got = raw_ops.metal_fused_conv2d(x.transpose(order), w, [], fused_ops=["LeakyRelu"], leakyrelu_alpha=1.0,
                                             strides=[1] * 4, padding="VALID", data_format=layout)
            back = np.argsort(order)
            found.append([f"{kind}, conv {layout}, {target}", sizes(got.numpy().transpose(back), exact), eigen])
print(json.dumps(found))
"""

REFUSED_NAMES = sorted({"avx9", "AVX2", "sse4,avx2", "avx3", "avx2", "sse4", "neon"} - set(TARGETS))


@pytest.fixture(scope="module")
def processes():
    """All of this file's processes, started before the first test waits for one."""
    running = {name: Process("-c", CHOSEN, METAL_OPS_SIMD=name) for name in ["", *TARGETS]}
    running["avx9"] = Process("-c", REFUSED, str(_library.PATH), METAL_OPS_SIMD="avx9")
    running["long sums"] = Process("-c", LONG_SUMS, TF_ENABLE_ONEDNN_OPTS="0")
    for name in ("emu128", "avx9"):
        running[f"doctor {name}"] = Process("-m", "metal_ops", "doctor", METAL_OPS_SIMD=name)
    yield running
    for process in running.values():
        process.stop()


def test_targets():
    assert TARGETS[-1] == "emu128" and len(TARGETS) == len(set(TARGETS)) >= 2


@pytest.mark.parametrize("name", ["", *TARGETS])
def test_named_target_is_used(name, processes):
    code, out, err = processes[name].finish()
    assert code == 0, err
    assert out.strip() == (name or TARGETS[0])


def test_a_refused_name_ends_every_import(processes):
    said = processes["avx9"].result()
    assert len(said) == 3
    for sentence in said:
        assert "METAL_OPS_SIMD is 'avx9', of which this library has no code" in sentence
        assert f"expected one of {', '.join(TARGETS)}, or nothing" in sentence


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_names_that_are_refused(name):
    """Also those of sets that another processor has."""
    before = _library.simd_target()
    sentence = f"METAL_OPS_SIMD is '{name}', .*; expected one of {', '.join(TARGETS)}, or nothing"
    with pytest.raises(ValueError, match=sentence):
        _library.set_simd_target(name)
    assert _library.simd_target() == before


def test_doctor_shows_the_target(processes):
    code, out, err = processes["doctor emu128"].finish()
    assert code == 0, out + err
    assert ", ".join(TARGETS) in out and "emu128 (METAL_OPS_SIMD=emu128)" in out
    code, out, err = processes["doctor avx9"].finish()
    assert code == 1 and "Traceback" not in err, err
    assert "problem: metal_ops: METAL_OPS_SIMD is 'avx9', of which this library has no code" in out


def test_target_changes_while_the_process_runs(target):
    assert _library.simd_target() == target
    assert metal_ops.zero_out([5, 4]).numpy().tolist() == [5, 0]


# ---- half precision -------------------------------------------------------------------------------------------------

# Parts of a step between two neighbours: a tie, which goes to the even one, and numbers beside it.
PARTS = [0.5, 0.5 - 2.0**-9, 0.5 + 2.0**-8, 0.25, 1.0, -0.5, -0.5 + 2.0**-9, -0.5 - 2.0**-8]


def every_value(dtype: str) -> np.ndarray:
    """All 65536 of them: subnormals, infinities and NaN too."""
    return np.arange(65536, dtype=np.uint16).view(numpy_type(dtype))


def two_terms(high: np.ndarray, low: np.ndarray, unit: float) -> np.ndarray:
    """high + low * unit, which has a place in float32, rounded to the arrays' dtype once: by a product's two terms."""
    a, b = np.stack([high, low], axis=-1), np.array([[1], [unit]], high.dtype)
    got = raw_ops.metal_fused_mat_mul(a, b, [np.zeros(1, high.dtype)], fused_ops=["BiasAdd"])
    return got.numpy()[:, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_read_and_written(target, dtype):
    x = every_value(dtype)
    if dtype == "bfloat16":  # TensorFlow's threads flush subnormals of float32, which it has
        x = x[~((np.abs(x) > 0) & (np.abs(x) < 2.0**-126))]
    got = two_terms(x, np.zeros_like(x), 1)
    np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32))
    one = np.ones((1, 1), x.dtype)
    for n in range(1, 70):  # every remainder of a vector
        row = x[None, 1000 : 1000 + n]
        got = raw_ops.metal_fused_mat_mul(one, row, [], fused_ops=["Relu"])
        np.testing.assert_array_equal(got, row)


@pytest.mark.parametrize("dtype, digits, smallest", [("float16", 10, -14), ("bfloat16", 7, -60)])
def test_halves_are_rounded_to_nearest_even(target, dtype, digits, smallest):
    x = every_value(dtype)
    with np.errstate(invalid="ignore"):
        size = np.abs(x.astype(np.float64))
    x = x[(size < 2.0**60) & ((dtype == "float16") | (size > 2.0**smallest))]
    wide = x.astype(np.float64)
    step = 2.0 ** (np.maximum(np.frexp(wide)[1] - 1, smallest) - digits)
    for part, small in itertools.product(PARTS, (True, False)):
        # Parts of the smallest steps have no place in float16, nor have multiples of the largest.
        unit = 2.0**-12 if small else 1.0
        chosen = (np.abs(wide) < 1) == small
        low = (part * step[chosen] / unit).astype(x.dtype)
        exact = wide[chosen] + low.astype(np.float64) * unit
        np.testing.assert_array_equal(exact, wide[chosen] + part * step[chosen])
        with np.errstate(over="ignore"):  # from 65520 on float16 is infinite
            want = exact.astype(np.float32).astype(x.dtype)
        np.testing.assert_array_equal(two_terms(x[chosen], low, unit), want, err_msg=str(part))


# ---- cells of a hash grid -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", ["linear", "smoothstep"])
@pytest.mark.parametrize("n_dims", [2, 3, 4])
def test_cells_and_weights_are_the_same(target, n_dims, interpolation):
    """To the bit, also on the borders of cells: gradients of a sum of features are sums of weights, point by point."""
    grid = metal_ops.HashGrid(
        n_dims=n_dims,
        n_levels=8,
        n_features_per_level=1,
        log2_hashmap_size=16,
        interpolation=interpolation,
    )
    random = np.random.default_rng(n_dims)
    level = random.integers(0, grid.n_levels, (20000, 1))
    scale = 2.0 ** (level * grid.log2_per_level_scale) * grid.base_resolution - 1
    border = random.integers(1, np.broadcast_to(scale, (20000, n_dims)).astype(int) + 1)
    points = np.concatenate([(border - 0.5) / scale, random.uniform(size=(20000, n_dims))])
    table = tf.zeros(grid.table_shape)

    def weights() -> np.ndarray:
        with tf.GradientTape() as tape:
            tape.watch(table)
            features = metal_ops.hash_encode(points.astype(np.float32), table, grid)
        return tape.gradient(features, table).numpy()

    got = weights()
    _library.set_simd_target(TARGETS[-1])
    want = weights()
    assert np.count_nonzero(want) > 1000
    np.testing.assert_array_equal(got, want)


# ---- long sums ------------------------------------------------------------------------------------------------------


def test_long_sums_are_as_exact_as_those_of_eigen(processes):
    """Root mean square and largest error against float64: at most 1.5 times those of TensorFlow's own product.

    Without AVX-512 TensorFlow's sums are others, whose largest errors are smaller: twice those (1.64 seen).
    """
    most = 1.5 if any(target.startswith("avx3") for target in TARGETS) else 2
    found = processes["long sums"].result()
    ratios = {
        name: max(a / b for a, b in zip(got, eigen, strict=True)) for name, got, eigen in found
    }
    loops = {name: ratio for name, ratio in ratios.items() if "loop" in name}
    assert len(loops) == 8 and len(ratios) == 8 + 12 * len(TARGETS)
    # The bound tells a plain loop from sums in pieces.
    assert all(loops[f"{kind}, 8192, a plain loop"] > most for kind in ("normal", "positive")), (
        loops
    )
    off = {name: ratio for name, ratio in ratios.items() if name not in loops and ratio > most}
    assert not off
