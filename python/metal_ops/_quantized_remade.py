"""Keras models and layers made again, with quantized layers in the place of some."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras

from metal_ops._quantized_layers import named
from metal_ops.layers._quantized import Quantized


class Again:
    """Makes layers and models again, with others in the place of some."""

    def __init__(self, op: str, replaced: Mapping[int, Any], by: Callable[[Any], Any]) -> None:
        self._op, self._replaced, self._by = op, replaced, by
        self._new: dict[int, Any] = {}  # layers may be at several places

    def made(self, layer: Any) -> Any:
        if id(layer) not in self._new:
            if id(layer) in self._replaced:
                self._new[id(layer)] = self._by(layer)
            elif _is_graph(layer):
                self._new[id(layer)] = self._graph(layer)
            else:
                self._new[id(layer)] = self._object(layer)
        return self._new[id(layer)]

    def _graph(self, model: Any) -> Any:
        """A Sequential or functional model."""
        new = keras.models.clone_model(model, clone_function=self.made)
        if type(new) is not type(model):
            raise ValueError(
                f"[{self._op}] model: Keras cannot make {named(model)} again with other layers. Give the one that it "
                "is inside: keras.Model(model.inputs, model.outputs)."
            )
        return new

    def _object(self, layer: Any) -> Any:
        """Any other layer, made by its config, then with its weights, then with the layers in it replaced."""
        try:
            new = _like(layer)
        except Exception as error:
            raise ValueError(
                f"[{self._op}] model: {named(layer)} cannot be made again from its config; give it get_config and "
                f"from_config ({error})."
            ) from error
        if not isinstance(layer, keras.layers.Layer):
            return new  # one of keras.ops
        self._build(layer, new)
        fits = [w.shape for w in new.weights] == [w.shape for w in layer.weights]
        if not fits:
            raise ValueError(
                f"[{self._op}] model: {named(layer)} made from its config has other weights; give it "
                "build_from_config, which builds it."
            )
        for old, variable in zip(layer.weights, new.weights, strict=True):
            variable.assign(old)
        if self._fill(layer, new) and not _config_holds(new):
            new.get_config = _no_config(named(layer))
        if isinstance(layer, keras.Model) and layer.compiled:
            new.compile_from_config(layer.get_compile_config())
        return new

    def _build(self, layer: Any, new: Any) -> None:
        if not layer.built or new.built and len(new.weights) == len(layer.weights):
            return
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            new.build_from_config(layer.get_build_config() or {})
        if len(new.weights) != len(layer.weights):
            for child, new_child in zip(layer._layers, new._layers, strict=False):
                self._build(child, new_child)
        new.built = True

    def _fill(self, layer: Any, new: Any) -> bool:
        """Replaces the layers in `new`; whether there were any."""
        any_replaced = False
        for child, made in zip(list(layer._layers), list(new._layers), strict=True):
            inner = any(id(each) in self._replaced for each in child._flatten_layers())
            if not inner:
                continue
            any_replaced = True
            if id(child) in self._replaced or _is_graph(child):
                self._put(new, made, self.made(child))
            else:
                self._fill(child, made)
                if not _config_holds(made):
                    made.get_config = _no_config(named(child))
        return any_replaced

    def _put(self, parent: Any, old: Any, new: Any) -> None:
        parent._tracker.replace_tracked_value("layers", old, new)

        def swapped(value: Any) -> Any:
            if value is old:
                return new
            if isinstance(value, dict):
                for key, one in value.items():
                    if (other := swapped(one)) is not one:
                        value[key] = other
            elif isinstance(value, list):
                for i, one in enumerate(value):
                    if (other := swapped(one)) is not one:
                        value[i] = other
            elif type(value) is tuple and any(swapped(one) is not one for one in value):
                return tuple(swapped(one) for one in value)
            return value

        found = False
        for name, value in list(vars(parent).items()):
            if name not in ("_layers", "_tracker"):
                before = _held(value, old)
                other = swapped(value)
                if other is not value:
                    setattr(parent, name, other)
                found |= before
        if not found:
            raise ValueError(
                f"[{self._op}] model: {named(parent)} holds {old.name} neither as an attribute nor in a list, tuple "
                f"or dict that is one, so that it cannot be replaced. spec.skip={old.name!r} leaves it as it is."
            )


def _like(layer: Any) -> Any:
    """By its config. Those of Lambda layers are code without the variables it refers to."""
    if type(layer) is not keras.layers.Lambda:
        return type(layer).from_config(layer.get_config())
    kept = {"mask": layer.mask, "arguments": layer.arguments, "output_shape": layer._output_shape}
    return type(layer)(layer.function, **kept, name=layer.name, dtype=layer.dtype_policy)


def _held(value: Any, layer: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return any(_held(one, layer) for one in value)
    return value is layer


def _is_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Sequential) or hasattr(layer, "_run_through_graph")


def _config_holds(layer: Any) -> bool:
    """Whether a layer's config has its quantized layers inside, as that of TimeDistributed has."""
    try:
        again = type(layer).from_config(layer.get_config())
    except (
        Exception
    ):  # a user's get_config or from_config: whatever it raises, nothing can be made of it
        return False
    quantized = [type(inner) for inner in layer._flatten_layers() if isinstance(inner, Quantized)]
    return quantized == [
        type(inner) for inner in again._flatten_layers() if isinstance(inner, Quantized)
    ]


def _no_config(name: str) -> Callable[[], Any]:
    def refuses() -> Any:
        raise ValueError(
            f"[quantize_model] The config of {name} does not know of the quantized layers in it: a file of the "
            "model could not be loaded. save_weights, and load_weights into what quantize_model makes of the "
            "architecture, do the same; export writes a SavedModel."
        )

    return refuses
