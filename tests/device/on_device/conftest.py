"""Each test file here runs in a process of its own, with the device loaded and soft placement off."""

from tests.metal_kernels.on_device.conftest import pytest_pycollect_makemodule, soft_placement

__all__ = ["pytest_pycollect_makemodule", "soft_placement"]
