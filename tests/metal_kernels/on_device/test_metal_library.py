"""metal_library on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest

from tests import test_metal_library
from tests.metal_kernels.on_device import again

lib = test_metal_library.lib  # the fixture

guard = again.guarding(
    ["metal_kernel", "metal_kernel_by_handle"],
    ["test_names", "test_refused", "test_mistake_in_the_text"],
)


@pytest.mark.usefixtures("guard")
class TestLibrary(again.tests_of(test_metal_library)):
    pass
