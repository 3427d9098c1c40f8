"""Calls that are changed at random: an answer, or a sentence with the op's name, and never a crash."""

from __future__ import annotations

import os
import random
import re
from typing import Any

import pytest
import torch

from metal_ops.torch import _declared
from tests.torch import cases

OPS = {op.name: op for op in _declared.ops().values()}
DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2),
]
INTEGERS = [-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 33, 2**31 - 1, 2**31, 2**40, 2**63 - 1]
FLOATS = [-1e38, -1.0, 0.0, 1e-30, 0.5, 1.0, 1e38, float("inf"), float("nan")]
# PyTorch's own sentences about arguments that its schemas do not allow, and of results that no memory is for.
ITS_OWN = re.compile(
    r"expected at most|Expected a value of type|missing value for argument|"
    r"only Tensors of floating point|no kernel for|Could not run|not implemented for"
)
CALLS = int(os.environ.get("METAL_OPS_TORCH_FUZZ", "6000"))


def changed(chance: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that differs in one way."""
    kind = chance.randrange(8)
    if kind == 0:
        return tensor.to(chance.choice(DTYPES))
    if kind == 1:
        return tensor.to("meta")
    if kind == 2 and tensor.dim() > 1:
        return tensor.transpose(0, -1)
    if kind == 3:
        more = chance.random() < 0.5 or tensor.dim() == 0 or tensor.shape[0] == 0
        return tensor[None] if more else tensor[0]
    if kind == 4 and tensor.dim() > 0:
        dim = chance.randrange(tensor.dim())
        return tensor.narrow(dim, 0, chance.randint(0, tensor.shape[dim]))
    if kind == 5 and tensor.dim() > 0:
        return torch.cat([tensor, tensor], chance.randrange(tensor.dim()))
    if kind == 6 and not tensor.is_floating_point() and tensor.dtype != torch.bool:
        # The size of a result may follow from a scalar: a large one is memory that this machine does not have.
        most = 2**20 if tensor.dim() == 0 else 2**63
        other = torch.tensor(chance.choice([n for n in INTEGERS if n < most]))
        flat = tensor.clone().flatten()
        if len(flat):
            flat[chance.randrange(len(flat))] = other.to(tensor.dtype)
        return flat.reshape(tensor.shape)
    if kind == 7 and tensor.is_floating_point():
        return torch.full(tensor.shape, chance.choice(FLOATS)).to(tensor.dtype)
    return tensor[..., None].expand(*tensor.shape, 2)[..., 0]


def changed_attribute(chance: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        # Sizes of results follow from some: a large one is memory that this machine does not have.
        return chance.choice([number for number in INTEGERS if abs(number) < 2**20 or number < 0])
    if isinstance(value, float):
        return chance.choice(FLOATS)
    if isinstance(value, str):
        return chance.choice(["", "none", "relu", "hash", "x" * 1000, "linear\t"])
    if isinstance(value, list):
        return value[: chance.randrange(len(value) + 1)] * chance.randint(0, 2)
    return chance.choice(DTYPES)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", OPS)
def test_changed_calls(name: str) -> None:
    chance = random.Random(name)
    packet = getattr(torch.ops.metal_ops, name)
    for _ in range(max(CALLS // len(OPS), 1)):
        args, attrs = cases.of(name)
        for _ in range(chance.randint(1, 3)):
            if attrs and chance.random() < 0.3:
                key = chance.choice(list(attrs))
                attrs[key] = changed_attribute(chance, attrs[key])
            else:
                i = chance.randrange(len(args))
                if isinstance(args[i], list):
                    args[i] = [changed(chance, one) for one in args[i]][: chance.randint(0, 3)]
                else:
                    args[i] = changed(chance, args[i])
        try:
            packet(*args, **attrs)
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            said = str(error)
            assert said.startswith(f"{name}: ") or ITS_OWN.search(said), said
