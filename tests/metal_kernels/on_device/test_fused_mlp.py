"""FusedMlp on the Metal device: the CPU's tests again, and both devices side by side."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_mlp
from tests.metal_kernels.on_device import again
from tests.oracles.mlp import ACTIVATIONS

OPS = ("fused_mlp", "fused_mlp_grad")
REFUSED = (
    *("test_bad_arguments", "test_bad_calls", "test_bad_gradients", "test_layer_bad_arguments"),
    *("test_layer_seeds", "test_xla_is_refused_with_a_sentence"),
    "test_tcnn_networks_that_are_refused",
    # A hidden sine goes by stock ops.
    *("test_activations_against_differences[sine-sine]", "test_activations_far_from_zero[sine]"),
    "test_layer_of_a_tcnn_network[24-sine]",
)
# Sums in another order: a few float32 roundings a layer, and of values near 1 in half precision.
TOLERANCE = {"float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}

guard = again.guarding(OPS, REFUSED)


# Not all that second derivatives are composed of has kernels on the device.
@pytest.mark.usefixtures("guard", "soft_placement")
class TestOnDevice(again.tests_of(test_fused_mlp)):
    pass


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays])


@pytest.mark.parametrize("way", ["threads", "groups"])
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("size", [*test_fused_mlp.SIZES, (3001, 32, 64, 2, 3)], ids=str)
def test_equals_the_cpu(size, dtype, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_MLP", way)
    for number, activation in enumerate(name for name in ACTIVATIONS if name != "sine"):
        use_bias = number % 2 == 0
        x, kernels, biases = test_fused_mlp.make(*size, dtype, use_bias)
        kernels = test_fused_mlp.shrunk(kernels, activation)
        parts = zip(kernels, biases, strict=True) if use_bias else zip(kernels, strict=True)
        weights = flat([part for layer in parts for part in layer])
        incoming = np.random.default_rng(1).integers(-16, 65, (size[0], size[4])) / 64
        attributes = dict(
            n_outputs=size[4],
            n_neurons=size[2],
            n_hidden_layers=size[3],
            activation="none" if activation in ("relu", "leaky_relu") else activation,
            output_activation=activation,
            use_bias=use_bias,
        )

        def run(x, weights, incoming, attributes=attributes):
            return (
                raw_ops.fused_mlp(x, weights, **attributes),
                *raw_ops.fused_mlp_grad(incoming, x, weights, **attributes),
            )

        cpu, device = again.on_both(run, x, weights, incoming.astype(x.dtype))
        for expected, actual in zip(cpu, device, strict=True):
            assert expected.shape == actual.shape
            scale = np.max(np.abs(expected), initial=1e-30)
            error = np.max(np.abs(actual - expected), initial=0) / scale
            assert error <= TOLERANCE[dtype] * (size[3] + 1), (activation, error)


def test_gradients_in_chunks():
    """So many wide layers that the scratch for gradients holds a part of the batch."""
    x, kernels, _ = test_fused_mlp.make(8001, 16, 128, 8, 1, use_bias=False)
    attributes = dict(n_outputs=1, n_neurons=128, n_hidden_layers=8, activation="squareplus")
    g = np.abs(np.random.default_rng(1).normal(size=(8001, 1))).astype(np.float32)
    cpu, device = again.on_both(
        lambda *arrays: raw_ops.fused_mlp_grad(*arrays, **attributes), g, x, flat(kernels)
    )
    for expected, actual in zip(cpu, device, strict=True):
        assert np.max(np.abs(actual - expected)) <= 2e-5 * np.max(np.abs(expected))


@pytest.mark.parametrize("use_bias", [False, True])
def test_gradients_of_many_rows(use_bias, monkeypatch):
    """More than every threadgroup has at a time."""
    monkeypatch.setenv("METAL_OPS_MLP", "groups")
    x, kernels, biases = test_fused_mlp.make(34001, 3, 16, 1, 2, "float16", use_bias)
    parts = zip(kernels, biases, strict=True) if use_bias else zip(kernels, strict=True)
    weights = flat([part for layer in parts for part in layer])
    g = np.random.default_rng(1).integers(0, 2, (34001, 2)).astype(np.float16) / 64
    attributes = dict(n_outputs=2, n_neurons=16, n_hidden_layers=1, use_bias=use_bias)
    cpu, device = again.on_both(
        lambda *arrays: raw_ops.fused_mlp_grad(*arrays, activation="squareplus", **attributes),
        g,
        x,
        weights,
    )
    for expected, actual in zip(cpu, device, strict=True):
        assert np.max(np.abs(actual - expected)) <= 4e-3 * np.max(np.abs(expected))


@pytest.mark.instrumented
@pytest.mark.parametrize("way", ["threads", "groups"])
def test_same_bits_from_run_to_run(way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_MLP", way)
    x, kernels, _ = test_fused_mlp.make(3000, 32, 64, 2, 3)
    g, weights = tf.ones([3000, 3]), tf.constant(flat(kernels))
    again.assert_same_bits(lambda: raw_ops.fused_mlp_grad(g, tf.constant(x), weights, n_outputs=3))


def test_an_unknown_way_is_refused(monkeypatch):
    monkeypatch.setenv("METAL_OPS_MLP", "warps")
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="METAL_OPS_MLP must be .* got 'warps'"),
        tf.device("GPU:0"),
    ):
        raw_ops.fused_mlp(
            tf.ones([2, 3]), tf.ones([64]), n_outputs=1, n_neurons=16, n_hidden_layers=1
        )


@pytest.mark.instrumented
def test_same_sentences():
    again.assert_same_sentence(
        lambda: raw_ops.fused_mlp(tf.ones([2, 3]), tf.ones([65]), n_outputs=1, n_neurons=16)
    )
