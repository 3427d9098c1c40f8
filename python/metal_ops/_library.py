"""Finds and loads `_metal_ops.so`, once, or names the error and the remedy in one ImportError.

Importing never builds. The library is checked before it is loaded, because one that was built for another
TensorFlow may crash the process while it loads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import sys
from pathlib import Path
from types import ModuleType

PATH = Path(__file__).resolve().parent / "_metal_ops.so"
REBUILD = (
    "`pip install --force-reinstall tensorflow-metal-ops`, or `make build` in the source checkout"
)
# The names that published op samples register too: loading such a sample first would shadow our kernels.
SAMPLE_OPS = ("ZeroOut", "HashEncode")


class LibraryError(ImportError):
    """The op library is missing, damaged, or built for another TensorFlow. The message names the remedy."""


def build_info(path: Path = PATH) -> dict[str, str]:
    """Reads the versions that the library was built with, without loading it.

    Args:
      path: The shared object.

    Returns:
      Among others `tensorflow`, the version, and `compiler`.

    Raises:
      LibraryError: The file is missing or carries no build information.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LibraryError(
            f"metal_ops: the op library {path} is missing ({error.strerror}); {REBUILD}."
        ) from None
    found = re.search(rb"metal_ops-build-info((?:\|[^|\0]*)+)\|", content)
    if not found or _is_cut_off(content):
        raise LibraryError(
            f"metal_ops: {path} is not a complete metal_ops library "
            f"(it is cut off, or does not say which TensorFlow it was built for); {REBUILD}."
        )
    fields = found.group(1).decode("utf-8", "replace").split("|")[1:]
    return dict(field.split("=", 1) for field in fields if "=" in field)


def check_tensorflow(built_for: str, installed: str) -> None:
    """Raises LibraryError unless both versions are of one minor release, which is TensorFlow's ABI unit."""
    if built_for.split(".")[:2] != installed.split(".")[:2]:
        release = ".".join(built_for.split(".")[:2])
        raise LibraryError(
            f"metal_ops: {PATH.name} was built for TensorFlow {built_for}, but TensorFlow {installed} is "
            f"installed; either `pip install 'tensorflow~={release}.0'` or rebuild for the "
            f"installed one (`make clean build` in the source checkout)."
        )


@functools.cache
def load() -> ModuleType:
    """Loads the op library and returns the module that TensorFlow generates for it.

    A library that was already loaded by a bare `tf.load_op_library` is used as it is.

    Raises:
      LibraryError: See the class; also where another library has registered ops of the same names.
    """
    built_for = build_info()[
        "tensorflow"
    ]  # before TensorFlow's slow import: a missing file fails fast
    try:
        import tensorflow as tf
    except ImportError as error:
        remedy = f"`pip install 'tensorflow-cpu~={built_for}'` (on macOS `tensorflow`)"
        if getattr(error, "name", None) != "tensorflow":
            remedy = "try `python -c 'import tensorflow'`; if that fails too, reinstall it"
        raise LibraryError(
            f"metal_ops: TensorFlow cannot be imported ({error}); {remedy}."
        ) from error
    check_tensorflow(built_for, tf.__version__)

    if not _is_loaded(PATH):
        foreign = [op for op in SAMPLE_OPS if _is_registered(tf, op)]
        if foreign:
            raise LibraryError(
                f"metal_ops: another op library in this process already registers {', '.join(foreign)}; "
                "two kernels of one op cannot coexist. Import metal_ops instead of loading that library "
                "(its generated wrappers are `metal_ops.raw_ops`)."
            )
    try:
        module = tf.load_op_library(str(PATH))
    except (tf.errors.OpError, RuntimeError) as error:
        _check_simd_choice()
        raise LibraryError(
            f"metal_ops: {PATH} cannot be loaded into TensorFlow {tf.__version__} "
            f"({getattr(error, 'message', error)}); {REBUILD}."
        ) from error
    if hasattr(module, "zero_out"):
        return module
    _check_simd_choice()
    # TensorFlow lists a library's ops only for the first path string it was loaded by.
    for other in list(sys.modules.values()):
        if vars(other).get("_IS_TENSORFLOW_PLUGIN") and hasattr(other, "zero_out"):
            return other
    raise LibraryError(f"metal_ops: {PATH} holds no ops; {REBUILD}.")


def simd_target() -> str:
    """Name of the SIMD instruction set that the CPU kernels use, e.g. "avx3"."""
    return _text_of("metal_ops_simd_target")


def simd_targets() -> list[str]:
    """The values of `METAL_OPS_SIMD` on this processor, the best first, e.g. ["avx3", "avx2", "sse4", "emu128"]."""
    return _text_of("metal_ops_simd_targets").split(", ")


def set_simd_target(name: str) -> None:
    """Changes the instruction set ("": the best) while no op runs. For tests: otherwise set `METAL_OPS_SIMD`."""
    if error := _text_of("metal_ops_set_simd_target", name.encode()):
        raise ValueError(error)


def declarations() -> list[list[str]]:
    """The library's description of its declared ops: parts of a line per op, attribute and input."""
    return [line.split("\t") for line in _text_of("metal_ops_declarations").splitlines()]


@functools.cache
def ops_that_read_on_the_host() -> set[str]:
    """Ops with inputs in host memory on a device, in lower case."""
    op, found = "", {"metalkernel", "metalkernelbyhandle"}  # these two are not declared
    for kind, name, *more in declarations():
        if kind == "op":
            op = name.lower()
        elif kind == "input" and more[0] == "1":
            found.add(op)
    return found


def _text_of(function: str, *arguments: bytes) -> str:
    call = getattr(ctypes.CDLL(str(PATH)), function)
    call.restype = ctypes.c_char_p
    return call(*arguments).decode()


def _check_simd_choice() -> None:
    """Raises if `METAL_OPS_SIMD` is why the library did not load; a second attempt finds it there, without ops."""
    if _is_loaded(PATH) and (error := _text_of("metal_ops_simd_error")):
        raise LibraryError(f"metal_ops: {error}")


def _is_cut_off(content: bytes) -> bool:
    # Mapping pages beyond the file's end kills the process with SIGBUS. ELF ends with the table that its header points
    # to.
    if content[:5] != b"\x7fELF\x02":
        return False
    (table,) = struct.unpack_from("<Q", content, 0x28)
    entry_size, entries = struct.unpack_from("<HH", content, 0x3A)
    return len(content) < table + entry_size * entries


def _is_loaded(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _is_registered(tf: ModuleType, op: str) -> bool:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="probe", op=op)
    try:
        with tf.Graph().as_default():
            tf.compat.v1.import_graph_def(graph_def)
    except tf.errors.NotFoundError:
        return False
    except ValueError:  # known, and called here without its inputs
        return True
    return True
