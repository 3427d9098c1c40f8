"""Where TensorFlow runs the ops of functions: with soft placement it may be anywhere, and results do not say it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator

from tensorflow.python.eager import context  # a test: the package itself has no use for it


@contextlib.contextmanager
def placed() -> Iterator[dict[str, set[str]]]:
    """Functions that are first called inside: the ops of their graphs, as they run, and the devices ("GPU:0") of each.

    Filled in at the end.
    """
    found: dict[str, set[str]] = defaultdict(set)
    context.enable_graph_collection()
    try:
        yield found
        for function in context.export_run_metadata().function_graphs:
            for graph in function.partition_graphs:
                for node in graph.node:
                    found[node.op].add(node.device.rpartition("device:")[2])
    finally:
        context.disable_graph_collection()
