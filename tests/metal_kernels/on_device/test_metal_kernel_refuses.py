"""What metal_kernel refuses, on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests import test_metal_kernel_refuses
from tests.metal_kernels.on_device import again

# These look at no device, or start processes with one.
ELSEWHERE = (
    "test_bad_kernel",
    "test_text_for_a_list_of_names",
    "test_vjp_kernels_that_do_not_fit",
    "test_mistake_in_the_source",
    "test_in_other_processes",
)


class TestRefusals(again.tests_of(test_metal_kernel_refuses, leave_out=ELSEWHERE)):
    @pytest.mark.parametrize(
        ("number", "message"),
        [(32, "takes 32 arguments; Metal has 31 buffer indices"), (31, "has no argument 'x0'")],
    )
    def test_more_arguments_than_metal_has(self, number, message, device):
        arguments = [f"x{i}=input:0" for i in range(number)]
        with pytest.raises(tf.errors.OpError, match=message):
            test_metal_kernel_refuses.raw(arguments=arguments)[0].numpy()
