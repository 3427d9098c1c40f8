"""Random signatures of kernels, and values for them: what tests/test_library_arguments.py gives and reads back."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

DTYPES = {
    "float": "f4", "half": "f2", "bfloat": tf.bfloat16.as_numpy_dtype, "bool": "?", "char": "i1", "uchar": "u1",
    "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "long": "i8", "ulong": "u8",
}  # fmt: skip

ENUMS = {"Small": "ushort", "Signed": "char", "Plain": "uint"}
DECLARED = (
    "enum class Small : ushort {}; enum Signed : char {}; enum Plain { plain, last = 1000 };\n"
)


@dataclass
class Type:
    """A type of a generated signature.

    Attributes:
      name: MSL's.
      shape: Shape of its numbers.
      scalar: The type of its numbers; "" of a struct.
      members: Members of a struct.
    """

    name: str
    shape: tuple[int, ...]
    scalar: str = ""
    members: tuple[tuple[str, Type], ...] = ()

    def numbers(self, at: str) -> Iterator[str]:
        """Expressions of all numbers in a value at `at`, in the order of a NumPy array."""
        for index in np.ndindex(*self.shape):
            one = at + "".join(f"[{i}]" for i in index)
            for name, member in self.members:
                yield from member.numbers(f"{one}.{name}")
            if not self.members:
                yield f"float({one})"


class Signatures:
    """Random types and values; every number is one that all types hold."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.structs: list[str] = []

    def type(self, depth: int = 2) -> Type:
        draw = self.draw
        kind = draw.choice(
            ["scalar", "enum", "vector", "vector", "packed", "matrix", "array", "bounds", "struct"]
        )
        scalar = draw.choice(list(DTYPES))
        width = draw.randint(2, 4)
        if kind == "vector" or (kind == "packed" and scalar == "bool"):
            return Type(f"{scalar}{width}", (width,), scalar)
        if kind == "packed":
            return Type(f"packed_{scalar}{width}", (width,), scalar)
        if kind == "matrix":
            scalar, columns = draw.choice(["float", "half"]), draw.randint(2, 4)
            return Type(f"{scalar}{columns}x{width}", (columns, width), scalar)
        if kind == "array" and depth:
            of = self.type(depth - 1)
            return Type(f"array<{of.name}, {width}>", (width, *of.shape), of.scalar, of.members)
        if kind == "enum":
            name, of = draw.choice(list(ENUMS.items()))
            return Type(name, (), of)
        if kind == "bounds" and depth:
            of, name = self.type(depth - 1), f"A{len(self.structs)}"
            self.structs.append(f"using {name} = {of.name}[{width}];\n")
            return Type(name, (width, *of.shape), of.scalar, of.members)
        if kind == "struct" and depth:
            members = tuple((f"m{i}", self.type(depth - 1)) for i in range(draw.randint(1, 4)))
            name = f"S{len(self.structs)}"
            body = " ".join(f"{member.name} {at};" for at, member in members)
            aligned = draw.choice(["", "", "alignas(32) "])
            self.structs.append(f"struct {aligned}{name} {{ {body} }};\n")
            return Type(name, (), "", members)
        return Type(scalar, (), scalar)

    def value(self, of: Type, count: int) -> tuple[Any, list[float]]:
        """One value, or several, in one of the forms that serve the type, and its numbers."""
        shape = of.shape if count == 1 else (count, *of.shape)
        if not of.members:
            return self.array(of, shape)
        form = self.draw.choice([self.dict, self.record])
        made = [form(of) for _ in range(math.prod(shape))]
        flat = [number for _, numbers in made for number in numbers]
        values = np.empty(len(made), object)
        for i, (one, _) in enumerate(made):
            values[i] = one
        return (values.reshape(shape).tolist() if shape else made[0][0]), flat

    def array(self, of: Type, shape: tuple[int, ...]) -> tuple[Any, list[float]]:
        draw = self.draw
        low, high = (
            (0, 1) if of.scalar == "bool" else (0, 100) if of.scalar[0] == "u" else (-100, 100)
        )
        exact = np.array([draw.randint(low, high) for _ in range(math.prod(shape))]).reshape(shape)
        array = exact.astype(DTYPES[of.scalar])
        flat = exact.reshape(-1).astype(float).tolist()
        forms = [array, array.tolist(), tf.constant(array)]
        if shape:
            forms += [array.reshape(-1), array.reshape(-1).tolist(), array.tolist()]
        if of.scalar in ("float", "half", "bfloat"):  # integers become floats
            forms += [exact.tolist(), exact.astype(float).tolist()]
        return draw.choice(forms), flat

    def dict(self, of: Type) -> tuple[Any, list[float]]:
        made = {name: self.value(member, 1) for name, member in of.members}
        return {name: one for name, (one, _) in made.items()}, [
            x for _, flat in made.values() for x in flat
        ]

    def record(self, of: Type) -> tuple[Any, list[float]]:
        """A NumPy record, whose layout is NumPy's own."""
        record = np.zeros((), _dtype(of))
        return record[()], self._fill(of, record)

    def _fill(self, of: Type, record: Any) -> list[float]:
        flat: list[float] = []
        for name, member in of.members:
            if not member.members:
                value, numbers = self.array(member, member.shape)
                record[name] = np.reshape(numbers, member.shape)
                flat += numbers
                continue
            for index in np.ndindex(*member.shape):
                flat += self._fill(member, record[name][index])
        return flat


def _dtype(of: Type) -> np.dtype[Any]:
    if not of.members:
        return np.dtype(DTYPES[of.scalar])
    return np.dtype([(name, _dtype(member), member.shape) for name, member in of.members])
