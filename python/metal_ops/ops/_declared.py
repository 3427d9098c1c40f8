"""Calls of ops as they are declared (kernels/runtime/op.h): dtypes and attributes are checked and converted by what the
op library says of itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from metal_ops import _library, raw_ops
from metal_ops.ops import _arguments, _checks


class Input(NamedTuple):
    """An op's input."""

    type: str  # or the attribute that is
    on_host: bool
    variable: str  # the type of the variable that it is, or ""
    shape: str


@dataclass
class Declaration:
    """What Python asks of an op's arguments."""

    name: str
    differentiable: bool
    inputs: list[Input] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # "float = 0.5"

    def dtypes(self, type_name: str) -> tuple[tf.DType, ...]:
        """Those that an input of this type may have, the default one first."""
        text = self.attrs.get(type_name, type_name).split("=")[0].strip()
        if text == "realnumbertype":
            return REAL_NUMBERS
        return tuple(tf.as_dtype(name.strip()) for name in text.strip("{}").split(","))


class Rays(NamedTuple):
    """The ways to say which ray a sample belongs to, for an op's input packed_info."""

    packed_info: Any
    ray_indices: Any
    n_rays: Any


# Types of inputs that are a number.
NUMBERS = {"double": tf.float64, "int64": tf.int64}
REAL_NUMBERS = tuple(
    tf.as_dtype(name)
    for name in (
        *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    )
)


@functools.cache
def declarations() -> dict[str, Declaration]:
    """By the op's name in lower case, which is that of its function without underscores."""
    found: dict[str, Declaration] = {}
    for kind, *parts in _library.declarations():
        if kind == "op":
            op = found[parts[0].lower()] = Declaration(parts[0], parts[1] == "1")
        elif kind == "attr":
            name, spec = parts[0].split(":", 1)
            op.attrs[name.strip()] = spec.strip()
        else:
            op.inputs.append(Input(parts[0], parts[1] == "1", *parts[2:]))
    return found


def call(
    function: str,
    tensors: Mapping[str, Any],
    name: str | None,
    *,
    label: str | None = None,
    **attrs: Any,
) -> Any:
    """Calls a raw op with arguments that fit it.

    Args:
      function: The generated function's name.
      tensors: The op's inputs in order, by what the public function calls them. Rays are those of the first one; an
        input of several tensors is taken as it is, and one of variables as a list of them.
      name: The operation's.
      label: The public function's name where it is not the generated one's.
      **attrs: The op's attributes.

    Returns:
      What the op returns.

    Raises:
      TypeError: A dtype, or an attribute's type, is another one.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.
    """
    label = label or function
    _checks.refuse_xla(label)
    op = declarations()[function.replace("_", "")]
    chosen: dict[str, tuple[str, tf.Tensor]] = {}
    values: list[tf.Tensor] = []
    for (argument, value), given_as in zip(tensors.items(), op.inputs, strict=True):
        type_name = given_as.type
        if op.attrs.get(type_name, "").startswith("list("):
            pass  # several tensors, each of a type of its own
        elif given_as.variable:
            if isinstance(value, list):
                value = [_arguments.variable(label, argument, one).handle for one in value]
            else:
                variable = _arguments.variable(label, argument, value)
                value = variable.handle
                if given_as.variable in op.attrs:
                    dtypes = op.dtypes(given_as.variable)
                    _checks.check_dtype(label, argument, variable, dtypes)
                    chosen[given_as.variable] = argument, variable
        elif given_as.on_host and type_name in NUMBERS:
            value = _arguments.number_on_host(label, argument, value, NUMBERS[type_name])
        elif isinstance(value, Rays):
            value = _arguments.packed_info_of(label, values[0], *value)
        elif type_name in chosen:
            first, like = chosen[type_name]
            value = _arguments.as_dtype_of(label, argument, value, **{first: like})
        else:
            value = _convert(label, argument, value, op.dtypes(type_name))
            if type_name in op.attrs:
                chosen[type_name] = argument, value
        values.append(value)
    given = {key: _attribute(label, key, value, op.attrs[key]) for key, value in attrs.items()}
    return getattr(raw_ops, function)(*values, **given, name=name)


def attributes(op: tf.Operation) -> dict[str, Any]:
    """The attributes of an operation that are no types: what its gradient takes as well."""
    values = {name: op.get_attr(name) for name in declarations()[op.type.lower()].attrs}
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
        if not isinstance(value, tf.DType)
    }


def _convert(label: str, argument: str, value: Any, dtypes: tuple[tf.DType, ...]) -> tf.Tensor:
    if dtypes == _arguments.INDICES:
        return _arguments.as_indices(label, argument, value)
    if dtypes == REAL_NUMBERS:
        value = _arguments.convert(label, argument, value)
        if value.dtype not in REAL_NUMBERS:
            raise TypeError(
                f"[{label}] {argument}: expected a real number type, got {value.dtype.name}."
            )
        return value
    return _arguments.as_floats(label, argument, value, dtypes)


def _attribute(label: str, argument: str, value: Any, spec: str) -> Any:
    kind = re.match(r"\w*", spec)[0]  # type: ignore[index]
    check = {"float": _arguments.number, "int": _arguments.integer, "bool": _arguments.flag}
    return check[kind](label, argument, value) if kind in check else value


_arguments.no_second_derivative(
    *(op.name for op in declarations().values() if not op.differentiable)
)
