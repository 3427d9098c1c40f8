"""The contents of a shader file, as the back ends read it: kernels, their arguments, function constants."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from .abi import abi, number
from .messages import Message, Place


@dataclass
class Argument:
    """A kernel parameter that is bound by index."""

    position: int
    name: str
    kind: str  # DEVICE, CONSTANT, THREADGROUP, TEXTURE, SAMPLER, TABLE or TENSOR
    index: int
    type_name: str
    written: bool
    reference: bool
    enabled_by: str | None
    elements: int = 1  # of an array of textures, which has an argument for each
    element: int = 0
    members: str | None = None  # of a struct, as members.py writes them
    restrict: bool = False


@dataclass
class Kernel:
    """A kernel function, an instantiation of a kernel template, or a function for tables."""

    host_name: str
    callee: str  # how the wrapper names it
    place: Place
    max_threads: int
    arguments: list[Argument] = field(default_factory=list)
    positions: dict[int, str] = field(default_factory=dict)  # parameter -> attribute
    n_parameters: int = 0
    static_bytes: int = 0
    fibers: bool = False
    logs: bool = False  # calls os_log, or functions of tables, which may
    visible: bool = False
    # Names of function constants, derived ones too: those it reads, and those it asks of whether they have a value.
    reads: dict[str, None] = field(default_factory=dict)
    asks: dict[str, None] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)  # positions of parameters that its body names


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
    """The facts that the wrappers need, and the messages."""

    kernels: list[Kernel]
    constants: list[Constant]
    messages: list[Message]
    logging: bool = False  # whether os_log is compiled
    debug: bool = False  # whether kernels are for a debugger
    coverage: bool = False  # whether they count what runs
    lane_map: str = ""  # of cooperative tensors; "" where the source has no tensors


def attribute_of(kind: str) -> str:
    """The attribute that numbers arguments of this kind."""
    return "buffer" if kind in ("DEVICE", "CONSTANT", "TABLE", "TENSOR") else kind.lower()


def constant_of(condition: str) -> str:
    """The name of the function constant that enables an argument, its namespaces left out."""
    return re.sub(r".*::", "", condition).strip()


@functools.cache
def limits() -> dict[str, int]:
    """How many arguments of a kind there may be, by the attribute that numbers them."""
    buffers = number("MAX_BUFFERS")
    return {
        "buffer": buffers,
        "threadgroup": buffers,
        "texture": number("MAX_TEXTURES"),
        "sampler": number("MAX_SAMPLERS"),
    }


def data_type(name: str) -> int | None:
    """The MTLDataType of a scalar or vector type, None for others."""
    match = re.fullmatch(r"(unsigned )?([a-z]+)([234]?)", name)
    if not match:
        return None
    scalar = ("u" if match[1] else "") + match[2]
    first = abi().numbers.get(f"METALLIB_TYPE_{scalar.upper()}")
    return None if first is None else first + int(match[3] or 1) - 1
