"""What metal_kernel refuses, on the Metal device: the CPU's tests again."""

from __future__ import annotations

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
    pass
