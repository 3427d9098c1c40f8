"""A loss of this library in `compile`: a regression whose data has outliers, with and without a robust loss.

    .venv/bin/python examples/custom_loss.py

Barron 2019, "A General and Adaptive Robust Loss Function": one number, alpha, leads from L2 (2) over Charbonnier (1),
Cauchy (0) and Geman-McClure (-2) to Welsch (-inf). The smaller it is, the less an outlier counts.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import metal_ops

# ---- data: a curve, and 20 % of the measurements are wrong ----------------------------------------------------------
random = np.random.default_rng(0)
x = random.uniform(-1, 1, (4096, 1)).astype(np.float32)
truth = np.sin(4 * x) * x
y = truth + random.normal(0, 0.02, x.shape)
wrong = random.uniform(size=x.shape) < 0.2
y = np.where(wrong, random.uniform(1, 3, x.shape), y).astype(np.float32)  # all too high


def fit(loss: keras.losses.Loss | str) -> float:
    """Trains the same network from the same start; returns its mean error against the truth."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input([1]),
            keras.layers.Dense(64, activation="gelu"),
            keras.layers.Dense(64, activation="gelu"),
            keras.layers.Dense(1),
        ]
    )
    # XLA cannot compile the op: Keras must not pick it, which it does by itself where there is a GPU.
    model.compile(metal_ops.optimizers.Adam(3e-3), loss, jit_compile=False)
    model.fit(x, y, batch_size=256, epochs=30, verbose=0)
    return float(np.mean(np.abs(model.predict(x, batch_size=4096, verbose=0) - truth)))


# ---- comparison -----------------------------------------------------------------------------------------------------
# scale is the size of a residual from which on it is suspected: a few times the noise.
errors = {
    "mean squared error": fit("mse"),
    "RobustLoss(alpha=1), Charbonnier": fit(metal_ops.losses.RobustLoss(alpha=1.0, scale=0.1)),
    "RobustLoss(alpha=-2), Geman-McClure": fit(metal_ops.losses.RobustLoss(alpha=-2.0, scale=0.1)),
}
for name, error in errors.items():
    print(f"{name:38s} mean error {error:.4f}")

squared, _, robust = errors.values()
assert robust < squared / 3, "the robust loss should not follow the outliers"
