"""Memory that workers share: sums and gathered values against NumPy, and the error where one is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from metal_ops.programs.memory import Lines, LostPeer, Memory, descriptors_from


def together(
    count: int, work: Callable[[Memory], Any], patience: float = 30, threads: int = 1
) -> list[Any]:
    """The results of workers, which are threads here; or the `LostPeer` that one of them raised."""
    lines = Lines(count)
    # Workers have descriptors of their own, as processes do.
    memories = [
        Memory(count, rank, map(os.dup, lines.of(rank)), patience, threads) for rank in range(count)
    ]
    lines.close()

    def run(memory: Memory) -> Any:
        try:
            return work(memory)
        except LostPeer as error:
            return error
        finally:
            memory.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, memories))


def values(rank: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return (np.random.default_rng(rank).normal(size=shape) * 100).astype(dtype)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(1,), (0,), (7, 3), (64,), (1000, 129)])
def test_sums(count, dtype, shape):
    found = together(count, lambda memory: memory.sum(values(memory.rank, shape, dtype)))
    own = [values(rank, shape, dtype) for rank in range(count)]
    expected = own[0].copy()  # in the order of ranks: the same bits
    for one in own[1:]:
        expected += one
    for one in found:
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, expected)
    oracle = np.sum([one.astype(np.float64) for one in own], axis=0)
    np.testing.assert_allclose(found[0], oracle, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(1,), (5, 3), (0, 3)])
def test_gathered(shape):
    found = together(3, lambda memory: memory.gather(values(memory.rank, shape, np.float32)))
    for one in found:
        np.testing.assert_array_equal(
            one, np.concatenate([values(rank, shape, np.float32) for rank in range(3)])
        )


def test_calls_that_follow_each_other_at_once():
    """Sizes that grow and shrink, some workers late: none writes memory that others still read."""
    sizes = [3, 70_000, 5, 300_000, 300_000, 1, 600_000, 40_000]

    def work(memory: Memory) -> list[float]:
        found = []
        for call, size in enumerate(sizes * 3):
            if (call + memory.rank) % 3 == 0:
                time.sleep(0.002)
            total = memory.sum(np.full(size, memory.rank + call, np.float32))
            every = memory.gather(np.full(size, memory.rank - call, np.float32))
            found.append([total.min(), total.max(), *every[::size]])
        return found

    expected = [[3 * c + 3, 3 * c + 3, -c, 1 - c, 2 - c] for c in range(3 * len(sizes))]
    assert together(3, work, threads=2) == [expected] * 3


def test_a_result_stays_as_it_is():
    """The room of results that are gone is used again, and that of others is not."""

    def work(memory: Memory) -> list[float]:
        kept = [memory.sum(np.full(100_000, n, np.float32)) for n in range(8)]
        return [float(one[n]) for n, one in enumerate(kept)]

    assert together(2, work) == [[2.0 * n for n in range(8)]] * 2


@pytest.mark.parametrize("gone", [0, 2])
def test_one_that_ends_is_noticed_by_all(gone):
    def work(memory: Memory) -> Any:
        memory.sum(np.ones(3))
        return None if memory.rank == gone else memory.sum(np.ones(3))

    begin = time.monotonic()
    found = together(3, work)
    assert time.monotonic() - begin < 10
    assert found.pop(gone) is None
    assert all(isinstance(one, LostPeer) and "its line" in str(one) for one in found), found


def test_a_wait_is_bounded():
    def work(memory: Memory) -> Any:
        if memory.rank:
            time.sleep(1)
            return None
        return memory.sum(np.ones(3))

    found = together(2, work, patience=0.2)
    assert str(found[0]) == "no other worker came to call 1 for 0.2 s"


def test_workers_that_do_different_things():
    found = together(2, lambda memory: memory.sum(np.ones(3 + memory.rank)))
    assert "call 1 of 24 bytes here is (1, 32) elsewhere" in str(found[0])


def test_what_a_worker_inherits():
    lines = Lines(3)
    try:
        assert [len(lines.of(rank)) for rank in range(3)] == [3, 2, 2]
        assert descriptors_from(lines.environment(2)) == lines.of(2)
        assert descriptors_from({}) is None
        assert not any(map(os.get_inheritable, lines.of(0)))
    finally:
        lines.close()
