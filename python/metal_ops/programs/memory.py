"""Memory that the workers of one machine share, and lines on which they wait for each other; knows nothing of
TensorFlow.

Memory and lines have no names, so that nothing is left of them however the processes end: workers inherit them.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .cluster import cores

MEMORY = (
    "METAL_OPS_MEMORY"  # in a worker's environment: numbers of its descriptors, the memory's first
)
_PIECE = 1 << 18  # values that a thread takes at once
_MOST_THREADS = 8  # they wait for memory, not for arithmetic
_ALIGNED = 64  # TensorFlow copies others
_PAGE = 1 << 16
_UNUSED = 3  # references of the list itself, of the loop, and of the call's argument
_MOST_RESULTS = 4
_WORD = struct.Struct("<qq")


class LostPeer(Exception):
    """Another worker has ended, or does not answer. The message is a clause."""


class Lines:
    """The workers' inheritance from one start: the memory, and a line from the chief to each other worker.

    A line breaks when one of its ends closes, which the system does where a process is killed. So the process that
    starts the workers closes its own copies.
    """

    def __init__(self, count: int) -> None:
        self._memory = _nameless()
        self._pairs = [socket.socketpair() for _ in range(count - 1)]

    def of(self, rank: int) -> tuple[int, ...]:
        """The descriptors for a worker."""
        ends = [here for here, _ in self._pairs] if rank == 0 else [self._pairs[rank - 1][1]]
        return (self._memory, *(end.fileno() for end in ends))

    def environment(self, rank: int) -> dict[str, str]:
        """The settings in a worker's environment."""
        return {MEMORY: ",".join(map(str, self.of(rank)))}

    def close(self) -> None:
        os.close(self._memory)
        for end in [end for pair in self._pairs for end in pair]:
            end.close()


def _nameless() -> int:
    if hasattr(os, "memfd_create"):  # not bounded by the size of /dev/shm, 64 MB in many containers
        return os.memfd_create("metal_ops workers")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def descriptors_from(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """The value of `Lines.environment`; None where the workers share no memory."""
    text = environment.get(MEMORY)
    return None if not text else tuple(map(int, text.split(",")))


class Memory:
    """The memory and lines of one worker. All make the same calls in the same order.

    A sum is added once: each worker adds a part of it, in the order of ranks, and all read the same bits.

    Args:
      count, rank: How many workers there are, and which this one is.
      descriptors: By `Lines.of`.
      patience: Seconds to wait for others.
      threads: For copying and adding.

    Its calls raise `LostPeer`, and OSError where the system has too little memory.
    """

    def __init__(
        self,
        count: int,
        rank: int,
        descriptors: Iterable[int],
        patience: float,
        threads: int | None = None,
    ) -> None:
        self.count, self.rank, self._patience = count, rank, patience
        self._file, *lines = descriptors
        self._lines = [socket.socket(fileno=line) for line in lines]
        for line in self._lines:
            line.settimeout(patience)
        for number in (self._file, *lines):
            os.set_inheritable(number, False)  # a compiler started here would keep the lines whole
        self._calls, self._room = 0, 0
        self._bytes: np.ndarray = np.empty(0, np.uint8)
        self._results: list[np.ndarray] = []
        self._threads = threads or min(max(cores() // count, 1), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum of all workers' values, which have one shape and dtype; the same bits for all."""
        own = np.ascontiguousarray(values).reshape(-1)
        slots = self._slots(own)
        total = slots[self.count]
        self._each(0, own.size, lambda part: np.copyto(slots[self.rank][part], own[part]))
        self._meet(own.nbytes)

        def add(part: slice) -> None:
            np.add(slots[0][part], slots[1][part], out=total[part])
            for slot in slots[2 : self.count]:
                np.add(total[part], slot[part], out=total[part])

        # Whole lines of caches for each.
        share = -(-own.size // (self.count * _ALIGNED)) * _ALIGNED
        begin = min(self.rank * share, own.size)
        self._each(begin, min(begin + share, own.size), add)
        self._meet(own.nbytes)
        # The first worker writes to its own slot next: the total stays until all have come to their next call.
        return self._copy(total, own.size).reshape(values.shape)

    def gather(self, values: np.ndarray) -> np.ndarray:
        """All workers' values, which have one shape and dtype, one after the other along the first dimension."""
        own = np.ascontiguousarray(values).reshape(-1)
        slots = self._slots(own)
        np.copyto(slots[self.rank], own)
        self._meet(own.nbytes)
        found = np.concatenate(slots[: self.count])
        self._meet(own.nbytes)  # none writes while others read
        return found.reshape(self.count * values.shape[0], *values.shape[1:])

    def close(self) -> None:
        """Ends the lines: the others will find this worker gone."""
        for line in self._lines:
            line.close()
        self._pool.shutdown()
        os.close(self._file)

    def _slots(self, own: np.ndarray) -> list[np.ndarray]:
        """Room for each worker's values, and for their sum."""
        if own.nbytes > self._room:
            self._meet(own.nbytes)  # others may still read where slots were
            self._room = -(-own.nbytes // _PAGE) * _PAGE
            size = self._room * (self.count + 1)
            # Taken now: memory that is missing would be a SIGBUS later.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, size)
            elif os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._bytes = np.frombuffer(mmap.mmap(self._file, size), np.uint8)
        room = self._room
        return [
            self._bytes[i * room : i * room + own.nbytes].view(own.dtype)
            for i in range(self.count + 1)
        ]

    def _each(self, begin: int, end: int, do: Callable[[slice], object]) -> None:
        parts = [slice(i, min(i + _PIECE, end)) for i in range(begin, end, _PIECE)]
        if self._threads == 1 or len(parts) < 2:
            for part in parts:
                do(part)
        else:
            list(self._pool.map(do, parts))

    def _copy(self, values: np.ndarray, size: int) -> np.ndarray:
        raw = self._raw(values.nbytes + _ALIGNED)
        first = -raw.ctypes.data % _ALIGNED
        found = raw[first : first + values.nbytes].view(values.dtype)
        self._each(0, size, lambda part: np.copyto(found[part], values[part]))
        return found

    def _raw(self, size: int) -> np.ndarray:
        """Bytes that are not in use: those of an earlier result that is gone, as new pages cost more than the sum."""
        for raw in self._results:
            if raw.size == size and sys.getrefcount(raw) == _UNUSED:
                return raw
        raw = np.empty(size, np.uint8)
        self._results = [*self._results[-_MOST_RESULTS + 1 :], raw]
        return raw

    def _meet(self, size: int) -> None:
        """Returns once all are here. Others see the values written before: the system's calls are barriers."""
        self._calls += 1
        word = _WORD.pack(self._calls, size)
        try:
            if self.rank:
                self._lines[0].sendall(word)
            for line in self._lines:
                if (heard := self._hear(line)) != word:
                    raise LostPeer(
                        f"call {self._calls} of {size} bytes here is {_WORD.unpack(heard)} elsewhere: workers do not "
                        "do the same"
                    )
            if not self.rank:
                for line in self._lines:
                    line.sendall(word)
        except TimeoutError:
            raise LostPeer(
                f"no other worker came to call {self._calls} for {self._patience:g} s"
            ) from None
        except OSError as error:
            raise LostPeer(f"its line broke: {error.strerror}") from None

    @staticmethod
    def _hear(line: socket.socket) -> bytes:
        heard = b""
        while len(heard) < _WORD.size:
            if not (more := line.recv(_WORD.size - len(heard))):
                raise LostPeer("its line has ended")
            heard += more
        return heard
