"""Where TensorFlow runs the ops of functions: with soft placement it may be anywhere, and results do not say it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from metal_ops._placement import functions, short


def where(nodes: Iterable[Any]) -> dict[str, set[str]]:
    """The ops of nodes, and the devices ("GPU:0") of each."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        found[node.op].add(short(node.device))
    return found


def copied_to_host(nodes: Iterable[Any]) -> list[str]:
    """Tensors that nodes send from a GPU's memory to the host's, which numbers in host memory
    are not."""
    return [
        node.attr["tensor_name"].s.decode()
        for node in nodes
        if node.op == "_Send"
        and b"GPU" in node.attr["send_device"].s
        and b"CPU" in node.attr["recv_device"].s
    ]


@contextlib.contextmanager
def placed() -> Iterator[dict[str, set[str]]]:
    """`where` of all functions that are first called inside. Filled in at the end."""
    found: dict[str, set[str]] = {}
    with functions() as all_of_them:
        yield found
    found |= where(node for nodes in all_of_them for node in nodes)
