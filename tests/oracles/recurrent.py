"""Recurrent cells in float64, step by step, as the papers write them."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def norm(x: np.ndarray, gamma: Any) -> np.ndarray:
    """x, or layer norm of its last dimension where there is a gamma."""
    if gamma is None or not x.size:
        return x
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gamma


def step(cell: str, x: np.ndarray, h: np.ndarray, c: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The state after a step; `x` holds x W + b."""
    r, n = given["recurrent_kernel"], given["recurrent_kernel"].shape[1]
    gamma = given.get("recurrent_gamma")
    if cell == "lstm":
        i, f, g, o = np.split(x + norm(h @ r, gamma), 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(norm(c, given.get("cell_gamma")) + given.get("cell_beta", 0.0))
        return (h if given.get("projection") is None else h @ given["projection"]), c
    if cell == "gru":
        products = norm(h @ r, gamma) + given.get("recurrent_bias", 0.0)
        (xz, xr, xn), (hz, hr, hn) = np.split(x, 3, -1), np.split(products, 3, -1)
        z = sigmoid(xz + hz)
        return z * h + (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn), None
    if cell == "gru_reset_before":
        xz, xr, xn = np.split(x, 3, -1)
        at = n // 3 * 2
        gates, last = (None, None) if gamma is None else (gamma[:at], gamma[at:])
        hz, hr = np.split(norm(h @ r[:, :at], gates), 2, -1)
        z, reset = sigmoid(xz + hz), sigmoid(xr + hr)
        return z * h + (1 - z) * np.tanh(xn + norm((reset * h) @ r[:, at:], last)), None
    xf, xn = x[..., : n // 2], x[..., n // 2 :]
    if cell == "minimal_gated":
        gate, last = (None, None) if gamma is None else np.split(gamma, 2)
        f = sigmoid(xf + norm(h @ r[:, : n // 2], gate))
        return (1 - f) * h + f * np.tanh(xn + norm((f * h) @ r[:, n // 2 :], last)), None
    hf, hn = np.split(norm(h @ r, gamma), 2, -1)
    s = xf + hf
    return sigmoid(s) * h + (1 - sigmoid(s - given["beta"])) * np.tanh(xn + hn), None


def sequence(cell: str, given: dict[str, Any]) -> list[np.ndarray]:
    """All states, the last one and, of an lstm, that of its cells."""
    given = {k: np.asarray(v, np.float64) if k != "mask" else v for k, v in given.items()}
    x = norm(given["x"] @ given["kernel"], given.get("kernel_gamma")) + given.get("bias", 0.0)
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
