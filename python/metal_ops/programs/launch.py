"""Starts the workers of a run, and starts them again where one dies; knows nothing of TensorFlow.

Each worker is a process: one that has lost another cannot go on with the old connections (TensorFlow's collectives
stay aborted), so that all end and begin again at the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

from .checkpoint import FILE_NAME
from .cluster import Cluster, cores, local_clusters, silent
from .interrupts import ends
from .memory import Lines

LOST = 75  # exit code of a worker that has lost another: EX_TEMPFAIL
_MOST_RETURNS = 3  # in a row, each of less than a minute
AGAIN = "METAL_OPS_WORKER_AGAIN"  # in the environment of workers that were started again
RUN, WAITING = "run", ".waiting"  # names of files by which workers tell how far they are
_GRACE = 10.0  # seconds that workers have to end by themselves


class _Worker:
    """A process, and its unread output."""

    def __init__(
        self,
        cluster: Cluster,
        arguments: Sequence[str],
        variables: dict[str, str],
        quiet: bool,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.rank, self.address = cluster.rank, cluster.addresses[cluster.rank]
        self.cluster, self._waiting = cluster, Path(variables["METAL_OPS_WORKER"] + WAITING)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read when it has ended
        self._process = subprocess.Popen(
            [sys.executable, "-m", "metal_ops", *arguments],
            env={**os.environ, **variables},
            # Closes when this process ends, however it does: a worker does not outlive it.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if quiet and self.rank else None,
            stderr=self._errors,
            # Ctrl-C in a terminal goes to all of a group: this process passes it on, once.
            start_new_session=True,
            pass_fds=descriptors,
        )
        self.pid, self.shares_memory = self._process.pid, bool(descriptors)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        if self.code is None:
            self._process.send_signal(number)

    def waits(self) -> float:
        """Seconds that it has waited for others by now."""
        with suppress(OSError):
            return max(time.time() - self._waiting.stat().st_mtime, 1e-9)
        return 0.0

    def said(self) -> str:
        """The last line of an error, or the end of a traceback."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-1:] if self.code in (2, LOST) else lines[-30:])

    def close(self) -> None:
        self._process.wait()
        self._waiting.unlink(missing_ok=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._errors.close()


def environment(cluster: Cluster, folder: Path, local: bool) -> dict[str, str]:
    """The settings in a worker's environment.

    Args:
      cluster: With its place in it.
      folder: Folder of files by which workers tell how far they are.
      local: Whether all workers are on this machine, and share it.
    """
    found = {
        "TF_CONFIG": cluster.to_json(),
        "METAL_OPS_WORKER": str(folder / str(cluster.rank)),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
    }
    if local:
        found |= _share(os.environ, cluster.rank, len(cluster.addresses))
    return found


def _share(environment: Mapping[str, str], rank: int, count: int) -> dict[str, str]:
    """One worker's share of its machine, of `count`: threads, and a GPU where all are offered."""
    threads = max(cores() // count, 1)
    found = {
        "TF_NUM_INTRAOP_THREADS": environment.get("TF_NUM_INTRAOP_THREADS", str(threads)),
    }
    if environment.get("HOSTMETAL_DEVICE") == "cuda":
        found |= {"HOSTMETAL_DEVICE": f"cuda:{rank}", "HOSTMETAL_DEVICES": "1"}
    return found


def use_own_share(environment: MutableMapping[str, str]) -> None:
    """Leaves the others' share to the processes of this machine that `horovodrun` started."""
    rank, count = (int(environment[f"HOROVOD_LOCAL_{what}"]) for what in ("RANK", "SIZE"))
    environment.update(_share(environment, rank, count))


def run(
    program: str, argv: Sequence[str], workers: int, cluster: Cluster | None, wait: float
) -> int:
    """Runs `python -m metal_ops <argv>` in as many workers as it takes, until it is through.

    Args:
      program: How errors begin.
      argv: Arguments of the command.
      workers: On this machine; or
      cluster: The one worker that is started here, as TF_CONFIG names it.
      wait: Seconds that workers wait for each other.

    Returns:
      The exit code.
    """
    with tempfile.TemporaryDirectory() as name, _Signals() as signals:
        folder, returns = Path(name), 0
        arguments = list(argv)
        while True:
            begun = time.monotonic()
            clusters = local_clusters(workers) if cluster is None else [cluster]
            local = cluster is None
            again = {AGAIN: "1"} if returns else {}
            group = _start(clusters, arguments, folder, local, again)
            signals.group = group
            who = ", ".join(f"{w.rank} (process {w.pid}) at {w.address}" for w in group)
            print(f"Worker{'s' * local}: {who}.", flush=True)
            try:
                if late := _wait(group, signals, wait):
                    _complain(f"{program}: {late}")
                    return 2
                codes = [worker.code for worker in group]
                code = _failed(program, group) if not signals.asked else 130
            finally:
                for worker in group:
                    worker.send(signal.SIGKILL)
                    worker.close()
            if signals.asked:
                return 0 if not any(codes) else 130
            if code is not None:
                return code
            returns = returns + 1 if time.monotonic() - begun < 60 else 1
            if returns > _MOST_RETURNS:
                _complain(f"{program}: workers were lost {returns} times in a row; giving up.")
                return 1
            arguments, where = list(argv), _checkpoint(folder / RUN)
            if where is not None:
                arguments += ["--resume", str(where)]
            print("Going on from " + ("the start." if where is None else f"{where}."), flush=True)


def _start(
    clusters: Sequence[Cluster],
    arguments: Sequence[str],
    folder: Path,
    local: bool,
    again: dict[str, str],
) -> list[_Worker]:
    """The workers of this machine; where they are all, they share memory, new at each start."""
    if not local:
        return [
            _Worker(c, arguments, environment(c, folder, False) | again, False) for c in clusters
        ]
    lines, group = Lines(len(clusters)), list[_Worker]()
    try:
        for c in clusters:
            variables = environment(c, folder, True) | lines.environment(c.rank) | again
            group.append(_Worker(c, arguments, variables, True, lines.of(c.rank)))
    finally:
        lines.close()  # a line breaks when a worker is all that has it
    return group


def _checkpoint(note: Path) -> Path | None:
    """The folder of the run, if a checkpoint is there."""
    with suppress(OSError):
        folder = Path(note.read_text())
        if (folder / FILE_NAME).is_file():
            return folder
    return None


def _wait(group: list[_Worker], signals: _Signals, wait: float) -> str:
    """Until all have ended; once one has failed, the others have little time left. A sentence where no worker came."""
    deadline = None
    while any(worker.code is None for worker in group):
        time.sleep(0.05)
        for worker in group:
            if signals.asked and worker.waits():  # which hears nothing
                worker.send(signal.SIGKILL)
            elif worker.waits() > wait:
                return _absent(worker, wait)
        ended = [worker.code for worker in group if worker.code is not None]
        if deadline is None and any(ended) and not signals.asked:
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            break
    return ""


def _absent(worker: _Worker, wait: float) -> str:
    """Why a worker has waited for nothing."""
    begin = f"worker {worker.rank} has waited {wait:g} s"
    if worker.shares_memory:
        return f"{begin}, and the others of this machine are not ready; give more time by --wait."
    if absent := silent(worker.cluster):
        return (
            f"{begin}, and there is no answer at {', '.join(absent)}; start the other workers, correct their "
            "addresses in TF_CONFIG, or give more time by --wait."
        )
    return f"{begin}; all addresses answer, but not as workers of this run: TF_CONFIG differs by 'task' alone."


def _failed(program: str, group: list[_Worker]) -> int | None:
    """The exit code, and why in a sentence; None if a worker was lost and all can begin again."""
    killed = [worker for worker in group if worker.code is not None and worker.code < 0]
    for worker in group:
        code = worker.code
        # A worker that reads another's memory while that one is killed may fail by the bytes it finds there.
        if not killed and code is not None and code > 0 and code != LOST:
            words = worker.said()
            if len(group) > 1 and worker.rank:
                words = f"{program}: worker {worker.rank}: {words.removeprefix(f'{program}: ')}"
            _complain(words)
            return code
    for worker in killed:
        name = signal.Signals(-(worker.code or 0)).name
        _complain(f"{program}: worker {worker.rank} (process {worker.pid}) was ended by {name}.")
    lost = [worker for worker in group if worker.code == LOST]
    if lost and not killed:
        _complain(lost[0].said())
    return None if killed or lost else 0


def _complain(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class _Signals:
    """Passes the first Ctrl-C, SIGTERM or SIGHUP to the workers, who stop together; the second ends them at once."""

    def __init__(self) -> None:
        self.asked, self.group = False, list[_Worker]()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        for number in ends():
            self._before[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        for worker in self.group:
            worker.send(signal.SIGKILL if self.asked else signal.SIGINT)
        self.asked = True
