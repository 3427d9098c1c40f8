"""Packages: a function's optimized graph, its weights and its compiled shaders in one file.

`save` makes one of a `tf.function`, a Keras model or a SavedModel, `load` returns it as a function that runs without
tracing and without a compiler, in another process and on another machine of the same kind. `inspect` lists its
contents. A package is code: load those that you trust. `docs/package.md` has the file's layout.

Example:
  >>> @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x")])
  ... def double(x):
  ...     return {"doubled": 2.0 * x}
  >>> path = metal_ops.package.save(double, "double.mpkg")
  >>> metal_ops.package.load(path)(tf.ones([1, 3]))["doubled"].numpy().tolist()
  [[2.0, 2.0, 2.0]]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metal_ops.package.errors import PackageError as PackageError
    from metal_ops.package.inspection import Inspection as Inspection
    from metal_ops.package.inspection import inspect as inspect
    from metal_ops.package.loader import Package as Package
    from metal_ops.package.loader import load as load
    from metal_ops.package.saver import save as save
    from metal_ops.package.signature import Spec as Spec

_FILES = {
    "Inspection": "inspection",
    "Package": "loader",
    "PackageError": "errors",
    "Spec": "signature",
    "inspect": "inspection",
    "load": "loader",
    "save": "saver",
}
__all__ = [*_FILES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    # Programs that pack nothing do not wait for the shader compiler's modules, nor `--help` for TensorFlow.
    if name in _FILES:
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
