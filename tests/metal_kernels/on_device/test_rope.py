"""rope on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_rope
from tests.metal_kernels.on_device import again

guard = again.guarding(("rope",), ("test_bad_calls",))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_rope, ("test_after_a_cache",))):
    pass


def test_same_sentence():
    positions, turns = tf.zeros([1, 3], tf.int32), tf.zeros([2, 3])
    again.assert_same_sentence(lambda: raw_ops.rope(tf.ones([1, 1, 3, 4]), positions, turns))
