"""Products of rounded x with quantized weights on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest

from tests import test_dynamic_matmul
from tests.metal_kernels.on_device import again

guard = again.guarding(("metal_dynamic_mat_mul",), ("test_bad_arguments", "test_bad_raw_calls"))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_dynamic_matmul)):
    pass
