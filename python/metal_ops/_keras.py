"""The parts of Keras that every Keras class of metal_ops needs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

import keras

from metal_ops.ops import _arguments

_MOST_CHAINS = 64


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


class Names:
    """The names by which the layers of a model can be said.

    Keras's path leaves out the functional models that a layer was made before, and quantized layers have none.
    """

    def __init__(self, model: Any) -> None:
        self._chains: dict[int, list[str]] = {}
        self._add(model, (), ())

    def _add(self, layer: Any, parents: tuple[str, ...], inside: tuple[int, ...]) -> None:
        names = (*parents, layer.name)
        chains = self._chains.setdefault(id(layer), [])
        # A model that is at many places in others has very many chains.
        if id(layer) in inside or len(chains) >= _MOST_CHAINS:
            return
        chains.append("/".join(names))
        for inner in layer._layers:
            self._add(inner, names, (*inside, id(layer)))

    def of(self, layer: Any) -> str:
        """Keras's path, with the models in front that it leaves out."""
        own = getattr(layer, "path", None)
        chain = self._chains.get(id(layer), [""])[0].partition("/")[2]
        return chain if chain and (own is None or chain.endswith(f"/{own}")) else path(layer)

    def every(self, layer: Any) -> list[str]:
        """All of them: Keras's path, and those from the model and from below it to the layer."""
        chains = self._chains.get(id(layer), [])
        below = [chain.partition("/")[2] for chain in chains if "/" in chain]
        return list(dict.fromkeys([path(layer), *below, *chains]))


def check_found(op: str, argument: str, pattern: Any, layers: list[Any], names: Names) -> None:
    """Raises ValueError where a name, or one of a list, is that of no layer."""
    if isinstance(pattern, list | tuple):
        for one in pattern:
            check_found(op, argument, one, layers, names)
    elif isinstance(pattern, str) and not any(map(matching(op, argument, pattern, names), layers)):
        known = {
            part: None for layer in layers for part in (*path(layer).split("/"), names.of(layer))
        }
        near = difflib.get_close_matches(pattern, known, n=5, cutoff=0.5) or list(known)[:10]
        raise ValueError(
            f"[{op}] {argument}: expected names of layers, got {pattern!r}, which is none's. A name is a whole part of "
            f"a layer's path, or a regular expression of one; near it: {', '.join(near) or 'no layers'}."
        )


def _expression(op: str, argument: str, pattern: str) -> re.Pattern[str]:
    """Finds the pattern where it is whole parts of a path: "mid" is mid and all layers in it, not "middle"."""
    try:
        alone = re.compile(pattern)  # by itself: it may not close the group around it
        flags = re.match(r"\(\?[aimsux]+\)", pattern)  # which stand in front of an expression
        body = pattern[flags.end() :] if flags else pattern
        end = "\n" if alone.flags & re.X else ""  # of a comment
        return re.compile(rf"(?:^|(?<=/))(?:{body}{end})(?=/|$)", alone.flags)
    except re.error as error:
        raise ValueError(
            f"[{op}] {argument}: expected a regular expression, got {pattern!r} ({error})."
        ) from None


def matching(
    op: str, argument: str, pattern: Any, names: Names | None = None
) -> Callable[[Any], bool]:
    """Whether layers are those that a pattern says: see `metal_ops.adapters.add`."""
    if pattern is None:
        return lambda layer: True
    if isinstance(pattern, str):
        found = _expression(op, argument, pattern)

        def says(layer: Any) -> bool:
            paths = names.every(layer) if names else [path(layer)]
            # A name may have characters that expressions give another meaning.
            return any(
                found.search(one) or pattern and f"/{pattern}/" in f"/{one}/" for one in paths
            )

        return says
    if isinstance(pattern, type):
        return lambda layer: isinstance(layer, pattern)
    if callable(pattern):
        return lambda layer: bool(pattern(layer))
    if isinstance(pattern, list | tuple):
        each = [matching(op, argument, one, names) for one in pattern]
        return lambda layer: any(one(layer) for one in each)
    raise TypeError(
        f"[{op}] {argument}: expected a regular expression, a class, a function, a list of such or None, got "
        f"{type(pattern).__name__}."
    )
