"""Recurrent cells in float64, step by step, as the papers write them."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def step(cell: str, x: np.ndarray, h: np.ndarray, c: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The state after a step; `x` holds x W + b."""
    r, n = given["recurrent_kernel"], given["recurrent_kernel"].shape[1]
    if cell == "lstm":
        i, f, g, o = np.split(x + h @ r, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return (h if given.get("projection") is None else h @ given["projection"]), c
    if cell == "gru":
        products = h @ r + given.get("recurrent_bias", 0.0)
        (xz, xr, xn), (hz, hr, hn) = np.split(x, 3, -1), np.split(products, 3, -1)
        z = sigmoid(xz + hz)
        return z * h + (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn), None
    if cell == "gru_reset_before":
        xz, xr, xn = np.split(x, 3, -1)
        rz, rr, rn = np.split(r, 3, -1)
        z, reset = sigmoid(xz + h @ rz), sigmoid(xr + h @ rr)
        return z * h + (1 - z) * np.tanh(xn + (reset * h) @ rn), None
    (xf, xn), (rf, rn) = (x[..., : n // 2], x[..., n // 2 :]), np.split(r, 2, -1)
    s = xf + h @ rf
    if cell == "minimal_gated":
        f = sigmoid(s)
        return (1 - f) * h + f * np.tanh(xn + (f * h) @ rn), None
    return sigmoid(s) * h + (1 - sigmoid(s - given["beta"])) * np.tanh(xn + h @ rn), None


def sequence(cell: str, given: dict[str, Any]) -> list[np.ndarray]:
    """All states, the last one and, of an lstm, that of its cells."""
    given = {k: np.asarray(v, np.float64) if k != "mask" else v for k, v in given.items()}
    x = given["x"] @ given["kernel"] + given.get("bias", 0.0)
    batch, steps, _ = x.shape
    h = given.get("h", np.zeros([batch, given["recurrent_kernel"].shape[0]]))
    c = given.get("c", np.zeros([batch, x.shape[2] // 4]))
    mask = given.get("mask")
    states = []
    for t in range(steps):
        after, c_after = step(cell, x[:, t], h, c, given)
        seen = np.ones([batch, 1], bool) if mask is None else mask[:, t, None]
        h = np.where(seen, after, h)
        c = None if c_after is None else np.where(seen, c_after, c)
        states.append(h)
    y = np.stack(states, 1) if steps else np.zeros([batch, 0, h.shape[1]])
    return [y, h] if cell != "lstm" else [y, h, c]
