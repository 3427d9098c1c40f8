"""hostmetal: softmax, attention, gathers and quantized products at engines' sizes, against C++ with SIMD by hand.

Both run on the calling thread, and its CPU time is shown: a busy machine changes it little.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.registry import Case, Contender, Context, Results, register

ROOT = Path(__file__).parents[2]
SHADER = ROOT / "benchmarks/rows.metal"
LOOPS = ROOT / "build/benchmarks/by_hand/rows.so"
PRODUCT = np.dtype(
    [("rows", "u4"), ("columns", "u4"), ("depth", "u4"), ("row_bytes", "u8")], align=True
)
ATTENTION = np.dtype(
    [("keys", "u4"), ("heads", "u4"), ("key_bytes", "u8"), ("scale", "f4")], align=True
)
ROWS = np.dtype([("count", "u4"), ("width", "u4"), ("epsilon", "f4"), ("scale", "f4")])
BLOCK_BYTES = {4: 18, 8: 34}  # of 32 weights


@dataclass
class Work:
    """One formula's arguments: the shader's, by buffer index, and those of the loop of the same name.

    Attributes:
      kernel: its name in rows.metal.
      loop: the function of by_hand/rows.cc.
      threads: the grid, in threads.
      threadgroup: a threadgroup, in threads.
      buffers: the shader's, without the output.
      output: the index of the output's buffer.
      shape: of the output, float32.
      more: the loop's arguments behind inputs and output, int32 or float32.
      shared: bytes of threadgroup memory.
      note: about the kernel.
    """

    kernel: str
    loop: str
    threads: tuple[int, ...]
    threadgroup: tuple[int, ...]
    buffers: dict[int, np.ndarray]
    output: int
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    more: list[int | float] = field(default_factory=list)
    shared: int = 0
    note: str = ""


def blocks(bits: int, rows: int, width: int) -> np.ndarray:
    """Rows of quantized weights: a float16 scale before each 32."""
    numbers = np.random.default_rng(1)
    made = numbers.integers(0, 256, (rows, width // 32, BLOCK_BYTES[bits]), np.uint8)
    scales = numbers.uniform(0.001, 0.01, (rows, width // 32)).astype(np.float16)
    made[:, :, :2] = scales[..., None].view(np.uint8)
    return made.reshape(rows, -1)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def softmax(rows: int, width: int) -> Work:
    about = np.array((rows, width, 0, 1), ROWS)
    x = normal(rows, width)
    return Work(
        *("softmax", "softmax", (256 * rows,), (256,), {0: x, 2: about}, 1, x.shape, (0,)),
        more=[rows, width],
        shared=4 * 32,
    )


def attend(heads: int, keys: int, size: int) -> Work:
    scale = size**-0.5
    about = np.array((keys, heads, 0, scale), ATTENTION)
    kept = normal(2, heads, keys, size).astype(np.float16)
    buffers = {0: normal(heads, size), 1: kept[0], 2: kept[1], 4: about}
    return Work(
        *(f"attend_{size}", "attend", (128 * heads,), (128,), buffers, 3, (heads, size)),
        inputs=(0, 1, 2),
        more=[heads, keys, size, scale],
        shared=4 * (4 * size + 64),
    )


def attend_tiles(queries: int, keys: int, size: int) -> Work:
    scale = size**-0.5
    about = np.array((keys, 1, 2 * size, scale), ATTENTION)
    kept = normal(2, keys, size).astype(np.float16)
    buffers = {0: normal(queries, size), 1: kept[0], 2: kept[1], 4: about}
    return Work(
        *(f"attend_tiles_{size}", "attend_tiles", (16 * queries,), (128,), buffers, 3),
        shape=(queries, size),
        inputs=(0, 1, 2),
        more=[queries, keys, size, scale],
        shared=4 * (8 * size + 4 * 512 + 256 + 256),
    )


def gather(bits: int, width: int, of: int, count: int) -> Work:
    table = blocks(bits, of, width) if bits == 4 else normal(of, width)
    rows = np.random.default_rng(2).integers(0, of, count, np.int32)
    about = np.array((count, 1, width, table.nbytes // of), PRODUCT)
    name = "gather_4" if bits == 4 else "gather_float"
    return Work(
        *(name, name, (width // 16, count), (64, 1), {0: table, 1: rows, 3: about}, 2),
        shape=(count, width),
        inputs=(0, 1),
        more=[count, width],
    )


def product(bits: int, columns: int, together: bool = False) -> Work:
    """By the kernel for one column, for a tile, or for a few columns, which unpacks weights once for all."""
    rows, depth = 14336, 4096
    weights = blocks(bits, rows, depth)
    about = np.array((rows, columns, depth, weights.shape[1]), PRODUCT)
    buffers = {0: weights, 1: normal(columns, depth), 3: about}
    tiled = columns >= 32
    # 64 x 32 of the product by 128 threads, or 8 rows by two simdgroups.
    threads = (rows // 64 * 128, columns // 32) if tiled else (rows // 8 * 64, columns)
    kernel, note = f"product_tile_{bits}" if tiled else f"product_{bits}", ""
    if together:
        threads, kernel = (rows // 8 * 64, 1), f"product_{bits}_columns_{columns}"
        note = f"unpacks weights once for the {columns} columns"
    elif 1 < columns < 32:
        note = f"the kernel for one column, which unpacks weights {columns} times"
    return Work(
        *(kernel, f"product_{bits}", threads),
        *((128, 1) if tiled else (64, 1), buffers, 2, (columns, rows), (0, 1)),
        more=[rows, depth, columns],
        shared=4 * 64 * 32 * 2 if tiled else 0,
        note=note,
    )


@functools.cache
def library() -> bytes:
    """rows.metal as newLibraryWithSource compiles it on this processor, for whom asks for nothing."""
    from metal_ops.metal import Options, compile_object, link

    target = "x86-64-v4" if machine.describe()["simd"] == "AVX-512" else None
    options = Options(fast_math=True, validation=False, target=target)
    return link([compile_object(str(SHADER), options)[0]], target)


def shader(work: Work, context: Context) -> Callable[[np.ndarray], None]:
    """The function that runs a kernel, its output given."""
    from metal_ops.metal.launch import Library

    file = context.stack.enter_context(tempfile.NamedTemporaryFile(suffix=".metallib"))
    file.write(library())
    file.flush()
    kernel = Library(file.name)[work.kernel]
    shared = {0: work.shared} if work.shared else None

    def run(y: np.ndarray) -> None:
        buffers = work.buffers | {work.output: y}
        kernel.run(work.threads, work.threadgroup, buffers, threadgroup_memory=shared)

    return run


def by_hand(work: Work) -> Callable[[np.ndarray], None]:
    """The function that runs the loop, its output given."""
    if not LOOPS.exists():
        raise FileNotFoundError(f"[benchmarks] {LOOPS} is missing. Run 'make bench'.")
    loop = getattr(ctypes.CDLL(str(LOOPS)), work.loop)
    more = [ctypes.c_int(n) if isinstance(n, int) else ctypes.c_float(n) for n in work.more]

    def run(y: np.ndarray) -> None:
        arrays = [*(work.buffers[index] for index in work.inputs), y]
        loop(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), *more)

    return run


def contenders(context: Context, make: Callable[[], Work]) -> list[Contender]:
    work = make()

    def contender(name: str, run: Callable[[np.ndarray], None], note: str) -> Contender:
        y = np.zeros(work.shape, np.float32)

        def time_ms() -> float:
            begin = time.thread_time()
            run(y)
            return (time.thread_time() - begin) * 1e3

        def results() -> Results:
            return {"y": y}

        return Contender(name, time_ms, results, note=note)

    kernel = f"{work.kernel}, {work.note}" if work.note else work.kernel
    return [
        contender("shader", shader(work, context), f"{kernel}; CPU time of one thread"),
        contender("C++ with SIMD by hand", by_hand(work), "CPU time of one thread"),
    ]


# Name, title, the shader's limit of slowness, and its work.
CASES: list[tuple[str, str, int, Callable[[], Work]]] = [
    ("softmax", "softmax of 256 rows of 4096", 2, lambda: softmax(256, 4096)),
    ("attention-64-512", "one query of 64 heads, 512 keys of 64", 3, lambda: attend(64, 512, 64)),
    (
        *("attention-128-4096", "one query of 8 heads, 4096 keys of 128", 3),
        lambda: attend(8, 4096, 128),
    ),
    (
        *("attention-576-4096", "one query of 4 heads, 4096 keys of 576", 3),
        lambda: attend(4, 4096, 576),
    ),
    (
        *("attention-tiles", "64 queries by simdgroup matrices, 1024 keys of 128", 2),
        lambda: attend_tiles(64, 1024, 128),
    ),
    ("gather-float", "32 rows of 100,000 floats", 3, lambda: gather(32, 100_000, 64, 32)),
    ("gather-4-bit", "32 rows of 100,000, of 4 bits", 3, lambda: gather(4, 100_000, 64, 32)),
    ("gather-many", "8192 rows of 256 of 100,000, of 4 bits", 3, lambda: gather(4, 256, 100_000, 8192)),
    ("product-4-bit-1", "4096 x 14336 x 1, of 4 bits", 3, lambda: product(4, 1)),
    ("product-4-bit-4", "4096 x 14336 x 4, of 4 bits", 3, lambda: product(4, 4, together=True)),
    (
        *("product-4-bit-4-by-one", "4096 x 14336 x 4, of 4 bits, column by column", 3),
        lambda: product(4, 4),
    ),
    ("product-8-bit-1", "4096 x 14336 x 1, of 8 bits", 3, lambda: product(8, 1)),
    ("product-4-bit-32", "4096 x 14336 x 32, of 4 bits", 3, lambda: product(4, 32)),
]  # fmt: skip
for _name, _title, _limit, _make in CASES:
    register(
        Case(
            group="hostmetal",
            name=f"hostmetal-rows-{_name}",
            title=f"{_title}: shader against C++ (time / ours at least {1 / _limit:.2f})",
            contenders=functools.partial(contenders, make=_make),
            in_quick=_name in ("softmax", "attention-64-512", "gather-many"),
        )
    )
