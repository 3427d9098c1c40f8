"""The parts of Keras that every Keras class of metal_ops needs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

import keras

from metal_ops.ops import _arguments


def require_tensorflow_backend() -> None:
    """Raises ImportError where Keras runs on another backend: the ops are TensorFlow's."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"metal_ops: its layers and optimizers need Keras on TensorFlow, but Keras runs on "
            f"{keras.backend.backend()!r}; set KERAS_BACKEND=tensorflow (or unset it) before importing keras."
        )


def require_float_policy(op: str, layer: Any) -> None:
    """Raises TypeError where a layer computes in a dtype that the ops do not have."""
    if layer.compute_dtype not in [dtype.name for dtype in _arguments.FLOATS]:
        raise TypeError(
            f"[{op}] dtype: expected float32, float16, bfloat16 or a mixed policy, got "
            f"{layer.dtype_policy.name}. Give the layer dtype='float32'."
        )


def path(layer: Any) -> str:
    """Where a layer lies in its model."""
    return str(getattr(layer, "path", None) or layer.name)


def check_found(op: str, argument: str, pattern: Any, layers: list[Any]) -> None:
    """Raises ValueError where a name, or one of a list, is that of no layer."""
    if isinstance(pattern, list | tuple):
        for one in pattern:
            check_found(op, argument, one, layers)
    elif isinstance(pattern, str) and not any(map(matching(op, argument, pattern), layers)):
        names = {part: None for layer in layers for part in (*path(layer).split("/"), path(layer))}
        near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.5) or list(names)[:10]
        raise ValueError(
            f"[{op}] {argument}: expected names of layers, got {pattern!r}, which is none's. A name is a whole part of "
            f"a layer's path, or a regular expression of one; near it: {', '.join(near) or 'no layers'}."
        )


def matching(op: str, argument: str, pattern: Any) -> Callable[[Any], bool]:
    """Whether layers are those that a pattern says: see `metal_ops.adapters.add`."""
    if pattern is None:
        return lambda layer: True
    if isinstance(pattern, str):
        try:
            # "mid" is the layer mid and all layers in it, not "middle".
            found = re.compile(rf"(?:^|(?<=/))(?:{pattern})(?=/|$)")
        except re.error as error:
            raise ValueError(
                f"[{op}] {argument}: expected a regular expression, got {pattern!r} ({error})."
            ) from None
        return lambda layer: bool(found.search(path(layer)))
    if isinstance(pattern, type):
        return lambda layer: isinstance(layer, pattern)
    if callable(pattern):
        return lambda layer: bool(pattern(layer))
    if isinstance(pattern, list | tuple):
        each = [matching(op, argument, one) for one in pattern]
        return lambda layer: any(one(layer) for one in each)
    raise TypeError(
        f"[{op}] {argument}: expected a regular expression, a class, a function, a list of such or None, got "
        f"{type(pattern).__name__}."
    )
