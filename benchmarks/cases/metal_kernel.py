"""Metal kernels in Python strings on the Metal device: a call's cost beside a built op's, and the gain of fusing."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.registry import Case, Contender, Context, register

# (elements, calls in a row)
CALLS = ((1 << 10, 64), (1 << 20, 8))
# Rows and columns of a feed-forward block's inner activations.
SWIGLU = ((512, 2048), (4096, 2048))


def start(context: Context, library: str, arrays: list[np.ndarray], **settings: Any) -> peers.Peer:
    named = {f"a{i}": array for i, array in enumerate(arrays)}
    python = Path(sys.executable)
    return peers.start(context.stack, library, named, settings, "metal_kernel_worker.py", python)


def call(elements: int, calls: int, context: Context) -> list[Contender]:
    x = np.random.default_rng(0).standard_normal(elements, np.float32)
    worker = start(context, "call", [x], calls=calls)
    return [
        worker.contender("metal_kernel", "metal_kernel", worker.version),
        worker.contender(
            "built op, the same shader", "built op", "NullOp; ours at most 1.3 times its time"
        ),
    ]


def swiglu(rows: int, columns: int, gradients: bool, context: Context) -> list[Contender]:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((rows, columns), np.float32) for _ in range(3)]
    worker = start(context, "swiglu", arrays, calls=2, gradients=gradients)
    return [
        worker.contender("two kernels in Python strings" if gradients else "a kernel in a Python string", "fused",
                         worker.version),
        worker.contender("stock ops on the device", "stock", "tf.nn.silu(gate) * up"),
    ]  # fmt: skip


for _elements, _calls in CALLS:
    register(
        Case(
            group="metal_kernel",
            name=f"metal_kernel-call-{_elements}",
            title=f"y = a * x of {_elements} float32 on the device, outside of graphs, {_calls} calls in a row",
            contenders=partial(call, _elements, _calls),
            units=float(_elements * _calls),
            unit="elements",
            in_quick=_elements == CALLS[0][0],
        )
    )
for _rows, _columns in SWIGLU:
    for _gradients in (False, True):
        register(
            Case(
                group="metal_kernel",
                name=f"metal_kernel-swiglu-{_rows}x{_columns}-{'gradient' if _gradients else 'forward'}",
                title=f"SwiGLU of {_rows} x {_columns} float32 on the device, "
                f"{'forward + gradient' if _gradients else 'forward'}, 2 calls in a row",
                contenders=partial(swiglu, _rows, _columns, _gradients),
                units=2.0 * _rows * _columns,
                unit="elements",
                in_quick=_rows == SWIGLU[0][0],
                tolerance=1e-5,
            )
        )
