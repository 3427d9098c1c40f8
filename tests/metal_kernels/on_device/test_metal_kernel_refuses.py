"""Arguments that metal_kernel refuses, on the Metal device: the CPU's tests again."""

from __future__ import annotations

import re

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

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("valeus", "'values'"),
            ("value", "'values'"),
            ("values_", "'values'"),
            ("factr", "'factor'"),
            ("q", ""),
            ("something", ""),
        ],
    )
    def test_names_like_a_wrong_one(self, name, near, device):
        source = """kernel void f(device const float* values, device float* result, constant float& factor,
                    uint i [[thread_position_in_grid]]) { result[i] = factor * values[i]; }"""
        said = re.escape(f"has no argument '{name}'{near and '; near it are ' + near}. It takes")
        arguments = [f"{name}=input:0", "result=output:0", "factor=param:0"]
        with pytest.raises(tf.errors.OpError, match=said):
            test_metal_kernel_refuses.raw(source=source, arguments=arguments)[0].numpy()
