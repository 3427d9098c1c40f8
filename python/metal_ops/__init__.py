"""metal_ops: Metal ops for TensorFlow - hash encoding and friends, fast on CPU, portable to Apple GPUs.

    import metal_ops
    grid = metal_ops.HashGrid(n_dims=3, n_levels=16, finest_resolution=512)
    features = metal_ops.hash_encode(points, table, grid)  # [N, 3] -> [N, 32]

A missing or mismatching op library makes this import fail with one sentence; `python -m metal_ops doctor` explains.
Where TensorFlow is not installed the import succeeds, for `metal_ops.torch`; the names above raise that sentence then.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from metal_ops._version import __version__ as __version__


def _running_as_program() -> bool:
    # `python -m metal_ops` and the scripts `metal_ops` and `hostmetal` import this file first; of the former,
    # sys.argv[0] still is "-m".
    # The doctor has to run there although the library may be broken, and `--help` should not wait for TensorFlow.
    if sys.argv and sys.argv[0].endswith(("/metal_ops", "/hostmetal")):
        return True
    if sys.argv[:1] != ["-m"]:
        return False
    arguments = sys.orig_argv[1:]
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("-m"):  # "-m name" or "-mname"
            return (argument[2:] or following).split(".")[0] == __name__
    return False


if TYPE_CHECKING or (
    importlib.util.find_spec("tensorflow") is not None and not _running_as_program()
):
    from metal_ops._public import *  # noqa: F403

    if not TYPE_CHECKING:
        from metal_ops._public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # a module, not a public name
            raise AttributeError(f"module 'metal_ops' has no attribute {name!r}")
        return getattr(importlib.import_module("metal_ops._public"), name)
