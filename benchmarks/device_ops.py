"""TensorFlow's ops on the device against its CPU kernels: `python -m benchmarks.device_ops [--quick] [--record]`.

The ops are those in TensorFlow's registry with a kernel for the device. Their arguments are in device_arguments.py,
sizes of networks' layers are in device_layers.py. With --record it writes benchmarks/results/device_ops.md, or of a
processor without AVX-512 a page of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import kernels, op_def_registry  # noqa: E402

from benchmarks import machine, pages, provenance  # noqa: E402
from benchmarks.device_arguments import (  # noqa: E402
    RENAMED,
    Arguments,
    arguments,
    chosen_types,
    placed,
    with_host_arrays,
)
from benchmarks.device_layers import BATCH, CELL_BATCH, TOKENS, layers  # noqa: E402

CALLS, ROUNDS, QUICK_ROUNDS = 3, 9, 3
LOSES = 1.5


def gpu_kernels() -> dict[str, list[Any]]:
    """The kernels that are registered for GPUs, by op."""
    found: dict[str, list[Any]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == "GPU":
            found.setdefault(kernel.op, []).append(kernel)
    return found


def only_in_graphs(op: str) -> bool:
    """Whether it cannot be called by itself: it changes variables of TensorFlow 1, or only graphs still have it."""
    definition = op_def_registry.get(op)
    removed = 0 < definition.deprecation.version <= tf.version.GRAPH_DEF_VERSION
    return (
        removed or op.startswith("_") or any(argument.is_ref for argument in definition.input_arg)
    )


def without_cpu_kernel(ops: Iterable[str]) -> set[str]:
    """Those that only GPUs have."""
    registered = kernels.get_all_registered_kernels().kernel
    return {*ops} - {kernel.op for kernel in registered if kernel.device_type == "CPU"}


def kernel_texts() -> set[str]:
    """Those of GPUs as texts, which another process can be told."""
    return {str(kernel) for found in gpu_kernels().values() for kernel in found}


def kernels_beyond(others: Collection[str]) -> dict[str, list[Any]]:
    """Kernels of TensorFlow's ops, by op: the device's, if `others` are those that were there before it."""
    from metal_ops import raw_ops

    own = {name.replace("_", "") for name in dir(raw_ops)}
    brought = {
        op: [kernel for kernel in found if str(kernel) not in others]
        for op, found in sorted(gpu_kernels().items())
        if op.lower() not in own
    }
    return {op: found for op, found in brought.items() if found}


def device_kernels() -> dict[str, list[Any]]:
    """Loads the device; the kernels of TensorFlow's ops that came with it, by op."""
    from metal_ops import device

    # TensorFlow's kernels for any GPU: control flow, iterators, an int32 SquaredDifference.
    others = kernel_texts()
    device.load()
    return kernels_beyond(others)


# ---- measuring ------------------------------------------------------------------------------------------------------

Row = tuple[str, str, float, float]  # op, type, ms on the CPU, ms on the device
LayerRow = tuple[str, str, float, float]  # layer, op, the same


def measure(op: str, kernel_list: list[Any], rounds: int, sizes: Arguments | None = None) -> Row:
    """Medians of calls in turns, at the sizes of a layer if given; raises TensorFlow's errors about the arguments."""
    from metal_ops import device

    types = chosen_types(op, kernel_list)
    given = arguments(op, types, given=sizes)
    host = {name for kernel in kernel_list for name in kernel.host_memory_arg}
    host |= {RENAMED[key] for key in RENAMED if key[1] in host}
    given = with_host_arrays(given, op, types, host)
    function = getattr(tf.raw_ops, op)
    keep: list[Any] = []
    ready = {name: placed(given, name, host, keep) for name in ("CPU:0", "GPU:0")}
    times: dict[str, list[float]] = {name: [] for name in ready}
    for turn in range(rounds + 1):
        for name, tensors in ready.items():
            with tf.device(name):
                device.synchronize()
                start = time.perf_counter()
                for _ in range(CALLS):
                    result = function(**tensors)
                device.synchronize()
                if turn > 0:
                    times[name].append((time.perf_counter() - start) / CALLS * 1e3)
                del result
    cpu, ours = (float(np.median(times[name])) for name in ready)
    # Others are those of indices.
    dtype = next((types[name] for name in ("T", "dtype", "SrcT", "Tparams") if name in types), "")
    return op, dtype, cpu, ours


def named_by(described: dict[str, str]) -> str:
    """The second part of a table's file name, besides the program: figures of other vectors say nothing about these."""
    return "" if described["simd"] == "AVX-512" else f"_{described['simd'].lower()}"


def markdown(
    rows: list[Row],
    failed: dict[str, str],
    measured: dict[str, Any],
    of_layers: Sequence[LayerRow] = (),
) -> str:
    """The page: losing rows first; layers in their order."""
    described = machine.describe()
    losing = [row for row in rows if row[3] > LOSES * row[2]]
    lines = [
        "# TensorFlow's ops on the device"
        + (f", {described['simd']}" if named_by(described) else ""),
        "",
        "Recorded by `python -m benchmarks.device_ops --record`. Calls outside of `tf.function` on tensors of about 1M "
        "elements, on hostmetal's CPU driver and by TensorFlow's own CPU kernels, in turns. `device / CPU` above 1: "
        "TensorFlow's CPU kernel is faster.",
        "",
        *[f"- {key}: {value}" for key, value in described.items()],
        "",
        provenance.said(measured, described["cores"]),
        "",
        "## Every op, what loses first",
        "",
        f"{len(rows)} ops, {len(losing)} of them slower than {LOSES} times the CPU's kernel.",
        "",
        "| op | type | CPU, ms | device, ms | device / CPU |",
        "|---|---|--:|--:|--:|",
    ]
    in_order = sorted(rows, key=lambda row: row[2] / row[3])
    lines += [
        f"| {op} | {dtype} | {cpu:.3f} | {ours:.3f} | {ours / cpu:.2f} |"
        for op, dtype, cpu, ours in in_order
        if ours >= cpu
    ]
    lines += ["", "Faster on the device:", "", "| device / CPU | ops |", "|---|---|"]
    for most, least in itertools.pairwise((1.0, 0.8, 0.5, 0.25, 0.0)):
        names = [op for op, _, cpu, ours in in_order if least <= ours / cpu < most]
        if names:
            lines.append(f"| {least} to {most}, {len(names)} ops | {', '.join(names)} |")
    if of_layers:
        lines += [
            "",
            "## At the sizes of layers",
            "",
            f"In their order: ResNet-50 with {BATCH} images, BERT-base with a sequence of {TOKENS}, cells with "
            f"{CELL_BATCH} sequences.",
            "",
            "| layer | op | CPU, ms | device, ms | device / CPU |",
            "|---|---|--:|--:|--:|",
        ]
        lines += [
            f"| {layer} | {op} | {cpu:.3f} | {ours:.3f} | {ours / cpu:.2f} |"
            for layer, op, cpu, ours in of_layers
        ]
    if failed:
        lines += ["", "Not measured:", "", *[f"- {op}: {why}" for op, why in failed.items()]]
    return "\n".join(lines) + "\n"


def show(op: str, what: str, cpu: float, ours: float) -> None:
    mark = "LOSES" if ours > LOSES * cpu else ""
    print(f"{mark:5} {op:40} {what:26} {cpu:9.3f} {ours:9.3f} ms {ours / cpu:6.2f}", flush=True)


@contextlib.contextmanager
def noted(row: str, failed: dict[str, str]) -> Iterator[None]:
    """A row that cannot be measured is a line of the page; the others still are."""
    try:
        yield
    except Exception as error:
        failed[row] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        print(f"      {row:40} {failed[row]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_ops", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, which cannot be recorded"
    )
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="ops whose name this expression finds"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the page of benchmarks/results"
    )
    options = parser.parse_args()
    if options.record and (options.quick or options.filter):
        parser.error("--record wants every op and all rounds; leave out --quick and --filter")
    tf.config.set_soft_device_placement(False)
    measured = provenance.now("device_ops")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    rows: list[Row] = []
    of_layers: list[LayerRow] = []
    failed: dict[str, str] = {}
    kernel_lists = device_kernels()
    for op in without_cpu_kernel(kernel_lists):
        failed[op] = "TensorFlow has no CPU kernel"
    for op, kernel_list in kernel_lists.items():
        if op in failed or only_in_graphs(op) or not re.search(options.filter, op):
            continue
        with noted(op, failed):
            rows.append(measure(op, kernel_list, rounds))
            show(*rows[-1])
    for layer, op, sizes in layers():
        if not re.search(options.filter, op):
            continue
        with noted(f"{op} ({layer})", failed):
            _, _, cpu, ours = measure(op, kernel_lists[op], rounds, sizes())
            of_layers.append((layer, op, cpu, ours))
            show(op, layer, cpu, ours)
    print(
        f"{len(rows)} ops, {sum(r[3] > LOSES * r[2] for r in rows)} over {LOSES}; {len(failed)} not measured"
    )
    if options.record:
        path = pages.RESULTS / f"device_ops{named_by(machine.describe())}.md"
        path.write_text(markdown(rows, failed, measured, of_layers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
