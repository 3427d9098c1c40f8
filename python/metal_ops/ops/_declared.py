"""Calls of ops as they are declared (kernels/runtime/op.h): dtypes and attributes are checked and converted by the
op library's own declarations."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """The checks of an op's arguments in Python."""

    name: str
    differentiable: bool
    inputs: list[Input] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # "float = 0.5"

    # These two are asked in every call, and text is slow to read.

    @functools.cached_property
    def plain(self) -> tuple[Plain | None, ...]:
        """One for each input, None for lists and variables."""
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
        """Checks of attributes that are numbers, by their names."""
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
      tensors: The op's inputs in order, by their names in the public function. Rays are those of the first one; an
        input of several tensors is taken as it is, and one of variables as a list of them.
      name: The operation's.
      label: The public function's name where it is not the generated one's.
      **attrs: The op's attributes.

    Returns:
      The op's results.

    Raises:
      TypeError: A dtype, or an attribute's type, is another one.
      ValueError: A shape does not fit, where that is known while a graph is made.
      tf.errors.InvalidArgumentError: A shape or a value does not fit. The message names the public function.
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
            # Most are tensors of the right type already; the steps below take longer than the op.
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
    return raw(label, function, values, tensors, **attrs, name=name)


def raw(
    label: str, function: str, values: Sequence[Any], names: Iterable[str], **attrs: Any
) -> Any:
    """Calls a raw op, whose errors are in the words of the public function then.

    Args:
      label: The public function's name.
      function: The generated function's name.
      values: The op's inputs.
      names: Their names in the public function.
      **attrs: The op's attributes, and the operation's name.
    """
    try:
        found = getattr(raw_ops, function)(*values, **attrs)
    except (tf.errors.OpError, ValueError) as error:
        text = _in_public_words(label, function, names, str(getattr(error, "message", error)))
        if text is None:
            raise
        if isinstance(error, tf.errors.OpError):
            raise type(error)(error.node_def, error.op, text) from None
        raise ValueError(text) from None
    if not tf.executing_eagerly():
        # Errors that a kernel finds while the graph runs: kernels/tensorflow/public_words.h.
        made = next((one for one in tf.nest.flatten(found) if one is not None), None)
        set_attr = getattr(getattr(made, "op", made), "_set_attr", None)
        if set_attr is not None:
            note = " ".join([label, *(f"{a}={b}" for a, b in _renamed(function, names).items())])
            set_attr("_metal_ops_function", tf.compat.v1.AttrValue(s=note.encode()))
    return found


def _renamed(function: str, names: Iterable[str]) -> dict[str, str]:
    """The op's inputs that the public function calls otherwise, and how it does."""
    theirs = inspect.signature(getattr(raw_ops, function)).parameters
    return {a: b for a, b in zip(theirs, names, strict=False) if a != b}


def _in_public_words(label: str, function: str, names: Iterable[str], text: str) -> str | None:
    """The sentence of a kernel or a shape function; None where it is TensorFlow's own."""
    name = declarations()[function.replace("_", "")].name
    said = re.search(
        rf"(?:^|\}}\}} ){name}: (.*?)(?: \[Op:\w+\].*| for '\{{\{{node .*)?$", text, re.S
    )
    if said is None:
        return None
    sentence = f"{label}: {said[1]}"
    for a, b in _renamed(function, names).items():
        sentence = re.sub(
            rf"(?:(?<=^{label}: )|(?<= as in )|(?<= like )|(?<= and )){a}\b", b, sentence
        )
    return sentence


def attributes(op: tf.Operation) -> dict[str, Any]:
    """The attributes of an operation that are no types: its gradient takes them as well."""
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
