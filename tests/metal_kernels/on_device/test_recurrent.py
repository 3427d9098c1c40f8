"""Recurrent sequences on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_recurrent, test_recurrent_layers
from tests.metal_kernels.on_device import again

OPS = ("recurrent_sequence", "recurrent_sequence_grad")
REFUSED = ("test_bad_calls", "test_bad_raw_calls", "test_dtypes_differ", "test_bad_layers")
REFUSED += ("test_ragged_steps_in_their_own_order_alone",)
guard = again.guarding(OPS, REFUSED)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_recurrent)):
    pass


# Most of them compare with Keras' loop, which takes long there.
LEFT_OUT = (
    "test_is_that_of_keras",
    "test_other_activations_are_those_of_keras",
    "test_initial_state_before_missing_steps",
    "test_mixed_policies",
)
ops = test_recurrent_layers.ops


# Keras has ops on integers, which have no kernels there.
@pytest.mark.usefixtures("guard", "soft_placement")
class TestLayersOnDevice(again.tests_of(test_recurrent_layers, LEFT_OUT)):
    pass


@pytest.mark.parametrize("way", ["groups", "threads"])
@pytest.mark.usefixtures("guard")
def test_who_has_a_row_of_a_norm(way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_ROW_NORM", way)
    test_recurrent.test_layer_norm("lstm", "float32")
    test_recurrent.test_layer_norm("minimal_gated", "bfloat16")
    test_recurrent.test_gradients()


def test_same_sentence():
    again.assert_same_sentence(
        lambda: raw_ops.recurrent_sequence(
            gates=tf.ones([2, 3, 5]),
            recurrent_kernel=tf.ones([2, 5]),
            initial_h=tf.ones([2, 2]),
            initial_c=tf.ones([2, 2]),
            mask=tf.zeros([0], tf.bool),
            **dict.fromkeys(
                ("projection", "recurrent_bias", "recurrent_gamma", "cell_gamma", "cell_beta"),
                tf.zeros([0]),
            ),
            cell="lstm",
        )
    )
