"""The end of a .metallib, metallib_trailer in metallib_abi.h: by it a loader sees that the file is whole."""

from __future__ import annotations

import struct
import zlib

_MAGIC = b"MSL1CRC\0"


def sealed(data: bytes) -> bytes:
    """A library with its trailer."""
    return data + struct.pack("<8sII", _MAGIC, zlib.crc32(data), 0)


def is_whole(data: bytes) -> bool:
    """Whether this is a .metallib as it was written."""
    return data.startswith(b"\x7fELF") and data == sealed(data[:-16])
