"""hamming_distance and hamming_top_k on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_hamming_distance
from tests.metal_kernels.on_device import again

guard = again.guarding(("hamming_distance",), ("test_bad_calls",))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_hamming_distance)):
    pass


def test_same_sentence():
    again.assert_same_sentence(
        lambda: raw_ops.hamming_distance(tf.ones([2, 3], tf.uint8), tf.ones([3, 3], tf.uint8))
    )
