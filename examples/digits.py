"""Digits recognised by a convolutional network, trained on the Metal device; writes a plot to runs/.

    .venv/bin/python examples/digits.py

The digits are drawn here, in the typefaces that matplotlib brings along: turned, slanted, shifted, thick or thin, with
noise. Needs `make metal`.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont

import metal_ops.device

matplotlib.use("Agg")
import matplotlib.pyplot as plt

metal_ops.device.load()
keras.utils.set_random_seed(0)

# ---- data -----------------------------------------------------------------------------------------------------------
SIZE = 28
FACES = "DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSansMono DejaVuSerif DejaVuSerif-Bold STIXGeneral cmr10"
fonts = [
    ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")), size)
    for face in FACES.split()
    for size in (17, 20, 23)
]
random = np.random.default_rng(0)


def drawn(digit: int) -> np.ndarray:
    """A picture [28, 28] of values from 0 to 1."""
    picture = Image.new("L", (SIZE, SIZE))
    font = fonts[random.integers(len(fonts))]
    draw = ImageDraw.Draw(picture)
    draw.text((SIZE / 2, SIZE / 2), str(digit), fill=255, font=font, anchor="mm")
    angle, slant = random.normal(0, 0.12), random.normal(0, 0.15)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ [[1, slant], [0, 1]] * random.uniform(0.85, 1.2)
    middle = np.full(2, SIZE / 2)
    shift = middle - matrix @ (middle + random.normal(0, 1, 2))
    affine = np.column_stack([matrix, shift]).ravel().tolist()
    picture = picture.transform((SIZE, SIZE), Image.Transform.AFFINE, affine, Image.BILINEAR)
    return np.asarray(picture, np.float32) / 255 * random.uniform(0.5, 1)


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    labels = random.integers(0, 10, n)
    pictures = np.stack([drawn(label) for label in labels])
    return (pictures + random.normal(0, 0.1, pictures.shape)).astype(np.float32)[..., None], labels


# ---- the model ------------------------------------------------------------------------------------------------------
model = keras.Sequential(
    [
        keras.Input([SIZE, SIZE, 1]),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
EPOCHS, BATCH, PICTURES = 8, 64, 4096
schedule = keras.optimizers.schedules.CosineDecay(4e-3, EPOCHS * PICTURES // BATCH)
model.compile(
    keras.optimizers.Adam(schedule),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

# ---- training: GPU:0 is the Metal device ----------------------------------------------------------------------------
with tf.device("GPU:0"):
    pictures, labels = digits(PICTURES)
    held_out, truth = digits(1024)
    history = model.fit(
        pictures,
        labels,
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(held_out, truth),
        verbose=2,
    ).history
    found = np.argmax(model.predict(held_out, verbose=0), -1)

# ---- what it sees, and its confusions -------------------------------------------------------------------------------
right_ones = np.mean(found == truth)
wrong_first = np.argsort(found == truth, kind="stable")[:24]
figure = plt.figure(figsize=(11, 4.5), layout="constrained")
left, right = figure.subfigures(1, 2)
axes = left.subplots()
axes.plot(history["loss"], label="loss")
axes.plot(history["val_loss"], label="loss of digits not seen")
axes.plot(history["val_accuracy"], label="part of them that is right")
axes.set_xlabel("epoch")
axes.legend()
for axes, i in zip(right.subplots(4, 6).flat, wrong_first, strict=True):
    axes.imshow(held_out[i, ..., 0], cmap="gray")
    axes.set_axis_off()
    axes.set_title(
        f"{truth[i]}" if found[i] == truth[i] else f"{truth[i]}, taken for {found[i]}", size=8
    )
Path("runs").mkdir(exist_ok=True)
figure.savefig("runs/digits.png", dpi=100)

print(f"\nrecognised {100 * right_ones:.1f} % of {len(truth)} digits that it has not seen")
print("runs/digits.png shows those that it has not recognised, and others")
np.testing.assert_array_less(0.95, right_ones, "it should read digits")
