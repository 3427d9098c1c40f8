"""The results of the scripts in `tests/device/scripts`, and their devices."""

from __future__ import annotations

import contextlib
import hashlib
import json
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
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


# Losses of the CPU by script, with the fingerprint of its text and releases. Not of tf_keras, which shuffles otherwise
# in a process that ran other scripts before.
RECORD = SCRIPTS / "losses.json"


def fingerprint(name: str) -> str:
    """A script's text, TensorFlow's release and Keras', in 16 digits."""
    text = (SCRIPTS / f"{name}.py").read_text() + tf.__version__ + metadata.version("keras")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def losses_on_the_cpu(name: str, tolerance: float, anew: bool) -> list[float]:
    """Those of the record, or of a run where it has none of this text and these releases; `anew`: of a run, from which
    the record may differ by the tolerance."""
    record = json.loads(RECORD.read_text()).get(name, {})
    kept = record["losses"] if record.get("of") == fingerprint(name) else None
    if kept and not anew:
        return kept
    losses, on_gpu, _ = train(name, "CPU:0")
    assert not on_gpu, "the control: nothing of this run may be on the device"
    if kept:
        np.testing.assert_allclose(kept, losses, rtol=tolerance, err_msg=f"{RECORD.name}: {name}")
    return losses


if __name__ == "__main__":  # python -m tests.device.trained NAME ...: writes the record of these
    found = {n: {"of": fingerprint(n), "losses": train(n, "CPU:0")[0]} for n in sys.argv[1:]}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
