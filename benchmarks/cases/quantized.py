"""Rows times quantized weights on the CPU: one by lookup tables of every width, scales, and floats; one by weights of 4
and 8 bits that come from memory, beside that; and several. Beside all of them PyTorch's kernels.

Times are the processor's, of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise, peers
from benchmarks.registry import Case, Contender, Context, register, timed

SIZE, CALLS = 4096, 10
# So many of such matrices no cache holds.
MATRICES, BLOCK = 32, 32


def tables(bits: int) -> metal_ops.LookupWeights:
    """Tables of 16 outputs each."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (SIZE, SIZE * bits // 8), np.uint8)
    values = random.normal(size=(SIZE // 16, 2**bits)).astype(np.float16)
    return metal_ops.LookupWeights(
        tf.constant(codes), tf.constant(values), inputs=SIZE, bits=bits, group=16
    )


def in_a_row(work: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        work().numpy()


def in_turns(works: dict[str, Callable[[], Any]], calls: int) -> list[Contender]:
    return [
        Contender(name, timed(partial(in_a_row, work, calls), time.process_time))
        for name, work in works.items()
    ]


# PyTorch's kernels by the formats of weights.
KERNELS = {"int4": "_weight_int4pack_mm_for_cpu", "int8": "_weight_int8pack_mm"}


def of_peers(
    context: Context, formats: tuple[str, ...], matrices: int = 1, rows: int = 1, calls: int = 1
) -> list[Contender]:
    """PyTorch's products, whose worker says the processor time of all its threads."""
    if not context.peers:
        return []
    settings = {"size": SIZE, "matrices": matrices, "rows": rows, "calls": calls, "block": BLOCK}
    settings |= {"processor_time": True, "formats": list(formats)}
    names = {kind: f"PyTorch, {KERNELS[kind]}" for kind in formats}
    try:
        # Threads that wait for each other by turning round would count.
        waiting = {"OMP_WAIT_POLICY": "PASSIVE"}
        peer = peers.start(context.stack, "torch", {}, settings, "peer_quantized.py", **waiting)
    except RuntimeError as error:
        # Without its library a peer has rows that say so.
        return [Contender(name, partial(fail, str(error))) for name in names.values()]
    found = [peer.contender(name, kind, peer.version[kind]) for kind, name in names.items()]
    for contender in found:
        contender.results = None
    return found


def fail(reason: str) -> float:
    raise RuntimeError(reason)


def contenders(context: Context) -> list[Contender]:
    kernel = np.random.default_rng(1).standard_normal((SIZE, SIZE), np.float32)
    x, w = tf.ones([1, SIZE]), tf.constant(kernel)
    weights: dict[str, Any] = {f"tables of {bits} bits": tables(bits) for bits in (3, 2, 4, 6, 8)}
    weights["4 bits, block=32"] = metal_ops.quantize(kernel)
    weights["8 bits a row"] = metal_ops.quantize(kernel, 8, block=None, symmetric=True)
    works: dict[str, Callable[[], Any]] = {
        name: partial(metal_ops.quantized_matmul, x, each) for name, each in weights.items()
    }
    works["float32, tf.matmul"] = partial(tf.matmul, x, w)
    return [
        *in_turns(works, CALLS),
        *of_peers(context, tuple(KERNELS), calls=CALLS),
    ]


register(
    Case(
        group="quantized",
        name="quantized-row",
        title=f"a row by {SIZE} x {SIZE} weights on the CPU, {CALLS} calls in a row, processor time",
        contenders=contenders,
        in_quick=False,
    )
)


def in_memory(bits: int, block: int, minima: bool) -> list[metal_ops.QuantizedWeights]:
    random = np.random.default_rng(0)
    dtype = np.float16 if bits == 4 else np.float32

    def some() -> tf.Tensor:
        return tf.constant(random.random((SIZE, SIZE // (block or SIZE))).astype(dtype))

    return [
        metal_ops.QuantizedWeights(
            tf.constant(random.integers(0, 256, (SIZE, SIZE * bits // 8), np.uint8)),
            some(),
            some() if minima else tf.zeros([0], dtype),
            inputs=SIZE,
            bits=bits,
            block=block,
        )
        for _ in range(MATRICES)
    ]


def from_memory(bits: int, context: Context) -> list[Contender]:
    x = tf.constant(np.random.default_rng(0).standard_normal((1, SIZE), np.float32))

    def ours(
        name: str, every: list[metal_ops.QuantizedWeights], x: tf.Tensor = x, dynamic: bool = False
    ) -> Contender:
        products = tf.function(
            lambda x: [metal_ops.quantized_matmul(x, w, dynamic=dynamic) for w in every],
            autograph=False,
        )
        n_bytes = sum(w.n_bytes for w in every)
        return Contender(
            name, timed(lambda: products(x), time.process_time), note=f"{n_bytes * 1e-6:.0f} MB."
        )

    every = in_memory(bits, BLOCK, bits == 4)
    n_bytes = sum(w.n_bytes for w in every)
    rows = [
        ours("metal_ops", every),
        *(
            ours(f"metal_ops, x in {dtype}", every, tf.cast(x, dtype))
            for dtype in ("float16", "bfloat16")
        ),
        ours("metal_ops, dynamic", every, dynamic=True),
    ]
    other = in_memory(bits, *((BLOCK, False) if bits == 4 else (0, False)))
    name = "metal_ops, symmetric" if bits == 4 else "metal_ops, a scale a row"
    rows += [ours(name, other), ours(f"{name}, dynamic", other, dynamic=True)]
    rows.append(elementwise.memory(context.stack, n_bytes // 4, 0, processor_time=True))
    rows[-1].note = f"reading {n_bytes * 1e-6:.0f} MB, which are all codes, scales and minima."
    return [*rows, *of_peers(context, (f"int{bits}",), MATRICES)]


for bits, name in ((4, "quantized-memory"), (8, "quantized-memory-8")):
    register(
        Case(
            group="quantized",
            name=name,
            title=f"a row by {MATRICES} times {SIZE} x {SIZE} weights of {bits} bits in blocks of {BLOCK}, "
            "from memory, processor time",
            contenders=partial(from_memory, bits),
            in_quick=False,
        )
    )


def several(rows: int, context: Context) -> list[Contender]:
    random = np.random.default_rng(1)
    kernel = random.standard_normal((SIZE, SIZE), np.float32)
    x, w = tf.constant(random.standard_normal((rows, SIZE), np.float32)), tf.constant(kernel)
    weights = {
        "4 bits, block=32": metal_ops.quantize(kernel),
        "8 bits a row": metal_ops.quantize(kernel, 8, block=None, symmetric=True),
    }
    works: dict[str, Callable[[], Any]] = {}
    for name, each in weights.items():
        for end, dynamic in (("", False), (", dynamic", True)):
            works[name + end] = partial(metal_ops.quantized_matmul, x, each, dynamic=dynamic)
    works["float32, tf.matmul"] = partial(tf.matmul, x, w)
    return [
        *in_turns(works, 1),
        *of_peers(context, tuple(KERNELS), rows=rows),
    ]


for rows in (4, 128):
    register(
        Case(
            group="quantized",
            name=f"quantized-{rows}-rows",
            title=f"{rows} rows by {SIZE} x {SIZE} weights on the CPU, processor time",
            contenders=partial(several, rows),
            in_quick=False,
        )
    )
