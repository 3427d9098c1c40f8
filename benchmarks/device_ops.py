"""TensorFlow's ops on the device against its CPU kernels: `python -m benchmarks.device_ops [--quick] [--filter TEXT]`.

Which ops there are says TensorFlow's registry: those with a kernel for the device. One that RULES does not name gets
tensors of one shape for all its inputs. Writes benchmarks/results/device_ops.md; with --quick or --filter it only shows
rows.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import kernels, op_def_registry  # noqa: E402

from benchmarks import machine, provenance, report  # noqa: E402

SIDE = 1024  # of the square that most tensors are
CALLS, ROUNDS, QUICK_ROUNDS = 3, 9, 3
LOSES = 1.5
# Of several types that an op has kernels for, the first of these.
TYPES = ("float32", "int64", "int32", "bool", "uint8", "complex64")

Arguments = dict[str, Any]


def gpu_kernels() -> dict[str, list[Any]]:
    """The kernels that are registered for GPUs, by op."""
    found: dict[str, list[Any]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == "GPU":
            found.setdefault(kernel.op, []).append(kernel)
    return found


def takes_refs(op: str) -> bool:
    """Whether it changes variables of TensorFlow 1, which only graphs have."""
    return any(argument.is_ref for argument in op_def_registry.get(op).input_arg)


def device_kernels() -> dict[str, list[Any]]:
    """Loads the device; the kernels of TensorFlow's ops that came with it, by op."""
    from metal_ops import device, raw_ops

    # This library's own, and what TensorFlow has for any GPU: control flow, iterators.
    others = {name.replace("_", "") for name in dir(raw_ops)}
    others |= {op.lower() for op in gpu_kernels()}
    device.load()
    found = gpu_kernels().items()
    return dict(sorted((op, ks) for op, ks in found if op.lower() not in others))


# ---- arguments ------------------------------------------------------------------------------------------------------

# Floats in (0, 1), in which every function is defined but Acosh's; whole numbers from 1, which divide.
_random = np.random.default_rng(0)


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    if dtype.startswith(("float", "complex")):
        return _random.uniform(0.1, 0.9, shape).astype(dtype)
    return _random.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 8, shape).astype(
        dtype
    )


def _image(n: int) -> tuple[int, ...]:  # [8, 56, 56, 64] where n is SIDE
    return max(n // 128, 1), max(n // 18 // 4 * 4, 4), max(n // 18 // 4 * 4, 4), max(n // 16, 8)


def _convolution(n: int, depthwise: bool = False) -> Arguments:
    image = _image(n)
    window = (3, 3, image[3], 1 if depthwise else image[3])
    attributes = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    return {
        "input": values(image),
        "filter": values(window),
        "out_backprop": values(image),
        "input_sizes": list(image),
        "filter_sizes": list(window),
    } | attributes


def _pool(n: int) -> Arguments:
    image = _image(n)
    small = (image[0], image[1] // 2, image[2] // 2, image[3])
    x = values(image)
    largest = x.reshape(small[0], small[1], 2, small[2], 2, small[3]).max((2, 4))
    tensors = {
        "value": x,
        "input": x,
        "orig_input": x,
        "orig_output": largest,
        "grad": values(small),
    }
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    return tensors | window | {"orig_input_shape": list(image)}


def _batch_norm(n: int, gradient: bool = False) -> Arguments:
    x, channel = values(_image(n)), np.ones(_image(n)[3], np.float32)
    if not gradient:
        nothing = channel[:0]
        return {"x": x, "scale": channel, "offset": channel, "mean": nothing, "variance": nothing}
    reserved = {f"reserve_space_{i}": channel for i in (1, 2)} | {"reserve_space_3": channel[:0]}
    return {"y_backprop": values(_image(n)), "x": x, "scale": channel} | reserved


def _bias(n: int) -> Arguments:
    image = values(_image(n))
    return {"value": image, "out_backprop": image, "bias": values(_image(n)[3:])}


def _blocks(n: int) -> Arguments:
    nothing = [[0, 0], [0, 0]]
    block = {"block_size": 2, "block_shape": [2, 2], "paddings": nothing, "crops": nothing}
    return {"input": values((4, *_image(n)[1:]))} | block


def _diagonal(n: int) -> Arguments:
    sizes = {"k": 0, "num_rows": n, "num_cols": n, "padding_value": np.float32(0)}
    return {"diagonal": values((n,))} | sizes


def _stripes(n: int) -> Arguments:
    return {"shape": [n, n], "begin": [0, 1], "end": [n, n - 1], "strides": [1, 1]}


def _step(_: int) -> Arguments:
    names = (
        "alpha",
        "beta1_power",
        "beta2_power",
        "lr",
        "beta1",
        "beta2",
        "epsilon",
        "rho",
        "momentum",
    )
    return dict.fromkeys(names, np.float32(0.5))


def _nd(n: int) -> Arguments:
    rows = _random.integers(0, n, (n, 1))
    square = values((n, n))
    tensors = {
        "indices": rows,
        "updates": square,
        "params": square,
        "tensor": square,
        "input": square,
    }
    return tensors | {"ref": square, "shape": [n, n], "dtype": tf.float32}


def _rows(n: int) -> Arguments:
    return {"indices": _random.integers(0, n, n), "axis": 0, "dtype": tf.float32}


def _seeded(n: int) -> Arguments:
    host = {"shape": [n, n], "seed": [1, 2], "key": [1], "counter": [1, 2], "alg": 1}
    return host | {"minval": np.int32(0), "maxval": np.int32(9), "dtype": tf.float32}


def _whole(n: int) -> Arguments:
    return _seeded(n) | {"dtype": tf.int32}


def _sorted(n: int) -> Arguments:
    rows = {"sorted_inputs": np.sort(values((8, n))), "values": values((8, n * n // 8))}
    return rows | {"boundaries": [i / 100 for i in range(100)]}


def _top(n: int) -> Arguments:
    targets = _random.integers(0, n, n).astype(np.int32)
    return {"k": min(n, 10), "targets": targets}


def _counted(n: int) -> Arguments:
    index = _random.integers(0, n, n * n).astype(np.int32)
    return {"arr": index, "input": index, "size": np.int32(n), "weights": values((n * n,))}


def _histogram(n: int) -> Arguments:
    limits = np.array([0, 1], np.float32)
    return {"values": values((n * n,)), "value_range": limits, "nbins": np.int32(100)}


def _segments(n: int) -> Arguments:
    ids, rows = np.sort(_random.integers(0, n // 8, n)), _random.integers(0, n, n)
    return {"segment_ids": ids, "indices": rows, "num_segments": n // 8, "output_dim0": np.int32(n)}


def _generator(_: int) -> Arguments:
    state = {"variable": np.arange(3), "alg": np.int32(1), "algorithm": np.int64(1)}
    return state | {"delta": np.uint64(9)}


def _partitions(n: int) -> Arguments:
    parts = _random.integers(0, 8, n).astype(np.int32)
    halves = np.split(_random.permutation(n).astype(np.int32), 2)
    stitched = {"indices": halves, "data": [values((n // 2, n))] * 2}
    return {"partitions": parts, "num_partitions": 8, "stitched": stitched}


# Whatever an op has of these inputs and attributes it gets; the first pattern that matches counts. What is named in
# none, a tensor or a variable, is a square.
RULES: tuple[tuple[str, Callable[[int], Arguments]], ...] = (
    ("(LowerBound|UpperBound|Bucketize)", _sorted),
    ("(TopKV2|ApproxTopK|InTopK.*)", _top),
    ("(Dense)?Bincount", _counted),
    ("HistogramFixedWidth", _histogram),
    ("(Sparse)?Segment.*", _segments),
    ("RngSkip", lambda n: _generator(n) | {"delta": np.int64(9)}),
    ("RngReadAndSkip", _generator),
    ("Zeta", lambda n: {"x": values((n, n)) + 1}),
    ("Polygamma", lambda n: {"a": np.ones((n, n), np.float32)}),
    ("DynamicPartition", _partitions),
    ("DynamicStitch", lambda n: _partitions(n)["stitched"]),
    ("ReverseSequence", lambda n: {"seq_lengths": np.arange(n), "seq_dim": 1, "batch_dim": 0}),
    ("MirrorPadGrad", lambda _: {"paddings": [[1, 1], [2, 2]], "mode": "REFLECT"}),
    ("Cross", lambda n: {"a": values((n * n // 3, 3)), "b": values((n * n // 3, 3))}),
    ("CheckNumerics.*", lambda _: {"message": ""}),
    ("UnravelIndex", lambda n: {"indices": np.arange(n * n), "dims": np.array([n, n])}),
    ("Bitcast", lambda _: {"type": tf.int32}),
    ("Diag", lambda n: {"diagonal": values((n,))}),
    ("BatchMatMulV3", lambda _: {"Tout": tf.float32}),
    ("Acosh", lambda n: {"x": values((n, n)) + 1}),
    ("Conv2D.*", _convolution),
    ("DepthwiseConv2d.*", functools.partial(_convolution, depthwise=True)),
    ("(Max|Avg)Pool.*", _pool),
    ("FusedBatchNormGrad.*", functools.partial(_batch_norm, gradient=True)),
    ("FusedBatchNorm.*", _batch_norm),
    ("BiasAdd(Grad|V1)?", _bias),
    ("Sparse.*Logits", lambda n: {"labels": np.arange(n)}),
    ("((Resource)?GatherNd|ScatterNd.*|TensorScatter.*|ResourceScatterNd.*)", _nd),
    ("UnsortedSegment.*", lambda n: {"segment_ids": _random.integers(0, n, n), "num_segments": n}),
    ("Gather|GatherV2|Resource(Gather|Scatter).*", _rows),
    ("Arg(Max|Min)", lambda _: {"dimension": 1}),
    ("Cum.*", lambda _: {"axis": 1}),
    ("(Sum|Mean|Prod|Max|Min|All|Any|EuclideanNorm)", lambda _: {"axis": [1]}),
    ("Concat|ConcatV2", lambda n: {"values": [values((n, n // 2))] * 2, "axis": 1, "concat_dim": 1}),
    ("AddN|Pack", lambda n: {"inputs": [values((n, n))] * 2, "values": [values((n, n))] * 2}),
    ("Split", lambda _: {"axis": 1, "num_split": 4}),
    ("SplitV", lambda n: {"axis": 1, "num_split": 2, "size_splits": [n // 4, n - n // 4]}),
    ("Unpack", lambda n: {"value": values((8, n, n // 8)), "num": 8}),
    ("ReverseV2", lambda _: {"axis": [1]}),
    ("Reverse", lambda _: {"dims": [False, True]}),
    ("Roll", lambda _: {"shift": [3], "axis": [1]}),
    ("MirrorPad", lambda _: {"paddings": [[1, 1], [2, 2]], "mode": "REFLECT"}),
    ("Pad(V2)?", lambda _: {"paddings": [[1, 1], [2, 2]], "constant_values": np.float32(0)}),
    ("SpaceTo(Batch|Depth).*|(Batch|Depth)ToSpace.*", _blocks),
    ("MatrixBandPart", lambda _: {"num_lower": -1, "num_upper": 0}),
    ("MatrixDiagPart(V2|V3)", lambda _: {"k": 0, "padding_value": np.float32(0)}),
    ("MatrixDiag(V2|V3)?", _diagonal),
    ("MatrixSetDiag.*", lambda n: {"diagonal": values((n,)), "k": 0}),
    ("OneHot", lambda n: {"indices": np.arange(n), "depth": n, "on_value": np.float32(1), "off_value": np.float32(0)}),
    ("Range", lambda n: {"start": np.float32(0), "limit": np.float32(n * n), "delta": np.float32(1)}),
    ("BroadcastTo", lambda n: {"input": values((n,)), "shape": [n, n]}),
    ("Fill|Empty", lambda n: {"dims": [n, n], "value": np.float32(1), "shape": [n, n], "dtype": tf.float32}),
    ("Slice", lambda n: {"begin": [0, 1], "size": [n, n - 2]}),
    ("StridedSlice", _stripes),
    ("StridedSliceGrad", lambda n: _stripes(n) | {"dy": values((n, n - 2))}),
    ("Tile", lambda n: {"input": values((n, n // 4)), "multiples": [1, 4]}),
    ("(Conjugate)?Transpose", lambda _: {"perm": [1, 0]}),
    ("Cast", lambda _: {"DstT": tf.float16}),
    ("ClipByValue", lambda _: {"clip_value_min": np.float32(0.2), "clip_value_max": np.float32(0.6)}),
    ("ResourceApply.*", _step),
    ("Stateless.*(FullInt).*", lambda n: _seeded(n) | {"dtype": tf.int64}),
    ("StatelessRandomUniformInt.*", _whole),
    ("(Random|Truncated).*", lambda n: _whole(n) | {"seed": 1, "dtype": tf.float32}),
    ("StatelessRandomGet.*", _seeded),
    ("Stateless(Random|Truncated).*", _seeded),
)  # fmt: skip


# What tf.raw_ops call otherwise than the registry does.
RENAMED = {
    ("", "reduction_indices"): "axis",
    ("", "split_dim"): "axis",
    ("Select", "t"): "x",
    ("Select", "e"): "y",
    ("Where", "input"): "condition",
}


def arguments(op: str, types: dict[str, str], side: int = SIDE) -> Arguments:
    """What the op is called with, its type attributes being `types`: arrays are tensors, functions make variables."""
    definition = op_def_registry.get(op)
    given = next((rule(side) for pattern, rule in RULES if re.fullmatch(pattern, op)), {})
    found: Arguments = {}
    inferred = {argument.type_attr for argument in definition.input_arg}
    for argument in definition.input_arg:
        name = RENAMED.get((op, argument.name)) or RENAMED.get(("", argument.name), argument.name)
        dtype = types.get(argument.type_attr) or tf.as_dtype(argument.type).name
        if dtype == "resource":
            start = given.get("variable")
            found[name] = functools.partial(
                tf.Variable, values((side, side)) if start is None else start
            )
        elif name in given:
            value = given[name]
            floats = isinstance(value, np.ndarray) and value.dtype == np.float32
            found[name] = value.astype(dtype) if floats and argument.type_attr else value
        else:
            found[name] = values((side, side), dtype)
    attributes = {attr.name for attr in definition.attr} - inferred
    return found | {name: given[name] for name in attributes & given.keys()}


def chosen_types(op: str, kernel_list: list[Any]) -> dict[str, str]:
    """For each type attribute the type to measure."""
    found = {}
    for attr in op_def_registry.get(op).attr:
        if attr.type != "type":
            continue
        allowed = {tf.as_dtype(t).name for t in attr.allowed_values.list.type} or set(TYPES)
        registered = [
            {tf.as_dtype(t).name for t in constraint.allowed_values.list.type}
            for kernel in kernel_list
            for constraint in kernel.constraint
            if constraint.name == attr.name
        ]
        both = allowed & set().union(*registered) if registered else allowed
        found[attr.name] = next((t for t in TYPES if t in both), "float32")
    return found


def placed(given: Arguments, device: str, host: set[str], keep: list[Any]) -> Arguments:
    """The arguments as tensors on a device; those that a kernel reads in host memory are the CPU's."""

    def put(name: str, value: Any) -> Any:
        if callable(value):
            with tf.device(device):
                keep.append(value())
            return keep[-1].handle
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [put(name, part) for part in value]
        if not isinstance(value, np.ndarray | np.generic):
            return value
        with tf.device("CPU:0" if name in host else device):
            return tf.identity(tf.constant(value))

    return {name: put(name, value) for name, value in given.items()}


# ---- measuring ------------------------------------------------------------------------------------------------------

Row = tuple[str, str, float, float]  # op, type, ms on the CPU, ms on the device


def measure(op: str, kernel_list: list[Any], rounds: int) -> Row:
    """Medians of calls in turns; raises what TensorFlow says of the arguments."""
    from metal_ops import device

    types = chosen_types(op, kernel_list)
    given = arguments(op, types)
    host = {name for kernel in kernel_list for name in kernel.host_memory_arg}
    host |= {RENAMED[key] for key in RENAMED if key[1] in host}
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


def markdown(rows: list[Row], failed: dict[str, str], measured: dict[str, Any]) -> str:
    """The page: what loses first."""
    described = machine.describe()
    losing = [row for row in rows if row[3] > LOSES * row[2]]
    lines = [
        "# TensorFlow's ops on the device",
        "",
        "Made by `python -m benchmarks.device_ops`; do not edit. Calls outside of `tf.function` on tensors of about 1M "
        "elements, on hostmetal's CPU driver and by TensorFlow's own CPU kernels, in turns. `device / CPU` above 1: "
        "TensorFlow's CPU kernel is faster.",
        "",
        *[f"- {key}: {value}" for key, value in described.items()],
        "",
        provenance.said({"measured": measured, "machine": described}),
        "",
        "## Every op, what loses first",
        "",
        f"{len(rows)} ops, {len(losing)} of them slower than {LOSES} times the CPU's kernel.",
        "",
        "| op | type | CPU, ms | device, ms | device / CPU |",
        "|---|---|--:|--:|--:|",
    ]
    for op, dtype, cpu, ours in sorted(rows, key=lambda row: row[2] / row[3]):
        lines.append(f"| {op} | {dtype} | {cpu:.3f} | {ours:.3f} | {ours / cpu:.2f} |")
    if failed:
        lines += ["", "Not measured:", "", *[f"- {op}: {why}" for op, why in failed.items()]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_ops", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; shown, not saved")
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="ops whose name this expression finds"
    )
    options = parser.parse_args()
    tf.config.set_soft_device_placement(False)
    measured = provenance.now("device_ops")
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for op, kernel_list in device_kernels().items():
        if takes_refs(op) or not re.search(options.filter, op):
            continue
        try:
            rows.append(measure(op, kernel_list, QUICK_ROUNDS if options.quick else ROUNDS))
            _, dtype, cpu, ours = rows[-1]
            mark = "LOSES" if ours > LOSES * cpu else ""
            print(
                f"{mark:5} {op:40} {dtype:9} {cpu:9.3f} {ours:9.3f} ms {ours / cpu:6.2f}",
                flush=True,
            )
        except Exception as error:
            failed[op] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            print(f"      {op:40} {failed[op]}", flush=True)
    print(
        f"{len(rows)} ops, {sum(r[3] > LOSES * r[2] for r in rows)} over {LOSES}; {len(failed)} not measured"
    )
    if not (options.quick or options.filter):
        (report.RESULTS / "device_ops.md").write_text(markdown(rows, failed, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
