"""The op library's own description of its ops, and its loading into PyTorch."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "_metal_ops_torch.so"
OLDEST = (2, 10)


@dataclass
class Input:
    """An op's input, a tensor or a list of them."""

    name: str
    is_list: bool
    type: str
    shape: str


@dataclass
class Output:
    """An op's output."""

    name: str
    type: str
    shape: str


@dataclass
class Rule:
    """A rule of a gradient: kernels/runtime/gradient.h says how they are written."""

    targets: list[str]
    negative: bool
    product_with: str  # the first factor, or ""
    op: str  # as it is declared
    arguments: list[str]
    attrs: dict[str, str]
    condition: str

    @property
    def names(self) -> list[str]:
        """All arguments, that of a product too."""
        return [*([self.product_with] if self.product_with else []), *self.arguments]


@dataclass
class Op:
    """A declared op."""

    name: str  # "hash_encode"
    declared: str  # "HashEncode"
    differentiable: bool
    schema: str
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # those given as arguments: their defaults
    rules: list[Rule] = field(default_factory=list)

    def input(self, name: str) -> int:
        """Its number; -1: there is none of that name."""
        return next((i for i, given in enumerate(self.inputs) if given.name == name), -1)

    def output(self, name: str) -> int:
        """Its number; -1: there is none of that name."""
        return next((i for i, given in enumerate(self.outputs) if given.name == name), -1)


RULE = re.compile(
    r"(?P<targets>[\w, ]+) = (?P<minus>-?)(?:MatMul\((?P<factor>[^,]+), )?(?P<op>\w+)\((?P<args>[^;)]*)"
    r"(?:; (?P<attrs>[^)]*))?\)+(?: if (?P<condition>\S+))?"
)


def read_rule(text: str) -> Rule:
    """A rule from its text."""
    found = RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"metal_ops: the gradient {text!r} is not written as gradient.h says.")
    attrs = dict(pair.split("=", 1) for pair in (found["attrs"] or "").split(", ") if pair)
    return Rule(
        found["targets"].split(", "),
        bool(found["minus"]),
        found["factor"] or "",
        found["op"],
        found["args"].split(", "),
        attrs,
        found["condition"] or "",
    )


@functools.cache
def library() -> ctypes.CDLL:
    """The op library, whose ops are registered with PyTorch then.

    Raises:
      ImportError: It is missing, or does not load.
    """
    remedy = "build it with `make torch` in the source checkout"
    if not PATH.exists():
        raise ImportError(f"metal_ops.torch: the op library {PATH} is missing; {remedy}.")
    try:
        loaded = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise ImportError(
            f"metal_ops.torch: {PATH} cannot be loaded ({error}); {remedy}."
        ) from error
    for name in ("register", "declarations", "infer"):
        getattr(loaded, f"metal_ops_torch_{name}").restype = ctypes.c_char_p
    if problem := loaded.metal_ops_torch_register().decode():
        raise ImportError(f"metal_ops.torch: {problem}")
    return loaded


@functools.cache
def ops() -> dict[str, Op]:
    """All ops by their declared names."""
    return read(library().metal_ops_torch_declarations().decode())


def read(text: str) -> dict[str, Op]:
    """Ops from the library's text."""
    found: dict[str, Op] = {}
    for line in text.splitlines():
        kind, *parts = line.split("\t")
        if kind == "op":
            name, declared, differentiable, schema = parts
            op = found[declared] = Op(name, declared, differentiable == "1", schema)
        elif kind == "attr":
            if parts[1] == "1":
                op.attrs[parts[0]] = parts[2]
        elif kind == "input":
            name, is_list, type_, shape = parts
            op.inputs.append(Input(name, is_list == "1", type_, shape))
        elif kind == "output":
            op.outputs.append(Output(*parts))
        else:
            op.rules.append(read_rule(parts[0]))
    return found


def infer(op: Op, request: str) -> list[tuple[str, list[int] | None]]:
    """Dtype and sizes of each output of a call; None: not even the rank is known.

    Raises:
      ValueError: The call does not fit the declaration.
    """
    answer: Any = library().metal_ops_torch_infer(op.name.encode(), request.encode()).decode()
    if answer.startswith("!"):
        raise ValueError(answer[1:])
    outputs = []
    for line in answer.splitlines():
        dtype, dims = line.split("\t")
        outputs.append((dtype, None if dims == "?" else [int(n) for n in dims.split(",") if n]))
    return outputs
