"""A function for each op, with the arguments of torch.ops.metal_ops. Where no gradient is asked for it calls the op's
kernel with nothing of Python between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from metal_ops.torch import _declared


def _function(op: _declared.Op) -> Callable[..., Any]:
    packet = getattr(torch.ops.metal_ops, op.name)
    differentiable, kernel = packet.default, packet.kernel

    def function(*args: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            for value in (*args, *named.values()):
                for one in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(one, torch.Tensor) and one.requires_grad:
                        return differentiable(*args, **named)
        return kernel(*args, **named)

    # torch.compile counts the forms of a code: each function has its own.
    function.__code__ = function.__code__.replace(co_name=op.name)
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __name__
    function.__doc__ = op.schema
    return function


if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...


__all__ = [op.name for op in _declared.ops().values()]
globals().update({op.name: _function(op) for op in _declared.ops().values()})
