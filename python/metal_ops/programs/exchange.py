"""How values go between workers: TensorFlow's collectives over gRPC, shared memory, or Horovod. All on the host.

Every worker makes the same calls in the same order.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .cluster import Cluster, cluster_from, horovod_rank
from .errors import ProgramError, short
from .launch import LOST
from .memory import LostPeer, Memory, descriptors_from

HOST = "/device:CPU:0"
# How long a worker waits for the others: the chief evaluates and writes pictures meanwhile.
PATIENCE = 600.0
_GROUP = 1 << 20  # far from the keys that strategies give out
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class LostWorker(ProgramError):
    """Another worker has ended, or does not answer."""

    exit_code = LOST

    def __init__(self, why: str) -> None:
        super().__init__(
            f"a worker is gone, or has not answered for {PATIENCE:.0f} s ({short(why)})."
        )


class Exchange(abc.ABC):
    """A way between workers.

    Attributes:
      name: In words.
      count: How many workers there are.
      rank: Rank of this one; 0 is the chief.
      by_rows: Whether a gradient of mostly zeros is better sent as rows.
      one_machine: Whether it is known that all workers run on one.
    """

    name: str
    count: int
    rank: int
    by_rows = True
    one_machine = False

    @abc.abstractmethod
    def sum(self, values: tf.Tensor, key: int) -> tf.Tensor:
        """The sum of all workers' values, which have one shape; the same bits for all. Each call has another key."""

    @abc.abstractmethod
    def gather(self, values: tf.Tensor, key: Any) -> tf.Tensor:
        """All workers' values, which have one shape, one after the other along the first dimension.

        The key may be a tensor, one for each shape.
        """

    def sum_bytes(self, size: Any) -> Any:
        """Bytes that each worker sends where `size` bytes are added: those of a ring."""
        return 2 * (self.count - 1) * size // self.count

    def gather_bytes(self, size: Any) -> Any:
        """Bytes that each worker sends where it gives `size` bytes to all."""
        return (self.count - 1) * size

    @abc.abstractmethod
    def loss(self, error: tf.errors.OpError) -> ProgramError | None:
        """The error to end with, if the given one says that others are gone, or that they cannot be reached."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """After the last call of all."""


class Collectives(Exchange):
    """`MultiWorkerMirroredStrategy` makes the servers and finds the others; TensorFlow's collectives do the rest.

    Args:
      cluster: The workers. Waits for all of them, deaf to signals; `launch.run` bounds that.

    Raises:
      ProgramError: The address of this one cannot be served.
    """

    name = "gRPC"

    def __init__(self, cluster: Cluster) -> None:
        self.count, self.rank = len(cluster.addresses), cluster.rank
        self._strategy = _meet(cluster)

    def _with(self, key: Any) -> dict[str, Any]:
        return {
            "group_size": self.count,
            "group_key": _GROUP,
            "instance_key": _GROUP + key,
            "timeout_seconds": PATIENCE,
            "communication_hint": "ring",
        }

    def sum(self, values: tf.Tensor, key: int) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=values, ordering_token=[], merge_op="Add", final_op="Id", **self._with(key)
        )

    def gather(self, values: tf.Tensor, key: Any) -> tf.Tensor:
        return tf.raw_ops.CollectiveGatherV2(input=values, ordering_token=[], **self._with(key))

    def loss(self, error: tf.errors.OpError) -> ProgramError | None:
        message = str(error.message)
        if not isinstance(error, _GONE) and "ollective" not in message:
            return None
        lines = [line for line in message.splitlines() if line.strip()]
        return LostWorker(next((line for line in lines if "ollective" in line), "".join(lines[:1])))


def _meet(cluster: Cluster) -> Any:
    """The strategy, once all workers have made theirs. Until then nothing else of Python runs in this process."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({job: list(found) for job, found in cluster.jobs.items()}),
        task_type=cluster.job,
        task_id=cluster.index,
        num_accelerators={"GPU": 0},  # messages of workers go through host memory
        rpc_layer="grpc",
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except (tf.errors.OpError, RuntimeError) as error:
        raise ProgramError(
            f"worker {cluster.rank} cannot serve at {cluster.addresses[cluster.rank]} "
            f"({short(str(error).splitlines()[0])}); name a free port of this host in TF_CONFIG."
        ) from None


class SharedMemory(Exchange):
    """Workers of one machine, which `launch.run` gave memory."""

    name = "shared memory"
    # Finding rows and adding them to a table took three times the time of the whole table (43 MB, a fifth touched).
    by_rows = False
    one_machine = True

    def __init__(self, memory: Memory) -> None:
        self.count, self.rank, self._memory = memory.count, memory.rank, memory
        self._lost: ProgramError | None = None

    def _call(self, function: Callable[[np.ndarray], np.ndarray], values: tf.Tensor) -> tf.Tensor:
        def noted(array: np.ndarray) -> np.ndarray:
            try:
                return function(array)
            except LostPeer as error:
                self._lost = LostWorker(
                    str(error)
                )  # TensorFlow keeps but the words of an exception
            except OSError as error:
                self._lost = ProgramError(f"no memory to share with other workers: {error}.")
            raise tf.errors.UnavailableError(None, None, str(self._lost))

        return tf.numpy_function(noted, [values], values.dtype)

    def sum(self, values: tf.Tensor, key: int) -> tf.Tensor:
        return tf.ensure_shape(self._call(self._memory.sum, values), values.shape)

    def gather(self, values: tf.Tensor, key: Any) -> tf.Tensor:
        first, *rest = values.shape
        every = None if first is None else first * self.count
        return tf.ensure_shape(self._call(self._memory.gather, values), [every, *rest])

    def sum_bytes(self, size: Any) -> Any:
        return size + size // self.count  # its own, and its part of the sum

    def gather_bytes(self, size: Any) -> Any:
        return size

    def loss(self, error: tf.errors.OpError) -> ProgramError | None:
        return self._lost


class Horovod(Exchange):
    """Processes that `horovodrun` started.

    Args:
      module: `horovod.tensorflow`.
    """

    name = "Horovod"

    def __init__(self, module: Any) -> None:
        self._horovod = module
        module.init()
        self.count, self.rank = module.size(), module.rank()

    def sum(self, values: tf.Tensor, key: int) -> tf.Tensor:
        return self._horovod.allreduce(values, op=self._horovod.Sum, name=f"metal_ops_{key}")

    def gather(self, values: tf.Tensor, key: Any) -> tf.Tensor:
        # Its shape may change from call to call, and the name does not have to: a tensor as key tells shapes apart.
        name = key if isinstance(key, int) else "rows"
        return self._horovod.allgather(values, name=f"metal_ops_{name}")

    def loss(self, error: tf.errors.OpError) -> ProgramError | None:
        lines = str(error.message).splitlines()
        why = next((line for line in lines if "orovod" in line), None)
        return None if why is None else LostWorker(why)

    def close(self) -> None:
        self._horovod.shutdown()


def exchange_from(environment: Mapping[str, str]) -> Exchange:
    """How this process, one of several workers, reaches the others; once all are there.

    Raises:
      ProgramError: Horovod is not installed, or an address cannot be served.
    """
    if horovod_rank(environment) is not None:
        try:
            module = importlib.import_module("horovod.tensorflow")
        except ImportError as error:
            raise ProgramError(
                "horovodrun has started this process, and horovod.tensorflow cannot be imported "
                f"({short(str(error))}); install Horovod built for this TensorFlow, or start by --workers N."
            ) from None
        return Horovod(module)
    cluster = cluster_from(environment)
    assert cluster is not None, "TF_CONFIG of a worker"
    descriptors = descriptors_from(environment)
    if descriptors is None:
        return Collectives(cluster)
    return SharedMemory(Memory(len(cluster.addresses), cluster.rank, descriptors, PATIENCE))
