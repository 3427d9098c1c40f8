"""cache_rows and KVCache against attention to all that was given so far; and that neither copies a cache."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.oracles.attention import Attention
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 3e-6, "float16": 2e-3, "bfloat16": 2e-2}


def placed(cache, rows, starts, counts, ring):
    """The same as cache_rows, in a loop."""
    cache = cache.copy()
    for b in range(len(rows)):
        for i in range(counts[b]):
            slot = starts[b] + i
            cache[b, :, slot % cache.shape[2] if ring else slot] = rows[b, :, i]
    return cache


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "starts, counts, ring",
    [
        ([0, 0], None, False),
        ([5, 9], None, False),
        ([0, 13], [3, 1], False),
        ([14, 0], [0, 3], False),
        ([12, 13], None, True),
        ([40, 2**30], [3, 0], True),
    ],
)
def test_rows(starts, counts, ring, dtype):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    cache, rows = (random.normal(size=(2, 3, n, 5)).astype(kind) for n in (14, 3))
    variable = tf.Variable(cache)
    held = variable.read_value()
    metal_ops.cache_rows(variable, rows, starts, counts, ring=ring)
    expected = placed(cache, rows, starts, [3, 3] if counts is None else counts, ring)
    np.testing.assert_array_equal(variable.numpy(), expected)
    np.testing.assert_array_equal(held, cache)  # values that were read stay as they were


def test_rows_behind_slices_that_were_assigned():
    """Such slices leave variables in a mode in which TensorFlow copies on each read; writes need no copy."""
    variable = tf.Variable(tf.zeros([1, 1, 1 << 20, 64]))  # 256 MiB
    variable[:, :, :2].assign(tf.ones([1, 1, 2, 64]))
    held = variable.read_value()
    row, seconds = 5 * tf.ones([1, 1, 1, 64]), []
    for slot in range(2, 7):
        begin = time.process_time()
        metal_ops.cache_rows(variable, row, [slot])
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.01, seconds
    np.testing.assert_array_equal(held[0, 0, :8, 0], [1, 1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(variable[0, 0, :8, 0], [1, 1, 5, 5, 5, 5, 5, 0])


@pytest.mark.parametrize("n, starts", [(9, [0, 2]), (30, [11, 3])])
def test_a_ring_that_is_overrun_keeps_the_last(n, starts):
    cache = np.zeros((2, 1, 4, 2), np.float32)
    rows = np.random.default_rng(0).normal(size=(2, 1, n, 2)).astype(np.float32)
    variable = tf.Variable(cache)
    metal_ops.cache_rows(variable, rows, starts, ring=True)
    np.testing.assert_array_equal(variable, placed(cache, rows, starts, [n, n], True))


@pytest.mark.parametrize("batch, n", [(0, 3), (2, 0)])
def test_nothing_to_write(batch, n):
    variable = tf.Variable(tf.ones([batch, 1, 4, 2]))
    metal_ops.cache_rows(variable, tf.zeros([batch, 1, n, 2]), tf.zeros([batch], tf.int32))
    np.testing.assert_array_equal(variable, np.ones((batch, 1, 4, 2)))


ROWS = np.ones((2, 1, 3, 2), np.float32)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(starts=[0, 2]), tf.errors.InvalidArgumentError,
         r"room for 4 rows, and sequence 1 would have 5. Make a larger one, or one with a window"),
        (dict(starts=[-1, 0]), tf.errors.InvalidArgumentError, r"starts\[0\] must be 0 or more, got -1"),
        (dict(counts=[3, 4]), tf.errors.InvalidArgumentError,
         r"counts\[1\] must be between 0 and the 3 rows that are given, got 4"),
        (dict(rows=ROWS[:1]), tf.errors.InvalidArgumentError, r"rows must have shape \[batch, heads, n, size\]"),
        (dict(starts=[0]), tf.errors.InvalidArgumentError, r"starts must have shape \[batch\] with batch = 2"),
        (dict(rows=tf.ones([2, 1, 3, 2], tf.float16)), TypeError,
         r"\[cache_rows\] rows: expected dtype float32"),
        (dict(cache=tf.zeros([2, 1, 4, 2])), TypeError, r"\[cache_rows\] cache: expected a tf.Variable"),
        (dict(ring=1), TypeError, r"\[cache_rows\] ring: expected True or False"),
        (dict(starts=[0.5, 0.0]), TypeError, r"\[cache_rows\] starts: expected"),
    ],
)  # fmt: skip
def test_bad_calls(change, error, words):
    given = dict(cache=tf.Variable(tf.zeros([2, 1, 4, 2])), rows=ROWS, starts=[0, 1])
    metal_ops.cache_rows(**given)
    with pytest.raises(error, match=words):
        metal_ops.cache_rows(**{**given, **change})


# ---- KVCache --------------------------------------------------------------------------------------------------------


def tokens(batch, heads, kv_heads, n, size, value_size, dtype="float32", seed=0):
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    shapes = ((batch, heads, n, size), (batch, kv_heads, n, size), (batch, kv_heads, n, value_size))
    return [random.normal(size=shape).astype(kind) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 5, 16])
@pytest.mark.parametrize("pieces", [(1,) * 20, (13, 1, 1, 1, 3, 0, 1), (3, 8, 9), (20,)], ids=str)
def test_in_pieces_as_at_once(pieces, window, dtype):
    q, k, v = tokens(2, 4, 2, sum(pieces), 8, 6, dtype)
    cache = metal_ops.KVCache(
        2, 2, None if window else 24, size=8, value_size=6, window=window, dtype=dtype
    )
    function = tf.function(cache.attend)
    outputs, at = [], 0
    for number, n in enumerate(pieces):
        of = slice(at, at + n)
        attend = function if number % 2 else cache.attend
        outputs.append(attend(q[:, :, of], k[:, :, of], v[:, :, of]).numpy())
        at += n
    sees = (None if window is None else window - 1, None)
    right = Attention(q, k, v, causal=True, window=sees, soft_cap=None)
    np.testing.assert_allclose(
        np.concatenate(outputs, axis=2).astype(np.float64), right.outputs, atol=TOLERANCE[dtype]
    )
    np.testing.assert_array_equal(cache.lengths, [20, 20])


@pytest.mark.parametrize("window", [None, 6])
def test_sequences_of_different_lengths(window):
    """Prompts of 2, 9 and 0 tokens, padded to 9; then tokens, of which the last sequence has none at first."""
    prompts, further = np.array([2, 9, 0]), np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]])
    totals = prompts + further.sum(axis=0)
    q, k, v = tokens(3, 2, 1, int(totals.max()), 8, 8)
    cache = metal_ops.KVCache(3, 1, None if window else 18, size=8, window=window)
    got = [[] for _ in range(3)]
    at = np.zeros(3, int)
    for counts in (prompts, *further):
        n = counts.max()
        pads = [np.full((3, x.shape[1], n, 8), 7.0, np.float32) for x in (q, k, v)]
        for b, count in enumerate(counts):
            for pad, x in zip(pads, (q, k, v), strict=True):
                pad[b, :, :count] = x[b, :, at[b] : at[b] + count]
        np.testing.assert_array_equal(cache.positions(2), at[:, None] + [0, 1])
        outputs = cache.attend(*pads, counts=counts, scale=0.5, soft_cap=3.0).numpy()
        for b, count in enumerate(counts):
            got[b].append(outputs[b, :, :count])
        at += counts
    np.testing.assert_array_equal(cache.lengths, totals)
    for b, total in enumerate(totals):
        of = slice(b, b + 1)
        sees = (None if window is None else window - 1, None)
        right = Attention(
            *(x[of, :, :total] for x in (q, k, v)),
            causal=True,
            window=sees,
            scale=0.5,
            soft_cap=3.0,
        )
        np.testing.assert_allclose(np.concatenate(got[b], axis=1), right.outputs[0], atol=3e-6)


def test_reset_and_full():
    cache = metal_ops.KVCache(1, 1, 3, size=2)
    x = tf.ones([1, 1, 2, 2])
    cache.attend(x, x, x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the cache has room for 3 rows"):
        cache.attend(x, x, x)
    cache.reset()
    np.testing.assert_array_equal(cache.attend(x, x, 2 * x), 2 * x)


def test_checkpoints(tmp_path):
    x = tf.random.stateless_normal([1, 1, 4, 2], [1, 2])
    first, second = (metal_ops.KVCache(1, 1, 8, size=2) for _ in range(2))
    first.attend(x, x, x)
    path = tf.train.Checkpoint(cache=first).save(tmp_path / "cache")
    tf.train.Checkpoint(cache=second).restore(path)
    y = x[:, :, :1]
    np.testing.assert_array_equal(first.attend(y, y, y), second.attend(y, y, y))


LOOP = """
import json, resource, time
import tensorflow as tf
import metal_ops

def cached(capacity):
    cache = metal_ops.KVCache(1, 8, capacity, size=64)
    @tf.function
    def steps(n):
        body = lambda i, x: (i + 1, cache.attend(x, x, x))
        return tf.while_loop(lambda i, x: i < n, body, (0, tf.ones([1, 8, 1, 64])))
    steps(2)
    return cache, steps

def seconds(cache, steps):
    best = 1e9
    for _ in range(5):
        cache.reset()
        begin = time.perf_counter()
        steps(100)
        best = min(best, time.perf_counter() - begin)
    return best

small, large = cached(256), cached(65536)  # 1 and 256 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = [seconds(*small), seconds(*large)]
print(json.dumps([*times, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024]))
"""


def test_loops_copy_no_cache():
    """100 steps in a cache of 256 MiB take as long as in one of 1 MiB: one copy alone would take some 50 ms."""
    small, large, megabytes = Process("-c", LOOP).result()
    # A copy would be 256; sanitizers keep some of their own.
    assert megabytes < 128, megabytes
    assert large < 3 * small + 0.05, (small, large)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(capacity=None), ValueError, r"\[KVCache\] capacity, window: expected one of them, got neither"),
        (dict(window=3), ValueError, r"\[KVCache\] capacity, window: expected one of them, got both"),
        (dict(size=257), ValueError, r"\[KVCache\] size: expected 1 to 256, got 257"),
        (dict(batch=0), ValueError, r"\[KVCache\] batch: expected 1 to 2147483647, got 0"),
        (dict(kv_heads=1.5), TypeError, r"\[KVCache\] kv_heads: expected an integer"),
        (dict(dtype="float64"), TypeError, r"\[KVCache\] dtype: expected float32"),
    ],
)  # fmt: skip
def test_bad_caches(arguments, error, words):
    with pytest.raises(error, match=words):
        metal_ops.KVCache(**{**dict(batch=1, kv_heads=1, capacity=4), **arguments})


def test_bad_tokens():
    cache = metal_ops.KVCache(1, 1, 4, size=2)
    x = tf.ones([1, 1, 1, 2])
    with pytest.raises(
        TypeError, match=r"\[KVCache.attend\] k: expected dtype float32, got float16"
    ):
        cache.attend(x, tf.cast(x, tf.float16), x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows must have shape"):
        cache.attend(x, tf.ones([1, 1, 1, 3]), x)
    two = tf.ones([1, 1, 2, 2])
    for q, k, v, words in (
        (two, x, x, r"\[KVCache.attend\] k: expected 2 tokens as of q, got 1"),
        (x, x, two, r"v: expected 1 tokens as of q, got 2"),
        (x[0], x, x, r"q: expected shape \[batch, heads, n, size\], got \[1, 1, 2\]"),
    ):
        with pytest.raises(ValueError, match=words):
            cache.attend(q, k, v)
    assert cache.lengths.numpy().tolist() == [0]


@pytest.mark.parametrize("kind", ["capacity", "window"])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_bad_counts(kind, traced):
    """They would move the places of all tokens to come."""
    cache = metal_ops.KVCache(2, 1, size=2, **{kind: 8})
    x = tf.ones([2, 1, 3, 2])

    def attend(counts):
        return cache.attend(x, x, x, counts=counts)

    call = tf.function(attend) if traced else attend
    for counts in ([4, 1], [-1, 1]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="counts: expected 0 to the number"
        ):
            call(tf.constant(counts))
    for counts in ([1], [1, 1, 1], 1):
        with pytest.raises(
            ValueError, match=r"\[KVCache.attend\] counts: expected one for each of 2"
        ):
            call(tf.constant(counts))
    assert cache.lengths.numpy().tolist() == [0, 0]
    call(tf.constant([3, 0]))
    assert cache.lengths.numpy().tolist() == [3, 0]
