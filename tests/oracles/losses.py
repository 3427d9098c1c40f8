"""Losses as their papers write them, in extended precision (which near alpha = 0 and 2 their formulas need)."""

from __future__ import annotations

import numpy as np


def robust(x, alpha, scale) -> np.ndarray:
    """Barron 2019, equations 8 and 13, alpha broadcast along the last axis; float64 out."""
    x, alpha, scale = (np.asarray(a, np.longdouble) for a in (x, alpha, scale))
    z = (x / scale) ** 2
    z, alpha = np.broadcast_arrays(z, alpha)
    with np.errstate(all="ignore"):
        b = np.abs(alpha - 2)
        general = b / alpha * np.expm1(alpha / 2 * np.log1p(z / b))
        result = np.where(alpha == 0, np.log1p(z / 2), general)
        result = np.where(alpha == 2, z / 2, result)
        result = np.where(alpha == -np.inf, -np.expm1(-z / 2), result)
        result = np.where(alpha == np.inf, np.expm1(z / 2), result)
    return result.astype(np.longdouble)


def sigmoid_focal(logits, targets, alpha=None, gamma=2.0, label_smoothing=0.0) -> np.ndarray:
    """Lin et al. 2017, equation 5, with probabilities as they stand."""
    x, y = np.asarray(logits, np.longdouble), np.asarray(targets, np.longdouble)
    y = y * (1 - label_smoothing) + label_smoothing / 2
    p, not_p = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))
    q = y * not_p + (1 - y) * p
    weight = 1 if alpha is None else y * alpha + (1 - y) * (1 - alpha)
    return weight * q**gamma * -(y * np.log(p) + (1 - y) * np.log(not_p))


def softmax_focal(logits, targets, alpha=None, gamma=2.0, label_smoothing=0.0) -> np.ndarray:
    """-alpha sum_c y_c (1 - p_c)^gamma log p_c over the last axis."""
    x, y = np.asarray(logits, np.longdouble), np.asarray(targets, np.longdouble)
    y = y * (1 - label_smoothing) + label_smoothing / x.shape[-1]
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return (1 if alpha is None else alpha) * np.sum(y * (1 - p) ** gamma * -np.log(p), axis=-1)


def softmax_cross_entropy(logits, targets, label_smoothing=0.0, z_loss=0.0) -> np.ndarray:
    """-sum_c y_c log p_c + z_loss (log sum_c e^x_c)^2 over the last axis."""
    x, y = np.asarray(logits, np.longdouble), np.asarray(targets, np.longdouble)
    y = y * (1 - label_smoothing) + label_smoothing / x.shape[-1]
    top = x.max(axis=-1)
    log_sum = top + np.log(np.exp(x - top[..., None]).sum(axis=-1))
    return np.sum(y * (log_sum[..., None] - x), axis=-1) + z_loss * log_sum**2
