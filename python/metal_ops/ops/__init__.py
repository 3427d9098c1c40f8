"""One file an op family: the public functions and their registered gradients. Files are found by name.

Type checkers read the generated __init__.pyi.
"""

import importlib
import pkgutil

__all__: list[str] = []
for _file in pkgutil.iter_modules(__path__):
    if not _file.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_file.name}")
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        __all__ += _module.__all__
