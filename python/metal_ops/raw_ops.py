"""The ops exactly as `tf.load_op_library` generates them: no checks, no defaults beyond the op's own.

Scripts written against Apple's published samples keep their calls and only change the line that loads the library:

    module = metal_ops.raw_ops
    y = module.hash_encode(inputs, embeddings, hashmap_offsets,
                           log2_per_level_scale=1.0, resolution_coarsest=16)

The gradients are registered, so a script must not register its own for these ops as well. Errors here name the op and
its inputs ("SoftshrinkGrad: gradients must ..."), as those of gradients do, which have no public function; errors of
public functions name these and their arguments.
"""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from metal_ops import _library, device

_generated = _library.load()
_TURNS = threading.RLock()


def _begin_anew() -> None:
    """In a forked process: the thread whose turn it was did not come along."""
    global _TURNS
    _TURNS = threading.RLock()


os.register_at_fork(after_in_child=_begin_anew)


def __getattr__(name: str) -> Any:
    try:
        function = getattr(_generated, name)
    except AttributeError:
        raise AttributeError(
            f"metal_ops.raw_ops has no op {name!r}; see dir(metal_ops.raw_ops)"
        ) from None
    if name.replace("_", "") in _library.ops_that_read_on_the_host():
        function = _in_turns(function)
    globals()[name] = function
    return function


def _in_turns(function: Callable[..., Any]) -> Callable[..., Any]:
    """Threads call it one after the other, outside of graphs and where there is a device.

    TensorFlow hands inputs in host memory to a device's op under names that all of its calls outside of graphs share:
    two threads' calls would take each other's.
    """
    import tensorflow as tf

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if device.list() and tf.executing_eagerly():
            with _TURNS:
                return function(*arguments, **named)
        return function(*arguments, **named)

    return call


def __dir__() -> list[str]:
    return sorted(name for name in vars(_generated) if f"{name}_eager_fallback" in vars(_generated))
