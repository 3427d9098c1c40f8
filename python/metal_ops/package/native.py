"""The C interface of graph/package.h, which lies in `_metal_ops.so`."""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any

from metal_ops import _library
from metal_ops.package.errors import PackageError


@functools.cache
def _functions() -> ctypes.CDLL:
    _library.load()
    library = ctypes.CDLL(str(_library.PATH))
    for name in ("fuse", "optimize"):
        function = getattr(library, f"metal_ops_graph_{name}")
        size = ctypes.c_size_t
        function.argtypes = [*(ctypes.c_char_p, size) * 2, ctypes.POINTER(size)]
        function.restype = ctypes.c_void_p
    library.metal_ops_graph_nodes.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.metal_ops_graph_nodes.restype = ctypes.c_void_p
    library.metal_ops_fusion_free.argtypes = [ctypes.c_void_p]
    library.metal_ops_fusion_free.restype = None
    return library


def _ask(name: str, request: bytes, graph: bytes) -> bytes:
    size = ctypes.c_size_t()
    function = getattr(_functions(), f"metal_ops_graph_{name}")
    pointer = function(request, len(request), graph, len(graph), ctypes.byref(size))
    try:
        if size.value:
            return ctypes.string_at(pointer, size.value)
        said = ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        _functions().metal_ops_fusion_free(pointer)
    raise PackageError(f"[package.save] TensorFlow cannot {name} the graph: {said}")


def fuse(request: bytes) -> bytes:
    """A function's graph, inlined, placed and fused: GraphDefs."""
    return _ask("fuse", request, b"")


def optimize(request: bytes, graph: bytes) -> bytes:
    """The graph after grappler: GraphDefs."""
    return _ask("optimize", request, graph)


def nodes(graph: bytes) -> list[dict[str, Any]]:
    """A graph's nodes as `metal_ops.fusion` draws them."""
    pointer = _functions().metal_ops_graph_nodes(graph, len(graph))
    try:
        found: list[dict[str, Any]] = json.loads(ctypes.string_at(pointer))
        return found
    finally:
        _functions().metal_ops_fusion_free(pointer)
