"""Arguments of the public ops, converted in one way: numbers take the op's dtype, tensors keep theirs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.ops import _checks

FLOATS = (tf.float32, tf.float16, tf.bfloat16)
INDICES = (tf.int32, tf.int64)
# packed_info of dense samples. Not tf.zeros, which takes a call of an op without tf.function twice as long.
_DENSE = np.empty([0, 2], np.int32)
# Kinds of arguments that are no dense tensors, and how to make one of each.
REMEDIES = {
    "KerasTensor": "It stands for a tensor while a functional model is built: call this in a layer, e.g. "
    "keras.layers.Lambda.",
    "IndexedSlices": "Make it dense: tf.math.unsorted_segment_sum(x.values, x.indices, rows).",
    "NoneType": "It must not be left out.",
    "RaggedTensor": "Give packed values x.flat_values, or pad them: x.to_tensor().",
    "SparseTensor": "Make it dense: tf.sparse.to_dense(x).",
}


def convert(op: str, argument: str, value: Any, dtype: tf.DType | None = None) -> tf.Tensor:
    """`tf.convert_to_tensor`, whose errors say which op and argument they are about.

    Raises:
      TypeError: The value is no dense tensor, and nothing that makes one, or the dtype does not hold a number of it.
    """
    kind, why = type(value).__name__, ""
    if dtype is not None and isinstance(value, int | float | list | tuple | np.ndarray):
        _check_held(op, argument, value, dtype)
    if kind not in ("KerasTensor", "RaggedTensor"):
        try:
            # "kernels[0]" is no name of a node.
            return tf.convert_to_tensor(value, dtype=dtype, name=argument.split("[")[0])
        except (TypeError, ValueError, OverflowError, tf.errors.InvalidArgumentError) as error:
            why = f"TensorFlow says: {str(error).splitlines()[0][:200]}"
    raise TypeError(
        f"[{op}] {argument}: expected a tensor, an array or numbers, got {kind}. {REMEDIES.get(kind, why)}"
    )


def outside(found: np.ndarray[Any, Any], dtype: tf.DType) -> Any:
    """A number of an array that a dtype does not hold: an integer beyond it, a finite number that becomes infinite.

    Rounding is no reason: a small number may become 0. None where there is no such number, or there are no numbers.
    """
    kind = "f" if found.dtype == tf.bfloat16.as_numpy_dtype else found.dtype.kind
    if not found.size or kind not in "iufO":
        return None
    if dtype.is_integer:
        if kind == "f":
            return None
        ends = int(found.min()), int(found.max())
        return next((end for end in ends if not dtype.min <= end <= dtype.max), None)
    if not dtype.is_floating:
        return None
    with np.errstate(over="ignore"):
        if kind == "O":
            wide = [_wide(number) for number in found.flat]
            narrow = np.asarray(wide, "float64").astype(dtype.as_numpy_dtype)
            bad = np.isinf(narrow) & [number not in _INFINITE for number in found.flat]
        else:
            narrow = found.astype(dtype.as_numpy_dtype)
            bad = np.isinf(narrow) & np.isfinite(found)
    return found.reshape(-1)[np.argmax(bad)] if bad.any() else None


_INFINITE = (float("inf"), float("-inf"))


def _wide(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def unheld(number: Any, dtype: tf.DType) -> tuple[str, str]:
    """A number that a dtype does not hold, as text, and why it does not."""
    text = f"{number:.6g}" if isinstance(number, float | np.floating) else _short(number)
    return text, f"is {'infinite as' if dtype.is_floating else 'no'} {dtype.name}"


def _check_held(op: str, argument: str, value: Any, dtype: tf.DType) -> None:
    """TensorFlow gives other integers and infinities without a word."""
    if type(value) is float and -6e4 < value < 6e4:  # every dtype of floats holds it
        return
    if not isinstance(value, np.ndarray) and holds_tensors(value):
        value = [number for number in _leaves(value) if isinstance(number, int | float)]
    try:
        found = np.asarray(value)
        if found.dtype.kind == "f" and dtype.is_integer and not isinstance(value, np.ndarray):
            # NumPy makes floats of small and large integers together.
            found = np.asarray(value, object)
        number = outside(found, dtype) if found.dtype.kind != "O" or _are_numbers(found) else None
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return  # TensorFlow says what is wrong
    if number is not None:
        text, why = unheld(number, dtype)
        raise TypeError(f"[{op}] {argument}: expected {dtype.name}, got {text}, which {why}.")


def holds_tensors(value: Any) -> bool:
    """Whether a list, or one in it, holds tensors."""
    return isinstance(value, list | tuple) and any(
        type(one) not in (float, int)  # most are, and the steps below take longer
        and (tf.is_tensor(one) or hasattr(one, "assign") or holds_tensors(one))
        for one in value
    )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _are_numbers(found: np.ndarray[Any, Any]) -> bool:
    return all(type(one) in (int, float) for one in found.flat)


def flag(op: str, argument: str, value: Any) -> bool:
    """The value if it is True or False; TensorFlow would not say which op it is about, or take None for the default."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"[{op}] {argument}: expected True or False, got {_short(value)}.")


def integer(op: str, argument: str, value: Any) -> int:
    """The value if it is an integer; TensorFlow would round 1.5 down, and take None for the default."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except (TypeError, AttributeError):  # the latter from tensors of floats
        number = None
    if number is None:
        raise TypeError(f"[{op}] {argument}: expected an integer, got {_short(value)}.")
    if not -(2**63) <= number < 2**63:
        raise ValueError(
            f"[{op}] {argument}: expected an integer of 64 bits, got {_short(number)}."
        )
    return number


def number(op: str, argument: str, value: Any) -> float:
    """The value if it is a number that is known when a graph is built."""
    if (
        type(value) is float and -3e38 < value < 3e38
    ):  # most are; what follows takes ten times as long
        return value
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        if outside(np.asarray(value), tf.float32) is None:  # attributes of ops are of 32 bits
            return float(value)
        text, why = unheld(value, tf.float32)
        raise ValueError(f"[{op}] {argument}: expected a number, got {text}, which {why}.")
    remedy = (
        " It is part of the graph and cannot be a tensor."
        if tf.is_tensor(value) or hasattr(value, "assign")
        else ""
    )
    raise TypeError(f"[{op}] {argument}: expected a Python number, got {_short(value)}.{remedy}")


def number_on_host(op: str, argument: str, value: Any, dtype: tf.DType) -> tf.Tensor:
    """A number, or a value that makes a scalar, as a tensor of that dtype in host memory."""
    with tf.device("CPU:0"):
        # Not through float32, where 1 - 0.999 keeps 16 of 24 bits.
        if dtype.is_floating and isinstance(value, int | float):
            return tf.constant(value, dtype)
        if dtype.is_integer and not tf.is_tensor(value) and not hasattr(value, "assign"):
            value = integer(op, argument, value)
        return tf.cast(convert(op, argument, value), dtype)


def variable(op: str, argument: str, value: Any) -> tf.Variable:
    """TensorFlow's variable, of Keras' also."""
    for found in (getattr(value, "value", None), value):  # Keras' has one inside
        if hasattr(found, "handle"):
            return found
    raise TypeError(
        f"[{op}] {argument}: expected a tf.Variable, got {type(value).__name__}. It is updated in place: give "
        "tf.Variable(...)."
    )


def float_dtype(op: str, value: Any) -> tf.DType:
    """The value of an argument `dtype`: a dtype of floats, or its name."""
    try:
        dtype = None if isinstance(value, int) else tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype not in FLOATS:
        raise TypeError(
            f"[{op}] dtype: expected float32, float16 or bfloat16, got {_short(getattr(dtype, 'name', value))}."
        )
    return dtype


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 2**200:  # Python does not print all of them
        return f"one of {value.bit_length()} bits"
    if isinstance(value, np.generic):
        value = value.item()
    text = type(value).__name__ if tf.is_tensor(value) else repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def as_floats(
    op: str, argument: str, value: Any, allowed: Iterable[tf.DType] = FLOATS, why: str = ""
) -> tf.Tensor:
    """The value as a tensor of an allowed dtype; other values become float32."""
    return _convert(op, argument, value, tuple(allowed), tf.float32, why)


def as_dtype(op: str, argument: str, value: Any, dtype: tf.DType) -> tf.Tensor:
    """The value as a tensor of the dtype that another argument has; values that are no tensors become that."""
    return _convert(op, argument, value, (dtype,), dtype, "")


def as_dtype_of(op: str, argument: str, value: Any, **reference: tf.Tensor) -> tf.Tensor:
    """The value as a tensor of the reference's dtype; a tensor has to have it."""
    (like,) = reference.values()
    chosen = tf.is_tensor(value) or hasattr(value, "assign")
    value = convert(op, argument, value, None if chosen else like.dtype)
    check_same_dtype(op, **reference, **{argument: value})
    return value


def as_indices(op: str, argument: str, value: Any) -> tf.Tensor:
    """The value as an int32 or int64 tensor; values that are neither tensors nor NumPy arrays become int32."""
    default = None if hasattr(value, "dtype") else tf.int32
    return _convert(op, argument, value, INDICES, default, "")


def _convert(
    op: str,
    argument: str,
    value: Any,
    allowed: tuple[tf.DType, ...],
    default: tf.DType | None,
    why: str,
) -> tf.Tensor:
    # A tensor's dtype was chosen, and so was a NumPy array's unless it is NumPy's habitual float64.
    chosen = tf.is_tensor(value) or hasattr(value, "assign")
    if not chosen and hasattr(value, "dtype") and str(value.dtype) in [d.name for d in allowed]:
        chosen = True
    value = convert(op, argument, value, None if chosen else default)
    _checks.check_dtype(op, argument, value, allowed, why)
    return value


def check_same_dtype(op: str, **tensors: tf.Tensor) -> None:
    """Raises TypeError unless all tensors have one dtype."""
    (first, reference), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != reference.dtype:
            raise TypeError(
                f"[{op}] {name}: expected dtype {reference.dtype.name} as of {first}, got {tensor.dtype.name}. "
                f"Cast one of them: tf.cast({name}, {first}.dtype)."
            )


def packed_info_of(
    op: str, samples: tf.Tensor, packed_info: Any, ray_indices: Any, n_rays: Any
) -> tf.Tensor:
    """packed_info as the ops want it, from whichever way the caller says which ray a sample belongs to.

    Args:
      op: The public function's name.
      samples: [samples], packed ray after ray, or [rays, samples].
      packed_info: [rays, 2] (start, count) or None.
      ray_indices: [samples], ascending, or None.
      n_rays: Number of rays, needed with ray_indices.

    Returns:
      [rays, 2], or [0, 2] for dense samples.

    Raises:
      ValueError: None or several of the ways are given.
    """
    from metal_ops.ops import _declared

    if samples.shape.rank is None:
        raise ValueError(
            f"[{op}] samples of unknown rank: expected [samples] or [rays, samples]. "
            "Say which with tf.ensure_shape."
        )
    if samples.shape.rank == 2:
        if packed_info is not None or ray_indices is not None:
            raise ValueError(
                f"[{op}] packed_info and ray_indices: expected neither with dense samples [rays, samples]; "
                "flatten the samples or leave them out."
            )
        return tf.constant(_DENSE)
    if (packed_info is None) == (ray_indices is None):
        got = "neither" if packed_info is None else "both"
        raise ValueError(
            f"[{op}] packed_info, ray_indices: expected one of them with packed samples [samples], got {got}."
        )
    if packed_info is not None:
        return as_indices(op, "packed_info", packed_info)
    if n_rays is None:
        raise ValueError(
            f"[{op}] n_rays: expected the number of rays with ray_indices, got None "
            "(the last rays may have no samples)."
        )
    ray_indices = as_indices(op, "ray_indices", ray_indices)
    inputs = {"ray_indices": ray_indices, "n_rays": ray_count(op, n_rays, ray_indices.dtype)}
    return _declared.raw(op, "pack_ray_indices", list(inputs.values()), inputs)


def ray_count(op: str, n_rays: Any, dtype: tf.DType) -> tf.Tensor:
    """The number of rays, of the dtype of ray_indices. A number beyond that is its highest."""
    if not tf.is_tensor(n_rays) and not hasattr(n_rays, "assign"):
        n_rays = integer(op, "n_rays", n_rays)
        if n_rays > dtype.max:
            raise ValueError(
                f"[{op}] n_rays: expected at most {dtype.max} with ray_indices of {dtype.name}, got {n_rays}. "
                "Give ray_indices of int64."
            )
        n_rays = tf.constant(n_rays, tf.int64)
    n_rays = convert(op, "n_rays", n_rays)
    _checks.check_dtype(op, "n_rays", n_rays, INDICES)
    if n_rays.dtype == dtype:
        return n_rays
    return tf.cast(tf.clip_by_value(n_rays, -1, tf.constant(dtype.max, n_rays.dtype)), dtype)


def zeros_as_empty(gradient: tf.Tensor | None, rank: int = 1) -> tf.Tensor:
    """The gradient, or the empty tensor by which a kernel knows that there is none and reads nothing."""
    # While a function is traced TensorFlow marks the zeros that stand for an unused output.
    if gradient is None or getattr(gradient, "_is_zeros_tensor", False):
        return tf.zeros([0] * rank, tf.float32)
    return gradient


def text_attr(op: tf.Operation, name: str) -> str:
    """A string attribute, which eager and graph operations give in different types."""
    value = op.get_attr(name)
    return value.decode() if isinstance(value, bytes) else value


def no_second_derivative(*ops: str) -> None:
    """Registers gradients that say that there are none."""
    for op in ops:

        @tf.RegisterGradient(op)
        def _refuse(_: tf.Operation, *__: tf.Tensor, op: str = op) -> None:
            raise LookupError(
                f"[{op}] second derivatives are not provided. Stop the gradient of the first one with "
                "tf.stop_gradient, or take it outside of the outer tape."
            )


def flatten_points(
    op: str, argument: str, points: tf.Tensor, dims: int | None = None
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """[..., D] as [N, D], and a function that gives a result [N, W] the leading dimensions back. `dims`: D where it
    is known."""
    if points.shape.rank == 2:
        return points, lambda result: result
    if points.shape.rank == 0:
        raise ValueError(f"[{op}] {argument}: expected shape [..., dims], got a scalar.")
    if dims is None and points.shape.rank is not None:
        dims = points.shape[-1]
    if dims is None:
        raise ValueError(
            f"[{op}] {argument}: expected a last dimension known in the graph, got {points.shape}. "
            "Say it with tf.ensure_shape."
        )
    leading = points.shape[:-1]
    sizes: Any = leading.as_list() if leading.is_fully_defined() else tf.shape(points)[:-1]
    n_points = leading.num_elements() if isinstance(sizes, list) else tf.reduce_prod(sizes)
    # Not -1, which cannot be told where dims or the number of points is 0.
    flat = tf.reshape(points, [n_points, dims])

    def restore(result: tf.Tensor) -> tf.Tensor:
        if leading.is_fully_defined():
            return tf.reshape(result, [*sizes, result.shape[-1]])
        shaped = tf.reshape(result, tf.concat([sizes, [result.shape[-1]]], axis=0))
        if leading.rank is not None:
            shaped.set_shape([*leading, result.shape[-1]])
        return shaped

    return flat, restore
