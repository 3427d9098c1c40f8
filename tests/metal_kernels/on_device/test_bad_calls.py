"""A call that fails leaves nothing behind for the next one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops

pytestmark = pytest.mark.instrumented

ORIGINS = np.full((4, 3), -1, np.float32)


def march(seed: Any, **attributes: Any) -> Any:
    return raw_ops.ray_march(
        tf.constant(ORIGINS),
        tf.constant(-ORIGINS),
        tf.fill([1, 64], tf.constant(255, tf.uint8)),
        tf.constant([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
        tf.constant(0.0),
        tf.constant(9.0),
        tf.constant(seed),
        **{"resolution": 8, "step": 0.1, "stratified": True, **attributes},
    )


@pytest.mark.parametrize("attribute", ["max_samples_per_ray", "step", "cone_angle"])
def test_host_memory_of_a_call_that_failed_is_not_taken_by_the_next(attribute):
    """With an error from the kernel's constructor the next call got the seed of the call that had failed."""
    with tf.device("GPU:0"):
        expected = march([7, 8]).t_starts.numpy()
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"RayMarch: {attribute} must"):
                march([1, 2], **{attribute: -1})
            np.testing.assert_array_equal(march([7, 8]).t_starts, expected)
            with pytest.raises(tf.errors.InvalidArgumentError, match="seed must have shape"):
                march(-1)


LONG = 2**32  # beside a 0, so that no memory is needed


@pytest.mark.parametrize("what", ["classes", "channels"])
def test_counts_beyond_32_bits_are_refused(what):
    wide, none = tf.zeros([0, LONG]), tf.zeros([0])
    packed_info = tf.zeros([0, 2], tf.int32)
    calls = {
        "classes": lambda: raw_ops.softmax_focal_loss(wide, wide, alpha=0.25, gamma=2.0),
        "channels": lambda: raw_ops.volume_render(none, wide, none, none, packed_info, none),
    }
    sentence = f"{LONG} {what} are more than the 2\\^32 - 1 that a Metal kernel counts to"
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        calls[what]()
