"""The C interface of the fusion pass (graph/c_api.h), which lies in `_metal_ops.so`."""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any

from metal_ops import _library


@functools.cache
def _functions() -> ctypes.CDLL:
    _library.load()
    library = ctypes.CDLL(str(_library.PATH))
    # As a pointer, not as c_char_p: ctypes would copy the text and lose the pointer to free.
    for name in ("patterns", "state", "explain"):
        getattr(library, f"metal_ops_fusion_{name}").restype = ctypes.c_void_p
    library.metal_ops_fusion_explain.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.metal_ops_fusion_set.argtypes = [ctypes.c_int, ctypes.c_int]
    library.metal_ops_fusion_set.restype = None
    library.metal_ops_fusion_set_pattern.argtypes = [ctypes.c_char_p, ctypes.c_int]
    library.metal_ops_fusion_free.argtypes = [ctypes.c_void_p]
    library.metal_ops_fusion_free.restype = None
    return library


def _take(pointer: int) -> Any:
    try:
        return json.loads(ctypes.cast(pointer, ctypes.c_char_p).value or b"")
    finally:
        _functions().metal_ops_fusion_free(pointer)


def patterns() -> list[dict[str, Any]]:
    """The registered patterns in the order in which they are tried."""
    return _take(_functions().metal_ops_fusion_patterns())


def state() -> dict[str, Any]:
    """Switches and counts of this process."""
    return _take(_functions().metal_ops_fusion_state())


def set_switches(enabled: bool, cpu: bool) -> None:
    """Switches the pass, and whether it looks at nodes on the CPU."""
    _functions().metal_ops_fusion_set(enabled, cpu)


def set_pattern(name: str, enabled: bool) -> None:
    """Switches one pattern."""
    if not _functions().metal_ops_fusion_set_pattern(name.encode(), enabled):
        raise KeyError(name)


def explain(request: bytes) -> dict[str, Any]:
    """Sends a request (graph/explain.cc); raises RuntimeError with TensorFlow's message."""
    reply = _take(_functions().metal_ops_fusion_explain(request, len(request)))
    if "error" in reply:
        raise RuntimeError(f"metal_ops.fusion: {reply['error']}")
    return reply
