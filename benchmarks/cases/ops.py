"""Every op of the library, on the CPU and on the Metal device, beside the machine's memory: a row for each, derived
from its declaration (benchmarks/op_calls.py). Other libraries' times for the same work are in the groups of their
own."""

from __future__ import annotations

import atexit
import functools
import sys
from functools import partial
from pathlib import Path

from benchmarks import elementwise, op_calls, peers
from benchmarks.registry import Case, Contender, Context, register


@functools.cache
def worker() -> peers.Peer:
    """One for all ops: it takes longer to start than an op to measure."""
    peer = peers.Peer("ops", {}, {"op": ""}, "op_worker.py", Path(sys.executable), {})
    atexit.register(peer.close)
    return peer


def contenders(name: str, context: Context) -> list[Contender]:
    peer = worker()
    said = peer.load({}, {"op": name})
    rows = [peer.contender("CPU", "cpu", said["call"]), peer.contender("Metal device", "metal")]
    if not said["comparable"]:  # each call has changed its variables
        for row in rows:
            row.results = None
    return [*rows, elementwise.memory(context.stack, said["read"], said["written"])]


for _name in op_calls.names():
    register(
        Case(
            group="ops",
            name=f"ops-{_name}",
            title=_name,
            contenders=partial(contenders, _name),
            in_quick=False,
            tolerance=1e-3,
        )
    )
