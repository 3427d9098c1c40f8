"""How the elements of a kernel's buffers lie in memory, and Python's and NumPy's values in that form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.kernel import msl
from metal_ops.ops import _arguments

_NAMED = re.compile(r"([a-z]+?)([234])?(?:x([234]))?")
BYTES = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Numbers:
    """A scalar, vector or matrix, or an array of them: numbers of one dtype at regular distances.

    Attributes:
      name: MSL's: "float", "uint3", "half4x4", "float3[8]".
      dtype: Dtype of each number.
      shape: Shape of one value in Python: [], [3], [columns, rows], [8, 3].
      stored: The same in memory, where a vector of 3 that is not packed takes the room of 4.
    """

    name: str
    dtype: tf.DType
    shape: tuple[int, ...]
    stored: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return math.prod(self.stored) * int(self.dtype.size)

    @property
    def padded(self) -> bool:
        """Whether a vector of 3 takes the room of 4."""
        return self.shape != self.stored

    def __str__(self) -> str:
        return f"{described(self.shape)} ({self.name})"

    def count(self, shape: Sequence[int]) -> int | None:
        """How many values numbers of this shape are; None where they are no whole number of values."""
        rank, one = len(self.shape), math.prod(self.shape)
        if len(shape) >= rank and tuple(shape[len(shape) - rank :]) == self.shape:
            return math.prod(shape) // one
        if len(shape) == 1 and shape[0] % one == 0:
            return int(shape[0]) // one
        return None

    def lay(self, where: str, value: Any, memory: np.ndarray[Any, Any]) -> None:
        """Writes one value to its bytes.

        Raises:
          TypeError: It is no number, or one of another kind.
          ValueError: It has another shape.
        """
        found = numbers(where, self, value)
        if found.shape != self.shape and found.shape != (math.prod(self.shape),):
            raise ValueError(f"{where}: expected {self}, got {described(found.shape)}.")
        _store(found, self, memory[: self.size].view(found.dtype).reshape(self.stored))


@dataclass(frozen=True)
class Record:
    """A struct.

    Attributes:
      members: By name, the offset and layout of each; None for a type that values cannot be given for.
      size: Bytes of one value.
    """

    members: dict[str, tuple[int, Layout | None]]
    size: int

    def __str__(self) -> str:
        return f"a struct of {', '.join(self.members)}"

    @property
    def dtype(self) -> tf.DType | None:
        """The dtype of all its numbers; None where they have several, or lie apart."""
        parts = [part for _, part in self.members.values()]
        if sum(part.size for part in parts if part is not None) != self.size:
            return None
        found = {part.dtype for part in parts if part is not None}
        padded = any(isinstance(part, Numbers) and part.padded for part in parts)
        return found.pop() if len(found) == 1 and not padded else None

    @property
    def refused(self) -> str:
        """Why bytes alone can be its values; "" where members may be given by name."""
        end = 0
        for name, (offset, part) in self.members.items():
            if part is None or not name:
                return f"{name or 'a member without a name'} has a type that Python's values do not serve"
            if isinstance(part, Record | Several) and part.refused:
                return f"in {name}, {part.refused}"
            if offset < end:
                return f"{name} lies in the memory of another member"
            end = offset + part.size
        return ""

    def lay(self, where: str, value: Any, memory: np.ndarray[Any, Any]) -> None:
        """Writes one value, a dict or a NumPy record, to its bytes."""
        names: Sequence[str] = ()
        if isinstance(value, Mapping):
            names = [str(name) for name in value]
        elif isinstance(value, np.void) or (isinstance(value, np.ndarray) and not value.ndim):
            names = value.dtype.names or ()
        elif isinstance(value, BYTES):
            memory[: self.size] = raw(where, value, self.size, True)
            return
        if self.refused:
            raise TypeError(
                f"{where}: expected its {n_bytes(self.size)}, as {self.refused}, got {_kind(value)}."
            )
        if set(names) != set(self.members):
            got = f"the members {', '.join(names)}" if names else _kind(value)
            raise TypeError(
                f"{where}: expected a struct of {n_bytes(self.size)}, as a dict or a NumPy record of "
                f"{', '.join(self.members)}, got {got}."
            )
        for name, (offset, part) in self.members.items():
            assert part is not None
            part.lay(f"{where}.{name}", value[name], memory[offset:])


@dataclass(frozen=True)
class Several:
    """An array of structs, or of arrays of them."""

    length: int
    stride: int
    part: Record | Several

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return self.length * self.stride

    def __str__(self) -> str:
        return f"{self.length} of {self.part}"

    @property
    def dtype(self) -> tf.DType | None:
        """As that of its structs."""
        return self.part.dtype

    @property
    def refused(self) -> str:
        """As that of its structs."""
        return self.part.refused

    def lay(self, where: str, value: Any, memory: np.ndarray[Any, Any]) -> None:
        """Writes one value, a sequence, to its bytes."""
        if isinstance(value, str | BYTES | Mapping) or not hasattr(value, "__len__"):
            raise TypeError(f"{where}: expected {self.length} values, got {_kind(value)}.")
        if len(value) != self.length:
            raise ValueError(f"{where}: expected {self.length} values, got {len(value)}.")
        for i, one in enumerate(value):
            self.part.lay(f"{where}[{i}]", one, memory[i * self.stride :])


Layout = Numbers | Record | Several


def described(shape: Sequence[int]) -> str:
    """Numbers of a shape, in words."""
    if len(shape) > 1:
        return f"numbers of shape {list(shape)}"
    count = math.prod(shape)
    return f"{count} numbers" if count != 1 else "1 number" if shape else "a number"


def read(text: str, size: int) -> tuple[Layout | None, bool]:
    """The layout of a buffer's elements, and whether the kernel refers to exactly one.

    Args:
      text: As the reflection has it: kernels/runtime/layout.h.
      size: Bytes of one element.
    """
    said = json.loads(text)
    if said is None:  # threadgroup memory
        return None, False
    single, alignment, of = said
    return _read(of, size, alignment), bool(single)


def _read(said: Any, size: int | None, alignment: int | None = None) -> Layout | None:
    if isinstance(said, str):
        return _named(said, size, alignment)
    if said is None:
        return None
    kind, *rest = said
    if kind == "array":
        length, stride, of = rest
        part = _read(of, stride)
        if part is None or part.size != stride:
            return None
        if not isinstance(part, Numbers):
            return Several(length, stride, part)
        name, bracket, bounds = part.name.partition("[")
        return Numbers(
            f"{name}[{length}]{bracket}{bounds}",
            part.dtype,
            (length, *part.shape),
            (length, *part.stored),
        )
    members = {}
    # A member's size is not said: a vector of 3 in the room of 4 ends where the next member begins, or the struct.
    starts = sorted({offset for _, offset, _ in rest} | ({size} if size else set()))
    for name, offset, of in rest:
        after = [start for start in starts if start > offset]
        members[name] = offset, _read(of, after[0] - offset if after else None)
    return Record(members, size or 0)


def _named(name: str, size: int | None, alignment: int | None) -> Numbers | None:
    """A scalar, vector or matrix; of a struct's member the alignment is not known."""
    found = _NAMED.fullmatch(name)
    if found is None or found[1] not in msl.DTYPES:
        return None
    shape = tuple(int(side) for side in found.groups()[1:] if side)
    dtype = msl.DTYPES[found[1]]
    # Metal's reflection has one word for both.
    packed = len(shape) == 1 and alignment is not None and alignment <= dtype.size
    packed |= shape == (3,) and size is not None and size < 4 * dtype.size
    stored = (*shape[:-1], 4) if shape[-1:] == (3,) and not packed else shape
    return Numbers(f"packed_{name}" if packed else name, dtype, shape, stored)


def numbers(where: str, layout: Numbers, value: Any) -> np.ndarray[Any, Any]:
    """A value of Python or NumPy as numbers of the layout's dtype; its shape is not looked at.

    Integers become floats, floats are rounded. Conversions that would lose more are refused.

    Raises:
      TypeError: It has numbers of another kind, or ones that the dtype does not hold.
    """
    dtype = layout.dtype
    expected = f"{where}: expected {layout}, got"
    if isinstance(value, BYTES):
        raise TypeError(f"{expected} bytes.")
    if np.ma.is_masked(value):
        raise TypeError(f"{expected} an array with masked numbers. Fill them: value.filled(0).")
    try:
        if tf.is_tensor(value):
            value = value.numpy()  # np.asarray does not take a bfloat16 scalar
        found = np.asarray(value)
    except (AttributeError, ValueError, TypeError, OverflowError, NotImplementedError):
        raise TypeError(f"{expected} {_kind(value)}.") from None
    if dtype.is_integer and found.dtype.kind in "fO" and not hasattr(value, "dtype"):
        # NumPy makes floats or objects of integers beyond 64 bits, and of small and large ones together.
        found = np.asarray(value, object)
        if not _are_integers(found):
            found = np.asarray(value)
    if isinstance(value, list | tuple) and dtype != tf.bool and _holds_bools(value):
        raise TypeError(f"{expected} {_kind(value)}. Give numbers: True and False are none.")
    kind = "f" if found.dtype == tf.bfloat16.as_numpy_dtype else found.dtype.kind
    if not found.size and not hasattr(value, "dtype"):
        kind = "u" if dtype != tf.bool else "b"  # an empty list has no numbers of any kind
    kinds = "b" if dtype == tf.bool else "iuO" if dtype.is_integer else "iufO"
    if kind not in kinds or (kind == "O" and not _are_integers(found)):
        got = _kind(value) if kind in "OSUVMm" else {"b": "bool"}.get(kind, found.dtype.name)
        raise TypeError(f"{expected} {got}.{_remedy(where, kind, dtype)}")
    wrong = _arguments.outside(found, dtype)
    if wrong is not None:
        raise TypeError(f"{expected} {', which '.join(_arguments.unheld(wrong, dtype))}.")
    if kind == "O" and dtype.is_floating:
        found = found.astype("float64")
    return found.astype(dtype.as_numpy_dtype)


def _are_integers(found: np.ndarray[Any, Any]) -> bool:
    return all(
        isinstance(one, int | np.integer) and not isinstance(one, bool) for one in found.flat
    )


def _holds_bools(values: Sequence[Any]) -> bool:
    return any(
        _holds_bools(one) if isinstance(one, list | tuple) else isinstance(one, bool | np.bool_)
        for one in values
    )


def _remedy(where: str, kind: str, dtype: tf.DType) -> str:
    if kind in "iufb" and dtype != tf.bool:
        return f" Convert it first: np.asarray({where.split()[-1]}).astype({dtype.as_numpy_dtype.__name__!r})."
    return " Give True or False." if dtype == tf.bool and kind in "iuf" else ""


def lay_out(where: str, layout: Layout, value: Any, single: bool) -> np.ndarray[Any, Any]:
    """The bytes of one or more values.

    Args:
      where: The kernel and the argument in messages.
      layout: Layout of one value.
      value: A value of Python or NumPy.
      single: Whether it has to be exactly one.

    Raises:
      TypeError: They are of another kind.
      ValueError: They are no whole number of values, or another one.
    """
    if are_bytes(value):
        return raw(where, value, layout.size, single)
    if isinstance(layout, Numbers):
        found = numbers(where, layout, value)
        count = whole(where, layout, found.shape, single)
        room = np.zeros((count, *layout.stored), found.dtype)
        _store(found, layout, room)
        return room.reshape(-1).view(np.uint8)
    if _depth(value) < _rank(layout):
        raise TypeError(f"{where}: expected a list of {layout}, got {_kind(value)}.")
    values = list(_each(layout, value))
    if single and len(values) != 1:
        raise ValueError(f"{where}: expected {layout}, got a list of {len(values)}.")
    memory = np.zeros(len(values) * layout.size, np.uint8)
    for i, one in enumerate(values):
        place = where if len(values) == 1 and one is value else f"{where}[{i}]"
        layout.lay(place, one, memory[i * layout.size :])
    return memory


def whole(where: str, layout: Numbers, shape: Sequence[int], single: bool) -> int:
    """How many values numbers of this shape are.

    Raises:
      ValueError: They are no whole number of values, or not one where it has to be one.
    """
    count = layout.count(shape)
    if count is None or (single and count != 1):
        several = "" if single else ", or a multiple of them"
        raise ValueError(f"{where}: expected {layout}{several}, got {described(shape)}.")
    return count


def _store(found: np.ndarray[Any, Any], layout: Numbers, room: np.ndarray[Any, Any]) -> None:
    """Writes numbers to memory of the layout's stored shape, or of several such."""
    inner = room[..., : layout.shape[-1]] if layout.shape else room
    inner[...] = found.reshape(inner.shape)


def _each(layout: Record | Several, value: Any) -> Iterator[Any]:
    """The values that a value is: itself, or those in it."""
    depth = _rank(layout)
    if _depth(value) == depth:
        yield value
    elif isinstance(value, np.ndarray):
        yield from value.reshape(-1, *value.shape[value.ndim - depth :])
    else:
        yield from value


def _rank(layout: Record | Several) -> int:
    return 1 + _rank(layout.part) if isinstance(layout, Several) else 0


def _depth(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.ndim
    if not isinstance(value, list | tuple):
        return 0
    return 1 + (_depth(value[0]) if len(value) else 0)


def are_bytes(value: Any) -> bool:
    """Whether a value is memory and not numbers."""
    return isinstance(value, BYTES) or (isinstance(value, np.void) and value.dtype.names is None)


def n_bytes(size: int) -> str:
    return f"{size} byte{'s' * (size != 1)}"


def raw(where: str, value: Any, size: int, single: bool) -> np.ndarray[Any, Any]:
    """The bytes that a value is, of one element or several."""
    data = value.tobytes() if hasattr(value, "tobytes") else bytes(value)
    if len(data) % size or (single and len(data) != size):
        several = "" if single else " Several values are a multiple of them."
        raise ValueError(f"{where}: expected {n_bytes(size)}, got {len(data)}.{several}")
    return np.frombuffer(data, np.uint8)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
