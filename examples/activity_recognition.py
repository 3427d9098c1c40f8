"""Activities recognised from an accelerometer by an LSTM, trained on the Metal device; writes a plot to runs/.

    .venv/bin/python examples/activity_recognition.py

A person walks, runs, climbs stairs, cycles, sits or stands, with a telephone in a pocket that turns it any way round.
The measurements are made here: three axes, 25 a second, between one and two seconds each. Needs `make metal`.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
import tensorflow as tf

import metal_ops
import metal_ops.device

matplotlib.use("Agg")
import matplotlib.pyplot as plt

metal_ops.device.load()
keras.utils.set_random_seed(0)

# ---- data -----------------------------------------------------------------------------------------------------------
# Steps a second, and how strong they are up and down, forth and back, and to the sides, in g.
ACTIVITIES = {
    "walking": (1.8, 0.30, 0.20, 0.10),
    "running": (2.8, 1.10, 0.50, 0.25),
    "climbing stairs": (1.3, 0.45, 0.10, 0.20),
    "cycling": (1.2, 0.08, 0.25, 0.25),
    "sitting": (0.25, 0.01, 0.01, 0.00),
    "standing": (0.4, 0.02, 0.02, 0.06),
}
LONGEST, RATE = 50, 25
random = np.random.default_rng(0)


def recording(activity: int) -> tuple[np.ndarray, int]:
    """Measurements [LONGEST, 3], zeros behind the last one, and how many there are."""
    frequency, *strength = list(ACTIVITIES.values())[activity]
    length = int(random.integers(RATE, LONGEST + 1))
    phase = (
        2
        * np.pi
        * (frequency * random.normal(1, 0.08) * np.arange(length) / RATE + random.random())
    )
    # A step has a sharp beginning, so that it has overtones.
    shape = np.stack([np.sin(phase) + 0.4 * np.sin(2 * phase), np.cos(phase), np.sin(phase / 2)], 1)
    moved = shape * strength * random.normal(1, 0.15) + [1.0, 0.0, 0.0]  # gravity
    angle = random.normal(0, 0.3)
    turned = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    x = np.zeros((LONGEST, 3), np.float32)
    x[:length] = moved @ turned + random.normal(0, 0.04, (length, 3))
    return x, length


def recordings(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    labels = random.integers(0, len(ACTIVITIES), n)
    made = [recording(label) for label in labels]
    lengths = np.array([length for _, length in made])
    mask = np.arange(LONGEST) < lengths[:, None]
    return [np.stack([x for x, _ in made]), mask], labels


# ---- the model: the mean of the states after the steps that there are decides ---------------------------------------
x = keras.Input([LONGEST, 3])
mask = keras.Input([LONGEST], dtype="bool")
states = metal_ops.layers.LSTM(32, return_sequences=True)(x, mask=mask)
mean = keras.layers.GlobalAveragePooling1D()(states, mask=mask)
model = keras.Model([x, mask], keras.layers.Dense(len(ACTIVITIES))(mean))
model.compile(
    keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, 12 * 32), clipnorm=0.5),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

# ---- training: GPU:0 is the Metal device ----------------------------------------------------------------------------
with tf.device("GPU:0"):
    inputs, labels = recordings(2048)
    held_out, truth = recordings(512)
    history = model.fit(
        inputs, labels, batch_size=64, epochs=12, validation_data=(held_out, truth), verbose=2
    ).history
    found = np.argmax(model.predict(held_out, verbose=0), -1)

# ---- its confusions -------------------------------------------------------------------------------------------------
confused = np.zeros((len(ACTIVITIES), len(ACTIVITIES)), int)
np.add.at(confused, (truth, found), 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
left.plot(history["loss"], label="loss")
left.plot(history["val_loss"], label="loss of recordings not seen")
left.plot(history["val_accuracy"], label="part of them that is right")
left.set_xlabel("epoch")
left.legend()
right.imshow(confused, cmap="Blues")
right.set_xticks(range(len(ACTIVITIES)), ACTIVITIES, rotation=30, ha="right")
right.set_yticks(range(len(ACTIVITIES)), ACTIVITIES)
right.set_xlabel("taken for")
for (row, column), n in np.ndenumerate(confused):
    right.text(column, row, n or "", ha="center", va="center", color="black")
Path("runs").mkdir(exist_ok=True)
figure.savefig("runs/activity_recognition.png", dpi=100)

right_ones = np.mean(found == truth)
print(f"\nrecognised {100 * right_ones:.1f} % of 512 recordings that it has not seen")
print("runs/activity_recognition.png shows what is taken for what")
assert right_ones > 0.8, "it should tell walking from sitting"
np.testing.assert_array_equal(confused.sum(), len(truth))
