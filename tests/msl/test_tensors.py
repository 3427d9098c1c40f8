"""Tensors of Metal 4: products of every kind against float64, on both ways of running a kernel and under several lane maps."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.metal import CompileError, Options, compile_object, tensors
from metal_ops.metal.check_launch import Checks
from metal_ops.metal.launch import Fault, Library, Tensor

from .shaders import VALIDATION, from_bfloat, library, messages, to_bfloat
from .tensor_sources import HELD, INCLUDES, PRODUCTS, TABLE, TENSORS, Product

pytestmark = pytest.mark.compiler
STD = (4, 0)
SOURCE = HELD + TENSORS
WITH_PRODUCTS = SOURCE + PRODUCTS + "".join(product.instantiation() for product in TABLE)
MAPS = [("m5", False), ("random:5", True), ("m1", False)]  # and whether by fibers
DTYPES = {
    "half": np.float16,
    "float": np.float32,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int32_t": np.int32,
}


def _made(lane_map: str, fibers: bool) -> Library:
    source = SOURCE if lane_map == "m1" else WITH_PRODUCTS
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAL_OPS_FIBERS", str(int(fibers)))
        return library(
            source + "// by fibers\n" * fibers, header=INCLUDES, std=STD, lane_map=lane_map
        )


@pytest.fixture(scope="module", params=MAPS, ids=lambda p: p[0])
def made(request):
    return _made(*request.param)


@pytest.fixture(scope="module", params=MAPS[:2], ids=lambda p: p[0])
def products(request):
    return _made(*request.param)


def _values(
    rng: np.random.Generator, kind: str, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """An operand, and its values in float64."""
    if kind.endswith("int8_t"):
        limits = np.iinfo(DTYPES[kind])
        x = rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[kind])
        return x, x.astype(np.float64)
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "bfloat":
        x = to_bfloat(x)
        return x, from_bfloat(x).astype(np.float64)
    x = x.astype(DTYPES[kind])
    return x, x.astype(np.float64)


def _result(kind: str, d: np.ndarray) -> np.ndarray:
    return (from_bfloat(d) if kind == "bfloat" else d).astype(np.float64)


# A float32 sum of K products, rounded to the result's type.
EPSILON = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24, "int32_t": 0}


@pytest.mark.parametrize("product", TABLE, ids=lambda p: p.name)
def test_product(product: Product, products: Library):
    rng = np.random.default_rng(3)
    for M, N, K in [
        (product.m, product.n, 32),
        (2 * product.m + 1, product.n - 1, 45),
        (1, 2 * product.n + 3, 1),
    ]:
        a, left = _values(rng, product.a, (K, M) if product.ta else (M, K))
        b, right = _values(rng, product.b, (N, K) if product.tb else (K, N))
        left, right = left.T if product.ta else left, right.T if product.tb else right
        d, before = _values(rng, product.d if product.d != "int32_t" else "int8_t", (M, N))
        d = d.astype(np.int32) if product.d == "int32_t" else d
        groups = -(-N // product.n), -(-M // product.m)
        threads = 1 if product.scope == "thread" else 32 * product.simdgroups
        products[product.name].run(
            threads=(groups[0] * threads, groups[1]),
            threadgroup=(threads, 1),
            buffers={0: a, 1: b, 2: d, 3: np.array([M, N, K], np.int32)},
        )
        want = left @ right + before * product.adds
        sums = np.abs(left) @ np.abs(right) + np.abs(before)
        error = np.abs(_result(product.d, d) - want)
        steps = -(-K // product.k) if product.k > 0 else 1  # each of which rounds
        bound = sums * (K + 1) * 2.0**-24 + steps * np.abs(want) * EPSILON[product.d] * 1.01
        assert (error <= (0 if product.d == "int32_t" else bound)).all(), (M, N, K, error.max())


def test_half_is_rounded_once(products: Library):
    """Sums of 2049 and the like, of which half has no odd ones: the last rounding alone shows."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 64, (32, 96)).astype(np.float16)
    b = rng.integers(0, 3, (32, 96)).astype(np.float16)
    d = np.zeros((32, 32), np.float16)
    name = next(p.name for p in TABLE if p.d == "half" and p.tb)
    sizes = np.array([32, 32, 96], np.int32)
    products[name].run(threads=32, threadgroup=32, buffers={0: a, 1: b, 2: d, 3: sizes})
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert want.max() > 2048
    np.testing.assert_array_equal(d, want.astype(np.float16))


@pytest.mark.parametrize(
    "name,m,n,k", [("ff", 16, 32, 16), ("ft", 16, 32, 16), ("tf", 32, 24, 40), ("tt", 9, 7, 5)]
)
def test_operands_with_lanes(name: str, m: int, n: int, k: int, made: Library):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((k, m) if name[0] == "t" else (m, k)).astype(np.float16)
    b = rng.standard_normal((n, k) if name[1] == "t" else (k, n)).astype(np.float16)
    d = rng.standard_normal((m, n)).astype(np.float32)
    left, right = (x.astype(np.float64) for x in (a, b))
    want = np.maximum(
        (left.T if name[0] == "t" else left) @ (right.T if name[1] == "t" else right) + d, 0
    )
    made[f"held_{name}"].run(threads=32, threadgroup=32, buffers={0: a, 1: b, 2: d})
    np.testing.assert_allclose(d, want, atol=1e-5)


def test_reductions(made: Library):
    rng = np.random.default_rng(2)
    q, key, v = (
        rng.standard_normal(shape).astype(np.float32) for shape in [(20, 16), (24, 16), (24, 40)]
    )
    out, sums = np.zeros((20, 40), np.float32), np.zeros(24, np.float32)
    made["attention"].run(threads=32, threadgroup=32, buffers={0: q, 1: key, 2: v, 3: out, 4: sums})
    scores = q.astype(np.float64) @ key.astype(np.float64).T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(sums, weights.sum(0), rtol=1e-5)
    np.testing.assert_allclose(out, weights / weights.sum(1, keepdims=True) @ v, atol=1e-5)


def test_places(made: Library):
    """Every element lies with one lane, and a lane's place of it is its own."""
    owners, capacity = np.zeros((19, 21), np.int32), np.zeros(64, np.int32)
    made["places"].run(threads=64, threadgroup=64, buffers={0: owners, 1: capacity})
    assert (owners % 16 == 1).all() and len(np.unique(owners)) == owners.size
    assert capacity.min() == capacity.max() == (10 if capacity[0] % 8 else 16)


def test_the_machine_has_the_map():
    """A kernel that counts on one map is right under that one alone."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "ab")
    right = {}
    for lane_map, fibers in MAPS:
        d = np.zeros((16, 16), np.float32)
        _made(lane_map, fibers)["one_machine"].run(
            threads=32, threadgroup=32, buffers={0: a, 1: b, 2: d}
        )
        right[lane_map] = bool(np.abs(d - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4)
    assert right == {"m5": True, "random:5": False, "m1": False}


def test_maps():
    for name in ("m1", "m5", "random:0", "random:123456789"):
        found = tensors.LaneMap.named(name)
        places = [place for of_lane in found.places for place in of_lane]
        assert found.run in (1, 2, 4) and sorted(places) == [
            (r, c) for r in range(found.side) for c in range(found.side)
        ]
        for of_lane in found.places:
            assert len({r for r, _ in of_lane}) == found.rows
            assert len({c for _, c in of_lane}) == found.columns
    assert tensors.LaneMap.named("random:1") != tensors.LaneMap.named("random:2")


@pytest.mark.parametrize(
    "name", ["m7", "random", "random:", "random:-1", "random:1234567890", "M5"]
)
def test_unknown_map(name: str, monkeypatch):
    monkeypatch.setenv(tensors.VARIABLE, name)
    with pytest.raises(CompileError, match="set m1, m5 or random:SEED"):
        Options()


def test_handles(made: Library):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = np.arange(40, dtype=np.float16).reshape(5, 8)[:, ::2]
    given = Tensor(np.array([[1, 2], [3, 4]], np.float32))
    address = np.array([given.address, 7], np.uint64)
    out = np.zeros(11, np.float32)
    made["handles"].run(
        threads=1, threadgroup=1, buffers={0: Tensor(x), 1: Tensor(y), 2: out, 3: address}
    )
    assert x[0, 1, 2] == 5 and x[1, 0, 1] == 14
    assert out.tolist() == [432, 18, 331, 221, 21, 18, 28, 847, 3110, 371, 1]


def test_four_bits(made: Library):
    """Two in a byte, the lower half first, from an odd place on."""
    rng = np.random.default_rng(5)
    values = rng.integers(-8, 8, (19, 21))

    def packed(rows: np.ndarray) -> np.ndarray:
        flat = np.append(rows.reshape(-1), [0] * (rows.size % 2)).astype(np.uint8) & 15
        return flat[::2] | flat[1::2] << 4

    a = rng.standard_normal((16, 19)).astype(np.float16)
    b = rng.integers(-128, 128, (16, 19)).astype(np.int8)
    x, y = np.zeros((16, 20), np.float32), np.zeros((16, 20), np.int32)
    by_rows = np.zeros((21, 20), int)
    by_rows[:, :19] = values.T
    buffers = {0: a, 1: packed(values), 2: packed(by_rows), 3: x, 4: y, 5: b}
    made["four_bits"].run(threads=32, threadgroup=32, buffers=buffers)
    right = values[1:, 1:]
    np.testing.assert_allclose(x, a[:, 1:].astype(np.float64) @ right, atol=1e-4)
    np.testing.assert_array_equal(y, b[:, 1:].astype(int) @ right)


def test_tensors_of_the_host(made: Library):
    rng = np.random.default_rng(4)
    for M, N, K in [(32, 16, 8), (45, 37, 19)]:
        a, b = (
            rng.standard_normal((M, K + 3)).astype(np.float16),
            rng.standard_normal((K, N)).astype(np.float16),
        )
        c = rng.standard_normal((M, N)).astype(np.float32)
        want = a[:, :K].astype(np.float64) @ b.astype(np.float64) + 2 * c.astype(np.float64)
        made["bias"].run(
            threads=(-(-N // 16) * 64, -(-M // 32)),
            threadgroup=(64, 1),
            buffers={0: Tensor(a[:, :K]), 1: Tensor(b), 2: Tensor(c)},
            threadgroup_memory={0: 16 * 2 * K},
        )
        np.testing.assert_allclose(c, want, atol=1e-4)


RUN = """kernel void f(device half* x [[buffer(0)]], device {to}* y [[buffer(1)]]) {{
  auto a = tensor(x, dextents<int, {rank}>({sizes})), b = a; auto c = tensor(y, dextents<int, 2>(4, 4));
  {code} }}"""


def _run(code: str, to: str = "float", rank: int = 2) -> str:
    return RUN.format(code=code, to=to, rank=rank, sizes=", ".join("4" * rank))


REFUSED = {
    "matmul2d: Metal 4 has no product": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_thread> op; op.run(a, b, c);", "int"),
    "k is positive": _run("matmul2d<matmul2d_descriptor(4, 4, 0), execution_thread> op; op.run(a, b, c);"),
    "m and n are the size of a tile": _run("matmul2d<matmul2d_descriptor(4, dynamic_length_v<int>), execution_thread> op; op.run(a, b, c);"),
    "the scope is execution_thread": _run("matmul2d<matmul2d_descriptor(4, 4), int> op; op.run(a, b, c);"),
    "arguments behind the scope": _run("matmul2d<matmul2d_descriptor(4, 4), execution_thread, int> op; op.run(a, b, c);"),
    "the operands' rank is 2": _run("matmul2d<matmul2d_descriptor(4, 4), execution_thread> op; op.run(a, b, c);", rank=3),
    "execution_simdgroups: the size is": _run("execution_simdgroups<0> s; y[0] = s.size();"),
    "need the scope execution_simdgroup": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroups<2>> op; auto l = op.get_left_input_cooperative_tensor<half, half, float>(); l[0] = 0;"),
    "need a k that is a number": _run("matmul2d<matmul2d_descriptor(4, 4), execution_simdgroup> op; auto l = op.get_left_input_cooperative_tensor<half, half, float>(); l[0] = 0;"),
    "of a product of another size": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroup> o; matmul2d<matmul2d_descriptor(4, 8, 4), execution_simdgroup> p; auto d = p.get_destination_cooperative_tensor<decltype(a), decltype(b), float>(); o.run(a, b, d);"),
    "reductions of a matrix over several": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroups<2>> o; auto r = o.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(b), float>(); r[0] = 0;"),
    "elements are of another type": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_thread> o; auto d = o.get_destination_cooperative_tensor<decltype(a), decltype(b), float>(); d.store(a);"),
    "tensor: the third argument": "kernel void f(device float* y [[buffer(0)]]) { tensor<device half, dextents<int, 2>, tensor_offset> t; y[0] = sizeof(t); }",
    "use tensor_inline": "kernel void f(device float* y [[buffer(0)]]) { y[0] = sizeof(tensor<threadgroup half, dextents<int, 2>>); }",
    "packed formats of numbers are": _run("tensor<device metal_fp8_e4m3_format, dextents<int, 2>, tensor_inline> u; y[0] = sizeof(u);"),
    "an element of four bits has no address": _run("tensor<device int4b_format, dextents<int, 2>, tensor_inline> u((device uchar*)x, dextents<int, 2>(2, 2)); u[1, 1];"),
    "the host has no tensors of four bits": _run("y[0] = sizeof(tensor<device int4b_format, dextents<int, 2>>);"),
    "cooperative tensor of four bits": _run("matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroup> op; auto l = op.get_right_input_cooperative_tensor<half, int4b_format, float>();"),
    "packed formats of numbers": "packed_numeric_type<int, 4> x;",
    "convolutions of tensors are": "typedef mpp::tensor_ops::convolution2d<1> U;",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_refused(words: str):
    assert words in messages(REFUSED[words], header=INCLUDES, std=STD)


@pytest.mark.parametrize("header", [INCLUDES, "#include <metal_stdlib>\nusing namespace metal;\n"])
def test_needs_metal_4(header: str):
    code = _run("matmul2d<matmul2d_descriptor(4, 4), execution_thread> op; op.run(a, b, c);")
    assert "tensors need Metal 4.0 (-std=metal4.0)" in messages(code, header=header, std=(3, 2))


def test_not_for_gpus():
    with pytest.raises(CompileError, match="tensors of Metal 4 run on processors here"):
        code = INCLUDES + _run(
            "matmul2d<matmul2d_descriptor(4, 4), execution_thread> op; op.run(a, b, c);"
        )
        compile_object("t.metal", Options(std=STD, gpu=("sm_80",), validation=VALIDATION), code)


def test_outside_of_a_buffer():
    """Where accesses are checked, those of a product are."""
    code = _run("matmul2d<matmul2d_descriptor(4, 4), execution_simdgroup> op; op.run(a, b, c);")
    made = library(code, checked=True, header=INCLUDES, std=STD)
    whole, short = np.ones(16, np.float16), np.ones(8, np.float16)
    out = np.zeros(16, np.float32)
    made["f"].run(threads=32, threadgroup=32, buffers={0: whole, 1: out})
    assert out.tolist() == [4] * 16
    with pytest.raises(Fault, match="invalid read of 2 bytes .* of device index 0"):
        made["f"].run(threads=32, threadgroup=32, buffers={0: short, 1: out})
    with pytest.raises(Fault, match="invalid write of . bytes .* of device index 1"):
        made["f"].run(threads=32, threadgroup=32, buffers={0: whole, 1: out[:8].copy()})


def test_another_number_of_simdgroups():
    """Undefined on a Mac; an error where accesses are checked."""
    code = _run("matmul2d<matmul2d_descriptor(4, 4), execution_simdgroups<2>> op; op.run(a, b, c);")
    made = library(code, checked=True, header=INCLUDES, std=STD)
    whole, out = np.ones(16, np.float16), np.zeros(16, np.float32)
    made["f"].run(threads=64, threadgroup=64, buffers={0: whole, 1: out})
    assert out.tolist() == [4] * 16
    with pytest.raises(Fault) as fault:
        made["f"].run(threads=96, threadgroup=96, buffers={0: whole, 1: out})
    assert b"another number of simdgroups than the scope" in fault.value.details["message"]


STAGED = """kernel void f(device half* x [[buffer(0)]], device float* y [[buffer(1)]], threadgroup half* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {{
  for (uint k = i; k < 256; k += 64) s[k] = x[k];
  {barrier}
  auto a = tensor(s, dextents<int, 2>(16, 16)); auto c = tensor(y, dextents<int, 2>(16, 16));
  matmul2d<matmul2d_descriptor(16, 16), execution_simdgroups<2>> op; op.run(a, a, c); }}"""


@pytest.mark.parametrize("barrier", ["threadgroup_barrier(mem_flags::mem_threadgroup);", ""])
def test_race(barrier: str):
    """A product reads threadgroup memory that other simdgroups wrote."""
    made = library(
        STAGED.format(barrier=barrier), checked=True, header=INCLUDES, std=STD, checks=True
    )
    checks = Checks(("race",))
    x, y = np.ones(256, np.float16), np.zeros(256, np.float32)
    made["f"].run(64, 64, {0: x, 1: y}, threadgroup_memory={0: 512}, checks=checks)
    assert bool(checks.reports) == (not barrier)


def test_names_of_a_users_own():
    """A source of Metal 4 without tensors is compiled as one of 3.2."""
    assert not tensors.used("kernel void tensor(device float* x) {}", STD)
    assert (
        messages(
            "struct tensor { int extent; }; kernel void f(device tensor* x [[buffer(0)]]) { x->extent = 1; }",
            std=STD,
        )
        == ""
    )
