"""Attention on the Metal device: the CPU's tests again, in all ways that threads share it out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_attention, test_multi_head_attention
from tests.metal_kernels.on_device import again
from tests.oracles import attention

OPS = tuple(f"scaled_dot_product_attention{end}" for end in ("", "_grad", "_bias_grad"))
REFUSED = (
    *("test_bad_arguments", "test_bad_calls", "test_bad_gradients", "test_philox_is_philox"),
    *("test_xla_is_refused_with_a_sentence", "test_memory_is_linear_in_the_length"),
    *("test_empty", "test_second_derivatives_are_refused"),
)

guard = again.guarding(OPS, REFUSED)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_attention)):
    pass


def test_memory_is_linear_in_the_length():
    test_attention.test_memory_is_linear_in_the_length("GPU:0")


OF_LAYER = (
    *("test_bad_arguments", "test_scores_are_asked_of_keras", "test_it_is_the_op_that_computes"),
)
guard_layer = again.guarding(OPS, OF_LAYER)


# Not all that a model is trained with has kernels on the device.
@pytest.mark.usefixtures("guard_layer", "soft_placement")
class TestLayerOnDevice(again.tests_of(test_multi_head_attention)):
    pass


@pytest.mark.parametrize("way", ["one", "vector", "groups"])
@pytest.mark.parametrize("options", test_attention.OPTIONS)
@pytest.mark.parametrize("size", test_attention.SIZES[1:], ids=str)
def test_all_ways(size, options, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_ATTENTION", way)
    bias = np.random.default_rng(3).normal(size=(1, size[1], 1, size[4])).astype(np.float32)
    mask = np.random.default_rng(4).random((size[0], 1, size[3], size[4])) < 0.7
    arrays = test_attention.make(*size)
    with tf.device("GPU:0"):
        test_attention.check(
            *arrays, factor=2.0, bias=bias, mask=mask, **test_attention.OPTIONS[options]
        )


# For one query, heads that share keys are taken together.
@pytest.mark.parametrize("way", ["groups", "warpgroups"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "size",
    [*test_attention.SIZES[1:], (1, 2, 1, 3, 700, 24, 40), (2, 6, 2, 1, 300, 64, 64)],
    ids=str,
)
def test_half_types_by_groups(size, dtype, way, monkeypatch):
    """The keys of the last two are shared out among simdgroups."""
    monkeypatch.setenv("METAL_OPS_ATTENTION", way)
    arrays = test_attention.make(*size, dtype)
    with tf.device("GPU:0"):
        test_attention.check(*arrays, dtype, **test_attention.OPTIONS["causal"])


@pytest.mark.parametrize("options", test_attention.OPTIONS)
def test_options_by_four_simdgroups(options, monkeypatch):
    """More queries than they have rows, and keys than they look at together."""
    monkeypatch.setenv("METAL_OPS_ATTENTION", "warpgroups")
    bias = np.random.default_rng(3).normal(size=(1, 4, 1, 90)).astype(np.float16)
    mask = np.random.default_rng(4).random((2, 1, 70, 90)) < 0.7
    arrays = test_attention.make(2, 4, 2, 70, 90, 40, 64, "float16")
    with tf.device("GPU:0"):
        test_attention.check(
            *arrays, "float16", bias=bias, mask=mask, **test_attention.OPTIONS[options]
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", ["plain", "causal window", "all"])
@pytest.mark.parametrize(
    "size", [(2, 16, 16, 70, 1030, 24, 48), (1, 64, 32, 40, 1030, 100, 128)], ids=str
)
def test_gradients_of_many_heads(size, options, dtype):
    """Where twice four simdgroups multiply, so many of them that they sum up queries' gradients in turns."""
    arrays = test_attention.make(*size, dtype)
    with tf.device("GPU:0"):
        found = test_attention.check(*arrays, dtype, **test_attention.OPTIONS[options])
        again = test_attention.call(*arrays, **test_attention.OPTIONS[options])
    for first, second in zip(found, again, strict=True):
        assert first.numpy().tobytes() == second.numpy().tobytes()


# As many parts as keys allow: heads that share keys as rows of one, several blocks of queries, sizes between.
MANY_PARTS = [(1, 8, 2, 1, 4100, 64, 64), (2, 2, 1, 3, 1500, 24, 40), (1, 2, 2, 150, 1030, 32, 32)]
WAYS = [("groups", "float32"), ("groups", "float16")]
WAYS += [("warpgroups", "float16"), ("warpgroups", "bfloat16")]


def joined(monkeypatch, join, *arrays, **options):
    monkeypatch.setenv("METAL_OPS_ATTENTION_JOIN", join)
    with tf.device("GPU:0"):
        return test_attention.call(*arrays, **options)[0]


@pytest.mark.parametrize("way, dtype", WAYS)
@pytest.mark.parametrize("size", MANY_PARTS, ids=str)
def test_who_joins_the_parts(size, way, dtype, monkeypatch):
    """The last to have a part joins them, or a launch: the keys of all, of some, and of none; with NaN in some
    part."""
    monkeypatch.setenv("METAL_OPS_ATTENTION", way)
    q, k, v, _ = test_attention.make(*size, dtype)
    lengths = np.array([size[4] // 3, 0])[: size[0]]
    spoilt = v.copy()
    spoilt[0, 0, size[4] - 200] = np.nan
    mask = np.random.default_rng(4).random((size[0], 1, size[3], size[4])) < 0.01
    mask[..., size[4] // 2 :] = False  # parts without a key
    for arrays, options in (
        ((q, k, v), {}),
        ((q, k, v), {"key_lengths": lengths}),
        ((q, k, spoilt), {}),
        ((q, k, v), {"mask": mask, "causal": True}),
    ):
        last, launch = (joined(monkeypatch, by, *arrays, **options) for by in ("last", "launch"))
        assert last.numpy().tobytes() == launch.numpy().tobytes()
        if arrays[2] is spoilt:
            assert np.isnan(last[0]).any()
        else:
            right = attention.Attention(*arrays, **options)
            # Weights are rounded to the dtype, too.
            test_attention.assert_near(last, right.outputs, dtype, "outputs", 2)


@pytest.mark.parametrize("way", ["groups", "warpgroups"])
def test_parts_of_many_calls(way, monkeypatch):
    """Some sizes in turns, which are counted in the same places, with many under way."""
    monkeypatch.setenv("METAL_OPS_ATTENTION", way)
    sizes = [(1, 4, 4, 1, 1100, 16, 16), (2, 4, 1, 1, 600, 16, 16), (1, 2, 2, 40, 700, 16, 16)]
    given = [[tf.constant(x) for x in test_attention.make(*size, "float16")[:3]] for size in sizes]
    expected = [joined(monkeypatch, "launch", *arrays).numpy() for arrays in given]
    monkeypatch.setenv("METAL_OPS_ATTENTION_JOIN", "last")

    @tf.function
    def several(given):
        return [metal_ops.scaled_dot_product_attention(*arrays) for arrays in given * 4]

    with tf.device("GPU:0"):
        for _ in range(10):
            for i, found in enumerate(several(given)):
                np.testing.assert_array_equal(found, expected[i % len(sizes)])


def test_an_unknown_join_is_refused(monkeypatch):
    monkeypatch.setenv("METAL_OPS_ATTENTION", "groups")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="METAL_OPS_ATTENTION_JOIN must be .* 'all'"
    ):
        joined(monkeypatch, "all", *test_attention.make(1, 1, 1, 2, 2, 2, 2)[:3])


@pytest.mark.parametrize(
    "way, dtype",
    [("one", "float32"), ("vector", "float32"), ("groups", "float32"), ("warpgroups", "float16")],
)
def test_same_bits_from_run_to_run(way, dtype, monkeypatch):
    monkeypatch.setenv("METAL_OPS_ATTENTION", way)
    arrays = test_attention.make(2, 4, 2, 70, 90, 16, 24, dtype)
    q, k, v, incoming = (tf.constant(x) for x in arrays)
    bias = tf.ones([1, 1, 70, 90], dtype)

    def run():
        with tf.GradientTape() as tape:
            tape.watch([q, k, v, bias])
            y = metal_ops.scaled_dot_product_attention(q, k, v, bias=bias, dropout=0.5, seed=(1, 2))
        return y, tape.gradient(y, [q, k, v, bias], output_gradients=incoming)

    again.assert_same_bits(run)


def test_an_unknown_way_is_refused(monkeypatch):
    monkeypatch.setenv("METAL_OPS_ATTENTION", "all")
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="METAL_OPS_ATTENTION must be .* 'all'"),
        tf.device("GPU:0"),
    ):
        metal_ops.scaled_dot_product_attention(*test_attention.make(1, 1, 1, 2, 2, 2, 2)[:3])


def test_same_sentences():
    q, k, v, _ = test_attention.make(1, 4, 3, 2, 2, 2, 2)
    none = [tf.zeros([0], tf.bool), tf.zeros([0]), tf.zeros([0], tf.int32), tf.zeros([2], tf.int32)]
    again.assert_same_sentence(lambda: raw_ops.scaled_dot_product_attention(q, k, v, *none))
