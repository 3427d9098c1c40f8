"""MetalRopeTables on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_rope_tables
from tests.metal_kernels.on_device import again

guard = again.guarding(("metal_rope_tables",), ("test_bad_calls",))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_rope_tables)):
    pass


def test_same_sentence():
    again.assert_same_sentence(
        lambda: raw_ops.metal_rope_tables(tf.ones([2, 4]), tf.ones([4]), tf.ones([3, 4]))
    )
