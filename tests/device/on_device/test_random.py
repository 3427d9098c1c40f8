"""Random numbers on the device: those of TensorFlow's CPU kernels for a seed, to the bit."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from tests.device.on_device.test_ops import FLOATS, on_device, put, random

raw = tf.raw_ops
SHAPES = [(), (0,), (1,), (5,), (3, 7), (100003,)]
SEEDS = [(0, 0), (1, -2), (2**31 - 1, 12345), (-(2**40), 2**50)]


def check(got: np.ndarray, want: np.ndarray, normal: bool) -> None:
    """To the bit. Normal ones are Linux's: logarithm, sine and cosine of a Mac's C library round otherwise."""
    if not (normal and sys.platform == "darwin") or want.dtype.kind in "iu":  # a generator's state
        np.testing.assert_array_equal(got, want)
        return
    unit = float(ml_dtypes.finfo(want.dtype).eps)
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=2 * unit, atol=1e-6)


def on_both(call, normal: bool = False) -> None:
    with tf.device("GPU:0"):
        got = on_device(call())
    with tf.device("CPU:0"):
        want = call().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype
    check(got, want, normal)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal", "TruncatedNormal"])
def test_floats(name, dtype):
    normal = "Normal" in name
    for seed in SEEDS:
        for shape in SHAPES:
            on_both(
                lambda s=shape, d=seed: getattr(raw, f"Stateless{name}")(
                    shape=s, seed=d, dtype=dtype
                ),
                normal,
            )
            with tf.device("CPU:0"):
                key, counter, alg = raw.StatelessRandomGetKeyCounterAlg(
                    seed=tf.constant(seed, tf.int64)
                )
            on_both(lambda s=shape, k=key, c=counter, a=alg: getattr(raw, f"Stateless{name}V2")(
                shape=s, key=k, counter=c, alg=a, dtype=dtype), normal)  # fmt: skip


def test_counters_that_overflow():
    key = tf.constant([12345], tf.uint64)
    for counter in ([2**64 - 1, 7], [2**64 - 3, 2**64 - 1], [2**32 - 2, 0]):
        c = tf.constant(counter, tf.uint64)
        for name in ("StatelessRandomUniformV2", "StatelessTruncatedNormalV2"):
            on_both(
                lambda n=name, c=c: getattr(raw, n)(shape=[99], key=key, counter=c, alg=1),
                "Normal" in name,
            )


def test_keys_that_the_device_makes():
    """Keys of work that has not been waited for: outside of functions, and in one."""

    def reversed_counter():
        key = tf.reverse(tf.constant([12345], tf.uint64), [0])
        counter = tf.reverse(tf.constant([7, 2**64 - 2], tf.uint64), [0])
        return raw.StatelessRandomUniformV2(shape=[1001], key=key, counter=counter, alg=1)

    def of_seed():
        return tf.random.stateless_normal([1001], [3, 4])

    for call in (reversed_counter, tf.function(reversed_counter)):
        on_both(call)
    for call in (of_seed, tf.function(of_seed)):
        on_both(call, normal=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_whole_numbers(dtype):
    for seed in SEEDS:
        for shape in SHAPES:
            on_both(
                lambda s=shape, d=seed: raw.StatelessRandomUniformFullInt(
                    shape=s, seed=d, dtype=dtype
                )
            )
            on_both(lambda s=shape, d=seed: tf.random.stateless_uniform(s, d, None, None, dtype))
            if dtype.startswith("i"):
                low, high = tf.constant(-5, dtype), tf.constant(2**31 - 1, dtype)
                on_both(lambda s=shape, d=seed, a=low, b=high: raw.StatelessRandomUniformInt(
                    shape=tf.constant(s, tf.int32), seed=d, minval=a, maxval=b))  # fmt: skip


def test_generators_go_on_as_on_the_cpu():
    def draw(device):
        with tf.Graph().as_default(), tf.device(device):
            numbers = [
                raw.RandomUniform(shape=[7], dtype=tf.float32, seed=3, seed2=4),
                raw.RandomStandardNormal(shape=[7], dtype=tf.float32, seed=3, seed2=5),
                raw.TruncatedNormal(shape=[1001], dtype=tf.float32, seed=0, seed2=6),
                raw.RandomUniformInt(
                    shape=[5], minval=tf.constant(2), maxval=tf.constant(900), seed=3, seed2=4
                ),
                raw.RandomUniform(shape=[2, 3], dtype=tf.half, seed=-1, seed2=2**40),
            ]
            with tf.compat.v1.Session() as session:
                return [session.run(numbers) for _ in range(3)]

    got, want = draw("GPU:0"), draw("CPU:0")
    for one, other in zip(got, want, strict=True):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            check(a, b, normal=i in (1, 2))
    assert not np.array_equal(got[0][0], got[1][0])


def test_generators_without_a_seed_differ():
    with tf.device("GPU:0"):
        a, b = (raw.RandomUniform(shape=[8], dtype=tf.float32).numpy() for _ in range(2))
    assert not np.array_equal(a, b)


def test_dropout_and_initializers():
    with tf.device("GPU:0"):
        x = tf.nn.experimental.stateless_dropout(tf.ones((100, 100)), 0.25, seed=(1, 2))
        assert x.device.endswith("GPU:0")
        kept = float(tf.reduce_mean(tf.cast(x != 0, tf.float32)))
    assert abs(kept - 0.75) < 0.03


def test_bad_arguments():
    with tf.device("GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="seed must have shape"):
            raw.StatelessRandomNormal(shape=[3], seed=[1, 2, 3])
        with pytest.raises(tf.errors.InvalidArgumentError, match="minval < maxval|Need minval"):
            raw.StatelessRandomUniformInt(shape=[3], seed=[1, 2], minval=3, maxval=3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="negative|>= 0"):
            raw.RandomUniform(shape=[-3], dtype=tf.float32)


def test_generators_in_variables():
    """tf.random.Generator: read and moved on as on the CPU, also over the counter's end."""
    start = np.array([2**63 - 3, 7, -12345], np.int64)
    for delta in (0, 1, 5, 2**40, 2**55):
        found = []
        for device in ("CPU:0", "GPU:0"):
            with tf.device(device):
                state = tf.Variable(start)
                steps = [tf.constant(delta, tf.uint64), tf.constant(3, tf.uint64)]
                read = [
                    raw.RngReadAndSkip(resource=state.handle, alg=1, delta=step) for step in steps
                ]
                raw.RngSkip(resource=state.handle, algorithm=np.int64(1), delta=np.int64(delta))
                found.append([*read, state.numpy()])
                assert read[0].device.endswith(device)
        for got, want in zip(found[1], found[0], strict=True):
            np.testing.assert_array_equal(got, want)
    state = np.full(3, -1, np.int64)
    with tf.device("GPU:0"):
        carried, small = tf.Variable(state), tf.Variable(state[:2])
        raw.RngSkip(resource=carried.handle, algorithm=np.int64(1), delta=np.int64(1))
        np.testing.assert_array_equal(carried.numpy(), [255, 0, -1])
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least 3"):
            raw.RngSkip(resource=small.handle, algorithm=np.int64(1), delta=np.int64(1))
        with pytest.raises(tf.errors.UnimplementedError, match="algorithm 2"):
            raw.RngSkip(resource=carried.handle, algorithm=np.int64(2), delta=np.int64(1))


def test_a_generator():
    def draw(device):
        with tf.device(device):
            generator = tf.random.Generator.from_seed(3, alg="philox")
            assert generator.state.device.endswith(device)
            return [generator.normal([5]), generator.uniform([3, 2]), generator.normal([4])]

    tf.config.set_soft_device_placement(True)  # it slices the state for the host
    try:
        got, want = draw("GPU:0"), draw("CPU:0")
    finally:
        tf.config.set_soft_device_placement(False)
    for a, b in zip(got, want, strict=True):
        check(a.numpy(), b.numpy(), normal=True)


@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int8", "int32", "int64", "complex128"])
def test_shuffle(dtype):
    for shape in [(), (0,), (1, 3), (2,), (7,), (40, 3), (5, 2, 9), (3001,)]:
        x = random(shape, dtype)

        def draw(device, x=x):
            with tf.Graph().as_default(), tf.device(device):
                shuffled = raw.RandomShuffle(value=tf.constant(x), seed=3, seed2=4)
                with tf.compat.v1.Session() as session:
                    return [session.run(shuffled) for _ in range(3)]

        for got, want in zip(draw("GPU:0"), draw("CPU:0"), strict=True):
            np.testing.assert_array_equal(got, want)
    assert on_device(raw.RandomShuffle(value=put(x))).shape == x.shape


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_classes_by_their_logits(dtype):
    rng = np.random.default_rng(4)
    for rows, classes, samples in [
        (1, 1, 5),
        (1, 4, 1),
        (3, 7, 9),
        (2, 1000, 33),
        (5, 3, 0),
        (0, 3, 4),
        (1, 50, 4001),
    ]:
        logits = (3 * rng.normal(size=(rows, classes))).astype("f")
        if classes > 3:
            logits[0, 1], logits[0, 2] = -np.inf, np.nan
        for index in (tf.int32, tf.int64):
            found = []
            for device in ("CPU:0", "GPU:0", "GPU:0"):
                with tf.device(device):
                    x = tf.cast(tf.constant(logits), dtype)
                    given = dict(num_samples=samples, output_dtype=index)
                    with_seed = tf.raw_ops.StatelessMultinomial(logits=x, seed=[3, 5], **given)
                    tf.random.set_seed(7)
                    with_state = [
                        tf.raw_ops.Multinomial(logits=x, seed=7, seed2=9, **given) for _ in range(2)
                    ]
                    found.append([with_seed, *with_state])
            for want, got, again in zip(*found, strict=True):
                assert got.device.endswith("GPU:0") and got.dtype == index
                if classes != 7:  # a kernel is shared by calls: the second time it goes on
                    assert got.shape == again.shape
                # The CPU adds in float64: where a number falls on the border of two classes it may differ.
                differ = np.sum(want.numpy() != got.numpy()) if rows * samples < 500 else 0
                assert differ <= 1, (rows, classes, samples, differ)
            if samples > 1000:
                with tf.device("CPU:0"):
                    p = tf.nn.softmax(
                        tf.where(tf.math.is_finite(x), tf.cast(x, tf.float32), -1e30)
                    ).numpy()[0]
                share = np.bincount(found[1][0].numpy()[0], minlength=classes) / samples
                assert np.abs(share - p).max() < 4 * np.sqrt(p.max() / samples)
                assert np.mean(found[0][0].numpy() != found[1][0].numpy()) < 1e-3


STATEFUL = {
    "StatefulUniform": FLOATS,
    "StatefulStandardNormalV2": FLOATS,
    "StatefulTruncatedNormal": FLOATS,
    "StatefulUniformFullInt": ["int32", "int64", "uint32", "uint64"],
    "StatefulUniformInt": ["int32", "int64"],
}


@pytest.mark.parametrize("name", STATEFUL)
def test_numbers_of_a_generator_in_a_variable(name):
    """The CPU's, call by call, and the state that they leave."""
    op = getattr(raw, name)
    for dtype in STATEFUL[name]:
        given = {"dtype": dtype}
        if name == "StatefulUniformInt":
            given = {"minval": tf.constant(-7, dtype), "maxval": tf.constant(12345, dtype)}
        found = []
        for device in ("GPU:0", "CPU:0"):
            with tf.device(device):
                state = tf.Variable([2**63 - 5, -1, 12345])
                numbers = [
                    op(
                        resource=state.handle,
                        algorithm=tf.constant(1, tf.int64),
                        shape=shape,
                        **given,
                    )
                    for shape in ([], [5], [0, 3], [70001], [2, 3])
                ]
                assert all(x.device.endswith(device) for x in numbers)
                found.append([*(x.numpy() for x in numbers), state.numpy()])
        for got, want in zip(*found, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            check(got, want, "Normal" in name)


def test_a_generator_of_tensorflow_2():
    """`tf.random.Generator`: its draws, splits and skips."""
    tf.config.set_soft_device_placement(True)  # shapes' products are int32, on the host
    try:
        found = []
        for device in ("GPU:0", "CPU:0"):
            with tf.device(device):
                generator = tf.random.Generator.from_seed(7)
                x = generator.normal([5], dtype="float32")
                assert x.device.endswith(device)
                whole = generator.uniform([4], maxval=9, dtype=tf.int64)
                generator.skip(3)
                (other,) = generator.split(1)
                numbers = [x, whole, other.truncated_normal([9]), generator.make_seeds(2)]
                found.append(
                    [
                        n.numpy()
                        for n in [*numbers, generator.uniform_full_int([3]), generator.state]
                    ]
                )
    finally:
        tf.config.set_soft_device_placement(False)
    for i, (got, want) in enumerate(zip(*found, strict=True)):
        check(got, want, i in (0, 2))


def test_bad_generators():
    with tf.device("GPU:0"):
        state, short = (tf.Variable(np.arange(1, n)) for n in (4, 3))
        for variable, algorithm, says in [
            (state, 2, "algorithm 2"),
            (short, 1, "size of state must be at least 3"),
        ]:
            with pytest.raises(tf.errors.OpError, match=says):
                raw.StatefulUniform(
                    resource=variable.handle, algorithm=tf.constant(algorithm, tf.int64), shape=[2]
                )
        np.testing.assert_array_equal(state, [1, 2, 3])


def test_determinism_wants_a_seed():
    def draw(**seeds):
        return tf.raw_ops.TruncatedNormal(shape=[3], dtype=tf.float32, **seeds)

    tf.config.experimental.enable_op_determinism()
    try:
        with tf.device("GPU:0"):
            draw(seed=1, seed2=2)
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="TruncatedNormal: .*must have a seed"
            ):
                draw()
    finally:
        config.disable_op_determinism()


@pytest.mark.parametrize(
    ("logits", "samples", "says"),
    [
        (tf.ones([3]), 2, "rank 2|must be .rows"),
        (tf.ones([2, 0]), 2, "at least one class"),
        (tf.ones([1, 2]), -1, "non-negative"),
    ],
)
def test_bad_classes(logits, samples, says):
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match=says):
        tf.raw_ops.StatelessMultinomial(
            logits=tf.identity(logits), num_samples=samples, seed=[1, 2]
        )
