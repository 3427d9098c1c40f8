"""metal_kernel and metal_library on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

import metal_ops
from tests import test_metal_kernel, test_metal_kernel_refuses, test_metal_library
from tests.metal_kernels.on_device import again

# These start processes of their own, or look at no op.
ELSEWHERE = (
    "test_saved_model_in_another_process",
    "test_compiled_once_for_all_processes",
    "test_shapes_of_constants_are_known_to_the_graph",
)


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The op fails unless it runs on the device."""
    return again.guard(monkeypatch, ["metal_kernel"])


@pytest.mark.usefixtures("placed")
class TestValues(again.tests_of(test_metal_kernel, leave_out=ELSEWHERE)):
    pass


class TestRefusals(
    again.tests_of(test_metal_kernel_refuses, leave_out=["test_in_other_processes"])
):
    pass


@pytest.mark.usefixtures("placed")
class TestLibrary(again.tests_of(test_metal_library)):
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
