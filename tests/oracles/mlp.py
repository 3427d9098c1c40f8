"""Small fully connected networks and their gradients in float64, as the chain rule says."""

from __future__ import annotations

import numpy as np

ACTIVATIONS = (
    "none",
    "relu",
    "leaky_relu",
    "exponential",
    "sine",
    "sigmoid",
    "squareplus",
    "softplus",
    "tanh",
)
BETA, LEAK = (
    10.0,
    0.125,
)  # of softplus and leaky_relu; not the defaults, which might be taken for them


def activate(name: str, v: np.ndarray, b: float = 4.0) -> np.ndarray:
    if name == "relu":
        return np.maximum(v, 0)
    if name == "exponential":
        return np.exp(v)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-v))
    if name == "leaky_relu":
        return np.where(v > 0, v, LEAK * v)
    if name == "sine":
        return np.sin(v)
    if name == "softplus":
        return np.logaddexp(BETA * v, 0) / BETA
    if name == "tanh":
        return np.tanh(v)
    return (v + np.sqrt(v * v + b)) / 2 if name == "squareplus" else v


def slope(name: str, v: np.ndarray, b: float = 4.0) -> np.ndarray:
    """The derivative at v."""
    if name == "relu":
        return np.where(v > 0, 1.0, 0.0)
    if name == "exponential":
        return np.exp(v)
    if name == "sigmoid":
        return np.exp(-np.abs(v)) / (1 + np.exp(-np.abs(v))) ** 2
    if name == "leaky_relu":
        return np.where(v > 0, 1.0, LEAK)
    if name == "sine":
        return np.cos(v)
    if name == "softplus":
        return np.exp(-np.logaddexp(-BETA * v, 0))
    if name == "tanh":
        return np.cosh(np.clip(v, -300, 300)) ** -2
    return (1 + v / np.sqrt(v * v + b)) / 2 if name == "squareplus" else np.ones_like(v)


def forward(x, kernels, biases=None, activation="relu", output_activation="none", b=4.0):
    """[batch, outputs]"""
    return _layers(x, kernels, biases, activation, output_activation, b)[1][-1]


def _layers(x, kernels, biases, activation, output_activation, b):
    sums, values = [], [np.asarray(x, np.float64)]
    names = [activation] * (len(kernels) - 1) + [output_activation]
    for layer, (kernel, name) in enumerate(zip(kernels, names, strict=True)):
        sums.append(values[-1] @ np.asarray(kernel, np.float64))
        if biases is not None:
            sums[-1] = sums[-1] + np.asarray(biases[layer], np.float64)
        values.append(activate(name, sums[-1], b))
    return sums, values


def gradients(
    incoming, x, kernels, biases=None, activation="relu", output_activation="none", b=4.0
):
    """Gradients of sum(incoming * outputs): with respect to x, to each kernel, to each bias."""
    sums, values = _layers(x, kernels, biases, activation, output_activation, b)
    names = [activation] * (len(kernels) - 1) + [output_activation]
    d = np.asarray(incoming, np.float64)
    d_kernels, d_biases = [], []
    for layer in reversed(range(len(kernels))):
        d = d * slope(names[layer], sums[layer], b)
        d_kernels.insert(0, values[layer].T @ d)
        d_biases.insert(0, d.sum(axis=0))
        d = d @ np.asarray(kernels[layer], np.float64).T
    return d, d_kernels, d_biases
