"""Runs kernels of a Linux .metallib on NumPy arrays, without Metal's API: for tests and for looking at a shader.

library = Library("saxpy.metallib")
library["saxpy"].run(threads=1000, threadgroup=64, buffers={0: x, 1: y, 2: np.float32(3)})
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .seal import is_whole

C = ctypes
MAX_BUFFERS, FIRST_TEXTURE, FIRST_SAMPLER, MAX_BINDINGS, MAX_LEVELS = 31, 31, 159, 175, 16
KINDS = ("device", "constant", "threadgroup", "texture", "sampler")
FAULTS = ("none", "read", "write", "unbound", "internal")


# metallib_abi.h, field by field.
class _Argument(C.Structure):
    _fields_ = [("name", C.c_char_p), ("type_name", C.c_char_p), ("kind", C.c_uint32), ("index", C.c_uint32),
                ("flags", C.c_uint32), ("pointee_size", C.c_uint32), ("pointee_alignment", C.c_uint32),
                ("enabled_by", C.c_int32)]  # fmt: skip


class _Constant(C.Structure):
    _fields_ = [("name", C.c_char_p), ("index", C.c_uint32), ("data_type", C.c_uint32), ("size", C.c_uint32),
                ("required", C.c_uint32)]  # fmt: skip


class _Buffer(C.Structure):
    _fields_ = [("address", C.c_void_p), ("length", C.c_uint64)]


class _Level(C.Structure):
    _fields_ = [("offset", C.c_uint64), ("row_bytes", C.c_uint64), ("image_bytes", C.c_uint64)]


class _Texture(C.Structure):
    _fields_ = [("address", C.c_void_p), ("component", C.c_uint32), ("components", C.c_uint32), ("flags", C.c_uint32),
                ("pixel_bytes", C.c_uint32), ("width", C.c_uint32), ("height", C.c_uint32), ("depth", C.c_uint32),
                ("array_length", C.c_uint32), ("levels", C.c_uint32), ("reserved", C.c_uint32),
                ("level", _Level * MAX_LEVELS)]  # fmt: skip


class Sampler(C.Structure):
    """metallib_sampler: the numbers of MTLSamplerDescriptor's enums."""

    _fields_ = [("address", C.c_uint8 * 3), ("mag_filter", C.c_uint8), ("min_filter", C.c_uint8),
                ("mip_filter", C.c_uint8), ("border_color", C.c_uint8), ("pixel_coordinates", C.c_uint8),
                ("lod_min", C.c_float), ("lod_max", C.c_float)]  # fmt: skip


class Texture:
    """Arrays as a texture, which kernels read and write in place.

    Args:
      levels: the array of each mipmap level, [depth or slices, height, width, components], 1, 2 or 4 components.
      is_array: the first dimension counts slices, not planes.
      normalized: integers stand for numbers from 0 (or -1) to 1.
      bgra: blue comes first.
      srgb: stored by sRGB's curve.
    """

    def __init__(
        self,
        *levels: np.ndarray,
        is_array: bool = False,
        normalized: bool = False,
        bgra: bool = False,
        srgb: bool = False,
    ):
        first = levels[0]
        self._levels = levels
        components = {
            "u1": (0, 2), "i1": (1, 3), "u2": (4, 6), "i2": (5, 7), "f2": (8, 8), "u4": (9, 9), "i4": (10, 10),
            "f4": (11, 11),
        }  # fmt: skip
        self.table = _Texture(
            address=first.ctypes.data,
            component=components[first.dtype.str[1:]][not normalized],
            components=first.shape[3],
            flags=bgra | srgb << 1,
            pixel_bytes=first.shape[3] * first.itemsize,
            width=first.shape[2],
            height=first.shape[1],
            depth=1 if is_array else first.shape[0],
            array_length=first.shape[0] if is_array else 1,
            levels=len(levels),
        )
        for i, level in enumerate(levels):
            self.table.level[i] = _Level(
                (level.ctypes.data - first.ctypes.data) % 2**64, level.strides[1], level.strides[0]
            )


class _Value(C.Structure):
    _fields_ = [("defined", C.c_uint32), ("reserved", C.c_uint32), ("bytes", C.c_uint8 * 16)]


class _Fault(C.Structure):
    _fields_ = [("state", C.c_uint32), ("kind", C.c_uint32), ("kernel", C.c_char_p), ("message", C.c_char_p),
                ("argument_kind", C.c_uint32), ("index", C.c_uint32), ("offset", C.c_int64), ("length", C.c_uint64),
                ("binding_length", C.c_uint64), ("threadgroup", C.c_uint32 * 3), ("thread", C.c_uint32 * 3)]  # fmt: skip


class _Host(C.Structure):
    _fields_ = [("jump", C.c_void_p), ("make", C.c_void_p)]


class _Launch(C.Structure):
    _fields_ = [("size", C.c_uint32), ("flags", C.c_uint32), ("threads", C.c_uint32 * 3),
                ("threadgroup_size", C.c_uint32 * 3), ("threadgroups", C.c_uint32 * 3), ("reserved", C.c_uint32),
                ("buffers", C.POINTER(_Buffer)), ("threadgroup_lengths", C.POINTER(C.c_uint32)),
                ("constants", C.POINTER(_Value)), ("host", C.POINTER(_Host)), ("fault", C.POINTER(_Fault))]  # fmt: skip


_RUN = C.CFUNCTYPE(None, C.POINTER(_Launch), C.c_uint64, C.c_uint64, C.c_void_p)
_SCRATCH = C.CFUNCTYPE(C.c_uint64, C.POINTER(_Launch))


class _Kernel(C.Structure):
    _fields_ = [("name", C.c_char_p), ("flags", C.c_uint32), ("max_total_threads", C.c_uint32),
                ("static_threadgroup_bytes", C.c_uint32), ("n_arguments", C.c_uint32),
                ("arguments", C.POINTER(_Argument)), ("n_constants", C.c_uint32), ("constants", C.POINTER(_Constant)),
                ("scratch_size", _SCRATCH), ("run", _RUN)]  # fmt: skip


class _Library(C.Structure):
    _fields_ = [("magic", C.c_uint32), ("abi_version", C.c_uint32), ("size", C.c_uint32), ("checked", C.c_uint32),
                ("begin", C.POINTER(C.POINTER(_Kernel))), ("end", C.POINTER(C.POINTER(_Kernel))),
                ("compiler", C.c_char_p), ("target", C.c_char_p), ("supported", C.CFUNCTYPE(C.c_int))]  # fmt: skip


class Fault(Exception):
    """An access out of range, found by the checked library. `details` has the fields of metallib_fault."""

    def __init__(self, details: dict[str, Any]):
        self.details = details
        what = f"{details['argument_kind']} index {details['index']}"
        super().__init__(
            f"kernel '{details['kernel']}': invalid {details['kind']} of {details['length']} bytes at offset "
            f"{details['offset']} of {what} ({details['binding_length']} bytes), thread {details['thread']} of "
            f"threadgroup {details['threadgroup']}"
        )


def _fiber_host() -> _Host:
    for name in (ctypes.util.find_library("boost_context"), "libboost_context.so"):
        try:
            library = C.CDLL(name) if name else None
        except OSError:
            continue
        if library:
            address = [
                C.cast(getattr(library, f), C.c_void_p).value
                for f in ("jump_fcontext", "make_fcontext")
            ]
            return _Host(*address)
    raise OSError("libboost_context was not found; run 'sudo apt-get install libboost-context-dev'")


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


class Kernel:
    """One kernel of a library."""

    def __init__(self, library: Library, table: _Kernel):
        self._library = library
        self._table = table
        self.name: str = table.name.decode()
        self.fibers = bool(table.flags & 1)
        self.max_total_threads: int = table.max_total_threads
        self.static_threadgroup_bytes: int = table.static_threadgroup_bytes
        self.arguments = [
            {
                "name": a.name.decode(), "type": a.type_name.decode(), "kind": KINDS[a.kind], "index": a.index,
                "written": bool(a.flags & 1), "reference": bool(a.flags & 2), "optional": bool(a.flags & 4),
                "size": a.pointee_size, "alignment": a.pointee_alignment, "enabled_by": a.enabled_by,
            }
            for a in table.arguments[: table.n_arguments]
        ]  # fmt: skip
        self.constants = [
            {"name": c.name.decode(), "index": c.index, "data_type": c.data_type, "size": c.size}
            for c in table.constants[: table.n_constants]
        ]

    def run(
        self,
        threads: int | Sequence[int],
        threadgroup: int | Sequence[int] = 64,
        buffers: Mapping[int, np.ndarray | np.generic | None] | None = None,
        constants: Mapping[int, np.generic] | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
        workers: int = 1,
        textures: Mapping[int, Texture] | None = None,
        samplers: Mapping[int, Sampler] | None = None,
    ) -> None:
        """Runs a grid of `threads`, like dispatchThreads:threadsPerThreadgroup:.

        Args:
          threads: size of the grid, 1 to 3 numbers.
          threadgroup: threads of a threadgroup, 1 to 3 numbers.
          buffers: arrays by buffer index; written in place. None binds nothing.
          constants: function constants by their index.
          threadgroup_memory: bytes by threadgroup index.
          workers: threads of the CPU to split the threadgroups over.
          textures: by texture index.
          samplers: by sampler index.

        Raises:
          Fault: in the checked library, an access out of range.
        """
        launch = _Launch(size=C.sizeof(_Launch))
        total, group = _three(threads), _three(threadgroup)
        for i in range(3):
            launch.threads[i], launch.threadgroup_size[i] = total[i], group[i]
            launch.threadgroups[i] = -(-total[i] // group[i])
        bound = (_Buffer * MAX_BINDINGS)()
        for index, texture in (textures or {}).items():
            bound[FIRST_TEXTURE + index] = _Buffer(C.addressof(texture.table), 0)
        for index, sampler in (samplers or {}).items():
            bound[FIRST_SAMPLER + index] = _Buffer(C.addressof(sampler), 0)
        keep = []
        for index, array in (buffers or {}).items():
            if array is None:
                continue
            data = np.asarray(array)
            if not data.flags.c_contiguous:
                raise ValueError(f"buffer {index} is not contiguous")
            keep.append(data)
            bound[index] = _Buffer(data.ctypes.data, data.nbytes)
        lengths = (C.c_uint32 * MAX_BUFFERS)()
        for index, length in (threadgroup_memory or {}).items():
            lengths[index] = length
        values = (_Value * max(len(self.constants), 1))()
        for value, constant in zip(values, self.constants, strict=False):
            if constant["index"] in (constants or {}):
                raw = np.asarray(constants[constant["index"]]).tobytes()  # type: ignore[index]
                value.defined = 1
                value.bytes[: len(raw)] = list(raw)
        fault = _Fault()
        launch.buffers, launch.threadgroup_lengths, launch.constants = bound, lengths, values
        launch.host, launch.fault = C.pointer(self._library.host), C.pointer(fault)
        groups = math.prod(launch.threadgroups)
        size = self._table.scratch_size(launch)
        share = -(-groups // workers)

        def work(first: int) -> None:
            scratch = mmap.mmap(-1, max(size, 1))
            address = C.addressof(C.c_char.from_buffer(scratch))
            self._table.run(launch, first, min(share, groups - first), address)

        others = [
            threading.Thread(target=work, args=(first,)) for first in range(share, groups, share)
        ]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
        if fault.state:
            raise Fault(
                {
                    "kind": FAULTS[fault.kind], "kernel": fault.kernel.decode(), "message": fault.message,
                    "argument_kind": KINDS[fault.argument_kind], "index": fault.index, "offset": fault.offset,
                    "length": fault.length, "binding_length": fault.binding_length,
                    "threadgroup": tuple(fault.threadgroup), "thread": tuple(fault.thread),
                }
            )  # fmt: skip


class Library:
    """A loaded .metallib: kernels by name.

    Args:
      path: the file. It is native code: load only what you would run.
      checked: its bounds-checked kernels instead of the fast ones.

    Raises:
      ValueError: the file is no .metallib, or damaged, or has no checked kernels.
    """

    def __init__(self, path: str | os.PathLike[str], checked: bool = False):
        if not is_whole(Path(path).read_bytes()):
            raise ValueError(
                f"{os.fspath(path)} is no Metal library of this compiler, or damaged; compile it again"
            )
        self._handle = C.CDLL(os.path.abspath(path))
        self.table = _Library.in_dll(
            self._handle, "metallib_v1_checked" if checked else "metallib_v1"
        )
        self.host = _fiber_host()
        begin = C.cast(self.table.begin, C.c_void_p).value or 0
        end = C.cast(self.table.end, C.c_void_p).value or 0
        count = (end - begin) // C.sizeof(C.c_void_p)
        kernels = [Kernel(self, self.table.begin[i].contents) for i in range(count)]
        self.kernels = {kernel.name: kernel for kernel in kernels}

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]
