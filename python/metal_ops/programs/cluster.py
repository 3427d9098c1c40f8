"""The workers of a run, from TF_CONFIG; knows nothing of TensorFlow."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ProgramError, short

JOBS = ("chief", "worker")
_SHOULD_BE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Cluster:
    """The workers of a run, in the order of their ranks; the first one is the chief.

    Attributes:
      jobs: Addresses host:port by TensorFlow's names of jobs, "chief" before "worker".
      job: Job of this process.
      index: Index of this process among those of its job.
    """

    jobs: dict[str, tuple[str, ...]]
    job: str
    index: int

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(address for job in JOBS for address in self.jobs.get(job, ()))

    @property
    def rank(self) -> int:
        before = len(self.jobs.get("chief", ())) if self.job == "worker" else 0
        return before + self.index

    def to_json(self) -> str:
        """As TF_CONFIG has it."""
        return json.dumps(
            {"cluster": self.jobs, "task": {"type": self.job, "index": self.index}},
        )


def cluster_from(environment: Mapping[str, str]) -> Cluster | None:
    """The cluster in TF_CONFIG; None where there is none, or this process is alone in it.

    Raises:
      ProgramError: It is not as TensorFlow has it.

    Example:
      >>> one = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
      >>> cluster_from({"TF_CONFIG": one}).rank
      1
    """
    text = environment.get("TF_CONFIG", "")
    if not text:
        return None
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise ProgramError(f"TF_CONFIG: expected JSON, {_SHOULD_BE}, got {short(text)}.") from None
    if not isinstance(config, dict) or not config.get("cluster"):
        if isinstance(config, dict):
            return None  # as TensorFlow sees it: no other process is there
        raise ProgramError(f"TF_CONFIG: expected {_SHOULD_BE}, got {short(text)}.")
    cluster = Cluster(_jobs(config["cluster"]), *_task(config.get("task")))
    own = cluster.jobs.get(cluster.job, ())
    if not cluster.index < len(own):
        raise ProgramError(
            f"TF_CONFIG: field 'task' is {cluster.job} {cluster.index}, but the cluster has {len(own)} of that type; "
            f"expected {_SHOULD_BE}."
        )
    return cluster if len(cluster.addresses) > 1 else None


def _jobs(jobs: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(jobs, dict):
        raise ProgramError(f"TF_CONFIG: field 'cluster': expected {_SHOULD_BE}, got {short(jobs)}.")
    unknown = set(jobs) - set(JOBS)
    if unknown:
        raise ProgramError(
            f"TF_CONFIG: field 'cluster' has {short(sorted(unknown)[0])}, and all processes train here; expected "
            f"'worker', and perhaps 'chief': {_SHOULD_BE}."
        )
    for job, addresses in jobs.items():
        if not isinstance(addresses, list) or not all(_is_address(a) for a in addresses):
            raise ProgramError(
                f"TF_CONFIG: field 'cluster', {short(job)}: expected a list of host:port, got {short(addresses)}."
            )
    found = {job: tuple(jobs[job]) for job in JOBS if jobs.get(job)}
    addresses = [a for job in found.values() for a in job]
    twice = {address for address in addresses if addresses.count(address) > 1}
    if twice:
        raise ProgramError(
            f"TF_CONFIG: field 'cluster' names {short(sorted(twice)[0])} twice; each worker has a port of its own."
        )
    if len(found.get("chief", ())) > 1:
        raise ProgramError("TF_CONFIG: field 'cluster' has several chiefs; there is one.")
    return found


def _is_address(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16


def _task(task: Any) -> tuple[str, int]:
    if not isinstance(task, dict):
        raise ProgramError(f"TF_CONFIG: field 'task': expected {_SHOULD_BE}, got {short(task)}.")
    job, index = task.get("type"), task.get("index")
    if job not in JOBS or not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ProgramError(
            f"TF_CONFIG: field 'task': expected a type of 'worker' or 'chief' and an index from 0, got {short(task)}."
        )
    return job, index


def local_clusters(count: int) -> list[Cluster]:
    """`count` workers on free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("localhost", 0))
        addresses = tuple(f"localhost:{one.getsockname()[1]}" for one in sockets)
    finally:
        for one in sockets:
            one.close()
    return [Cluster({"worker": addresses}, "worker", index) for index in range(count)]


def silent(cluster: Cluster, seconds: float = 2.0) -> list[str]:
    """The addresses of other workers that no process listens at."""
    found = []
    for rank, address in enumerate(cluster.addresses):
        host, _, port = address.rpartition(":")
        if rank == cluster.rank:
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        except OSError:
            found.append(address)
    return found


def horovod_rank(environment: Mapping[str, str]) -> int | None:
    """Rank of this process among those that `horovodrun` started; None where it started none, or one."""
    found = environment.get("HOROVOD_RANK", "")
    if not found.isdecimal() or environment.get("HOROVOD_SIZE", "1") == "1":
        return None
    return int(found)


def is_worker() -> bool:
    """Whether this process is one of several workers, started by `launch.run` or `horovodrun`."""
    return "METAL_OPS_WORKER" in os.environ or horovod_rank(os.environ) is not None
