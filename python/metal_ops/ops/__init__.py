"""One file an op family: the public functions and their registered gradients. Files are found by name."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the loop below does, spelled out for type checkers
    from metal_ops.ops.hash_encode import hash_encode as hash_encode
    from metal_ops.ops.zero_out import zero_out as zero_out

__all__: list[str] = []

for _file in pkgutil.iter_modules(__path__):
    if not _file.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_file.name}")
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        __all__ += _module.__all__
