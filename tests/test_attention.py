"""scaled_dot_product_attention against attention in float64 with the whole matrix of scores."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import _library, raw_ops
from tests.calls import Call, normal
from tests.oracles import attention
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
CALLS = {
    "scaled_dot_product_attention": Call(
        lambda **given: metal_ops.scaled_dot_product_attention(
            **given, causal=True, dropout=0.25, seed=(3, 4)
        ),
        lambda: {
            "q": normal(2, 4, 150, 24),
            "k": normal(2, 2, 170, 24, seed=1),
            "v": normal(2, 2, 170, 40, seed=2),
            "bias": normal(1, 4, 150, 170, seed=3),
        },
        ("q", "k", "v", "bias"),
    )
}
# (batch, heads, kv_heads, queries, keys, size, value_size): one of all, odd sizes, queries and keys that fill blocks
# and do not, shared heads, the largest heads.
SIZES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 3, 7, 9, 5, 6),
    (1, 4, 2, 49, 65, 32, 32),
    (2, 4, 1, 97, 130, 17, 33),
    (1, 2, 2, 130, 64, 64, 64),
    (1, 1, 1, 50, 200, 256, 256),
    (1, 6, 2, 1, 300, 128, 96),
]
OPTIONS = {
    "plain": {},
    "causal": dict(causal=True),
    "window": dict(window=(5, 3)),
    "causal window": dict(causal=True, window=(20, None)),
    "soft cap": dict(soft_cap=0.75, scale=0.5),
    "dropout": dict(dropout=0.3, seed=(5, -7)),
    "all": dict(causal=True, window=(40, None), soft_cap=2.0, dropout=0.1, seed=(2**31 - 1, -(2**31))),
}  # fmt: skip


def make(batch, heads, kv_heads, queries, keys, size, value_size, dtype="float32", seed=0):
    """q, k, v and an incoming gradient, which the dtype holds exactly."""
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    shapes = [
        (batch, heads, queries, size),
        (batch, kv_heads, keys, size),
        (batch, kv_heads, keys, value_size),
        (batch, heads, queries, value_size),
    ]
    return [random.normal(size=shape).astype(kind) for shape in shapes]


def call(q, k, v, incoming=None, bias=None, **options):
    """The outputs, and with `incoming` the gradients of q, k, v and bias."""
    sources = [tf.constant(x) for x in (q, k, v, *([] if bias is None else [bias]))]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = metal_ops.scaled_dot_product_attention(
            *sources[:3], bias=None if bias is None else sources[3], **options
        )
    if incoming is None:
        return [y]
    return [y, *tape.gradient(y, sources, output_gradients=tf.constant(incoming))]


def assert_near(actual, expected, dtype, name, factor=1.0, least=0.1):
    """To some roundings of the largest value: one of the result, and float32's of the sums."""
    actual = np.asarray(actual.numpy()).astype(np.float64)
    assert actual.shape == expected.shape, name
    scale = max(np.max(np.abs(expected), initial=0), least)
    error = np.max(np.abs(actual - expected), initial=0) / scale
    allowed = factor * ((32 * ROUNDING["float32"]) + ROUNDING[dtype] * (dtype != "float32"))
    assert error <= allowed, f"{name}: off by {error:.3g}, {allowed:.3g} allowed"


def check(q, k, v, incoming, dtype="float32", factor=1.0, least=0.1, **options):
    right = attention.Attention(q, k, v, **options)
    found = call(q, k, v, incoming, **options)
    assert found[0].dtype == dtype
    assert_near(found[0], right.outputs, dtype, "outputs", factor)
    # The gradient begins with the outputs as the dtype has rounded them.
    slack = factor * (4 if dtype == "float32" else 3)
    names = ("q", "k", "v", "bias")
    for name, actual, expected in zip(names, found[1:], right.gradients(incoming), strict=False):
        assert actual.dtype == dtype
        assert_near(actual, expected, dtype, f"d_{name}", slack, least)
    return found


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_value_and_gradients(size, options):
    check(*make(*size), **OPTIONS[options])


@pytest.mark.parametrize("options", ["plain", "all"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", SIZES[1:5], ids=str)
def test_half_types(size, dtype, options):
    check(*make(*size, dtype), dtype, **OPTIONS[options])


# So few queries that they do not fill lanes, and elements that do: one and several that share a head of keys,
# keys that are no whole blocks, and sizes that some instruction sets' vectors do not divide.
FEW = [
    (1, 8, 2, 1, 200, 64, 64),
    (2, 3, 3, 1, 64, 4, 16),
    (1, 6, 1, 1, 131, 12, 32),
    (3, 2, 1, 4, 77, 32, 16),
    (1, 2, 2, 2, 7, 8, 48),
    (1, 1, 1, 8, 129, 256, 256),
    (1, 4, 2, 1, 90, 20, 8),
    (2, 2, 2, 1, 67, 8, 4),
]


@pytest.mark.parametrize("target", _library.simd_targets())
@pytest.mark.parametrize("options", ["plain", "causal", "window", "causal window"])
@pytest.mark.parametrize("size", FEW, ids=str)
def test_few_queries(size, options, target):
    q, k, v, incoming = make(*size)
    keys = size[4]
    lengths = np.array([keys, keys // 2, 3])[: size[0]]
    before = _library.simd_target()
    _library.set_simd_target(target)
    try:
        for dtype in ("float32", "float16", "bfloat16"):
            kind = tf.as_dtype(dtype).as_numpy_dtype
            check(*(x.astype(kind) for x in (q, k, v, incoming)), dtype, **OPTIONS[options])
        cut = call(q, k, v, key_lengths=lengths, **OPTIONS[options])[0]
    finally:
        _library.set_simd_target(before)
    for batch, length in enumerate(lengths):
        of = slice(batch, batch + 1)
        right = attention.Attention(q[of], k[of, :, :length], v[of, :, :length], **OPTIONS[options])
        assert_near(cut[of], right.outputs, "float32", "outputs")


BROADCAST = [
    *((2, 4, 97, 130), (1, 4, 97, 130), (2, 1, 97, 1), (1, 1, 1, 130)),
    *((97, 130), (130,), (4, 1, 1), ()),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", BROADCAST, ids=str)
def test_bias(shape, dtype):
    bias = np.asarray(
        np.random.default_rng(1).normal(size=shape), tf.as_dtype(dtype).as_numpy_dtype
    )
    # Sums of tens of thousands of terms for those that all share.
    factor = 1.0 if len(shape) == 4 and dtype == "float32" else 4.0
    arrays = make(*SIZES[3], dtype)
    # A term that all keys share changes no weight: thousands of slopes cancel.
    least = 30.0 if shape[-1:] in ((), (1,)) else 0.1
    check(
        *arrays,
        dtype,
        factor,
        least,
        bias=bias,
        soft_cap=3.0,
        causal=True,
        dropout=0.1,
        seed=(1, 2),
    )


@pytest.mark.parametrize("shape", BROADCAST[:-1], ids=str)
def test_masks(shape):
    random = np.random.default_rng(1)
    mask = random.random(shape) < 0.6
    *arrays, incoming = make(*SIZES[3])
    found = check(*arrays, incoming, mask=mask)
    # The same as something to add, which is -infinity where nothing is seen.
    added = np.where(mask, 0, -np.inf).astype(np.float32)
    y = metal_ops.scaled_dot_product_attention(*arrays, added)
    np.testing.assert_array_equal(y, found[0])
    bias = random.normal(size=shape).astype(np.float32)
    both = metal_ops.scaled_dot_product_attention(*arrays, mask, bias=bias)
    assert_near(both, attention.Attention(*arrays, mask=mask, bias=bias).outputs, "float32", "both")
    summed = metal_ops.scaled_dot_product_attention(*arrays, added, bias=bias)
    np.testing.assert_array_equal(both, summed)


def test_who_sees_nothing_gives_0():
    """Causal with more queries than keys; a mask, and lengths of 0, negative and beyond the end."""
    q, k, v, incoming = make(3, 2, 1, 20, 12, 8, 8)
    found = check(q, k, v, incoming, causal=True)
    for tensor in found[:2]:
        assert not np.any(tensor[:, :, :8]) and np.all(np.any(tensor[:, :, 9:], axis=-1))
    mask = np.ones((3, 1, 20, 12), bool)
    mask[1, 0, 3] = False
    found = check(q, k, v, incoming, mask=mask)
    for tensor in found[:2]:
        assert not np.any(tensor[1, :, 3]) and np.all(np.any(tensor[0], axis=-1))
    found = check(q, k, v, incoming, key_lengths=np.array([0, -5, 99]))
    for tensor in found:
        assert not np.any(tensor[:2]) and np.all(np.any(tensor[2], axis=-1))


@pytest.mark.parametrize("options", [{}, dict(causal=True), dict(causal=True, window=(6, None))], ids=str)  # fmt: skip
def test_keys_behind_a_sequence_are_not_looked_at(options):
    lengths = np.array([7, 200, 1])
    q, k, v, incoming = make(3, 4, 2, 5, 200, 16, 16)
    for batch, length in enumerate(lengths):
        k[batch, :, length:] = v[batch, :, length:] = np.nan
    found = call(q, k, v, incoming, key_lengths=lengths, **options)
    for batch, length in enumerate(lengths):
        of = slice(batch, batch + 1)
        cut = [q[of], k[of, :, :length], v[of, :, :length], incoming[of]]
        right = attention.Attention(*cut[:3], **options)
        assert_near(found[0][of], right.outputs, "float32", "outputs")
        d_q, d_k, d_v = right.gradients(cut[3])
        assert_near(found[1][of], d_q, "float32", "d_q", 4)
        assert_near(found[2][of, :, :length], d_k, "float32", "d_k", 4)
        assert_near(found[3][of, :, :length], d_v, "float32", "d_v", 4)
        assert not np.any(found[2][of, :, length:]) and not np.any(found[3][of, :, length:])


def test_large_scores():
    """Weights are relative to the largest score, whatever that is; far below it they are 0."""
    q, k, v, incoming = make(1, 1, 1, 60, 150, 8, 8)
    for factor in (30.0, -1e4, 1e18):  # the last of which makes scores of 1e19
        y = metal_ops.scaled_dot_product_attention(q, k, v, scale=factor)
        wide = q.astype(np.float64) @ np.swapaxes(k, -1, -2).astype(np.float64) * factor
        best = np.argmax(wide, axis=-1)[0, 0]
        gap = np.sort(wide, axis=-1)[0, 0, :, -1] - np.sort(wide, axis=-1)[0, 0, :, -2]
        sure = gap > 200
        assert factor == 30.0 or sure.any()
        np.testing.assert_allclose(y[0, 0][sure], v[0, 0, best[sure]], rtol=1e-6)
        assert np.isfinite(y).all()


def test_nan_stays_with_its_query():
    q, k, v, _ = make(1, 2, 1, 60, 70, 8, 8)
    clean = call(q, k, v)[0].numpy()
    q[0, 1, 33, 2] = np.nan
    spoilt = call(q, k, v)[0].numpy()
    assert np.isnan(spoilt[0, 1, 33]).all()
    spoilt[0, 1, 33] = clean[0, 1, 33]
    np.testing.assert_array_equal(spoilt, clean)


@pytest.mark.parametrize("empty", range(7))
def test_empty(empty):
    size = [2, 2, 2, 3, 4, 5, 6]
    if empty in (5, 6):  # a head has at least one element
        size[empty] = 0
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must have \w*size = 1 to 256"):
            call(*make(*size)[:3])
        return
    size[empty] = 0
    if empty in (1, 2):
        size[1] = size[2] = 0
    check(*make(*size))


def test_dropout():
    """The same for a seed, another for another; as many as asked for; none where the rate is 0."""
    keys = 4001
    q, k, v = np.zeros((2, 3, 50, 4), np.float32), np.zeros((2, 3, keys, 4), np.float32), None
    v = np.ones((2, 3, keys, 1), np.float32)

    def sums(seed, rate=0.25):
        return call(q, k, v, dropout=rate, seed=seed)[0].numpy() * (1 - rate)

    one = sums((1, 2))
    np.testing.assert_array_equal(one, sums(tf.constant([1, 2])))
    assert np.abs(one.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / (keys * one.size))
    # Other queries, heads, batches and seeds drop others.
    assert len(np.unique(one)) > 100
    for seed in ((1, 3), (2, 2)):
        assert np.mean(sums(seed) == one) < 0.1
    np.testing.assert_allclose(sums((1, 2), 0.0), 1, rtol=1e-6)


def test_random_seeds_follow_tensorflows():
    q, k, v, _ = make(1, 2, 2, 20, 30, 8, 8)

    def three():
        tf.random.set_seed(5)
        return [call(q, k, v, dropout=0.5)[0].numpy() for _ in range(3)]

    first, second = three(), three()
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    function = tf.function(lambda: metal_ops.scaled_dot_product_attention(q, k, v, dropout=0.5))
    assert not np.array_equal(function(), function())


def test_philox_is_philox():
    """Known answers of the authors' library, Random123: kat_vectors."""
    zeros, ones = np.zeros(4, np.uint32), np.full(4, 0xFFFFFFFF, np.uint32)
    words = attention.philox(zeros, (0, 0))
    assert [hex(word) for word in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    words = attention.philox(ones, (0xFFFFFFFF, 0xFFFFFFFF))
    assert [hex(word) for word in words] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def test_only_wanted_gradients():
    """The bias' is an op of its own, which neither a tape nor a graph runs for nothing."""
    q, k, v, _ = make(*SIZES[2])
    bias = normal(49, 65)
    expected = call(q, k, v, np.ones((1, 4, 49, 32), np.float32), bias)
    graph = tf.function(
        lambda q: tf.gradients(metal_ops.scaled_dot_product_attention(q, k, v, bias=bias), q)[0]
    )
    concrete = graph.get_concrete_function(tf.TensorSpec(q.shape))
    np.testing.assert_array_equal(concrete(tf.constant(q)), expected[1])
    with tf.GradientTape() as tape:
        watched = tf.Variable(bias)
        y = metal_ops.scaled_dot_product_attention(q, k, v, bias=watched)
    np.testing.assert_array_equal(tape.gradient(y, watched), expected[4])


def test_second_derivatives_are_refused():
    q, k, v, _ = make(*SIZES[1])
    q = tf.constant(q)
    with tf.GradientTape() as outer:
        outer.watch(q)
        with tf.GradientTape() as inner:
            inner.watch(q)
            y = metal_ops.scaled_dot_product_attention(q, k, v)
        d_q = inner.gradient(y, q)
    with pytest.raises(LookupError, match="second derivatives are not provided"):
        outer.gradient(d_q, q)


MEMORY = """
import resource, sys
import numpy as np, tensorflow as tf
import metal_ops, metal_ops.device
length, place = int(sys.argv[1]), sys.argv[2]
if place != "CPU:0":
    metal_ops.device.load()
with tf.device(place):
    q = tf.ones([1, 2, length, 8])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
def run(n):
    with tf.device(place), tf.GradientTape() as tape:
        x = q[:, :, :n]
        tape.watch(x)
        y = metal_ops.scaled_dot_product_attention(x, x, x, causal=True, window=(64, None))
        assert place in y.device
        tape.gradient(y, x).numpy()
run(256)
before = peak()
run(length)
print(peak() - before)
"""


def test_memory_is_linear_in_the_length(place="CPU:0"):
    """A matrix of 32768 x 32768 scores would be 4 GiB per head; q, k, v and their gradients are 12 MiB."""
    assert int(Process("-c", MEMORY, "32768", place).result()) < 200


def test_unknown_shapes():
    q, k, v, _ = make(*SIZES[3])
    spec = tf.TensorSpec([None, None, None, None])

    @tf.function(input_signature=[spec] * 3)
    def function(q, k, v):
        y = metal_ops.scaled_dot_product_attention(q, k, v, causal=True)
        assert y.shape.rank == 4
        return y

    np.testing.assert_array_equal(function(q, k, v), call(q, k, v, causal=True)[0])


ONES = np.ones((2, 4, 3, 8), np.float32)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(q=ONES[0]), ValueError, r"q: expected shape \[batch, heads, length, size\], got \[4, 3, 8\]"),
        (dict(k=tf.ones([2, 4, 3, 8], tf.float16)), TypeError, r"k: expected dtype float32 as of q, got float16"),
        (dict(q=tf.ones([2, 4, 3, 8], tf.float64)), TypeError, r"q: expected dtype float32, float16 or bfloat16"),
        (dict(mask=np.ones((3, 3), np.int32)), TypeError, r"mask: expected dtype bool or float32, got int32"),
        (dict(mask=np.ones((1, 1, 1, 3, 3), bool)), ValueError, r"mask: expected a rank of at most 4.*got \[1, 1, 1"),
        (dict(bias=tf.ones([3, 3], tf.bfloat16)), TypeError, r"bias: expected dtype float32 as of q, got bfloat16"),
        (dict(dropout=1.0), ValueError, r"dropout: expected a number in \[0, 1\), got 1.0"),
        (dict(dropout="half"), TypeError, r"dropout: expected a Python number"),
        (dict(causal=1), TypeError, r"causal: expected True or False"),
        (dict(scale=0), ValueError, r"scale: expected a number other than 0, or None, got 0"),
        (dict(soft_cap=0.0), ValueError, r"soft_cap: expected a number other than 0, or None, got 0"),
        (dict(window=3), TypeError, r"window: expected \(before, behind\), two numbers of keys or None, got 3"),
        (dict(window=(1, -2)), ValueError, r"window: expected 0 or more keys, got -2"),
        (dict(window=(1.5, None)), TypeError, r"window: expected an integer, got 1.5"),
        (dict(key_lengths=np.ones((2, 1), np.int32)), ValueError, r"key_lengths: expected shape \[batch\]"),
        (dict(key_lengths=np.ones(2, np.float32)), TypeError, r"key_lengths: expected dtype int32 or int64"),
        (dict(seed=1.5), TypeError, r"seed: expected a tensor"),
    ],
)  # fmt: skip
def test_bad_arguments(change, error, words):
    given = dict(q=ONES, k=ONES, v=ONES)
    metal_ops.scaled_dot_product_attention(**given)
    with pytest.raises(error, match=rf"\[scaled_dot_product_attention\] {words}"):
        metal_ops.scaled_dot_product_attention(**{**given, **change})


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(k=ONES[:1]), r"k must have shape \[batch, kv_heads, keys, size\] .*batch = 2.*got \[1, 4, 3, 8\]"),
        (dict(k=ONES[:, :3], v=ONES[:, :3]), r"q must have a multiple of the heads of k, 3, got 4"),
        (dict(v=ONES[:, :2]), r"v must have shape .*kv_heads = 4 as in k.*got \[2, 2, 3, 8\]"),
        (dict(q=np.ones((2, 4, 3, 257), np.float32), k=np.ones((2, 4, 3, 257), np.float32)),
         r"q must have size = 1 to 256, got shape \[2, 4, 3, 257\]"),
        (dict(mask=np.ones((3, 4), bool)),
         r"mask must have shape \[2, 4, 3, 3\] \(batch, heads, queries, keys\), or 1 .*got \[1, 1, 3, 4\]"),
        (dict(bias=np.ones((2, 3), np.float32)), r"bias must have shape \[2, 4, 3, 3\].*got \[1, 1, 2, 3\]"),
        (dict(key_lengths=[1]), r"key_lengths must have shape \[batch\] with batch = 2 as in q, got \[1\]"),
        (dict(seed=[1]), r"seed must have shape \[2\], got \[1\]"),
        (dict(soft_cap=-1.0), r"soft_cap must be 0 or more, got -1"),
    ],
)  # fmt: skip
def test_bad_calls(change, words):
    given = {**dict(q=ONES, k=ONES, v=ONES), **change}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="scaled_dot_product_attention: " + words
    ):
        metal_ops.scaled_dot_product_attention(**given)
    graph = tf.function(lambda: metal_ops.scaled_dot_product_attention(**given))
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match="scaled_dot_product_attention: " + words
    ):
        graph()


def test_bad_gradients():
    lengths = tf.zeros([0], tf.int32)
    none = dict(mask=tf.zeros([0], tf.bool), bias=tf.zeros([0]), key_lengths=lengths, seed=[0, 0])
    saved = dict(outputs=ONES, log_sum_exp=ONES[..., 0], gradients=ONES)
    right = dict(q=ONES, k=ONES, v=ONES, **none, **saved)
    raw_ops.scaled_dot_product_attention_grad(**right)
    for name in ("outputs", "log_sum_exp", "gradients"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"AttentionGrad: {name} must have shape"
        ):
            raw_ops.scaled_dot_product_attention_grad(**{**right, name: ONES[:1]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="use_bias must be true"):
        raw_ops.scaled_dot_product_attention_bias_grad(**right)


def test_xla_is_refused_with_a_sentence():
    function = tf.function(
        lambda: metal_ops.scaled_dot_product_attention(ONES, ONES, ONES), jit_compile=True
    )
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"\[scaled_dot_product_attention\] cannot be compiled"
    ):
        function()
