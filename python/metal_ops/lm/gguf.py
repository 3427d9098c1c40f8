"""GGUF files, versions 2 and 3: metadata and tensors, of one file or of the parts of a split one.

Types, their blocks and their floats are those of ggml's package `gguf`. The header is walked here: the package's reader
loops over whatever count an array declares, and takes 10 seconds and 650 MB for the vocabulary of a Llama 3. Files are
mapped, and their declared sizes are held against their bytes before memory is taken for them.
"""

from __future__ import annotations

import functools
import math
import mmap
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.reading import kind_of, open_file

from .fields import WeightsError
from .weights import Packed, missing

_NUMBERS = dict(enumerate("BbHhIif?", 0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST = 1 << 16  # entries of metadata, tensors
_MOST_WORDS = 1 << 22
_BLOCK = 32
# Formats that stay as codes, and the bytes per weight then, with its part of scales and minima.
_CODES = {"Q4_0": 0.5625, "Q4_1": 0.625, "Q8_0": 1.0625, "Q4_K": 0.75}
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.I | re.S)


class _Type(NamedTuple):
    """A type of ggml: its name, the weights and bytes of a block, and its number in `gguf`."""

    name: str
    per: int
    size: int
    number: Any


class _Entry(NamedTuple):
    shape: tuple[int, ...]  # the last one runs fastest
    kind: _Type
    start: int
    size: int
    bytes: mmap.mmap


class Gguf:
    """A file's metadata and tensors; those of all parts where it is split.

    Attributes:
      path: Where it lies.
      metadata: By key: numbers, texts, and lists of these.
      shapes: Shapes of the tensors by name, the last dimension running fastest, as NumPy has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        first = _Part(path)
        count = first.metadata.get("split.count", 0)
        parts = [first] if count in (0, 1) else _all_parts(path, first, count)
        self.metadata = parts[0].metadata
        self._entries: dict[str, _Entry] = {}
        for part in parts:
            for name, entry in part.entries.items():
                if name in self._entries:
                    raise WeightsError(
                        f"{part.path}: tensor {short(name)} is in another part, too."
                    )
                self._entries[name] = entry
        said = self.metadata.get("split.tensors.count") if len(parts) > 1 else None
        if said is not None and said != len(self._entries):
            raise WeightsError(
                f"{path}: 'split.tensors.count' is {short(said)}, and its parts have {len(self._entries)}; get all "
                "parts again."
            )
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}

    def floats(self, name: str) -> np.ndarray:
        """A tensor as float32, dequantized."""
        entry = self._entries[name]
        return _floats(entry.kind, self._raw(entry)).reshape(entry.shape)

    def n_bytes(self, name: str) -> int:
        """The bytes of `packed` in memory."""
        entry = self._entries[name]
        return int(_CODES.get(entry.kind.name, 4) * math.prod(entry.shape))

    def packed(self, name: str) -> np.ndarray | Packed:
        """A tensor as float32, or as codes where `quantized_matmul` has such: [outputs, inputs]."""
        entry = self._entries[name]
        if entry.kind.name not in _CODES:
            return self.floats(name)
        blocks = self._raw(entry)
        blocks = blocks.reshape(len(blocks), -1, entry.kind.size)
        if entry.kind.name == "Q4_K":
            return _q4_k(blocks)
        scales = _halves(blocks[..., :2])
        if entry.kind.name == "Q8_0":
            # From signed bytes to codes whose zero is 128.
            codes = (blocks[..., 2:] ^ 128).reshape(len(blocks), -1)
            return Packed(codes, scales, None, 8, _BLOCK)
        minima = _halves(blocks[..., 2:4]) if entry.kind.name == "Q4_1" else None
        halves = blocks[..., -16:]
        # A byte has weights i and i + 16 of its block; here neighbours share one.
        codes = np.concatenate([halves & 15, halves >> 4], -1)
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
        return Packed(codes.reshape(len(blocks), -1), scales, minima, 4, _BLOCK)

    @staticmethod
    def _raw(entry: _Entry) -> np.ndarray:
        """uint8 [rows, bytes], mapped."""
        raw = np.frombuffer(entry.bytes, np.uint8, entry.size, entry.start)
        return raw.reshape(math.prod(entry.shape[:-1]), -1)


def _all_parts(path: Path, given: _Part, count: Any) -> list[_Part]:
    """The parts of a split file, by their names, in order."""
    named = _PART.fullmatch(path.name)
    if not isinstance(count, int) or named is None or int(named[3]) != count:
        raise WeightsError(
            f"{path}: 'split.count' is {short(count)}, and the name of a part must end with -00001-of-0000N.gguf, N "
            "its number of parts; give the parts the names that they were written with."
        )
    parts = []
    for i in range(count):
        other = path.with_name(f"{named[1]}-{i + 1:05d}-of-{named[3]}{path.name[-5:]}")
        if not kind_of(other, WeightsError):
            raise WeightsError(
                f"{other}: no such file, which is a part of {path.name}; get it, too."
            )
        part = given if other == path else _Part(other)
        if part.metadata.get("split.no") != i or part.metadata.get("split.count") != count:
            raise WeightsError(
                f"{other}: says that it is part {short(part.metadata.get('split.no'))} (from 0) of "
                f"{short(part.metadata.get('split.count'))}, expected {i} of {count}; get it again."
            )
        parts.append(part)
    return parts


class _Part:
    """One file: its metadata, and where its tensors lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.entries: dict[str, _Entry] = {}
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
        for _ in range(entries):
            key = self._string()
            if key in self.metadata:
                raise WeightsError(f"{self.path}: key {short(key)} is there twice; it is damaged.")
            self.metadata[key] = self._value(self._take("<I")[0])
        found = [self._entry() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise WeightsError(
                f"{self.path}: 'general.alignment' is {short(alignment)}, expected a small number."
            )
        begin = -(-self._at // alignment) * alignment
        for name, entry in found:
            if name in self.entries:
                raise WeightsError(f"{self.path}: tensor {short(name)} is there twice.")
            if begin + entry.start + entry.size > len(self._bytes):
                raise WeightsError(
                    f"{self.path}: tensor {short(name)} ends behind the file's last byte; it is cut off, get it again."
                )
            self.entries[name] = entry._replace(start=begin + entry.start)

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
        # Arrays in arrays, which no model has, would let few bytes become much.
        if (kind not in _NUMBERS and kind != _STRING) or length > _MOST_WORDS:
            raise WeightsError(
                f"{self.path}: an array of {length} of type {kind} is not read; it is damaged."
            )
        if length > len(self._bytes) - self._at:
            raise struct.error
        if kind == _STRING:
            return [self._string() for _ in range(length)]
        return list(self._take(f"<{length}{_NUMBERS[kind]}"))

    def _entry(self) -> tuple[str, _Entry]:
        name = self._string()
        (rank,) = self._take("<I")
        if not 1 <= rank <= 4:
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has {rank} dimensions, expected 1 to 4; it is damaged."
            )
        sizes = self._take(f"<{rank}Q")
        number, start = self._take("<IQ")
        kind = _type(number)
        if kind is None:
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has type {_called(number)}, which the package gguf has no floats "
                "for; quantize the model to another type."
            )
        if sizes[0] % kind.per:
            raise WeightsError(
                f"{self.path}: tensor {short(name)} has rows of {sizes[0]}, expected a multiple of {kind.per} for "
                f"{kind.name}; it is damaged."
            )
        size = math.prod(sizes) // kind.per * kind.size
        return name, _Entry(sizes[::-1], kind, start, size, self._bytes)


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        raise missing("gguf", "0.19.0", "GGUF files") from None
    return gguf


@functools.lru_cache(maxsize=256)
def _type(number: int) -> _Type | None:
    """A type that floats can be made of."""
    library = _library()
    try:
        found = library.GGMLQuantizationType(number)
        per, size = library.GGML_QUANT_SIZES[found]
        kind = _Type(found.name, per, size, found)
        _floats(kind, np.zeros((1, size), np.uint8))
    except (ValueError, KeyError, NotImplementedError):
        return None
    return kind


def _called(number: int) -> str:
    try:
        return _library().GGMLQuantizationType(number).name
    except ValueError:
        return f"number {number}"


def _floats(kind: _Type, rows: np.ndarray) -> np.ndarray:
    """float32 [rows, weights] of uint8 [rows, bytes]."""
    if kind.name == "F64":
        return rows.view("<f8").astype(np.float32)
    with np.errstate(all="ignore"):  # scales of damaged files
        return np.array(_library().dequantize(rows, kind.number), np.float32)


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


def _halves(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view("<f2")[..., 0].astype(np.float16)
