"""Gamma, Poisson and truncated normal numbers on the device: the host draws them, so they are the CPU's to the bit on
every machine."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_ops import on_device

raw = tf.raw_ops
DTYPES = ["float32", "float16"]
WHOLE = ["int32", "int64"]
SEEDS = [(0, 0), (1, -2), (2**40, -7)]
# Far below 1 to far above it, where algorithms change, and values without such numbers.
ALPHAS = np.array([0.05, 1.0, 0.6, 7.5, 1000.0, np.nan, -0.9, -0.5, 0.0, np.inf], np.float32)
RATES = np.array([0.0, 0.3, 9.9, 10.0, 11.0, 500.0, -2.0], np.float32)


def on_both(call, **inputs) -> None:
    """The same numbers, of the same call made twice: a kernel that keeps a state goes on."""
    found = []
    for device in ("GPU:0", "CPU:0"):
        with tf.device(device):
            found.append([call(**{k: tf.identity(v) for k, v in inputs.items()}) for _ in range(2)])
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(on_device(got), want.numpy())


def keyed(seed):
    with tf.device("CPU:0"):
        key, counter, alg = raw.StatelessRandomGetKeyCounterAlg(seed=tf.constant(seed, tf.int64))
    return dict(key=key, counter=counter, alg=alg)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0,), (2, 0), (1025,)])
def test_gamma(dtype, shape):
    for alpha in (
        ALPHAS.astype(dtype),
        ALPHAS[1:9].reshape(2, 4).astype(dtype),
        ALPHAS[3].astype(dtype),
    ):
        size = tf.constant([*shape, *alpha.shape], tf.int64)
        for seed in SEEDS:
            on_both(lambda alpha, s=seed: raw.RandomGamma(
                shape=tf.constant(shape, tf.int32), alpha=alpha, seed=s[0], seed2=s[1] or 9), alpha=alpha)  # fmt: skip
            on_both(
                lambda alpha, s=seed, size=size: raw.StatelessRandomGammaV2(
                    shape=size, seed=s, alpha=alpha
                ),
                alpha=alpha,
            )
            on_both(
                lambda alpha, s=seed, size=size: raw.StatelessRandomGammaV3(
                    shape=size, alpha=alpha, **keyed(s)
                ),
                alpha=alpha,
            )


@pytest.mark.parametrize("dtype", [*DTYPES, *WHOLE])
@pytest.mark.parametrize("of", [*DTYPES, *WHOLE])
def test_poisson(dtype, of):
    for rate in (RATES.astype(of), RATES[:6].reshape(3, 2).astype(of), RATES[4].astype(of)):
        for shape in [(), (9,), (0,), (3, 401)]:
            size = tf.constant([*shape, *rate.shape], tf.int64)
            on_both(lambda rate, s=shape: raw.RandomPoissonV2(
                shape=tf.constant(s, tf.int32), rate=rate, dtype=dtype, seed=3, seed2=4), rate=rate)  # fmt: skip
            on_both(
                lambda lam, s=size: raw.StatelessRandomPoisson(
                    shape=s, seed=[5, 6], lam=lam, dtype=dtype
                ),
                lam=rate,
            )
    on_both(lambda rate: raw.RandomPoissonV2(shape=[5], rate=rate, dtype=dtype, seed=1),
            rate=np.array([np.inf, 3], np.float32))  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_poisson_of_old_graphs(dtype):
    """RandomPoisson, which no TensorFlow makes any more."""
    found = []
    for device in ("GPU:0", "CPU:0"):
        with tf.Graph().as_default() as graph, tf.device(device):
            tf.constant([30, 2], name="shape")
            tf.constant(RATES.astype(dtype), name="rate")
        old = graph.as_graph_def()
        old.versions.producer = 24
        node = old.node.add(
            op="RandomPoisson", name="numbers", input=["shape", "rate"], device=old.node[0].device
        )
        for name, value in (("S", tf.int32), ("dtype", tf.as_dtype(dtype))):
            node.attr[name].type = value.as_datatype_enum
        for name, seed in (("seed", 3), ("seed2", 4)):
            node.attr[name].i = seed
        with tf.Graph().as_default():
            tf.import_graph_def(old, name="")
            with tf.compat.v1.Session() as session:
                found.append([session.run("numbers:0") for _ in range(2)])
    np.testing.assert_array_equal(*found)
    assert not np.array_equal(found[0][0], found[0][1])


# Mean, deviation, bounds: by normal numbers, uniform ones, exponential ones, mirrored and with one bound.
BOUNDS = np.array([
    [0, 1, -2, 2], [3, 2, -np.inf, 4], [-1, 0.5, -1.5, np.inf], [0, 1, 0.1, 0.4], [0, 1, -0.5, 0.5], [0, 1, -0.4, -0.1],
    [0, 1, 5, np.inf], [1, 2, -np.inf, -9], [0, 1, 2, 9], [5, 3, 4.9, 5.2],
], np.float32)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers_between_bounds(dtype):
    bounds = BOUNDS.astype(dtype)
    names = ("means", "stddevs", "minvals", "maxvals")
    for columns in (*bounds, *bounds[:, :, None]):
        for shape in [(1,), (30,), (2, 3, 5), (0,), (4, 0)]:
            each = dict(zip(("means", "stdevs", "minvals", "maxvals"), columns, strict=True))
            on_both(lambda s=shape, **given: raw.ParameterizedTruncatedNormal(
                shape=tf.constant(s, tf.int32), seed=3, seed2=4, **given), **each)  # fmt: skip
    # Parameters of each row, and some of all of them.
    rows = dict(zip(("means", "stdevs", "minvals", "maxvals"), bounds.T, strict=True))
    for shape in [(10,), (10, 3), (10, 2, 2)]:
        on_both(lambda s=shape, **given: raw.ParameterizedTruncatedNormal(
            shape=tf.constant(s, tf.int64), seed=3, seed2=4, **given), **rows)  # fmt: skip
    # Broadcast to the last dimensions.
    spread = dict(
        zip(names, (bounds[:2, 0], bounds[:1, 1], bounds[0, 2], bounds[:3, 3, None]), strict=True)
    )
    for given, end in [(dict(zip(names, bounds.T, strict=True)), (10,)), (spread, (3, 2)),
                       (dict(zip(names, bounds[4], strict=True)), ())]:  # fmt: skip
        for shape in [(), (1,), (3,), (0,), (2, 2)]:
            on_both(lambda s=(*shape, *end), **given: raw.StatelessParameterizedTruncatedNormal(
                shape=tf.constant(s, tf.int32), seed=[7, -8], **given), **given)  # fmt: skip


def taken_in_order(z, taken, total, batch):
    """The first `batch` taken numbers of z [groups, 4] again and again, each batch from a group of its own."""
    found, group = [], 0
    while len(found) < total:
        n, window = min(batch, total - len(found)), slice(group, group + 2 * batch)
        at = np.flatnonzero(taken[window])[:n]
        assert len(at) == n, "more groups are needed"
        found.extend(z[window].reshape(-1)[at])
        group += at[-1] // 4 + 1
    return np.array(found, np.float32)


def test_many_normal_numbers_between_bounds_are_those_of_one_generator():
    """Tried ahead by several threads and in several rounds, all are the same as one after the other."""
    total, drawn = 100000, 600000
    seeds = {"seed": [7, -8], "dtype": tf.float32}
    state = {"seed": 31, "seed2": 41}  # of no other test, whose generator would go on

    def of_groups(numbers):
        return numbers.numpy().reshape(-1, 4)

    with tf.device("CPU:0"):
        normal = of_groups(raw.StatelessRandomNormal(shape=[drawn], **seeds))
        uniform = of_groups(raw.StatelessRandomUniform(shape=[drawn], **seeds))
        stateful = of_groups(raw.RandomStandardNormal(shape=[drawn], dtype=tf.float32, **state))
    bounds = {"means": 0.0, "minvals": -2.0, "maxvals": 1.5}
    with tf.device("GPU:0"):
        by_seed = on_device(raw.StatelessParameterizedTruncatedNormal(
            shape=[total], seed=[7, -8], stddevs=1.0, **bounds))  # fmt: skip
        by_state = on_device(
            raw.ParameterizedTruncatedNormal(shape=[total], stdevs=1.0, **state, **bounds)
        )
        by_uniform = on_device(raw.StatelessParameterizedTruncatedNormal(
            shape=[total], seed=[7, -8], means=0.0, stddevs=1.0, minvals=0.25, maxvals=0.5))  # fmt: skip
    for z, batch, got in [(normal, total, by_seed), (stateful, 100, by_state)]:
        expected = taken_in_order(z, (z >= -2.0) & (z <= 1.5), total, batch)
        np.testing.assert_array_equal(got, expected)
    # Every second group is the threshold of the one before; all of it is exact except the exponential.
    z, by = uniform[::2] * np.float32(0.25) + np.float32(0.25), uniform[1::2].astype("f8")
    least = np.exp((0.0625 - z.astype("f8") ** 2) / 2)
    assert np.abs(by - least).min() > 1e-7, "too near to tell: choose another seed"
    np.testing.assert_array_equal(by_uniform, taken_in_order(z, by <= least, total, total))


def test_they_are_of_their_distributions():
    """Mean and variance of 200000 numbers, within five standard errors of both."""
    n = 200000
    with tf.device("GPU:0"):
        for alpha in (0.3, 1.0, 4.0):
            x = on_device(raw.RandomGamma(shape=[n], alpha=np.float32(alpha), seed=5)).astype("f8")
            kurtosis = 3 + 6 / alpha
            assert abs(x.mean() - alpha) < 5 * np.sqrt(alpha / n)
            assert abs(x.var() / alpha - 1) < 5 * np.sqrt((kurtosis - 1) / n)
        for rate in (0.7, 9.0, 60.0):
            x = on_device(
                raw.RandomPoissonV2(shape=[n], rate=np.float32(rate), dtype=tf.int32, seed=5)
            ).astype("f8")
            assert abs(x.mean() - rate) < 5 * np.sqrt(rate / n)
            assert abs(x.var() / rate - 1) < 5 * np.sqrt((2 + 1 / rate) / n)
        # Half of the normal distribution, and its tail: their means are known.
        for low, mean in ((0.0, np.sqrt(2 / np.pi)), (3.0, 3.2831)):
            given = dict(means=0.0, stdevs=1.0, minvals=low, maxvals=np.float32(np.inf))
            x = on_device(raw.ParameterizedTruncatedNormal(shape=[n], seed=5, **given)).astype("f8")
            assert x.min() >= low and abs(x.mean() - mean) < 5 * x.std() / np.sqrt(n)


def test_generators_without_a_seed_differ():
    with tf.device("GPU:0"):
        a, b = (on_device(raw.RandomGamma(shape=[8], alpha=2.0)) for _ in range(2))
    assert not np.array_equal(a, b)


def truncated(**given):
    return raw.ParameterizedTruncatedNormal(
        **dict(shape=[2, 3], means=0.0, stdevs=1.0, minvals=-1.0, maxvals=1.0) | given
    )


def stateless(**given):
    return raw.StatelessParameterizedTruncatedNormal(
        **dict(shape=[2, 3], seed=[1, 2], means=0.0, stddevs=1.0, minvals=-1.0, maxvals=1.0) | given
    )


NO = tf.errors.InvalidArgumentError
BAD = {
    "gamma, shape": lambda: raw.RandomGamma(shape=[[3]], alpha=[1.0]),
    "gamma, scalar": lambda: raw.RandomGamma(shape=3, alpha=[1.0]),
    "gamma, size": lambda: raw.RandomGamma(shape=[-3], alpha=[1.0]),
    "gamma, end": lambda: raw.StatelessRandomGammaV2(shape=[3], seed=[1, 2], alpha=[1.0]),
    "gamma, seed": lambda: raw.StatelessRandomGammaV2(shape=[3, 1], seed=[1, 2, 3], alpha=[1.0]),
    "poisson, shape": lambda: raw.RandomPoissonV2(shape=[[3]], rate=[1.0]),
    "poisson, size": lambda: raw.RandomPoissonV2(shape=[-3], rate=[1.0]),
    "poisson, end": lambda: raw.StatelessRandomPoisson(
        shape=[2], seed=[1, 2], lam=[1.0], dtype=tf.int32
    ),
    "bounds": lambda: truncated(minvals=1.0),
    "deviation": lambda: truncated(stdevs=[-1.0, 1.0]),
    "no bounds": lambda: truncated(minvals=-np.inf, maxvals=np.inf),
    "shape": lambda: truncated(shape=[[2]]),
    "no shape": lambda: truncated(shape=tf.zeros([0], tf.int32)),
    "rank": lambda: truncated(stdevs=[[1.0]]),
    "length": lambda: truncated(means=[0.0, 1.0, 2.0]),
    "stateless, bounds": lambda: stateless(maxvals=-2.0),
    "stateless, batches": lambda: stateless(means=[0.0, 1.0], minvals=[0.0, 0.1, 0.2]),
    "stateless, end": lambda: stateless(means=[0.0, 1.0]),
    "stateless, seed": lambda: stateless(seed=[1, 2, 3]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    """With TensorFlow's words, after the op's name."""
    said = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device), pytest.raises(NO) as error:
            BAD[name]()
        said.append(error.value.message.split("}} ", 1)[-1].rsplit(" [Op:", 1)[0])
    words, got = (text.replace(" ", "") for text in said)
    assert words.split("Tensor<")[0].rstrip(".:") in got, said


def test_numbers_too_large_for_their_dtype():
    """TensorFlow's CPU kernel looks for them for ever."""
    with tf.device("GPU:0"):
        for rate, dtype in [(1e10, "int32"), (1e30, "int64"), (np.nan, "float32")]:
            with pytest.raises(NO, match=f"RandomPoissonV2: rate must be .* {dtype} can hold, got"):
                raw.RandomPoissonV2(shape=[3], rate=np.float32(rate), dtype=dtype)


def test_binomial_numbers_are_the_cpus():
    """docs/device.md says so, and where a generator of them must be."""
    with tf.device("GPU:0"):
        generator = tf.random.Generator.from_seed(1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="StatefulRandomBinomial"):
            generator.binomial([3], 4.0, 0.5)
    with tf.device("CPU:0"):
        assert tf.random.Generator.from_seed(1).binomial([3], 4.0, 0.5).shape == (3,)
