"""Adam, AMSGrad, AdamW and SGD as their papers have them, in float64."""

from __future__ import annotations

import numpy as np


def adam(
    x,
    gradients,
    lr,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-7,
    weight_decay=0.0,
    amsgrad=False,
    skip_zero_rows=False,
):
    """x after a step for each gradient, with the moments."""
    x = np.array(x, np.float64)
    m, v, hat = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for step, g in enumerate(np.asarray(gradients, np.float64), start=1):
        new_m = beta_1 * m + (1 - beta_1) * g
        new_v = beta_2 * v + (1 - beta_2) * g**2
        new_hat = np.maximum(hat, new_v)
        alpha = lr * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        size = np.sqrt(new_hat if amsgrad else new_v) + epsilon
        new_x = x - lr * weight_decay * x - alpha * new_m / size
        used = np.full(x.shape, True)
        if skip_zero_rows:
            used &= np.any(g != 0, axis=tuple(range(1, g.ndim)), keepdims=True)
        x, m, v, hat = (
            np.where(used, new, old)
            for new, old in ((new_x, x), (new_m, m), (new_v, v), (new_hat, hat))
        )
    return x, m, v, hat


def sgd(x, gradients, lr, momentum=0.0, nesterov=False, weight_decay=0.0, skip_zero_rows=False):
    """x after a step for each gradient, with the momentum."""
    x = np.array(x, np.float64)
    m = np.zeros_like(x)
    for g in np.asarray(gradients, np.float64):
        new_m = momentum * m - lr * g
        new_x = x - lr * weight_decay * x + (momentum * new_m - lr * g if nesterov else new_m)
        used = np.full(x.shape, True)
        if skip_zero_rows:
            used &= np.any(g != 0, axis=tuple(range(1, g.ndim)), keepdims=True)
        x, m = np.where(used, new_x, x), np.where(used, new_m, m)
    return x, m
