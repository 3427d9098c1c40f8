"""What readers of model files give: floats, or codes in blocks; and safetensors files."""

from __future__ import annotations

import json
import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metal_ops.programs.errors import ProgramError, short
from metal_ops.programs.reading import open_file, parse_json

_MOST_HEADER = 100_000_000  # the format's own limit
_TYPES = {"F32": 4, "F16": 2, "BF16": 2}


class WeightsError(ProgramError):
    """A model's file that cannot be read, or holds another kind of model."""


class Packed(NamedTuple):
    """A quantized matrix as `QuantizedWeights` has it.

    Attributes:
      codes: uint8 [outputs, bytes].
      scales: float16 or float32 [outputs, blocks].
      minima: The same, or None.
      bits: Of a code.
      block: Weights that share a scale.
    """

    codes: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None
    bits: int
    block: int

    def floats(self) -> np.ndarray:
        """float32 [outputs, inputs]."""
        codes = self.codes
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
        scales = np.repeat(self.scales.astype(np.float32), self.block, 1)
        if self.minima is None:
            return (codes.astype(np.float32) - 2 ** (self.bits - 1)) * scales
        return codes * scales + np.repeat(self.minima.astype(np.float32), self.block, 1)


def from_bfloat16(halves: np.ndarray) -> np.ndarray:
    """float32 of the bits of bfloat16, uint16."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


class SafeTensors:
    """The tensors of one or several .safetensors files, mapped.

    Attributes:
      path: The first one.
      shapes: Of the tensors by name.
    """

    def __init__(self, paths: list[Path]) -> None:
        self.path = paths[0]
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._entries: dict[str, tuple[mmap.mmap, str, int, int]] = {}
        for path in paths:
            self._open(path)

    def _open(self, path: Path) -> None:
        with open_file(path, WeightsError, "model") as file:
            size = file.seek(0, 2)
            if size < 8:
                raise WeightsError(f"{path}: not a readable safetensors file: it has {size} bytes.")
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (length,) = struct.unpack_from("<Q", content)
        if length > min(size - 8, _MOST_HEADER):
            raise WeightsError(
                f"{path}: declares a header of {length} bytes, and has {size - 8}; it is damaged, or no "
                "safetensors file."
            )
        try:
            text = content[8 : 8 + length].decode("utf-8")
        except UnicodeDecodeError:
            raise WeightsError(f"{path}: its header is not UTF-8; it is damaged.") from None
        header = parse_json(text, f"{path}: header", WeightsError)
        if not isinstance(header, dict):
            raise WeightsError(f"{path}: header: expected a JSON object, got {short(header)}.")
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if name in self.shapes:
                raise WeightsError(f"{path}: tensor {short(name)} is in another file, too.")
            kind, shape, start, end = _entry(path, name, entry)
            if kind not in _TYPES:
                raise WeightsError(
                    f"{path}: tensor {short(name)} has type {short(kind)}, expected one of {', '.join(_TYPES)}; "
                    "convert it."
                )
            wanted = math.prod(shape) * _TYPES[kind]
            if not 0 <= start <= end <= size - 8 - length or end - start != wanted:
                raise WeightsError(
                    f"{path}: tensor {short(name)} needs {wanted} bytes, and its place has not; it is damaged."
                )
            self.shapes[name] = tuple(shape)
            self._entries[name] = content, kind, 8 + length + start, math.prod(shape)

    def floats(self, name: str) -> np.ndarray:
        """A tensor as float32."""
        content, kind, start, count = self._entries[name]
        dtype = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[kind]
        values = np.frombuffer(content, dtype, count, start).reshape(self.shapes[name])
        return from_bfloat16(values) if kind == "BF16" else values.astype(np.float32)

    packed = floats


def _entry(path: Path, name: str, entry: Any) -> tuple[Any, list[int], int, int]:
    """Type, shape, first byte and the one behind the last."""
    try:
        kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, end]
    except (TypeError, KeyError, ValueError):
        numbers = [None]
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise WeightsError(
            f"{path}: tensor {short(name)} is described by {short(json.dumps(entry))}; it is damaged."
        )
    return kind, shape, start, end
