"""Whole sequences of recurrent cells, and the slopes of their gates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_recurrent
from tests.oracles import recurrent
from tools.reference.error_cases import DTYPES, Case, rounded, wide


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for cell, normed in itertools.product(test_recurrent.CELLS, (False, True)):
            given = test_recurrent.make(cell, (13, 6, 5, 33), dtype, normed=normed)
            right = recurrent.sequence(cell, given)[0]
            gates = rounded(wide(given["x"]) @ wide(given["kernel"]) + wide(given["bias"]), dtype)
            into = rounded(np.random.default_rng(2).integers(-64, 65, right.shape) / 64, dtype)

            def states(given=given, cell=cell):
                return test_recurrent.run(cell, test_recurrent.tensors(given))[0]

            yield "RecurrentSequence", dtype, states, right
            if normed and cell != "lstm":  # which has all norms
                continue
            # The kernel's norm is an op of its own.
            inner = {k: v for k, v in given.items() if k != "kernel_gamma"}

            def slopes(given=inner, cell=cell, gates=gates, into=into):
                return gate_slopes(cell, given, gates, into)

            wider = {k: np.asarray(v, np.float32) for k, v in inner.items()}
            with tf.device("CPU:0"):
                expected = differences(cell, wider, wide(gates), wide(into))
            yield "RecurrentSequenceGrad", dtype, slopes, expected


def gate_slopes(cell: str, given: dict, gates: np.ndarray, into: np.ndarray) -> tf.Tensor:
    none = tf.zeros([0], gates.dtype)
    inputs = {
        "recurrent_kernel": tf.constant(given["recurrent_kernel"]),
        "initial_h": tf.constant(given["h"]),
        "initial_c": tf.constant(given["c"]) if "c" in given else none,
        "mask": tf.zeros([0], tf.bool),
        "projection": none,
        **{
            name: tf.constant(given[name]) if name in given else none
            for name in ("recurrent_gamma", "cell_gamma", "cell_beta")
        },
    }
    bias = tf.constant(given["recurrent_bias"]) if "recurrent_bias" in given else none
    activated, y, cells, h, c, products = raw_ops.recurrent_sequence(
        gates=tf.constant(gates), recurrent_bias=bias, cell=cell, beta=0.7, **inputs
    )
    return raw_ops.recurrent_sequence_grad(
        *(tf.constant(into), tf.zeros_like(h), tf.zeros_like(c), activated, y, cells, products),
        **inputs,
        cell=cell,
        beta=0.7,
    )[0]


def differences(cell: str, given: dict, gates: np.ndarray, into: np.ndarray) -> np.ndarray:
    """The slopes of gates, by differences of the oracle in float64: of one step, all gates are moved side by side, and
    of all sequences at once, which is right as they don't know each other."""
    given = {name: np.asarray(value, np.float64) for name, value in given.items()}
    batch, steps, width = gates.shape
    h = given.get("h", np.zeros([batch, given["recurrent_kernel"].shape[0]]))
    c = given.get("c", np.zeros([batch, width // 4]))
    found = np.zeros_like(gates)
    for t in range(steps):
        # [a step of the differences, gate, sequence, gates]
        moved = gates[:, t] + np.array([1e-5, -1e-5])[:, None, None, None] * np.eye(width)[:, None]
        after, after_c = recurrent.step(cell, moved, h, c, given)
        losses = (after * into[:, t]).sum(-1)
        for later in range(t + 1, steps):
            after, after_c = recurrent.step(cell, gates[:, later], after, after_c, given)
            losses += (after * into[:, later]).sum(-1)
        found[:, t] = (losses[0] - losses[1]).T / 2e-5
        h, c = recurrent.step(cell, gates[:, t], h, c, given)
    return found
