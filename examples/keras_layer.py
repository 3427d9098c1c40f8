"""A Keras layer of this library in a functional model: learn a function of position and direction, save, load.

    .venv/bin/python examples/keras_layer.py

The model has the shape of a radiance field: a hash grid encodes where, a few numbers say from which side, and two
small networks make a colour of both.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import metal_ops

keras.utils.set_random_seed(0)

# ---- the model ------------------------------------------------------------------------------------------------------
# HashEncoding takes points in [0, 1]^3 and owns its table. A grid of 8 levels, from 8 to 128 cells along each axis,
# with 2 features each: 16 numbers for a point.
position = keras.Input([3], name="position")
direction = keras.Input([3], name="direction")

encoded = metal_ops.layers.HashEncoding(
    n_levels=8, base_resolution=8, finest_resolution=128, log2_hashmap_size=14, name="grid"
)(position)
geometry = keras.layers.Dense(16, activation="relu")(encoded)
both = keras.layers.Concatenate()([geometry, direction])
hidden = keras.layers.Dense(32, activation="relu")(both)
colour = keras.layers.Dense(3, activation="sigmoid")(hidden)

model = keras.Model([position, direction], colour)
model.summary()

# ---- data: a glossy marble, in closed form --------------------------------------------------------------------------
random = np.random.default_rng(0)


def marble(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Colours [N, 3] of points x [N, 3] seen along the unit vectors d [N, 3]."""
    veins = 0.5 + 0.5 * np.sin(20 * x[:, :1] + 6 * np.sin(9 * x[:, 1:2]) * np.cos(7 * x[:, 2:]))
    gloss = np.maximum(d[:, 2:], 0) ** 4
    return np.clip(veins * [0.9, 0.8, 0.7] * 0.8 + 0.2 * gloss, 0, 1).astype(np.float32)


def sample(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    x = random.uniform(size=(n, 3)).astype(np.float32)
    d = random.normal(size=(n, 3)).astype(np.float32)
    d /= np.linalg.norm(d, axis=-1, keepdims=True)
    return [x, d], marble(x, d)


# ---- training -------------------------------------------------------------------------------------------------------
# XLA cannot compile the layer. It tells Keras so, and compile(jit_compile="auto") does without.
# epsilon=1e-15 lets rarely touched rows of the table move as fast as the others (Mueller et al. 2022, section 4).
model.compile(metal_ops.optimizers.Adam(1e-2, epsilon=1e-15), "mse")
inputs, targets = sample(1 << 16)
held_out = sample(4096)
model.fit(inputs, targets, batch_size=4096, epochs=6, validation_data=held_out, verbose=2)

error = model.evaluate(*held_out, batch_size=4096, verbose=0)
print(f"\nPSNR on points that it has not seen: {-10 * np.log10(error):.1f} dB")
assert error < 0.01, "it should have learnt the marble"

# ---- saving ---------------------------------------------------------------------------------------------------------
# The layer is registered with Keras: no custom_objects.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "marble.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
np.testing.assert_array_equal(
    loaded.predict(held_out[0], verbose=0), model.predict(held_out[0], verbose=0)
)
print("Saved and loaded: the same predictions, bit for bit.")
