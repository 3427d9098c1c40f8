"""Calls the functions that a kernel's user gives, with the values that their parameters are named after."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Argument:
    """The view of an input for functions of shapes, dtypes, grid and template.

    Attributes:
      shape: A tuple of sizes. One that a graph does not know yet is a scalar int64 tensor; where not even the rank is
        known, the whole is an int64 vector.
      dtype: The dtype.
    """

    shape: Any
    dtype: tf.DType

    @property
    def ndim(self) -> Any:
        """The rank; a tensor where a graph does not know it."""
        return tf.size(self.shape) if tf.is_tensor(self.shape) else len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return tf.reduce_prod(self.shape) if tf.is_tensor(self.shape) else math.prod(self.shape)


class ByName:
    """A function whose parameters name its arguments.

    Raises:
      TypeError: It names something that there is not.
    """

    def __init__(
        self, label: str, argument: str, function: Callable[..., Any], names: Iterable[str]
    ):
        # AutoGraph looks for a lambda's text, and warns where two stand on a line.
        self.function = tf.autograph.experimental.do_not_convert(function)
        known = tuple(names)
        self.positional: list[str] = []
        self.keywords: list[str] = []
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            raise TypeError(
                f"[{label}] {argument}: expected a function whose parameters can be read, got {function!r}."
            ) from None
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self.keywords += [name for name in known if name not in self.keywords]
            elif parameter.name in known:
                only = parameter.kind is parameter.POSITIONAL_ONLY
                (self.positional if only else self.keywords).append(parameter.name)
            elif parameter.default is parameter.empty:
                raise TypeError(
                    f"[{label}] {argument}: its parameter {parameter.name!r} is none of {', '.join(known)}, which are "
                    "given by name."
                )

    def __call__(self, values: Mapping[str, Any]) -> Any:
        return self.function(
            *(values[name] for name in self.positional),
            **{name: values[name] for name in self.keywords},
        )

    @property
    def wanted(self) -> frozenset[str]:
        """The names that it is given."""
        return frozenset((*self.positional, *self.keywords))


def resolve(value: Any, values: Mapping[str, Any]) -> Any:
    """The value, or its result where it is a function."""
    return value(values) if isinstance(value, ByName) else value
