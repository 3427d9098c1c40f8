"""MetalKernel: Metal kernels written inside Python. The code behind these two is in `metal_ops.kernel`."""

from metal_ops.kernel import metal_kernel, metal_library

__all__ = ["metal_kernel", "metal_library"]
