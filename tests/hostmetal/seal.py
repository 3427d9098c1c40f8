"""Ends a library as the shader compiler does: seal.py <shared object> <metallib>."""

import runpy
import sys
from pathlib import Path

# The file alone: it needs neither the package nor its imports.
seal = runpy.run_path(str(Path(__file__).parents[2] / "python/metal_ops/metal/seal.py"))
Path(sys.argv[2]).write_bytes(seal["sealed"](Path(sys.argv[1]).read_bytes()))
