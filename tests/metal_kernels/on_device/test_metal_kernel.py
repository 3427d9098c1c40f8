"""metal_kernel on the Metal device: the CPU's tests again, and both devices in one process."""

from __future__ import annotations

import pytest
import tensorflow as tf

import metal_ops
from tests import test_metal_kernel
from tests.metal_kernels.on_device import again

# These start processes of their own, look at no op, or use ops that the device has no kernel of.
ELSEWHERE = (
    "test_keras_fit",
    "test_saved_model_in_another_process",
    "test_compiled_once_for_all_processes",
    "test_shapes_of_constants_are_known_to_the_graph",
)


guard = again.guarding(["metal_kernel", "metal_kernel_by_handle"])


@pytest.mark.usefixtures("guard")
class TestValues(again.tests_of(test_metal_kernel, leave_out=ELSEWHERE)):
    pass


def test_both_devices_in_one_process():
    """One text, compiled for both."""
    run = metal_ops.metal_kernel("both", ["x"], ["z"], "z[i] = 2 * x[i];")
    for device in ("CPU:0", "GPU:0", "CPU:0"):
        with tf.device(device):
            z = run(tf.constant([1.0, 2.0]))
        assert z.device.endswith(device) and z.numpy().tolist() == [2, 4]


def test_a_function_of_both_devices():
    run = metal_ops.metal_kernel("both", ["x"], ["z"], "z[i] = 2 * x[i];")

    @tf.function
    def function(x):
        with tf.device("CPU:0"):
            y = run(x)
        with tf.device("GPU:0"):
            return run(y) + run(tf.zeros([1]))

    assert function(tf.constant([1.0, 2.0])).numpy().tolist() == [4, 8]
