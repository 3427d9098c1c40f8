"""The results of the scripts in `tests/device/scripts`, and their devices."""

from __future__ import annotations

import contextlib
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

from metal_ops._placement import functions, short

SCRIPTS = Path(__file__).resolve().parent / "scripts"
# Ops that hand tensors over, and the pipeline of the data.
NO_WORK = {"IteratorGetNext", "Const", "Identity", "NoOp", "Shape", "Placeholder"}


def computed(nodes: list[Any], device: str) -> Counter[str]:
    """Ops that compute floats on a device. Shapes, integers in host memory on any GPU, are computed on the CPU."""
    return Counter(
        node.op
        for node in nodes
        if short(node.device) == device
        and not node.op.startswith("_")
        and node.op not in NO_WORK
        and any(tf.as_dtype(a.type).is_floating for a in node.attr.values() if a.type)
    )


@contextlib.contextmanager
def graphs_of_sessions() -> Iterator[list[list[Any]]]:
    """The nodes of each call of a session of TensorFlow 1, as they run, of all devices."""
    found: list[list[Any]] = []
    run = tf.compat.v1.Session.run

    def recorded(session, fetches, feed_dict=None):
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        result = run(session, fetches, feed_dict, options, metadata)
        found.append([node for graph in metadata.partition_graphs for node in graph.node])
        return result

    with mock.patch.object(tf.compat.v1.Session, "run", recorded):
        yield found


def train(name: str, device: str | None) -> tuple[list[float], Counter[str], Counter[str]]:
    """A script's losses, and its ops on the GPU and on the CPU in functions that use a GPU at all."""
    with functions() as ran, graphs_of_sessions() as of_sessions, tf.device(device):
        losses = runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")["losses"]
    on_gpu, on_cpu = Counter[str](), Counter[str]()
    for nodes in ran + of_sessions:
        here = computed(nodes, "GPU:0")
        on_gpu += here
        if here:
            on_cpu += computed(nodes, "CPU:0")
    return losses, on_gpu, on_cpu
