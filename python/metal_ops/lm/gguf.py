"""GGUF files, versions 2 and 3: metadata and tensors. They are mapped, and what they declare is held against bytes."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.reading import open_file

from .weights import Packed, WeightsError, from_bfloat16

_NUMBERS = dict(enumerate("BbHhIif?", 0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST = 1 << 16  # entries of metadata, tensors
_MOST_WORDS = 1 << 22
_BLOCK = 32
# Type: name, weights of a block, bytes of a block.
_KINDS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144), 14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2),
}  # fmt: skip
_OTHERS = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip


class _Entry(NamedTuple):
    shape: tuple[int, ...]  # the last one runs fastest
    kind: int
    start: int
    size: int


class Gguf:
    """A file's metadata and tensors.

    Attributes:
      path: Where it lies.
      metadata: By key.
      shapes: Of the tensors by name, the last dimension running fastest, as NumPy has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_file(path, WeightsError, "model") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise WeightsError(f"{path}: not a readable GGUF file: it has {size} bytes.")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        try:
            self._read()
        except (struct.error, UnicodeDecodeError):
            raise WeightsError(
                f"{path}: is damaged at byte {self._at}; get the file again."
            ) from None
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}

    def _read(self) -> None:
        magic, version, tensors, entries = self._take("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise WeightsError(
                f"{self.path}: is no GGUF file of version 2 or 3 with little-endian numbers; convert it anew."
            )
        if max(tensors, entries) > _MOST:
            raise WeightsError(
                f"{self.path}: declares {tensors} tensors and {entries} entries, expected at most {_MOST}; it is "
                "damaged."
            )
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._string()
            self.metadata[key] = self._value(self._take("<I")[0])
        found = [self._entry() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise WeightsError(
                f"{self.path}: 'general.alignment' is {short(alignment)}, expected a small number."
            )
        begin = -(-self._at // alignment) * alignment
        self._entries: dict[str, _Entry] = {}
        for name, entry in found:
            if name in self._entries:
                raise WeightsError(f"{self.path}: tensor {short(name)} is there twice.")
            if begin + entry.start + entry.size > len(self._bytes):
                raise WeightsError(
                    f"{self.path}: tensor {short(name)} ends behind the file's last byte; it is cut off, get it again."
                )
            self._entries[name] = entry._replace(start=begin + entry.start)

    def _take(self, form: str) -> tuple:
        found = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return found

    def _string(self) -> str:
        (length,) = self._take("<Q")
        if length > len(self._bytes) - self._at:
            raise struct.error
        text = self._bytes[self._at : self._at + length]
        self._at += length
        return text.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._take("<" + _NUMBERS[kind])[0]
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise WeightsError(f"{self.path}: metadata of type {kind} is not known; it is damaged.")
        kind, length = self._take("<IQ")
        if length > len(self._bytes) - self._at:
            raise struct.error
        if kind in _NUMBERS:
            dtype = np.dtype("<" + _NUMBERS[kind])
            if length * dtype.itemsize > len(self._bytes) - self._at:
                raise struct.error
            array = np.frombuffer(self._bytes, dtype, length, self._at).copy()
            self._at += array.nbytes
            return array
        # Arrays in arrays, which no model has, would let few bytes become much.
        if kind != _STRING or length > _MOST_WORDS:
            raise WeightsError(
                f"{self.path}: an array of {length} of type {kind} is not read; it is damaged."
            )
        return [self._string() for _ in range(length)]

    def _entry(self) -> tuple[str, _Entry]:
        name = self._string()
        (rank,) = self._take("<I")
        if not 1 <= rank <= 4:
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has {rank} dimensions, expected 1 to 4."
            )
        sizes = self._take(f"<{rank}Q")
        kind, start = self._take("<IQ")
        if kind not in _KINDS:
            called = _OTHERS.get(kind, f"number {kind}")
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has type {called}, which is not read; quantize the model to "
                "Q8_0, Q4_0 or Q4_K_M, or give F16."
            )
        _, per, n_bytes = _KINDS[kind]
        if sizes[0] % per:
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has rows of {sizes[0]}, expected a multiple of {per}; it is "
                "damaged."
            )
        return name, _Entry(sizes[::-1], kind, start, math.prod(sizes) // per * n_bytes)

    def floats(self, name: str) -> np.ndarray:
        """A tensor as float32, dequantized."""
        packed = self.packed(name)
        return (
            packed if isinstance(packed, np.ndarray) else packed.floats().reshape(self.shapes[name])
        )

    def packed(self, name: str) -> np.ndarray | Packed:
        """A tensor as float32, or, if it is quantized, as codes: [outputs, inputs]."""
        shape, kind, start, size = self._entries[name]
        raw = np.frombuffer(self._bytes, np.uint8, size, start)
        if kind == 0:
            return raw.view("<f4").reshape(shape).astype(np.float32)
        if kind == 1:
            return raw.view("<f2").reshape(shape).astype(np.float32)
        if kind == 30:
            return from_bfloat16(raw.view("<u2")).reshape(shape)
        blocks = raw.reshape(math.prod(shape[:-1]), -1, _KINDS[kind][2])
        if kind == 12:
            return _q4_k(blocks)
        if kind == 14:
            return _q6_k(blocks).reshape(shape)
        scales = _halves(blocks[..., :2])
        if kind == 8:
            # From signed bytes to codes whose zero is 128.
            codes = (blocks[..., 2:] ^ 128).reshape(len(blocks), -1)
            return Packed(codes, scales, None, 8, _BLOCK)
        minima = _halves(blocks[..., 2:4]) if kind == 3 else None
        halves = blocks[..., -16:]
        # A byte has weights i and i + 16 of its block; here neighbours share one.
        codes = np.concatenate([halves & 15, halves >> 4], -1)
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
        return Packed(codes.reshape(len(blocks), -1), scales, minima, 4, _BLOCK)


def _q4_k(blocks: np.ndarray) -> Packed:
    """256 weights with a scale and a minimum of 6 bits for each 32, which two halves scale in turn."""
    steps = _halves(blocks[..., 0:2]).astype(np.float32)[..., None]
    lows = _halves(blocks[..., 2:4]).astype(np.float32)[..., None]
    first, second, third = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], -1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], -1)
    # 32 bytes have 32 weights in their low bits, and the next 32 in the others.
    halves = blocks[..., 16:].reshape(*blocks.shape[:2], 4, 1, 32)
    codes = np.concatenate([halves & 15, halves >> 4], -2)
    codes = codes[..., 0::2] | codes[..., 1::2] << 4
    rows = len(blocks)
    return Packed(
        codes.reshape(rows, -1), (steps * scales).reshape(rows, -1), (-lows * minima).reshape(rows, -1), 4, _BLOCK
    )  # fmt: skip


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """float32 of 256 weights with a scale of 8 bits for each 16; no such codes are multiplied here."""
    low = blocks[..., :128].reshape(*blocks.shape[:2], 2, 2, 32)
    high = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32)
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    step = _halves(blocks[..., 208:210]).astype(np.float32)
    # Of each half of the block: four times 32 weights, whose upper two bits lie in one byte.
    lower = np.concatenate([low & 15, low >> 4], -2)
    upper = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = (lower | upper << 4).astype(np.float32) - 32
    codes = codes.reshape(*blocks.shape[:2], 16, 16)
    return codes * scales[..., None] * step[..., None, None]


def _halves(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view("<f2")[..., 0].astype(np.float16)
