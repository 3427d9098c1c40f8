"""Threads that call ops with inputs in host memory outside of functions, on the device: none gets another's.

Stock ops have the same fault, so that the threads call none that reads something on the host.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops

THREADS, CALLS = 6, 60


def of_a_grid(number: int) -> Callable[[], list[np.ndarray]]:
    """Every thread has another grid, whose levels begin elsewhere."""
    grid = metal_ops.HashGrid(n_dims=2, n_levels=2, log2_hashmap_size=6 + number)
    points = tf.constant(np.linspace(0, 1, 40, dtype=np.float32).reshape(20, 2))
    random = np.random.default_rng(number)
    table = tf.constant(random.normal(size=grid.table_shape).astype(np.float32))
    upstream = tf.constant(np.ones([20, 4], np.float32))

    def call() -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(table)
            encoded = metal_ops.hash_encode(points, table, grid)
        return [encoded.numpy(), tape.gradient(encoded, table, upstream).numpy()]

    return call


def of_rays(number: int) -> Callable[[], list[np.ndarray]]:
    """A number of rays that no other test has: a number that is read on the host."""
    indices = tf.constant(np.arange(number + 1, dtype=np.int32))
    n_rays = tf.constant(number + 3)
    return lambda: [raw_ops.pack_ray_indices(indices, n_rays).numpy()]


def call_together(calls: list[Callable[[], Any]]) -> None:
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        with tf.device("GPU:0"):
            for _ in range(CALLS):
                call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads lose their turn at Python often, so that calls overlap."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("make", [of_a_grid, of_rays])
def test_results(make: Callable[[int], Callable[[], list[np.ndarray]]]) -> None:
    with tf.device("GPU:0"):
        works = [make(number) for number in range(THREADS)]
        expected = [work() for work in works]
    wrong: list[Any] = []

    def compared(number: int) -> None:
        try:
            found = works[number]()
        except tf.errors.OpError as error:
            wrong.append((number, error.message))
            return
        close = [np.allclose(a, b, atol=1e-5) for a, b in zip(found, expected[number], strict=True)]
        if not all(close):
            wrong.append(number)

    call_together([lambda number=number: compared(number) for number in range(THREADS)])
    assert wrong == []


def test_a_fork_in_the_middle_of_a_turn() -> None:
    """The child waits for no thread that is not there."""
    has_it, done = threading.Event(), threading.Event()

    def hold() -> None:
        with raw_ops._TURNS:
            has_it.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if raw_ops._TURNS.acquire(blocking=False) else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_updates() -> None:
    """Variables and learning rates are handed over in host memory, too."""
    ones = tf.constant(np.ones(8, np.float32))
    with tf.device("GPU:0"):
        variables = [tf.Variable(np.zeros(8, np.float32)) for _ in range(THREADS)]
        gradient = tf.identity(ones)

    def update(number: int) -> None:
        metal_ops.fused_sgd(variables[number], gradient, learning_rate=0.25 * (number + 1))

    call_together([lambda number=number: update(number) for number in range(THREADS)])
    for number, variable in enumerate(variables):
        np.testing.assert_array_equal(variable.numpy(), -0.25 * (number + 1) * CALLS)
