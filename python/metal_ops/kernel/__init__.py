"""Metal kernels written inside Python: `metal_ops.metal_kernel` and `metal_ops.metal_library`.

`msl.py` knows the language: types, names, the text around a kernel's body. `compiler.py` asks the platform's compiler
and turns its errors into a SyntaxError. `functions.py` calls the functions that a user gives (shapes, grid, gradient).
`launch.py` makes the op's first input.
"""

from metal_ops.kernel.kernel import MetalKernel, metal_kernel
from metal_ops.kernel.library import MetalFunction, MetalLibrary, metal_library

__all__ = ["MetalFunction", "MetalKernel", "MetalLibrary", "metal_kernel", "metal_library"]
