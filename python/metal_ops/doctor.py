"""`python -m metal_ops doctor`: versions, built libraries, devices and kernels, missing parts with their remedies."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

from metal_ops import _library

HERE = Path(__file__).resolve().parent
# Made together: the Objective-C kernels, the shaders, and on Linux hostmetal and the device that gives TensorFlow a
# GPU.
METAL_PARTS = {
    "_metal_kernels.so": "Objective-C kernels",
    "metal_ops.metallib": "shaders",
    "libhostmetal.so": "Metal for Linux",
    "libmetal_device.so": "TensorFlow's METAL device for Linux",
}
INSTALL = "`pip install 'tensorflow-metal-ops[metal]'`, or `make metal` in the source checkout"
MACOS_PARTS = ("_metal_kernels.so", "metal_ops.metallib")


class Report:
    """The doctor's findings: tables to print, problems that keep the ops from working, and other missing parts."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.tables: list[tuple[str, list[str], list[list[str]]]] = []
        self.problems: list[str] = []

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        self.tables.append((title, columns, rows))


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="Check the installation: what was built, what works, what is missing and how to get it",
        description="Prints versions, what was built, the devices with their kernels, and missing parts with the "
        "command that gets it. Exit code 0: the ops work. 1: they do not; the last lines say what to do.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace | None = None) -> int:
    """Examines and prints; returns 0 where the ops work, else 1."""
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "2"
    )  # TensorFlow's greetings would hide the answer
    report = examine()
    try:
        show(report)
    except ModuleNotFoundError:  # rich belongs to the installation that may be broken
        show_plainly(report)
    return 1 if report.problems else 0


def examine() -> Report:
    """Looks at everything, in the order in which a failure explains the next."""
    report = Report()
    report.table("Versions", ["", "version"], _versions(report))
    # Loaded before anything else opens the file: TensorFlow lists the ops of a library that it loads itself.
    generated = None
    try:
        generated = _library.load()
    except _library.LibraryError as error:
        report.problems.append(str(error))
    report.table("Built", ["file", "what", "state"], _built(report, loaded=generated is not None))
    if generated is None:
        return report
    report.table("SIMD of the CPU kernels", ["", "instruction sets"], _simd())
    _load_metal_device(report)
    report.table("Kernels", *_kernels(generated))
    report.table("Trial", ["op", "device", "result"], _trial(report))
    return report


def _versions(report: Report) -> list[list[str]]:
    import metal_ops

    rows = [
        ["metal_ops", metal_ops.__version__],
        ["python", f"{platform.python_version()} ({sys.executable})"],
        ["system", f"{platform.system()} {platform.machine()}"],
    ]
    for name in ("tensorflow", "keras", "numpy"):
        try:
            rows.append([name, importlib.import_module(name).__version__])
        except ImportError as error:
            rows.append([name, f"cannot be imported: {error}"])
            report.problems.append(
                f"{name} cannot be imported ({error}); run `make setup`, or `pip install {name}`."
            )
    return rows


def _built(report: Report, loaded: bool) -> list[list[str]]:
    rows = []
    try:
        info = _library.build_info()
        state = f"for TensorFlow {info['tensorflow']}, by {info['compiler']}"
        state += "" if loaded else "; does not load"
    except _library.LibraryError:
        state = "missing or damaged"
    rows.append([_library.PATH.name, "ops, CPU kernels", state])

    wanted = MACOS_PARTS if platform.system() == "Darwin" else tuple(METAL_PARTS)
    missing = [name for name in wanted if not (HERE / name).exists()]
    for name in wanted:
        rows.append([name, METAL_PARTS[name], "not there" if name in missing else "there"])
    if missing:
        state = "not complete" if len(missing) < len(wanted) else "not installed"
        report.notes.append(
            f"The Metal half is {state}: {', '.join(missing)} missing in {HERE}; {INSTALL}."
        )
    return rows


def _simd() -> list[list[str]]:
    asked = os.environ.get("METAL_OPS_SIMD")
    why = f"METAL_OPS_SIMD={asked}" if asked else "the best of these; METAL_OPS_SIMD names another"
    return [
        ["this processor has", ", ".join(_library.simd_targets())],
        ["used", f"{_library.simd_target()} ({why})"],
    ]


def _load_metal_device(report: Report) -> None:
    parts_there = all((HERE / name).exists() for name in METAL_PARTS)
    if platform.system() == "Darwin" or not parts_there or not (HERE / "device.py").exists():
        return
    try:
        importlib.import_module("metal_ops.device").load()
    except Exception as error:  # whatever a plugin raises is the finding
        report.problems.append(f"The METAL device does not load: {error}")


def _kernels(generated: Any) -> tuple[list[str], list[list[str]]]:
    import tensorflow as tf

    columns = sorted({device.device_type for device in tf.config.list_physical_devices()})
    rows = []
    for op in _op_names(generated):
        kernels = registered_kernels(op)
        rows.append([op, *(", ".join(kernels.get(device, ["-"])) for device in columns)])
    return ["op", *columns], rows


def _op_names(generated: Any) -> list[str]:
    # TensorFlow generates `ZeroOut`, `zero_out` and `zero_out_eager_fallback` for the op ZeroOut. Where it puts the
    # underscores is its own affair: `metal_fused_conv2d`.
    names = vars(generated)
    ops = {
        name.removesuffix("_eager_fallback").replace("_", "")
        for name in names
        if name.endswith("_eager_fallback")
    }
    return sorted(name for name in names if name != name.lower() and name.lower() in ops)


class _Buffer(ctypes.Structure):
    """TF_Buffer of TensorFlow's C API."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p)]


def registered_kernels(op: str) -> dict[str, list[str]]:
    """The dtypes of an op's kernels by device type, from TensorFlow's C API (Python has no public question for it).

    Args:
      op: The registered name, e.g. "HashEncode".

    Returns:
      E.g. `{"CPU": ["float32", "float16"]}`; `["all"]` where one kernel takes every dtype of the op.
    """
    import tensorflow as tf
    from google.protobuf import descriptor_pool, message_factory

    library = ctypes.CDLL(str(next(Path(tf.sysconfig.get_lib()).glob("libtensorflow_cc*"))))
    framework = ctypes.CDLL(
        str(next(Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework*")))
    )
    framework.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_GetRegisteredKernelsForOp.restype = ctypes.POINTER(_Buffer)
    library.TF_GetRegisteredKernelsForOp.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    status = ctypes.c_void_p(framework.TF_NewStatus())
    buffer = library.TF_GetRegisteredKernelsForOp(op.encode(), status)
    serialized = ctypes.string_at(buffer.contents.data, buffer.contents.length)
    framework.TF_DeleteBuffer(buffer)
    framework.TF_DeleteStatus(status)

    kernel_list = message_factory.GetMessageClass(
        descriptor_pool.Default().FindMessageTypeByName("tensorflow.KernelList")
    )
    found: dict[str, set[int]] = {}
    for kernel in kernel_list.FromString(serialized).kernel:
        # By the first of its type attributes: the others are indices and the like.
        first = next(iter(kernel.constraint), None)
        values = first.allowed_values.list.type if first else []
        found.setdefault(kernel.device_type, set()).update(values)
    return {
        device: [tf.as_dtype(value).name for value in sorted(values)] or ["all"]
        for device, values in found.items()
    }


def _trial(report: Report) -> list[list[str]]:
    """Runs each family once on every device, with soft placement off so that nothing runs elsewhere unseen."""
    import numpy as np
    import tensorflow as tf

    import metal_ops

    grid = metal_ops.HashGrid(n_dims=3, n_levels=4, n_features_per_level=2, finest_resolution=64)

    def zero_out() -> bool:
        return metal_ops.zero_out([5, 4, 3]).numpy().tolist() == [5, 0, 0]

    def hash_encode() -> bool:
        # Weights sum to one, so a table of ones gives ones, and gradients of ones sum to their number.
        table = tf.constant(np.ones(grid.table_shape, np.float32))
        points = tf.constant(np.full([9, 3], 0.3, np.float32))
        with tf.GradientTape() as tape:
            tape.watch(table)
            features = metal_ops.hash_encode(points, table, grid)
        gradient = tape.gradient(features, table, tf.constant(np.ones([9, 8], np.float32)))
        return bool(
            abs(features.numpy() - 1).max() < 1e-5
            and abs(gradient.numpy().sum() - features.numpy().size) < 1e-3
        )

    rows = []
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        for device in tf.config.list_logical_devices():
            for op, family, trial in (
                ("ZeroOut", "zero_out", zero_out),
                ("HashEncode", "hash_encode", hash_encode),
            ):
                if device.device_type not in registered_kernels(op):
                    rows.append([family, device.name, "no kernel here: runs on the CPU"])
                    continue
                try:
                    with tf.device(device.name):
                        outcome = "works" if trial() else "wrong result"
                except Exception as error:  # the finding, whatever it is
                    outcome = f"fails: {error}"
                rows.append([family, device.name, outcome])
                if outcome != "works":
                    report.problems.append(
                        f"{family} on {device.name}: {outcome}; `make clean build`, then `make test`."
                    )
    finally:
        tf.config.set_soft_device_placement(soft)
    return rows


def show(report: Report) -> None:
    """Prints the report with rich."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for title, columns, rows in report.tables:
        table = Table(title=title, title_justify="left", title_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
    for problem in report.problems:
        console.print(f"[bold red]problem:[/] {escape(problem)}", soft_wrap=True)
    for note in report.notes:
        console.print(f"[bold yellow]note:[/] {escape(note)}", soft_wrap=True)
    if not report.problems:
        console.print("[bold green]metal_ops works.[/]")


def show_plainly(report: Report) -> None:
    """Prints the report where rich is missing."""
    for title, _, rows in report.tables:
        print(title, *("  ".join(row) for row in rows), sep="\n  ")
    for problem in report.problems:
        print("problem:", problem)
    for note in report.notes:
        print("note:", note)
