"""The function to pack, as a concrete function with named inputs: from a function, a Keras model, or a SavedModel."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from metal_ops.package.errors import PackageError
from metal_ops.package.signature import describe, shape_text


@dataclass
class Traced:
    """A function with its arguments.

    Attributes:
      concrete: The function.
      name: Its name.
      inputs: Its arguments' names, in its order.
      fixed: Those that were values when it was traced.
      result: The result's structure as JSON (see signature.describe).
      keep: The object that holds its variables.
    """

    concrete: Any
    name: str
    inputs: list[str]
    fixed: list[str]
    result: Any
    keep: Any


def trace(source: Any, signature: str, shapes: Any, specialize: Mapping[str, Any]) -> Traced:
    """Traces the argument of `save`.

    Args:
      source: See `save`.
      signature: Signature of a SavedModel.
      shapes: See `save`; those that are `tf.TensorSpec`s may be needed to trace at all.
      specialize: See `save`; numbers and words of Python are known to the function while it is traced.
    """
    name, fixed = None, {}
    keep = source
    if isinstance(source, str | Path):
        keep, source = _signature_of(Path(source), signature)
        name = signature
    elif _is_keras(source):
        name = source.name
        source = _model(source, shapes)
    if not isinstance(source, tf.types.experimental.ConcreteFunction):
        if not callable(source):
            raise PackageError(
                f"[package.save] function_or_saved_model: expected a function, a Keras model or a SavedModel's folder, "
                f"got {type(source).__name__}."
            )
        name = name or getattr(source, "__name__", None) or type(source).__name__
        if getattr(source, "input_signature", None) is None:
            fixed = {k: v for k, v in specialize.items() if isinstance(v, bool | int | float | str)}
        source = _concrete(source, shapes, fixed)
    name = name or getattr(source, "name", "function")
    result, leaves = describe(source.structured_outputs)
    if not leaves:
        raise PackageError(f"[package.save] {name}: returns no tensor; return one.")
    taken = len(source.inputs) - len(source.captured_inputs)
    inputs = [tensor.op.name for tensor in source.inputs[:taken]]
    return Traced(source, str(name), inputs, [*fixed], result, keep)


def _signature_of(folder: Path, signature: str) -> tuple[Any, Any]:
    if not (folder / "saved_model.pb").exists():
        raise PackageError(
            f"[package.save] {folder}: is no SavedModel, as it has no saved_model.pb; give the folder that "
            "tf.saved_model.save or model.export wrote."
        )
    loaded = tf.saved_model.load(str(folder))
    if signature not in loaded.signatures:
        names = ", ".join(map(repr, loaded.signatures)) or "none"
        raise PackageError(
            f"[package.save] signature: {folder} has no {signature!r}; it has {names}."
        )
    return loaded, loaded.signatures[signature]


def _is_keras(source: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(source, keras.layers.Layer)


def _model(model: Any, shapes: Any) -> Any:
    """A Keras model at inference, as a function of its inputs by name."""
    # A model of layers has the first, a Sequential the second alone, a class of one's own neither.
    structure: Any = getattr(model, "input", None)
    if structure is None:
        structure = getattr(model, "inputs", None)
    if isinstance(structure, list) and len(structure) == 1:
        structure = structure[0]
    if structure is None:
        if shapes is None:
            raise PackageError(
                f"[package.save] {model.name}: does not say what it takes; give shapes=[tf.TensorSpec(...)]."
            )
        return tf.function(lambda *args: model(*args, training=False), autograph=False)
    flat = tf.nest.flatten(structure)
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, _plain(tensor.name, index))
        for index, tensor in enumerate(flat)
    ]

    def call(*args: tf.Tensor) -> Any:
        return model(tf.nest.pack_sequence_as(structure, args), training=False)

    return tf.function(call, input_signature=specs, autograph=False)


def _plain(name: str, index: int) -> str:
    letters = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")
    return letters or f"input_{index}"


def _concrete(function: Any, shapes: Any, fixed: Mapping[str, Any]) -> Any:
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    if getattr(function, "input_signature", None) is not None or (shapes is None and not fixed):
        try:
            return function.get_concrete_function()
        except (TypeError, ValueError) as error:
            raise PackageError(
                "[package.save] shapes: the function does not say what it takes; give shapes={argument: "
                f"tf.TensorSpec(...)}}, or an input_signature to tf.function ({_first_line(error)})."
            ) from None
    given = shapes or {}
    by_name = isinstance(given, Mapping)
    pairs = given.items() if by_name else enumerate(given)
    specs: dict[Any, Any] = {key: _spec(key, value) for key, value in pairs if key not in fixed}
    try:
        if by_name:
            return function.get_concrete_function(**specs, **fixed)
        return function.get_concrete_function(*specs.values(), **fixed)
    except TypeError as error:
        raise PackageError(
            f"[package.save] shapes: do not fit the function's arguments ({_first_line(error)})."
        ) from None


def _spec(key: Any, value: Any) -> Any:
    if isinstance(value, tf.TensorSpec | tf.Tensor):
        return tf.TensorSpec(value.shape, value.dtype, key if isinstance(key, str) else None)
    try:
        return tf.TensorSpec(value, tf.float32, key if isinstance(key, str) else None)
    except (TypeError, ValueError):
        raise PackageError(
            f"[package.save] shapes[{key!r}]: expected a shape such as [None, 3], or a tf.TensorSpec, got {value!r}."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def by_input(argument: str, values: Any, traced: Traced) -> dict[str, Any]:
    """`shapes` or `specialize` by the names of inputs, without those that were values in the trace.

    Raises:
      PackageError: It names none of them, or has too many.
    """
    inputs = traced.inputs
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        if len(values) > len(inputs):
            raise PackageError(
                f"[package.save] {argument}: has {len(values)} entries, but there are {len(inputs)} inputs: "
                f"{', '.join(inputs)}."
            )
        return dict(zip(inputs, values, strict=False))
    values = {name: value for name, value in values.items() if name not in traced.fixed}
    for name in values:
        if name not in inputs:
            raise PackageError(
                f"[package.save] {argument}: there is no input {name!r}; there are {', '.join(inputs) or 'none'}."
            )
    return values


def narrowed(name: str, have: tf.TensorShape, asked: Any) -> tf.TensorShape:
    """An input's shape with sizes fixed.

    Raises:
      PackageError: The sizes contradict those that the function has.
    """
    asked = asked.shape if isinstance(asked, tf.TensorSpec | tf.Tensor) else asked
    try:
        return have.merge_with(tf.TensorShape(asked))
    except (TypeError, ValueError):
        raise PackageError(
            f"[package.save] shapes[{name!r}]: expected sizes that fit {shape_text(_list(have))}, got {asked}."
        ) from None


def _list(shape: tf.TensorShape) -> Any:
    return None if shape.rank is None else shape.as_list()
