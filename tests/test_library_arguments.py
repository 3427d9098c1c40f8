"""metal_library: the values of Python and NumPy that serve each Metal type, against the kernels' reads of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.metal import Options, compile_object, link
from tests.signatures import DECLARED, Signatures

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def compiled(source: str, path: Any) -> metal_ops.MetalLibrary:
    """All kernels at once: a source's are made one by one, when they are called."""
    data, _ = compile_object("arguments.metal", Options(validation=False), HEAD + source)
    path.write_bytes(link([data]))
    return metal_ops.metal_library(path)


def check(count: int, seed: int, path: Any) -> None:
    """Runs kernels that write all numbers of their arguments."""
    made = Signatures(seed)
    kernels, calls = [], []
    for number in range(count):
        parameters, body, values, expected = [], [], [], []
        for i in range(made.draw.randint(1, 3)):
            of = made.type()
            elements = made.draw.choice([1, 1, 2])
            space = made.draw.choice(["constant", "device const"])
            parameters.append(f"{space} {of.name}{'&' if elements == 1 else '*'} a{i}")
            value, flat = made.value(of, elements)
            if value is None:
                raise AssertionError(of)
            values.append(value)
            expected += flat
            for k in range(elements):
                body += of.numbers(f"a{i}" if elements == 1 else f"a{i}[{k}]")
        lines = "".join(f"  out[{k}] = {expression};\n" for k, expression in enumerate(body))
        kernels.append(
            f"kernel void k{number}({', '.join(parameters)}, device float* out) {{\n{lines}}}\n"
        )
        calls.append((parameters, values, expected))
    lib = compiled("".join([DECLARED, *made.structs, *kernels]), path)
    for number, (parameters, values, expected) in enumerate(calls):
        with tf.device("CPU:0"):
            found = lib[f"k{number}"](*values, outputs={"out": [len(expected)]}, grid=1)
        np.testing.assert_array_equal(found, expected, f"{parameters}: {values!r}")


def test_generated_signatures(tmp_path):
    check(60, 1, tmp_path / "signatures.metallib")


@pytest.mark.slow("a thousand kernels are compiled")
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_thousand_generated_signatures(seed, tmp_path):
    check(250, seed, tmp_path / "signatures.metallib")


SOURCE = """
enum class Mode : ushort { off, on, loud };
struct Inner { half2 h; Mode mode; };
struct S { float a; int3 b; uchar c; Inner inner[2]; };
struct Base { float first; };
struct Derived : Base { float second; };
struct Odd { uint low : 4; uint high : 4; };
union U { float f; int i; };
struct Holds { U u; float f; };
struct Pair { float a, b; };
struct Apart { float a; float3 b; };
kernel void s(constant S& s, device float* out) {
  out[0] = s.a; out[1] = s.b.z; out[2] = s.c; out[3] = s.inner[1].h.y; out[4] = float(s.inner[1].mode);
}
kernel void derived(constant Derived& d, device float* out) { out[0] = d.first; out[1] = d.second; }
kernel void odd(constant Odd& d, device float* out) { out[0] = d.low; }
kernel void holds(constant Holds& d, device float* out) { out[0] = d.f; }
kernel void pairs(device const Pair* d, device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = d[i].a - d[i].b;
}
kernel void apart(device const Apart* d, device float* out) { out[0] = d[0].b.x; }
kernel void mode(constant Mode& m, device float* out) { out[0] = float(m); }
kernel void f3(device const float3* x, device float3* y, uint i [[thread_position_in_grid]]) { y[i] = x[i].zyx; }
kernel void p3(device const packed_float3* x, device packed_float3* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i].zyx;
}
kernel void f4(device const float4* x, device float4* y, uint i [[thread_position_in_grid]]) { y[i] = x[i].wzyx; }
kernel void more(device float3* x, uint i [[thread_position_in_grid]]) { x[i] += float3(1, 2, 3); }
kernel void m(constant float3x3& m, constant float3& v, device float3* out) { out[0] = m * v; }
kernel void turned(device const float2x3* x, device float3x2* y, uint i [[thread_position_in_grid]]) {
  y[i] = transpose(x[i]);
}
kernel void u3(constant uint3& n, device float* out, uint i [[thread_position_in_grid]]) { out[i] = n[i]; }
kernel void b2(constant bool2& n, device float* out) { out[0] = n.x + 2 * n.y; }
kernel void number(constant uchar& n, device float* out) { out[0] = n; }
kernel void array(constant float (&w)[4], device float* out) { out[0] = w[3]; }
kernel void scalar(constant float& x, device float* out) { out[0] = x; }
kernel void halves(constant half3& x, device float* out) { out[0] = x.x; out[1] = x.y; out[2] = x.z; }
kernel void packed(constant packed_half4& x, device float* out) { out[0] = x[0]; }
kernel void threes(constant packed_float3* x, device float* out) { out[0] = x[0][2]; }
kernel void read(device const float& x, device float* out) { out[0] = x; }
kernel void floats(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
kernel void ints(device const int* x, device float* out) { out[0] = x[0]; }
kernel void ulongs(device const ulong* x, device ulong* out) { out[0] = x[0]; }
kernel void sum(constant float* x, constant uint& n, device float* out) {
  out[0] = 0;
  for (uint i = 0; i < n; ++i) out[0] += x[i];
}
kernel void count(device atomic_uint& n, device atomic<int>* m) {
  atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&m[1], 1, memory_order_relaxed);
}
kernel void nameless(constant float&, device float* out) { out[0] = 1; }
"""
OUT = {"outputs": {"out": [5]}, "grid": 1}
VALUE = {
    "a": 1,
    "b": [2, 3, 4],
    "c": 5,
    "inner": [{"h": [6, 7], "mode": 1}, {"h": (8, 9.5), "mode": 2}],
}


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("arguments") / "arguments.metallib")


@pytest.fixture(autouse=True)
def on_the_processor():
    with tf.device("CPU:0"):
        yield


def test_structs(lib):
    assert repr(lib.s) == "<Metal kernel s(s (64 bytes), out (float, written))>"
    np.testing.assert_array_equal(lib.s(VALUE, **OUT)[:5], [1, 4, 5, 9.5, 2])
    inner = np.dtype([("mode", "i8"), ("h", "f8", 2)])  # NumPy's own order and types
    record = np.zeros((), [("inner", inner, 2), ("c", "u1"), ("b", "i4", 3), ("a", "i2")])
    record["a"], record["b"], record["c"] = 1, [2, 3, 4], 5
    record["inner"][1] = 2, [8, 9.5]
    np.testing.assert_array_equal(lib.s(record, **OUT)[:5], [1, 4, 5, 9.5, 2])
    np.testing.assert_array_equal(lib.derived({"first": 1, "second": 2}, **OUT)[:2], [1, 2])
    np.testing.assert_array_equal(lib.mode(2, **OUT)[:1], [2])
    np.testing.assert_array_equal(lib.odd(b"\x27\0\0\0", **OUT)[:1], [7])
    np.testing.assert_array_equal(lib.array(range(4), **OUT)[:1], [3])


@pytest.mark.parametrize("n", [3, 1000])
def test_arrays_of_structs(lib, n):
    values = np.zeros(n, [("b", "f4"), ("a", "f4")])
    values["a"], values["b"] = np.arange(n) + 1, 1
    memory = np.stack([values["a"], values["b"]], 1)
    for given in (
        values,
        [{"a": i + 1, "b": 1} for i in range(n)],
        memory.tobytes(),
        [row.tobytes() for row in memory],
        tf.constant(memory),
    ):
        np.testing.assert_array_equal(lib.pairs(given, outputs={"out": [n]}), np.arange(n))


@pytest.mark.parametrize("n", [2, 1000])
@pytest.mark.parametrize("kernel, width", [("f3", 3), ("p3", 3), ("f4", 4)])
def test_vectors_in_and_out(lib, kernel, width, n):
    """Without a grid: a thread each vector. A vector of 3 is 3 numbers, whatever room it takes."""
    x = np.arange(width * n, dtype=np.float32).reshape(n, width)
    for given in (
        x,
        x.tolist(),
        tf.constant(x),
        tf.Variable(x),
        x.reshape(-1),
    ):
        y = lib[kernel](given, outputs={"y": [n, width]})
        assert (y.shape, y.dtype) == ([n, width], tf.float32)
        np.testing.assert_array_equal(y, x[:, ::-1])
    y = lib[kernel](x, outputs={"y": [n * width]})
    np.testing.assert_array_equal(y, x[:, ::-1].reshape(-1))


def test_vectors_as_they_lie_in_memory(lib):
    x = tf.constant(np.arange(8, dtype=np.float32).reshape(2, 4))
    y = lib.f3(x, outputs={"y": [2, 4]})
    np.testing.assert_array_equal(y[:, :3], [[2, 1, 0], [6, 5, 4]])


def test_vectors_that_are_written_to(lib):
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    for given in (x, x.tolist(), tf.constant(x)):
        np.testing.assert_array_equal(lib.more(given), x + [1, 2, 3])
    np.testing.assert_array_equal(lib.more(x.reshape(-1)), (x + [1, 2, 3]).reshape(-1))


def test_matrices(lib):
    """Columns first, as in the shader: value[c][r] is m[c][r]."""
    a = np.random.default_rng(0).integers(-9, 9, (3, 3)).astype(np.float32)
    v = np.float32([1, -2, 3])
    np.testing.assert_array_equal(lib.m(a.T, v, outputs={"out": [3]}), a @ v)
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for given in (x, tf.constant(x), x.tolist()):
        np.testing.assert_array_equal(
            lib.turned(given, outputs={"y": [2, 3, 2]}), x.transpose(0, 2, 1)
        )


def test_sizes_that_a_graph_does_not_know(lib):
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None, 3])])
    def function(x, y):
        return lib.f4(x, outputs={"y": tf.shape(x)}), lib.f3(y, outputs={"y": [tf.shape(y)[0], 3]})

    x, y = np.arange(8, dtype=np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)
    four, three = function(x, y)
    np.testing.assert_array_equal(four, [3, 2, 1, 0, 7, 6, 5, 4])
    np.testing.assert_array_equal(three, y[:, ::-1])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"\[f4\] x: expected a multiple of 4 numbers"
    ):
        function(x[:7], y)


def test_numbers_are_rounded_and_stay_finite(lib):
    """Rounding is no error; a finite number that becomes infinite is one: in REFUSED."""
    inf = float("inf")
    for value, expected in (
        (2**24 + 1, 2.0**24),
        (2**70, 2.0**70),
        (np.float64(0.1), np.float32(0.1)),
        (1e-60, 0),
        (3.4028235e38, 3.4028235e38),
        (inf, inf),
        (-np.inf, -inf),
        (float("nan"), np.nan),
        (np.longdouble(2.5), 2.5),
        (np.array(3, object), 3),
        ([7.5], 7.5),
    ):
        np.testing.assert_array_equal(lib.scalar(value, **OUT)[0], np.float32(expected))
    np.testing.assert_array_equal(lib.halves([65519.9, -inf, 1], **OUT)[:3], [65504, -inf, 1])
    np.testing.assert_array_equal(lib.floats([1, 2**70, 3], outputs={"out": [3]})[1], 2.0**70)
    most = 2**64 - 1
    assert int(lib.ulongs([most], outputs={"out": [1]})[0].numpy()) == most


def test_arrays_that_lie_apart(lib):
    apart = np.arange(12.0).reshape(3, 4)
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    for value in (
        apart[:, 1],
        apart[::-1, 0],
        apart.T[1, :3],
        frozen,
        frozen.astype(">f4"),
        np.asfortranarray(frozen),
    ):
        np.testing.assert_array_equal(lib.halves(value, **OUT)[:3], value)


def test_bytes_of_more_than_a_call_copies(lib):
    x = np.arange(6000, dtype=np.float32)
    for data in (x.tobytes(), bytearray(x.tobytes()), np.void(x.tobytes())):
        np.testing.assert_array_equal(lib.floats(data, outputs={"out": [6000]}), x)
        np.testing.assert_array_equal(
            lib.f4(data, outputs={"y": [1500, 4]}), x.reshape(-1, 4)[:, ::-1]
        )
        y = lib.f3(data, outputs={"y": [1500, 3]})
        np.testing.assert_array_equal(y, x.reshape(-1, 4)[:, 2::-1])


def test_none_for_a_pointer(lib):
    """A pointer may lead to nothing; a reference may not: in REFUSED."""
    for none in ([], np.zeros(0, np.float32), b"", tf.zeros([0])):
        np.testing.assert_array_equal(lib.sum(none, 0, outputs={"out": [1]}, grid=1), [0])


def test_atomics_have_the_dtype_of_their_numbers(lib):
    assert repr(lib.count) == "<Metal kernel count(n (uint, written), m (int, written))>"
    n, m = lib.count(3, [0, 0], grid=5)
    assert (n.dtype, m.dtype, n.numpy(), m.numpy().tolist()) == (tf.uint32, tf.int32, 8, [0, -5])
    with pytest.raises(TypeError, match=r"n: expected uint32 \(uint\), got int32"):
        lib.count(tf.zeros([], tf.int32), [0, 0], grid=1)


def test_a_parameter_without_a_name(lib):
    with pytest.raises(
        TypeError, match=r"\[nameless\] argument 0 of its 2 has no name in the kernel"
    ):
        lib.nameless(1.0, **OUT)


def test_one_element_in_a_graph(lib):
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def function(x):
        return lib.read(x, outputs={"out": [1]})

    np.testing.assert_array_equal(function([2.5]), [2.5])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"\[read\] x: expected an element, as the kernel takes",
    ):
        function(tf.zeros([0]))


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in VALUE.items() if key != name}


REFUSED = {
    "two of three": ("u3", [7, 8], ValueError, r"\[u3\] n: expected 3 numbers \(uint3\), got 2 numbers\.$"),
    "two of several threes": ("threes", [7, 8], ValueError, r"3 numbers \(packed_float3\), or a multiple of them, got"),
    "one number": ("packed", [7], ValueError, r"x: expected 4 numbers \(packed_half4\), got 1 number\.$"),
    "no vector": ("u3", [], ValueError, r"\[u3\] n: expected 3 numbers \(uint3\), got 0 numbers"),
    "two vectors": ("u3", [[7, 8, 9], [1, 2, 3]], ValueError, r"3 numbers \(uint3\), got numbers of shape \[2, 3\]"),
    "no number": ("scalar", [], ValueError, r"\[scalar\] x: expected a number \(float\), got 0 numbers"),
    "two numbers": ("scalar", [1.0, 2.0], ValueError, r"expected a number \(float\), got 2 numbers"),
    "an array of none": ("scalar", np.zeros(0, "f4"), ValueError, "x: expected an element, as the kernel takes a"),
    "a tensor of none": ("read", tf.zeros([0]), ValueError, "x: expected an element, as the kernel takes a reference"),
    "no bytes": ("scalar", b"", ValueError, "expected 4 bytes, got 0"),
    "bytes for a byte": ("number", b"12", ValueError, r"n: expected 1 byte, got 2\.$"),
    "bytes of two": ("scalar", b"12345678", ValueError, r"expected 4 bytes, got 8\.$"),
    "bytes of half of one": ("floats", b"123456", ValueError, "expected 4 bytes, got 6. Several values are a multiple"),
    "no struct": ("s", [], ValueError, r"\[s\] s: expected a struct of a, b, c, inner, got a list of 0"),
    "two structs": ("s", [VALUE, VALUE], ValueError, "got a list of 2"),
    "beyond float": ("scalar", 1e39, TypeError, r"a number \(float\), got 1e\+39, which is infinite as float32"),
    "NumPy's beyond float": ("scalar", np.float64(-1e39), TypeError, "got -1e[+]39, which is infinite as float32"),
    "an integer beyond float": ("scalar", 10**400, TypeError, "got one of 1329 bits, which is infinite as float32"),
    "beyond half": ("halves", [1, 65520, 2], TypeError, r"3 numbers \(half3\), got 65520, which is infinite as fl"),
    "in a list": ("floats", [1, 1e39], TypeError, r"x: expected a number \(float\), got 1e\+39, which is infinite"),
    "beside a tensor": ("halves", [tf.constant(1, tf.float16), 1.0, 7e4], TypeError, "got 70000, which is infinite"),
    "an integer in a list": ("ints", [2**31], TypeError, "got 2147483648, which is no int32"),
    "one beyond 64 bits in a list": ("ulongs", [2**64], TypeError, "got 18446744073709551616, which is no uint64"),
    "one below 0 in a list": ("ulongs", [2**64 - 1, -1], TypeError, "got -1, which is no uint64"),
    "NaN for an integer": ("number", float("nan"), TypeError, r"n: expected a number \(uchar\), got float64"),
    "True in a list": ("floats", [True], TypeError, "True and False are none"),
    "masked numbers": ("floats", np.ma.array([1.0], mask=[True]).tolist(), TypeError, "x: expected a number"),
    "a masked vector": ("halves", np.ma.array([1.0, 2, 3], mask=[0, 1, 0]), TypeError, r"masked numbers. Fill them"),
    "objects": ("halves", np.array([1, None, "x"], object), TypeError, "got an array of object"),
    "complex": ("halves", [1j, 2, 3], TypeError, "got complex128"),
    "two vectors of two": ("u3", [[7, 8], [9, 1], [2, 3]], ValueError, r"got numbers of shape \[3, 2\]"),
    "a number": ("u3", 7, ValueError, "n: expected 3 numbers"),
    "floats": ("u3", [7.0, 8, 9], TypeError, r"n: expected 3 numbers \(uint3\), got float64. Convert it first"),
    "an array of floats": ("u3", np.float32([7, 8, 9]), TypeError, "got float32"),
    "negative": ("u3", [7, 8, -9], TypeError, "got -9, which is no uint32"),
    "beyond 32 bits": ("u3", np.array([7, 8, 2**32]), TypeError, "got 4294967296, which is no uint32"),
    "beyond 64 bits": ("u3", [7, 8, 2**70], TypeError, "which is no uint32"),
    "True among numbers": ("u3", [7, 8, True], TypeError, "True and False are none"),
    "numbers for bools": ("b2", [1, 0], TypeError, r"expected 2 numbers \(bool2\), got int64. Give True or False"),
    "text": ("u3", "789", TypeError, "n: expected 3 numbers"),
    "texts": ("u3", ["7", "8", "9"], TypeError, "n: expected 3 numbers"),
    "None": ("u3", None, TypeError, "n: expected 3 numbers .*got None"),
    "ragged": ("u3", [[7, 8, 9], [1]], TypeError, "n: expected 3 numbers"),
    "a dict for numbers": ("u3", {"x": 7}, TypeError, "n: expected 3 numbers"),
    "a record for numbers": ("u3", np.zeros((), "u4, u4, u4, u4"), TypeError, "n: expected 3 numbers"),
    "a tensor's dtype": ("u3", tf.constant([7, 8, 9]), TypeError, r"expected uint32 \(uint3\), got int32. Cast it"),
    "a tensor's shape": ("u3", tf.constant([[7], [8]], tf.uint32), ValueError, r"3 numbers .* got shape \[2, 1\]"),
    "bytes": ("u3", b"123456789012", ValueError, "n: expected 16 bytes, got 12"),
    "a large number": ("number", np.int64(256), TypeError, r"expected a number \(uchar\), got 256, which is no uint8"),
    "a member is missing": ("s", without("b"), TypeError, r"\[s\] s: .* of a, b, c, inner, got the members a, c"),
    "a member too many": ("s", VALUE | {"d": 1}, TypeError, "got the members a, b, c, inner, d"),
    "a record's names": ("s", np.zeros((), "f4, i4, u1, f4"), TypeError, "got the members f0, f1"),
    "a member beyond half": (
        "s", VALUE | {"inner": [{"h": [1e6, 1], "mode": 1}] * 2}, TypeError, r"inner\[0\].h: .*got 1e\+06, which is"),
    "a member's numbers": ("s", VALUE | {"b": [1, 2]}, ValueError, r"\[s\] s.b: expected 3 numbers \(int3\)"),
    "a member's dtype": ("s", VALUE | {"b": [1, 2, 0.5]}, TypeError, r"s.b: expected 3 numbers \(int3\), got float64"),
    "bytes in a list": ("pairs", [b"12345678", b"1234"], ValueError, r"d\[1\]: expected 8 bytes, got 4\.$"),
    "an array's length": ("s", VALUE | {"inner": [{}]}, ValueError, r"s.inner: expected 2 values, got 1"),
    "a member's member": ("s", VALUE | {"inner": [{}, {}]}, TypeError, r"s.inner\[0\]: expected a struct of 8 bytes"),
    "a list": ("s", [1], TypeError, r"s\[0\]: expected a struct"),
    "a tensor": ("s", tf.zeros([16]), TypeError, "s: expected a struct of a, b, c, inner: dicts, .* got float32"),
    "a tensor of what lies apart": ("apart", tf.zeros([8]), TypeError, "d: expected a struct of a, b: dicts"),
    "bit fields": ("odd", {"low": 1, "high": 2}, TypeError, "d: expected its 4 bytes, as low has a type that"),
    "a union": ("holds", {"u": {"f": 1.0, "i": 1}, "f": 2}, TypeError, "d: expected its 8 bytes, as in u, i lies in"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, lib):
    kernel, value, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        lib[kernel](value, **OUT)


def test_outputs_that_are_refused(lib):
    for kernel, shape, message in (
        (
            "f4",
            [3],
            r"outputs\['y'\]: expected a multiple of 4 numbers \(float4\), got float32 of shape \[3\]",
        ),
        (
            "f3",
            [2, 2],
            r"outputs\['y'\]: expected 3 numbers \(float3\) as the last dimensions, \[3\], got shape \[2, 2\]",
        ),
        ("f3", [4], r"outputs\['y'\]: expected a multiple of 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            lib[kernel](np.zeros(12, np.float32), outputs={"y": shape})
    with pytest.raises(TypeError, match="expected float32 as in the kernel, got int32"):
        lib.f4(np.zeros(4, np.float32), outputs={"y": tf.TensorSpec([4], tf.int32)})
