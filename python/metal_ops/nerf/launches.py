"""Graphs of launches of this library's shaders whose sizes change from call to call, and wait for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops

HOST = "/device:CPU:0"


class Sizes(NamedTuple):
    """The sizes that launches depend on.

    Attributes:
      rays: Rays of a step or a picture.
      slots: For samples as they are marched.
      kept: For those that light reaches.
    """

    rays: int
    slots: int
    kept: int


Numbers = Callable[[Sizes], Sequence[int]]
Output = tuple[str, Numbers, tf.DType]


def always(dims: list[int]) -> Numbers:
    return lambda _: dims


class Launches:
    """The launches of a graph. Their sizes change from call to call: they come as one vector in host memory."""

    def __init__(self, numbers: tf.Tensor) -> None:
        self._numbers = numbers
        self._parts: list[Numbers] = []
        self._length = 0

    def __call__(
        self,
        function: str,
        grid: Numbers,
        inputs: Mapping[str, tf.Tensor],
        params: Mapping[str, Any],
        outputs: Sequence[Output],
        threadgroup: int = 0,
        begins_as: int = -1,
    ) -> Any:
        """Runs a shader of this library, in threadgroups as large as it allows if 0; returns its outputs.

        The only output of a shader that adds to its old value begins as input number `begins_as`, which comes last.
        """
        group = [threadgroup, 1, 1] if threadgroup else [0, 0, 0]

        def part(sizes: Sizes) -> list[int]:
            sides = list(grid(sizes))
            numbers = sides + [1] * (3 - len(sides)) + group
            for _, shape, _ in outputs:
                dims = list(shape(sizes))
                numbers += [len(dims), *dims]
            return numbers

        begin = self._length
        self._length += len(part(Sizes(1, 1, 1)))
        self._parts.append(part)
        with tf.device(HOST):
            launch = self._numbers[begin : self._length]
            values = [tf.convert_to_tensor(value) for value in params.values()]
        arguments = [f"{name}=input:{i}" for i, name in enumerate(inputs) if i != begins_as]
        arguments += [f"{name}=output:{i}" for i, (name, _, _) in enumerate(outputs)]
        arguments += [f"{name}=param:{i}" for i, name in enumerate(params)]
        results = raw_ops.metal_kernel(
            launch,
            list(inputs.values()),
            values,
            Tout=[dtype for _, _, dtype in outputs],
            source="",
            function=function,
            arguments=arguments,
            copied=[] if begins_as < 0 else [begins_as],
            name=function,
        )
        for result, (_, shape, _) in zip(results, outputs, strict=True):
            small, large = shape(Sizes(1, 1, 1)), shape(Sizes(2, 2, 2))
            result.set_shape([a if a == b else None for a, b in zip(small, large, strict=True)])
        return results[0] if len(results) == 1 else tuple(results)

    def numbers(self, sizes: Sizes) -> tf.Tensor:
        """The vector for a call."""
        with tf.device(HOST):
            return tf.constant(
                np.asarray([n for part in self._parts for n in part(sizes)], np.int64)
            )


class Graph:
    """A graph of launches, which is made at its first call.

    Args:
      body: Takes the launches and the tensors of a call.
      *signature: The types of these tensors.
    """

    def __init__(self, body: Callable[..., Any], *signature: tf.TensorSpec) -> None:
        def traced(numbers: tf.Tensor, *tensors: tf.Tensor) -> Any:
            self._run = Launches(numbers)
            return body(self._run, *tensors)

        self._function = tf.function(
            traced,
            input_signature=[tf.TensorSpec([None], tf.int64), *signature],
            autograph=False,
        )
        self._concrete: Any = None

    def __call__(self, sizes: Sizes, *tensors: tf.Tensor) -> Any:
        """Its work is under way when this returns."""
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function()
        return self._concrete(self._run.numbers(sizes), *tensors)
