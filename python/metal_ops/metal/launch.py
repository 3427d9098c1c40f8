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

from .abi import abi, number
from .check_launch import Checks
from .seal import is_whole

C = ctypes
KINDS = abi().words("metallib_argument_kind", "METALLIB_")
FAULTS = abi().words("metallib_fault_kind", "METALLIB_FAULT_")


def _struct(name: str) -> Any:
    return abi().struct(f"metallib_{name}")


_Buffer, _Texture, _Fault, _Host, _Launch = map(
    _struct, ("buffer", "texture", "fault", "host", "launch")
)
_Level = dict(_Texture._fields_)["level"]._type_
_SamplerStruct: Any = _struct("sampler")
_Tensor: Any = _struct("tensor")


class Sampler(_SamplerStruct):
    """A sampler; its fields are the numbers of MTLSamplerDescriptor's enums."""


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
        kind = {"u": "UINT", "i": "SINT", "f": "FLOAT"}[first.dtype.kind]
        if normalized and first.itemsize < 4:
            kind = {"UINT": "UNORM", "SINT": "SNORM"}.get(kind, kind)
        self.table = _Texture(
            address=first.ctypes.data,
            component=number(f"{kind}{8 * first.itemsize}"),
            components=first.shape[3],
            flags=bgra * number("TEXTURE_BGRA") | srgb * number("TEXTURE_SRGB"),
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


class Tensor:
    """An array as a tensor, which kernels read and write in place.

    Args:
      array: the outermost dimension first, as NumPy has them; a kernel's extents begin with the innermost.

    Attributes:
      address: what an argument buffer holds.
    """

    def __init__(self, array: np.ndarray):
        self._array = array
        self.table = _Tensor(address=array.ctypes.data, rank=array.ndim)
        for i in range(array.ndim):
            self.table.extents[i] = array.shape[-1 - i]
            self.table.strides[i] = array.strides[-1 - i] // array.itemsize
        self.address = C.addressof(self.table)


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


def _fiber_host() -> Any:
    for name in (ctypes.util.find_library("boost_context"), "libboost_context.so"):
        try:
            library = C.CDLL(name) if name else None
        except OSError:
            continue
        if library:
            return _Host(
                **{
                    name: C.cast(getattr(library, f"{name}_fcontext"), kind)
                    for name, kind in _Host._fields_
                }
            )
    raise OSError("libboost_context was not found; run 'sudo apt-get install libboost-context-dev'")


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


class Kernel:
    """One kernel of a library."""

    def __init__(self, library: Library, table: Any):
        self._library = library
        self._table = table
        self.name: str = table.name.decode()
        self.fibers = bool(table.flags & number("KERNEL_FIBERS"))
        self.lanes = bool(table.flags & number("KERNEL_LANES"))
        self.absent = bool(table.flags & number("KERNEL_ABSENT"))
        self.visible = bool(table.flags & number("KERNEL_VISIBLE"))
        self.max_total_threads: int = table.max_total_threads
        self.static_threadgroup_bytes: int = table.static_threadgroup_bytes
        self.arguments = [
            {
                "name": a.name.decode(), "type": a.type_name.decode(), "kind": KINDS[a.kind], "index": a.index,
                **{flag: bool(a.flags & number(f"ARG_{flag.upper()}")) for flag in ("written", "reference", "optional", "unused")},
                "size": a.pointee_size, "alignment": a.pointee_alignment, "enabled_by": a.enabled_by,
            }
            for a in table.arguments[: table.n_arguments]
        ]  # fmt: skip
        self.constants = [
            {
                "name": c.name.decode(), "index": c.index, "data_type": c.data_type, "size": c.size,
                **{flag: bool(c.flags & number(f"CONSTANT_{flag.upper()}")) for flag in ("required", "unused")},
            }
            for c in table.constants[: table.n_constants]
        ]  # fmt: skip

    def run(
        self,
        threads: int | Sequence[int],
        threadgroup: int | Sequence[int] = 64,
        buffers: Mapping[int, np.ndarray | np.generic | Tensor | None] | None = None,
        constants: Mapping[int, np.generic] | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
        workers: int = 1,
        textures: Mapping[int, Texture] | None = None,
        samplers: Mapping[int, Sampler] | None = None,
        checks: Checks | None = None,
    ) -> None:
        """Runs a grid of `threads`, like dispatchThreads:threadsPerThreadgroup:.

        Args:
          threads: size of the grid, 1 to 3 numbers.
          threadgroup: threads of a threadgroup, 1 to 3 numbers.
          buffers: arrays and tensors by buffer index; written in place. None binds nothing.
          constants: function constants by their index.
          threadgroup_memory: bytes by threadgroup index.
          workers: threads of the CPU to split the threadgroups over.
          textures: by texture index.
          samplers: by sampler index.
          checks: what to look for, in a library that was compiled for that; `workers` is 1 then.

        Raises:
          Fault: in the checked library, an access out of range.
          ValueError: the library does not have the kernel's code, or it is a function for tables.
        """
        if self.absent:
            raise ValueError(
                f"{self.name} has no code: its library was made by 'metal --on-demand'; compile it without, or with "
                f"--kernel={self.name}"
            )
        if self.visible:
            raise ValueError(f"{self.name} is a function for tables, and no kernel")
        launch = _Launch(size=C.sizeof(_Launch))
        total, group = _three(threads), _three(threadgroup)
        for i in range(3):
            launch.threads[i], launch.threadgroup_size[i] = total[i], group[i]
            launch.threadgroups[i] = -(-total[i] // group[i])
        bound = (_Buffer * number("MAX_BINDINGS"))()
        for index, texture in (textures or {}).items():
            bound[number("FIRST_TEXTURE") + index] = _Buffer(C.addressof(texture.table), 0)
        for index, sampler in (samplers or {}).items():
            bound[number("FIRST_SAMPLER") + index] = _Buffer(C.addressof(sampler), 0)
        keep = []
        for index, array in (buffers or {}).items():
            if array is None:
                continue
            if isinstance(array, Tensor):
                bound[index] = _Buffer(C.addressof(array.table), C.sizeof(array.table))
                continue
            data = np.asarray(array)
            if not data.flags.c_contiguous:
                raise ValueError(f"buffer {index} is not contiguous")
            keep.append(data)
            bound[index] = _Buffer(data.ctypes.data, data.nbytes)
        lengths = (C.c_uint32 * number("MAX_BUFFERS"))()
        for index, length in (threadgroup_memory or {}).items():
            lengths[index] = length
        values = (_struct("constant_value") * max(len(self.constants), 1))()
        for value, constant in zip(values, self.constants, strict=False):
            if constant["index"] in (constants or {}):
                raw = np.asarray(constants[constant["index"]]).tobytes()  # type: ignore[index]
                value.defined = 1
                value.bytes[: len(raw)] = list(raw)
        fault = _Fault()
        launch.buffers, launch.threadgroup_lengths, launch.constants = bound, lengths, values
        launch.host, launch.fault = C.pointer(self._library.host), C.pointer(fault)
        groups = math.prod(launch.threadgroups)
        looking = checks.begin(launch, self._table) if checks else None
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
        if checks:
            checks.end(looking)
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
      path: the file. It is native code: load only files that you would run.
      checked: its bounds-checked kernels instead of the fast ones.
      wide: its code for wider vectors, of kernels that have some, where this processor has those; as the runtime does.

    Raises:
      ValueError: the file is no .metallib, or damaged, or has no checked kernels.
    """

    def __init__(self, path: str | os.PathLike[str], checked: bool = False, wide: bool = True):
        if not is_whole(Path(path).read_bytes()):
            raise ValueError(
                f"{os.fspath(path)} is no Metal library of this compiler, or damaged; compile it again"
            )
        self._handle = C.CDLL(os.path.abspath(path))
        self.table = _struct("library").in_dll(
            self._handle, abi().numbers["METALLIB_CHECKED_SYMBOL" if checked else "METALLIB_SYMBOL"]
        )
        self.host = _fiber_host()
        self.kernels = self._kernels(self.table)
        symbol = abi().numbers["METALLIB_WIDE_SYMBOL"]
        if wide and not checked and hasattr(self._handle, symbol):
            table = _struct("library").in_dll(self._handle, symbol)
            if table.supported():
                self.kernels |= self._kernels(table)

    def _kernels(self, table: Any) -> dict[str, Kernel]:
        begin = C.cast(table.begin, C.c_void_p).value or 0
        end = C.cast(table.end, C.c_void_p).value or 0
        count = (end - begin) // C.sizeof(C.c_void_p)
        kernels = [Kernel(self, table.begin[i].contents) for i in range(count)]
        return {kernel.name: kernel for kernel in kernels}

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]
