"""llama.cpp's matrix products on the CPU: what peer_quantized.py calls of ggml, by ctypes. `make bench PEERS=1` builds
it (benchmarks/rules.mk) of the sources that requirements-ggml.txt pins.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

BUILT = Path(__file__).parents[1] / ".venv-peers" / "ggml" / "lib"
# Of ggml.h: a format's number in enum ggml_type, and a block's bytes.
TYPES = {"Q4_0": (2, 18), "Q4_1": (3, 20), "Q8_0": (8, 34)}
FLOAT32, BLOCK = 0, 32


class InitParams(ctypes.Structure):
    """struct ggml_init_params, which ggml_init takes by value."""

    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


@functools.cache
def load() -> ctypes.CDLL:
    file = BUILT / f"libggml.{'dylib' if sys.platform == 'darwin' else 'so'}"
    if not file.exists():
        raise FileNotFoundError(
            f"[benchmarks] {file} is missing. Run 'make bench PEERS=1', which builds llama.cpp's kernels."
        )
    library = ctypes.CDLL(str(file))
    pointers = {
        "ggml_init": [InitParams],
        "ggml_new_tensor_2d": [c_void_p, c_int, c_int64, c_int64],
        "ggml_mul_mat": [c_void_p] * 3,
        "ggml_new_graph": [c_void_p],
        "ggml_backend_cpu_init": [],
        "ggml_backend_cpu_reg": [],
        "ggml_backend_cpu_buffer_type": [],
        "ggml_backend_reg_dev_get": [c_void_p, c_size_t],
        "ggml_backend_reg_get_proc_address": [c_void_p, c_char_p],
        "ggml_backend_alloc_ctx_tensors_from_buft": [c_void_p] * 2,
    }
    for name, arguments in pointers.items():
        getattr(library, name).argtypes, getattr(library, name).restype = arguments, c_void_p
    others = {
        "ggml_free": ([c_void_p], None),
        "ggml_version": ([], c_char_p),
        "ggml_tensor_overhead": ([], c_size_t),
        "ggml_graph_overhead": ([], c_size_t),
        "ggml_quantize_chunk": (
            [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p],
            c_size_t,
        ),
        "ggml_build_forward_expand": ([c_void_p] * 2, None),
        "ggml_backend_buft_name": ([c_void_p], c_char_p),
        "ggml_backend_buft_get_alloc_size": ([c_void_p] * 2, c_size_t),
        "ggml_backend_buffer_free": ([c_void_p], None),
        "ggml_backend_cpu_set_n_threads": ([c_void_p, c_int], None),
        "ggml_backend_dev_supports_op": ([c_void_p] * 2, c_bool),
        "ggml_backend_tensor_set": ([c_void_p, c_void_p, c_size_t, c_size_t], None),
        "ggml_backend_tensor_get": ([c_void_p, c_void_p, c_size_t, c_size_t], None),
        "ggml_backend_graph_compute": ([c_void_p] * 2, c_int),
    }
    for name, (arguments, result) in others.items():
        getattr(library, name).argtypes, getattr(library, name).restype = arguments, result
    return library


def quantize(kind: str, weights: np.ndarray) -> np.ndarray:
    """Rows of float32 [outputs, inputs] in blocks as ggml packs them: [outputs, inputs / 32, bytes of a block]."""
    number, n_bytes = TYPES[kind]
    outputs, inputs = weights.shape
    packed = np.zeros((outputs, inputs // BLOCK, n_bytes), np.uint8)
    written = load().ggml_quantize_chunk(
        number, weights.ctypes.data, packed.ctypes.data, 0, outputs, inputs, None
    )
    if written != packed.nbytes:
        raise RuntimeError(f"ggml wrote {written} bytes of {kind}; expected {packed.nbytes}")
    return packed


def dequantize(kind: str, packed: np.ndarray) -> np.ndarray:
    """What the blocks stand for, by NumPy: float32 [outputs, inputs]."""
    head = 4 if kind == "Q4_1" else 2
    numbers = np.ascontiguousarray(packed[..., :head]).view(np.float16).astype(np.float32)
    codes = packed[..., head:]
    if kind == "Q8_0":
        values = codes.view(np.int8).astype(np.float32)
    else:
        # The first half of a block is in the low bits.
        values = np.concatenate([codes & 15, codes >> 4], -1).astype(np.float32)
    if kind == "Q4_0":
        values -= 8
    values *= numbers[..., :1]
    if kind == "Q4_1":
        values += numbers[..., 1:]
    return values.reshape(len(packed), -1)


class Products:
    """Rows x float32 [rows, inputs] by several matrices, one after the other, each of them `packed`."""

    def __init__(
        self, kind: str, packed: np.ndarray, matrices: int, x: np.ndarray, calls: int = 1
    ) -> None:
        self._library = library = load()
        outputs, blocks, _ = packed.shape
        rows, inputs = x.shape
        self._shape = rows, outputs
        register = library.ggml_backend_cpu_reg()
        device = library.ggml_backend_reg_dev_get(register, 0)
        self._backend = library.ggml_backend_cpu_init()
        library.ggml_backend_cpu_set_n_threads(self._backend, os.cpu_count() or 1)
        plain = library.ggml_backend_cpu_buffer_type()
        # As llama.cpp's loader does: of the layouts that the processor has kernels for the first that has the product.
        find = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(
            library.ggml_backend_reg_get_proc_address(register, b"ggml_backend_dev_get_extra_bufts")
        )
        layouts = [*_until_null(find(device)), plain]
        for layout in layouts:
            weights_in, others_in = self._room(matrices), self._room(matrices * calls + 1)
            weights = [
                library.ggml_new_tensor_2d(weights_in, TYPES[kind][0], inputs, outputs)
                for _ in range(matrices)
            ]
            buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(weights_in, layout)
            to = library.ggml_new_tensor_2d(others_in, FLOAT32, inputs, rows)
            self._results = [
                library.ggml_mul_mat(others_in, w, to) for w in weights for _ in range(calls)
            ]
            if buffer and library.ggml_backend_dev_supports_op(device, self._results[0]):
                break
            if buffer:
                library.ggml_backend_buffer_free(buffer)
            library.ggml_free(weights_in)
            library.ggml_free(others_in)
        else:
            raise RuntimeError(f"ggml has no product of {kind}, {packed.shape}, for this processor")
        self.layout = library.ggml_backend_buft_name(layout).decode()
        self.n_bytes = sum(library.ggml_backend_buft_get_alloc_size(layout, w) for w in weights)
        if not library.ggml_backend_alloc_ctx_tensors_from_buft(others_in, plain):
            raise MemoryError(f"ggml has no room for {rows} rows")
        for w in weights:
            library.ggml_backend_tensor_set(w, packed.ctypes.data, 0, packed.nbytes)
        x = np.ascontiguousarray(x, np.float32)
        library.ggml_backend_tensor_set(to, x.ctypes.data, 0, x.nbytes)
        self._graph = library.ggml_new_graph(self._room(graphs=1))
        for result in self._results:
            library.ggml_build_forward_expand(self._graph, result)

    def _room(self, tensors: int = 0, graphs: int = 0) -> int:
        """For what is known of so many tensors, whose elements lie elsewhere."""
        size = tensors * self._library.ggml_tensor_overhead()
        size += graphs * self._library.ggml_graph_overhead()
        room: int = self._library.ggml_init(InitParams(size, None, True))
        return room

    def __call__(self) -> None:
        status = self._library.ggml_backend_graph_compute(self._backend, self._graph)
        if status != 0:
            raise RuntimeError(f"ggml_backend_graph_compute: status {status}")

    def result(self) -> np.ndarray:
        """The last product: float32 [rows, outputs]."""
        y = np.zeros(self._shape, np.float32)
        self._library.ggml_backend_tensor_get(self._results[-1], y.ctypes.data, 0, y.nbytes)
        return y


def _until_null(pointers: ctypes._Pointer) -> list[int]:
    found: list[int] = []
    while pointers[len(found)]:
        found.append(pointers[len(found)])
    return found
