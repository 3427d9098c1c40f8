"""robust_loss and focal_loss, as means, against compositions of stock ops."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise

CHANNELS = 3
CLASSES = 1000


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def one_hot(rows: int) -> np.ndarray:
    labels = np.random.default_rng(1).integers(0, CLASSES, rows)
    return np.eye(CLASSES, dtype=np.float32)[labels]


def robust(n: int) -> elementwise.Work:
    def ours(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(metal_ops.robust_loss(x, 1.5, 0.3, targets=y, reduce_last=True))

    return elementwise.Work(
        ours=ours,
        stock={"formula of one alpha": "robust"},
        arrays=lambda: [normal(n // CHANNELS, CHANNELS), normal(n // CHANNELS, CHANNELS, seed=1)],
        gradients=(0,),
        # x and y; and then dx, whose slope is made on the way forwards and scaled in place.
        forward_traffic=(2 * n, 0),
        gradient_traffic=(3 * n, 2 * n),
        calls=elementwise.calls_of(n),
    )


def adaptive(n: int) -> elementwise.Work:
    """Alpha and scale of every channel are trained, too."""

    def ours(x: tf.Tensor, y: tf.Tensor, alpha: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(metal_ops.robust_loss(x, alpha, scale, targets=y, reduce_last=True))

    return elementwise.Work(
        ours=ours,
        stock={"all cases of alpha": "robust_adaptive"},
        arrays=lambda: [
            *robust(n).arrays(),
            np.float32([-1.5, 0.7, 1.3]),
            np.float32([0.2, 0.3, 0.4]),
        ],
        gradients=(0, 2, 3),
        forward_traffic=(2 * n, 0),
        # Three slopes.
        gradient_traffic=(5 * n, 4 * n),
        calls=elementwise.calls_of(n),
    )


def sigmoid(n: int) -> elementwise.Work:
    def ours(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(metal_ops.focal_loss(x, y, reduce_last=True))

    return elementwise.Work(
        ours=ours,
        stock={"formula": "sigmoid_focal"},
        arrays=lambda: [normal(n // 64, 64), np.round(np.abs(normal(n // 64, 64, seed=1)) / 2)],
        gradients=(0,),
        forward_traffic=(2 * n, 0),
        gradient_traffic=(3 * n, 2 * n),
        calls=elementwise.calls_of(n),
    )


def softmax(rows: int) -> elementwise.Work:
    def ours(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(metal_ops.focal_loss(x, y, "softmax"))

    n = rows * CLASSES
    return elementwise.Work(
        ours=ours,
        stock={"log_softmax": "softmax_focal"},
        arrays=lambda: [normal(rows, CLASSES), one_hot(rows)],
        gradients=(0,),
        forward_traffic=(2 * n, 0),
        gradient_traffic=(3 * n, 2 * n),
        calls=elementwise.calls_of(n),
    )


for _kind, _title, _work, _tolerance in (
    ("losses-robust", "Mean robust loss, alpha 1.5, of {} residuals", robust, 1e-4),
    # TensorFlow adds a column up one by one in float32: over 1.4 million rows its gradients of alpha and scale are off
    # by 1.1e-3 of the float64 ones, ours by 1e-7.
    (
        "losses-robust-adaptive",
        "Mean robust loss of {} residuals, alpha and scale trained",
        adaptive,
        3e-3,
    ),
    ("losses-sigmoid-focal", "Mean sigmoid focal loss of {} logits", sigmoid, 1e-4),
):
    elementwise.register_cases(
        "losses", _kind, _title, _work, (1 << 22, 1 << 18), "elements", _tolerance
    )
elementwise.register_cases(
    "losses",
    "losses-softmax-focal",
    f"Mean softmax focal loss of {{}} rows of {CLASSES} classes",
    softmax,
    (4096, 256),
    "rows",
)
