"""Asks the platform's shader compiler, and reports its errors in Python's way; makes the parts of eager calls."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

from metal_ops import device

_OK, _NOT_FOUND, _INVALID_ARGUMENT = 0, 5, 3
MESSAGE = re.compile(
    r"^(?P<file>.*?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$"
)


@functools.cache
def runtime(label: str) -> ctypes.CDLL:
    """`_metal_kernels.so`, whether or not a device is loaded.

    Raises:
      DeviceError: It is not built, or cannot be loaded.
    """
    if not device.KERNELS.exists():
        raise device.DeviceError(
            f"[{label}] shaders need the Metal runtime, and {device.KERNELS} is missing; {device.INSTALL}."
        )
    try:
        library = ctypes.CDLL(str(device.KERNELS))
    except OSError as error:
        raise device.DeviceError(
            f"[{label}] shaders need the Metal runtime, and {device.KERNELS} cannot be loaded ({error}); "
            f"{device.INSTALL}."
        ) from None
    text = ctypes.POINTER(ctypes.c_char_p)
    common: list[Any] = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_bool]
    library.metal_kernels_functions.argtypes = [*common, text]
    library.metal_kernels_arguments.argtypes = [*common, ctypes.c_char_p, text]
    library.metal_kernels_keep.argtypes = [
        *(ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p),
        *(text, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t),
        *(ctypes.c_bool, ctypes.c_bool, ctypes.c_bool, text),
    ]
    return library


def functions(label: str, source: bytes, fast_math: bool, texts: dict[str, str]) -> list[str]:
    """Compiles a library, and returns the names of its kernels.

    Args:
      label: Its name in errors.
      source: MSL, or the bytes of a .metallib.
      fast_math: Whether the compiler may reorder and approximate.
      texts: The user's texts by the names that the compiler knows them by.

    Raises:
      SyntaxError: There is a mistake in the text.
      tf.errors.OpError: It cannot be compiled or loaded for another reason.
    """
    found = ctypes.c_char_p()
    code = runtime(label).metal_kernels_functions(
        source, len(source), fast_math, ctypes.byref(found)
    )
    said = (found.value or b"").decode("utf-8", "replace")
    if code != _OK:
        _refuse(label, code, said, texts)
    return said.splitlines()


def arguments(label: str, source: bytes, fast_math: bool, function: str) -> list[list[str]]:
    """Per argument of a kernel: name, kind, whether it is written, bytes, type.

    Raises:
      tf.errors.OpError: It has no pipeline.
    """
    found = ctypes.c_char_p()
    code = runtime(label).metal_kernels_arguments(
        source, len(source), fast_math, function.encode(), ctypes.byref(found)
    )
    said = (found.value or b"").decode("utf-8", "replace")
    if code != _OK:
        _refuse(label, code, said, {})
    return [line.split(" ") for line in said.splitlines()]


def keep(
    label: str,
    *,
    source: bytes,
    function: str,
    arguments: Sequence[str],
    copied: Sequence[int] = (),
    initialized: bool = False,
    atomic: bool = False,
    fast_math: bool = False,
    gradient: int = -1,
) -> int:
    """The handle of a kernel that the process keeps from now on: 64 bits of the digest of all that it is.

    Args:
      label: Its name in errors.
      source: And the arguments below: MetalKernel's attributes.
      gradient: Tells kernels apart that differ in their gradients alone.
    """
    said = (source, function, *arguments, *copied, initialized, atomic, fast_math, gradient)
    digest = hashlib.sha256(repr((len(arguments), *said)).encode()).digest()
    handle = int.from_bytes(digest[:8], "little", signed=True)
    found = ctypes.c_char_p()
    code = runtime(label).metal_kernels_keep(
        *(handle, source, len(source), function.encode()),
        *((ctypes.c_char_p * len(arguments))(*(a.encode() for a in arguments)), len(arguments)),
        *((ctypes.c_int64 * len(copied))(*copied), len(copied)),
        *(initialized, atomic, fast_math, ctypes.byref(found)),
    )
    if code != _OK:
        _refuse(label, code, (found.value or b"").decode("utf-8", "replace"), {})
    return handle


def _refuse(label: str, code: int, said: str, texts: dict[str, str]) -> NoReturn:
    if code != _INVALID_ARGUMENT:
        raise tf.errors.NotFoundError(None, None, f"[{label}] {said}")
    messages = [match for match in map(MESSAGE.match, said.splitlines()) if match]
    # The user's own texts first: a mistake there may show in the generated lines, too.
    first = next((m for m in messages if m["file"] in texts), messages[0] if messages else None)
    if first is None:
        raise SyntaxError(f"[{label}] {said}")
    name, line = first["file"], int(first["line"])
    lines = texts.get(name, "").split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else None
    column = int(first["column"])
    if text is not None:  # the compiler counts bytes
        column = len(text.encode()[: column - 1].decode("utf-8", "ignore")) + 1
    error = SyntaxError(f"[{label}] {first['text']}", (name, line, column, text))
    error.add_note(said.strip())
    # AutoGraph makes another exception of those that it does not know, without the place; this says to let it pass.
    error.ag_pass_through = True  # type: ignore[attr-defined]
    raise error
