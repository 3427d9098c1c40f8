"""What a shader file holds, as the back ends read it: kernels, their arguments, function constants."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .messages import Message, Place

# How many arguments of a kind there may be, and the attribute that numbers them.
LIMITS = {"buffer": 31, "threadgroup": 31, "texture": 128, "sampler": 16}
MAX_THREADGROUP_BYTES = 32768

_SCALAR_TYPES = {"float": 3, "half": 16, "int": 29, "uint": 33, "unsigned int": 33, "short": 37, "ushort": 41,
                 "unsigned short": 41, "char": 45, "uchar": 49, "unsigned char": 49, "bool": 53, "long": 81,
                 "ulong": 85, "unsigned long": 85, "bfloat": 121}  # fmt: skip


@dataclass
class Argument:
    """A kernel parameter that is bound by index."""

    position: int
    name: str
    kind: str  # DEVICE, CONSTANT, THREADGROUP, TEXTURE or SAMPLER
    index: int
    type_name: str
    written: bool
    reference: bool
    enabled_by: str | None


@dataclass
class Kernel:
    """A kernel function or an instantiation of a kernel template."""

    host_name: str
    callee: str  # how the wrapper names it
    place: Place
    arguments: list[Argument] = field(default_factory=list)
    positions: dict[int, str] = field(default_factory=dict)  # parameter -> attribute
    n_parameters: int = 0
    max_threads: int = 1024
    static_bytes: int = 0
    fibers: bool = False


@dataclass
class Constant:
    """A function constant, or (index None) one derived from others."""

    name: str
    qualified: str
    index: int | None
    type_name: str
    size: int


@dataclass
class Reflection:
    """What the wrappers need to know, and the messages."""

    kernels: list[Kernel]
    constants: list[Constant]
    messages: list[Message]


def attribute_of(kind: str) -> str:
    """Which attribute numbers arguments of this kind."""
    return "buffer" if kind in ("DEVICE", "CONSTANT") else kind.lower()


def data_type(name: str) -> int | None:
    """The MTLDataType of a scalar or vector type, None for others."""
    match = re.fullmatch(r"([a-z ]+?)([234]?)", name)
    if not match or match.group(1) not in _SCALAR_TYPES:
        return None
    return _SCALAR_TYPES[match.group(1)] + (int(match.group(2)) - 1 if match.group(2) else 0)
