"""The METAL device's work while a program ran: every shader with its op and its time, copies, waits.

`with metal_ops.profiler.trace("t.json"):` around a part of a program, `print(metal_ops.profiler.summary())` behind it.
`t.json` opens in https://ui.perfetto.dev or chrome://tracing. TensorFlow's own profiler, and with it TensorBoard, shows
the same: `tf.profiler.experimental.start(logdir)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import operator
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops import _placement, device

__all__ = ["Profile", "ProfilerError", "Row", "Summary", "summary", "trace"]

# Numbers of kinds: PassKind and EventKind in device/.
DISPATCH, COPY, FILL, TO_DEVICE, TO_HOST, WAIT, OP, COMMAND_BUFFER = range(8)
_CATEGORIES = (
    "shader",
    "copy",
    "fill",
    "copy to the device",
    "copy to the host",
    "wait",
    "op",
    "command buffer",
)
# ProfileEvent of device/profiler.h.
_EVENT = np.dtype(
    [(name, "<u8") for name in ("start", "end", "encoded", "bytes", "thread")]
    + [(name, "<u4") for name in ("kind", "name", "op", "node", "stream", "buffer")]
    + [("grid", "<u4", 3), ("group", "<u4", 3)]
)
_last: Profile | None = None


class ProfilerError(RuntimeError):
    """The device cannot be profiled, or nothing was. The message names the remedy."""


@dataclass
class Profile:
    """The events inside `trace`; complete when that has ended.

    Attributes:
      events: A structured NumPy array, an entry for each thing that took time, in the order of `encoded`. `start`,
        `end` and `encoded` (when the host asked for it: of the first launch of an op, when the op was called) are
        nanoseconds of `time.monotonic_ns()`; `kind` is an index into
        `kinds`; `name`, `op` and `node` are indices into `strings`; `bytes` are those bound or moved; `stream` and
        `buffer` say which queue and which of its command buffers ran it, 0 where the host did; `grid` and `group` are
        threads.
      strings: Names of shaders, ops and nodes.
      began: When `trace` began, as `time.monotonic_ns()`.
      ended: When it ended.
      dropped: How many events were more than `max_events`.
      on_cpu: Ops that ran on the CPU, and how many of each: those of functions that were first called inside.

    Example:
      >>> with metal_ops.profiler.trace() as profile:
      ...     y = tf.nn.relu(tf.ones([3]))
      >>> shaders = profile.events[profile.events["kind"] == profile.kinds.index("shader")]
      >>> [profile.strings[op] for op in shaders["op"]]
      ['Fill', 'Relu']
    """

    events: np.ndarray = field(default_factory=lambda: np.zeros(0, _EVENT))
    strings: tuple[str, ...] = ()
    began: int = 0
    ended: int = 0
    dropped: int = 0
    on_cpu: dict[str, int] = field(default_factory=dict)
    kinds = _CATEGORIES

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace for Perfetto and chrome://tracing: the whole file, or none.

        Args:
          path: Where to; a file there is replaced.

        Raises:
          OSError: It cannot be written.

        Example:
          >>> with metal_ops.profiler.trace() as profile:
          ...     y = tf.nn.relu(tf.ones([3]))
          >>> profile.save("again.json")
        """
        path = Path(path)
        # Beside it, as only there it can take its place at once.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": list(self._chrome()), "displayTimeUnit": "ns"}, file)
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _chrome(self) -> Iterator[dict[str, Any]]:
        device_process, host_process = 1, 2
        hardware = device.list()[0].hardware if device.list() else "METAL"
        yield _named("process_name", device_process, 0, f"METAL GPU:0, {hardware}")
        yield _named("process_name", host_process, 0, "Host")
        streams = sorted(set(self.events["stream"].tolist()) - {0})
        for stream in streams:
            yield _named("thread_name", device_process, 2 * stream, f"stream {stream}")
            yield _named("thread_name", device_process, 2 * stream + 1, "its command buffers")
        for thread in sorted(set(self.events["thread"].tolist()) - {0}):
            yield _named("thread_name", host_process, thread, f"thread {thread}")
        for number, event in enumerate(np.sort(self.events, order="start")):
            kind, stream = int(event["kind"]), int(event["stream"])
            start, end = int(event["start"]), int(event["end"])
            on_device = stream != 0
            line = 2 * stream + (kind == COMMAND_BUFFER) if on_device else int(event["thread"])
            shown = {
                "ph": "X",
                "name": self.strings[event["name"]],
                "cat": _CATEGORIES[kind],
                "pid": device_process if on_device else host_process,
                "tid": line,
                "ts": (start - self.began) / 1000,
                "dur": (end - start) / 1000,
                "args": self._arguments(event),
            }
            yield shown
            if on_device and kind != COMMAND_BUFFER:  # an arrow from the call to the work
                arrow = {"name": "encoded", "cat": "encoded", "id": number}
                asked = (int(event["encoded"]) - self.began) / 1000
                yield {
                    **arrow,
                    "ph": "s",
                    "pid": host_process,
                    "tid": int(event["thread"]),
                    "ts": asked,
                }
                yield {
                    **arrow,
                    "ph": "f",
                    "bp": "e",
                    "pid": device_process,
                    "tid": line,
                    "ts": shown["ts"],
                }

    def _arguments(self, event: np.void) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name in ("op", "node"):
            if event[name]:
                arguments[name] = self.strings[event[name]]
        if event["kind"] == DISPATCH:
            arguments["grid"] = event["grid"].tolist()
            arguments["threadgroup"] = event["group"].tolist()
        if event["bytes"]:
            arguments["bytes"] = int(event["bytes"])
        if event["buffer"]:
            arguments["command buffer"] = int(event["buffer"])
        return arguments


@dataclass(frozen=True)
class Row:
    """One line of a `Summary`.

    Attributes:
      name: The op's kind, or the object of a copy or wait.
      calls: How often.
      seconds: How long in all; of ops the device's time, not the host's.
      share: Share of the time of all ops together; 0 for copies and waits.
      bytes: Moved by copies, 0 for ops and waits.

    Example:
      >>> print(metal_ops.profiler.Row("MatMul", 2, 0.004, 1.0, 0).mean)
      0.002
    """

    name: str
    calls: int
    seconds: float
    share: float
    bytes: int

    @property
    def mean(self) -> float:
        """Seconds a call."""
        return self.seconds / self.calls if self.calls else 0.0


@dataclass(frozen=True)
class Summary:
    """A profile in a few lines. Printing it shows a table.

    Attributes:
      ops: By the device's time, longest first.
      copies: To the device, to the host, and on the device.
      waits: Waits of the host for the device.
      on_cpu: Ops that ran on the CPU, and how many of each: those of functions that were first called inside.
      seconds: How long `trace` lasted.
      busy: How long the device worked.
      dropped: How many events were more than `max_events`; the rest of the table is without them.

    Example:
      >>> with metal_ops.profiler.trace():
      ...     y = tf.nn.relu(tf.ones([3]))
      >>> summary = metal_ops.profiler.summary()
      >>> sorted(row.name for row in summary.ops)
      ['Fill', 'Relu']
    """

    ops: tuple[Row, ...]
    copies: tuple[Row, ...]
    waits: tuple[Row, ...]
    on_cpu: dict[str, int]
    seconds: float
    busy: float
    dropped: int

    def __str__(self) -> str:
        share = self.busy / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.seconds * 1e3:.2f} ms, the device worked {self.busy * 1e3:.2f} ms of them ({share:.0%})",
            "",
            f"{'op':<36}{'calls':>8}{'total ms':>12}{'mean us':>12}{'share':>8}",
        ]
        for row in self.ops:
            lines.append(
                f"{row.name:<36}{row.calls:>8}{row.seconds * 1e3:>12.3f}{row.mean * 1e6:>12.1f}{row.share:>8.1%}"
            )
        lines += [
            "",
            f"{'copies and waits':<36}{'calls':>8}{'total ms':>12}{'mean us':>12}{'bytes':>14}",
        ]
        for row in (*self.copies, *self.waits):
            lines.append(
                f"{row.name:<36}{row.calls:>8}{row.seconds * 1e3:>12.3f}{row.mean * 1e6:>12.1f}{row.bytes:>14}"
            )
        if self.on_cpu:
            each = ", ".join(f"{op} {n}" if n > 1 else op for op, n in sorted(self.on_cpu.items()))
            lines += ["", f"on the CPU: {each}"]
        if self.dropped:
            lines += ["", f"{self.dropped} events more than max_events are not in this table"]
        return "\n".join(lines)


@contextlib.contextmanager
def trace(
    path: str | os.PathLike[str] | None = None, *, max_events: int = 1_000_000
) -> Iterator[Profile]:
    """Profiles the METAL device for the length of a `with` block, of all threads.

    Waits for the device at the start and at the end, so that the work asked for inside, and nothing else, is seen. The
    file is written when the block raises, too. Where the device takes times at the boundaries of passes alone, as
    Apple's GPUs do, a launch of a shader is a pass of its own meanwhile.

    Args:
      path: Where the trace goes, JSON for Perfetto and chrome://tracing; None writes none.
      max_events: How many things are kept, 88 bytes each; later ones are counted alone.

    Returns:
      A context manager that gives the `Profile`, which is filled in at the end of the block.

    Raises:
      ProfilerError: The device is being profiled by another `trace`, or takes no times.
      device.DeviceError: No device is loaded.
      TypeError: max_events is no integer.
      ValueError: max_events is less than 1.
      OSError: The file cannot be written; found out before the block runs where its folder is missing, or the path is
        a folder.

    Example:
      >>> with metal_ops.profiler.trace("t.json"):
      ...     y = tf.linalg.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
      >>> "MatMul" in [row.name for row in metal_ops.profiler.summary().ops]
      True
    """
    global _last
    try:
        max_events = operator.index(max_events)
    except TypeError:
        raise TypeError(
            f"[profiler.trace] max_events: expected an integer, got {max_events!r}."
        ) from None
    if max_events < 1:
        raise ValueError(f"[profiler.trace] max_events: expected at least 1, got {max_events}.")
    if path is not None and Path(path).is_dir():
        raise IsADirectoryError(
            f"[profiler.trace] path: expected the name of a file, got {os.fspath(path)!r}, which is a folder."
        )
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(
            f"[profiler.trace] path: the folder of {os.fspath(path)!r} does not exist; make it first."
        )
    library = _library()
    if why := library.metal_device_profile_start(max_events):
        raise ProfilerError(
            f"[profiler.trace] the METAL device cannot be profiled, as {why.decode()}."
        )
    profile = Profile()
    try:
        with _graphs(profile):
            yield profile
    finally:
        _read(library, library.metal_device_profile_stop(), profile)
        _last = profile
        if path is not None:
            profile.save(path)


def summary(profile: Profile | None = None) -> Summary:
    """The costs by kind: ops by the device's time, copies with their bytes, waits, ops on the CPU.

    Args:
      profile: The profile from `trace`; None takes that of the last trace that has ended.

    Returns:
      A `Summary`: print it, or look into `ops`, `copies` and `waits`.

    Raises:
      ProfilerError: Nothing was profiled yet.

    Example:
      >>> with metal_ops.profiler.trace() as profile:
      ...     y = tf.nn.relu(tf.ones([3]))
      >>> [row.calls for row in metal_ops.profiler.summary(profile).ops]
      [1, 1]
    """
    profile = profile or _last
    if profile is None:
        raise ProfilerError(
            "[profiler.summary] nothing was profiled yet; put what you want to see into "
            "`with metal_ops.profiler.trace():`."
        )
    events = profile.events
    seconds = (events["end"] - events["start"]).astype(np.float64) * 1e-9
    kind, on_device = events["kind"], events["stream"] != 0
    passes = on_device & (kind != COMMAND_BUFFER)
    calls = Counter(events["op"][kind == OP].tolist())
    time: dict[int, float] = {}
    for op, spent in zip(events["op"][passes], seconds[passes], strict=True):
        time[int(op)] = time.get(int(op), 0.0) + float(spent)
    time.pop(0, None)  # the device's own copies, which come below
    total = sum(time.values())
    ops = [
        Row(profile.strings[op], calls[op], spent, spent / total if total else 0.0, 0)
        for op, spent in ({op: 0.0 for op in calls} | time).items()
    ]
    rows = []
    for wanted in (TO_DEVICE, TO_HOST, COPY, FILL, WAIT):
        chosen = (kind == wanted) & (events["op"] == 0)
        if chosen.any():
            spent, moved = float(seconds[chosen].sum()), int(events["bytes"][chosen].sum())
            rows.append((wanted, Row(_CATEGORIES[wanted], int(chosen.sum()), spent, 0.0, moved)))
    return Summary(
        ops=tuple(sorted(ops, key=lambda row: (-row.seconds, row.name))),
        copies=tuple(row for wanted, row in rows if wanted != WAIT),
        waits=tuple(row for wanted, row in rows if wanted == WAIT),
        on_cpu=profile.on_cpu,
        seconds=(profile.ended - profile.began) * 1e-9,
        busy=_covered(events["start"][passes], events["end"][passes]) * 1e-9,
        dropped=profile.dropped,
    )


@contextlib.contextmanager
def _graphs(profile: Profile) -> Iterator[None]:
    try:
        with _placement.functions() as ran:
            yield
    finally:
        found: Counter[str] = Counter()
        for node in (node for nodes in ran for node in nodes):
            if _placement.is_work(node) and _placement.short(node.device).startswith("CPU"):
                found[node.op] += 1
        profile.on_cpu = dict(found)


def _read(library: ctypes.CDLL, handle: int, profile: Profile) -> None:
    """Takes the device library's events, which it keeps for as long as they are there."""
    count, size, span = ctypes.c_uint64(), ctypes.c_uint64(), (ctypes.c_uint64 * 3)()
    address = library.metal_device_profile_events(handle, ctypes.byref(count))
    events = (ctypes.c_char * (count.value * _EVENT.itemsize)).from_address(address or 0)
    weakref.finalize(events, library.metal_device_profile_delete, handle).atexit = False
    if count.value:
        profile.events = np.frombuffer(memoryview(events).toreadonly(), _EVENT)
    library.metal_device_profile_span(handle, span)
    profile.began, profile.ended, profile.dropped = span
    text = library.metal_device_profile_text(handle, ctypes.byref(size))
    profile.strings = tuple(ctypes.string_at(text, size.value).decode().split("\0")[:-1])


def _covered(start: np.ndarray, end: np.ndarray) -> float:
    """How long at least one of them lasted."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order].astype(np.int64), np.maximum.accumulate(end[order].astype(np.int64))
    before = np.concatenate([start[:1], end[:-1]])
    return float(np.maximum(end - np.maximum(start, before), 0).sum())


def _named(what: str, process: int, line: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": line, "args": {"name": name}}


@functools.cache
def _signatures(library: Any) -> None:
    library.metal_device_profile_start.argtypes = [ctypes.c_uint64]
    library.metal_device_profile_start.restype = ctypes.c_char_p
    for name, result, *arguments in (
        ("stop", ctypes.c_void_p),
        ("events", ctypes.c_void_p, ctypes.c_void_p),
        ("text", ctypes.c_void_p, ctypes.c_void_p),
        ("span", None, ctypes.c_void_p),
        ("delete", None),
    ):
        function = getattr(library, f"metal_device_profile_{name}")
        function.restype = result
        function.argtypes = arguments if name == "stop" else [ctypes.c_void_p, *arguments]


def _library() -> Any:
    library = device._plugin()
    _signatures(library)
    return library
