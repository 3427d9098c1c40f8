"""Mutations of PNG and .npz files that know their structure: sums are right again, so that more than sums is read."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib

import numpy as np

from . import engine

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def mutate_png(data: bytes, rng: random.Random) -> bytes:
    """Another header, other chunks, other pixels, with right sums; or any bytes."""
    kind = rng.randrange(10)
    if kind < 2:
        return engine.mutate_bytes(data, rng)
    parts = chunks(data)
    place = rng.randrange(len(parts))
    name, content = parts[place]
    if kind < 5:
        name, content = parts[0]
        fields = list(struct.unpack(">IIBBBBB", content))
        at = rng.randrange(7)
        big = (0, 1, 2, 3, 5, 100, 11585, 65535, 2**31 - 1, 2**31, 2**32 - 1)
        fields[at] = rng.choice(big if at < 2 else (0, 1, 2, 3, 4, 6, 8, 16, 255))
        parts[0] = name, struct.pack(">IIBBBBB", *fields)
    elif kind < 7:
        parts[place] = name, engine.mutate_bytes(content, rng)
    elif kind == 7:
        parts.insert(place, rng.choice(parts))
    elif kind == 8:
        kinds = (
            b"tRNS",
            b"PLTE",
            b"zTXt",
            b"iTXt",
            b"iCCP",
            b"gAMA",
            b"acTL",
            b"fcTL",
            b"eXIf",
            b"pHYs",
            b"zzZz",
        )
        text = b"a\0\0" + zlib.compress(bytes(rng.choice((1, 1000, 1 << 21))))
        parts.insert(place, (rng.choice(kinds), rng.choice((text, rng.randbytes(16), b""))))
    else:
        pixels = bytearray(zlib.decompress(dict(parts)[b"IDAT"]))
        rows = engine.mutate_bytes(bytes(pixels), rng) * rng.choice((1, 1, 2, 1000))
        parts = [(n, zlib.compress(rows) if n == b"IDAT" else c) for n, c in parts]
    out = [SIGNATURE]
    for name, content in parts:
        out.append(struct.pack(">I", len(content)) + name + content)
        out.append(struct.pack(">I", zlib.crc32(name + content)))
    return b"".join(out)


def members(path: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(path)) as file:
        return {name: file.read(name) for name in file.namelist()}


def pack(content: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def header(descr: str, shape: str, order: str, version: int) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode(
        "utf-8", "replace"
    )
    text += b" " * ((54 - len(text)) % 64) + b"\n"
    length = struct.pack(
        "<H" if version == 1 else "<I", len(text) % (65536 if version == 1 else 2**32)
    )
    return b"\x93NUMPY" + bytes([version % 256, 0]) + length + text


DESCRS = (
    "'<f4'", "'<f8'", "'>f8'", "'<f2'", "'|u1'", "'<i8'", "'|O'", "'<U3'", "'|S5'", "'|b1'", "'<c8'", "'<M8[s]'",
    "'<f16'", "'|V4'", "[('a', '<f4')]", "'<f4,<i4'", "''", "5", "None", "'<U99999999'", "('<f4', (2,))",
)  # fmt: skip
SHAPES = (
    "()", "(0,)", "(1,)", "(2, 2)", "(2, 4, 4, 3)", "(-1,)", "(True,)", "(1.5,)", "2", "None", "(2**40,)",
    "(9999999999999999999999,)", "(4294967296, 4294967296)", "(0, 99999999999999999999)", "exit()", "[1]", "('a',)",
    "((((((1,),),),),)", "(" * 300,
)  # fmt: skip


def mutate_npz(data: bytes, rng: random.Random, content: dict[str, bytes] | None = None) -> bytes:
    """Other arrays, headers, members; or any bytes."""
    kind = rng.randrange(12)
    if kind < 3:
        return engine.mutate_bytes(data, rng)
    content = dict(members(data) if content is None else content)
    name = rng.choice(list(content))
    packed = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    if kind < 5:
        body = content[name][128:]
        rest = rng.choice((body, b"", engine.mutate_bytes(body, rng), body * 2))
        version = rng.choice((1, 1, 1, 2, 3, 0, 255))
        order = rng.choice(("False", "True", "2"))
        content[name] = header(rng.choice(DESCRS), rng.choice(SHAPES), order, version) + rest
    elif kind < 7:
        content[name] = engine.mutate_bytes(content[name], rng)
    elif kind == 7:
        del content[name]
    elif kind == 8:
        content[rng.choice(("a.npy", "b", "../c.npy", "é.npy", "a" * 500))] = content[name]
    elif kind == 9:
        content[rng.choice(list(content))] = content[name]
    elif kind == 10:
        file = io.BytesIO(content[name])
        array = np.lib.format.read_array(file)
        if array.dtype.kind in "fiu" and array.size:
            array = array.copy()
            flat = array.reshape(-1)
            pools = {
                "f": (0, -1, 0.5, 1e9, 1e30, np.nan, np.inf),
                "i": (0, 1, -1, 2),
                "u": (0, 1, 2),
            }
            flat[rng.randrange(flat.size)] = rng.choice(pools[array.dtype.kind])
            kind_of_number = rng.choice((array.dtype, "f8", "f4", "f2", ">f4", "i4"))
            with np.errstate(all="ignore"):
                content[name] = npy(array.astype(kind_of_number))
    else:
        packed = rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    made = pack(content, packed)
    return engine.mutate_bytes(made, rng) if rng.random() < 0.1 else made
