"""An image learnt by a hash grid: the smallest thing that a hash grid is good for.

    .venv/bin/python examples/fit_an_image.py                 a picture that is made here
    .venv/bin/python examples/fit_an_image.py photo.jpg       one of yours, shrunk to 256 pixels

A function from a position to a colour is trained on random pixels. It leaves runs/fit_an_image.png: the truth, and the
results after 10, 40 and all 300 steps.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from PIL import Image

import metal_ops

tf.keras.utils.set_random_seed(0)
SIZE, STEPS, BATCH = 256, 300, 1 << 14


# ---- the picture ----------------------------------------------------------------------------------------------------
def julia_set(size: int) -> np.ndarray:
    """Fine detail everywhere, and no file needed: escape times of z^2 - 0.8 + 0.156i, in colours."""
    y, x = np.mgrid[0:size, 0:size] / size * 3 - 1.5
    z, steps = x + 1j * y, np.zeros((size, size))
    for _ in range(120):
        inside = np.abs(z) < 4
        z[inside] = z[inside] ** 2 - 0.8 + 0.156j
        steps += inside
    t = np.sqrt(steps / 120)[..., None]
    return (0.5 + 0.5 * np.cos(6.3 * (t * [1.0, 0.9, 0.7] + [0.55, 0.6, 0.7]))).astype(np.float32)


if len(sys.argv) > 1:
    photo = Image.open(sys.argv[1]).convert("RGB")
    photo.thumbnail((SIZE, SIZE))
    image = np.asarray(photo, np.float32) / 255
else:
    image = julia_set(SIZE)
height, width = image.shape[:2]

# ---- the model: grid, then a small network --------------------------------------------------------------------------
grid = metal_ops.HashGrid(n_dims=2, n_levels=12, log2_hashmap_size=14, finest_resolution=SIZE)
print(grid)
model = tf.keras.Sequential(
    [
        tf.keras.Input([2]),
        metal_ops.layers.HashEncoding(grid),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(3, activation="sigmoid"),
    ]
)
optimizer = metal_ops.optimizers.Adam(1e-2, epsilon=1e-15)
numbers = height * width * 3
print(f"{model.count_params()} parameters for {numbers} values")


@tf.function
def train(points: tf.Tensor, colours: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(points) - colours) ** 2)
    variables = [variable.value for variable in model.trainable_variables]
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


# Pixels are little squares: their centres are at half a pixel.
rows, columns = np.mgrid[0:height, 0:width]
centres = np.stack([(columns + 0.5) / width, (rows + 0.5) / height], axis=-1).astype(np.float32)


def picture() -> np.ndarray:
    return np.asarray(model(centres.reshape(-1, 2))).reshape(image.shape)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((a - b) ** 2)))


# ---- training -------------------------------------------------------------------------------------------------------
random = np.random.default_rng(0)
pictures = [image]
for step in range(1, STEPS + 1):
    r, c = random.integers(0, height, BATCH), random.integers(0, width, BATCH)
    train(tf.constant(centres[r, c]), tf.constant(image[r, c]))
    if step in (10, 40, STEPS):
        pictures.append(picture())
        print(f"step {step:3d}: {psnr(pictures[-1], image):.1f} dB")

path = Path("runs") / "fit_an_image.png"
path.parent.mkdir(exist_ok=True)
strip = np.concatenate(
    [np.pad(p, ((0, 0), (0, 4), (0, 0)), constant_values=1) for p in pictures], axis=1
)
Image.fromarray(np.round(strip[:, :-4] * 255).astype(np.uint8)).save(path)
print(f"truth and steps 10, 40, {STEPS}: {path}")
assert len(sys.argv) > 1 or psnr(pictures[-1], image) > 25, "it should have learnt the picture"
