"""swiglu on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_swiglu
from tests.metal_kernels.on_device import again

guard = again.guarding(("swiglu", "swiglu_grad"), ("test_bad_calls", "test_bad_gradients"))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_swiglu, ("test_is_that_of_keras",))):
    pass


def test_same_sentence():
    again.assert_same_sentence(lambda: raw_ops.swiglu(tf.ones([2, 3]), tf.ones([4])))
