"""Calls of ops as they are declared (kernels/runtime/op.h): dtypes and attributes are checked and converted by what the
op library says of itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
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


class Plain(NamedTuple):
    """An input that is one tensor, as a call of it looks at it: see `Declaration.plain`."""

    dtypes: frozenset[tf.DType]  # a tensor of one of them is taken as it is
    chooses: str  # the type attribute that it decides on, or ""


@dataclass
class Declaration:
    """What Python asks of an op's arguments."""

    name: str
    differentiable: bool
    inputs: list[Input] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # "float = 0.5"

    # These two are asked in every call, and text is slow to read.

    @functools.cached_property
    def plain(self) -> tuple[Plain | None, ...]:
        """Of each input, None for lists and variables."""
        return tuple(
            None
            if given.variable or self.attrs.get(given.type, "").startswith("list(")
            else Plain(
                frozenset(
                    [NUMBERS[given.type]] if given.type in NUMBERS else self.dtypes(given.type)
                ),
                given.type if given.type in self.attrs else "",
            )
            for given in self.inputs
        )

    @functools.cached_property
    def checks(self) -> dict[str, Callable[[str, str, Any], Any] | None]:
        """Of attributes that are numbers, by their names."""
        known = {"float": _arguments.number, "int": _arguments.integer, "bool": _arguments.flag}
        return {
            name: known.get(re.split(r"\W", spec, maxsplit=1)[0])
            for name, spec in self.attrs.items()
        }

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
    values: list[Any] = []
    for (argument, value), plain, given_as in zip(
        tensors.items(), op.plain, op.inputs, strict=True
    ):
        if plain is not None:
            like = chosen.get(plain.chooses)
            # Most are tensors of the right type already; what follows takes longer than the op.
            fits = isinstance(value, tf.Tensor) and value.dtype in plain.dtypes
            if not fits or (like is not None and value.dtype != like[1].dtype):
                value = _converted(label, argument, value, op, given_as, like, values)
            if plain.chooses and like is None:
                chosen[plain.chooses] = argument, value
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
        values.append(value)
    checks = op.checks
    for key, value in attrs.items():
        check = checks[key]
        if check is not None:
            attrs[key] = check(label, key, value)
    return getattr(raw_ops, function)(*values, **attrs, name=name)


def attributes(op: tf.Operation) -> dict[str, Any]:
    """The attributes of an operation that are no types: what its gradient takes as well."""
    values = {name: op.get_attr(name) for name in declarations()[op.type.lower()].attrs}
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
        if not isinstance(value, tf.DType)
    }


def _converted(
    label: str,
    argument: str,
    value: Any,
    op: Declaration,
    given_as: Input,
    like: tuple[str, tf.Tensor] | None,
    before: list[tf.Tensor],
) -> tf.Tensor:
    """One input's tensor; `like`: the argument whose dtype it has, `before`: the inputs before it."""
    if given_as.on_host and given_as.type in NUMBERS:
        return _arguments.number_on_host(label, argument, value, NUMBERS[given_as.type])
    if isinstance(value, Rays):
        return _arguments.packed_info_of(label, before[0], *value)
    if like is not None:
        return _arguments.as_dtype_of(label, argument, value, **{like[0]: like[1]})
    dtypes = op.dtypes(given_as.type)
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


_arguments.no_second_derivative(
    *(op.name for op in declarations().values() if not op.differentiable)
)
