"""Facts that only a process with the Metal device loaded knows: `python -m tools.reference.device_facts WHAT [OP ...]`.

WHAT is dtypes, errors (of this library's ops, or of those named) or device_errors (of TensorFlow's, on the device).
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf

import metal_ops
from benchmarks import device_sweep
from benchmarks.device_ops import kernel_texts, kernels_beyond
from tools.reference import error_cases, registry


def dtypes(before: dict[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """The dtypes of T (or of the first input) of every op, on each device; of TensorFlow's own ops on the device alone.

    `before` are the kernels for a "GPU" that TensorFlow has without the device.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    for op in registry.functions():
        inputs = registry.definition(op).input_arg
        rows[op] = {}
        for device in ("CPU", "GPU"):
            found = registry.dtypes(op, device)
            main = "T" if "T" in found else inputs[0].type_attr
            if main:
                rows[op][device] = sorted(found.get(main, ()))
            else:  # no choice: the first input's
                rows[op][device] = [tf.as_dtype(inputs[0].type).name] if found else []
    for op, found_for in registry.stock_dtypes("GPU").items():
        if found_for != before.get(op):
            rows[op] = {"GPU": [one for one in found_for if one not in before.get(op, [])]}
    return rows


def main() -> None:
    before = registry.stock_dtypes("GPU")
    others = kernel_texts()
    metal_ops.device.load()
    # An op without a kernel on the device must not pass for one with it.
    tf.config.set_soft_device_placement(False)
    facts = {
        "dtypes": lambda: dtypes(before),
        "errors": lambda: error_cases.measure(sys.argv[2:]),
        "device_errors": lambda: device_sweep.measure(kernels_beyond(others)),
    }
    print(json.dumps(facts[sys.argv[1]]()))


if __name__ == "__main__":
    main()
