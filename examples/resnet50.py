"""A ResNet-50 for pictures of 32x32, trained on the Metal device, and the ops of it that are fused; writes a plot to
runs/.

    .venv/bin/python examples/resnet50.py                 a quarter of the channels: seconds
    .venv/bin/python examples/resnet50.py --width 64      all of them

The pictures are made here: ten patterns, of any two colours, in any place and size.
Needs `make metal`.
"""

import argparse
import os
import time
from collections import Counter
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

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=16, help="channels of the first blocks")
parser.add_argument("--steps", type=int, default=80)
arguments = parser.parse_args()

metal_ops.device.load()
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
SIZE, BATCH = 32, 32

# ---- data -----------------------------------------------------------------------------------------------------------
# Each is a function of a place, of which a period is about 2 pi.
PATTERNS = {
    "level": lambda x, y: np.sin(y),
    "upright": lambda x, y: np.sin(x),
    "rising": lambda x, y: np.sin((x + y) / 1.4),
    "falling": lambda x, y: np.sin((x - y) / 1.4),
    "checks": lambda x, y: np.sign(np.sin(x) * np.sin(y)),
    "dots": lambda x, y: np.cos(x) + np.cos(y) - 1,
    "rings": lambda x, y: np.sin(np.hypot(x, y)),
    "rays": lambda x, y: np.sin(8 * np.arctan2(y, x)),
    "waves": lambda x, y: np.sin(y + 2 * np.sin(x / 2)),
    "plain": lambda x, y: 0 * x,
}


def picture(kind: int) -> np.ndarray:
    """[32, 32, 3] of values around 0 to 1: a pattern between two colours, with noise."""
    middle = random.uniform(8, 24, 2)[:, None, None]
    y, x = (np.mgrid[0:SIZE, 0:SIZE] - middle) * random.uniform(0.7, 1.1)
    wave = 0.5 + 0.5 * list(PATTERNS.values())[kind](x, y)[..., None]
    dark, bright = random.uniform(0, 0.4, 3), random.uniform(0.6, 1, 3)
    return dark + (bright - dark) * wave + random.normal(0, 0.05, (SIZE, SIZE, 3))


def pictures(n: int) -> tuple[np.ndarray, np.ndarray]:
    kinds = random.integers(0, len(PATTERNS), n)
    return np.stack([picture(kind) for kind in kinds]).astype(np.float32), kinds


# ---- the model: He et al. 2016; blocks begin as the identity, so that so deep a network learns at once --------
def convolution(x, channels: int, size: int, strides: int = 1, scale: str = "ones"):
    x = keras.layers.Conv2D(channels, size, strides, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization(momentum=0.9, gamma_initializer=scale)(x)


def block(x, channels: int, strides: int):
    skip = x
    x = keras.layers.ReLU()(convolution(x, channels, 1))
    x = keras.layers.ReLU()(convolution(x, channels, 3, strides))
    x = convolution(x, 4 * channels, 1, scale="zeros")
    if strides != 1 or skip.shape[-1] != 4 * channels:
        skip = convolution(skip, 4 * channels, 1, strides)
    return keras.layers.ReLU()(keras.layers.Add()([x, skip]))


x = image = keras.Input([SIZE, SIZE, 3])
x = keras.layers.ReLU()(convolution(x, arguments.width, 3, strides=2))
x = keras.layers.MaxPooling2D(3, 2, padding="same")(x)
for stage, blocks in enumerate((3, 4, 6, 3)):
    for i in range(blocks):
        x = block(x, arguments.width << stage, strides=2 if stage and not i else 1)
outputs = keras.layers.Dense(len(PATTERNS))(keras.layers.GlobalAveragePooling2D()(x))
model = keras.Model(image, outputs)
convolutions = sum(isinstance(layer, keras.layers.Conv2D) for layer in model.layers)
print(f"{convolutions} convolutions, {model.count_params():,} parameters")

# ---- training: GPU:0 is the Metal device ----------------------------------------------------------------------------
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
schedule = keras.optimizers.schedules.CosineDecay(2e-3, arguments.steps)
model.compile(metal_ops.optimizers.Adam(schedule), loss, metrics=["accuracy"])
losses = []
with tf.device("GPU:0"):
    seen, kinds = pictures(BATCH * arguments.steps)
    held_out, truth = pictures(256)
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(logs["loss"])
    )
    began = time.perf_counter()
    model.fit(seen, kinds, batch_size=BATCH, verbose=2, shuffle=False, callbacks=[keep])
    seconds = time.perf_counter() - began

    # ---- what is fused: a convolution with its batch norm, and in residual blocks with what is added and the ReLU ----
    recognise = tf.function(lambda pictures: model(pictures, training=False))
    fused = metal_ops.fusion.explain(recognise, held_out).fused
    found = np.argmax(recognise(held_out), -1)
    with metal_ops.fusion.disabled():
        unfused = tf.function(lambda pictures: model(pictures, training=False))(held_out)
    np.testing.assert_allclose(recognise(held_out), unfused, atol=1e-3 * np.abs(unfused).max())

kinds_of_chains = Counter(" + ".join(("Conv2D", *chain.fused_ops)) for chain in fused)
right_ones = np.mean(found == truth)
figure = plt.figure(figsize=(11, 4.5), layout="constrained")
left, right = figure.subfigures(1, 2)
axes = left.subplots()
axes.plot(losses)
axes.set_xlabel("step")
axes.set_ylabel("mean loss so far")
axes.set_title("\n".join(f"{n} x {chain}" for chain, n in kinds_of_chains.most_common()), size=9)
names = list(PATTERNS)
for axes, i in zip(right.subplots(4, 6).flat, range(24), strict=True):
    axes.imshow(held_out[i].clip(0, 1))
    axes.set_axis_off()
    axes.set_title(names[found[i]], size=8, color="black" if found[i] == truth[i] else "red")
Path("runs").mkdir(exist_ok=True)
figure.savefig("runs/resnet50.png", dpi=100)

print(f"\n{arguments.steps} steps of {BATCH} pictures in {seconds:.0f} s")
for chain, n in kinds_of_chains.most_common():
    print(f"{n} fused ops of {chain}")
print(f"recognised {100 * right_ones:.1f} % of {len(truth)} pictures that it has not seen")
print("runs/resnet50.png shows the loss, and what it takes pictures for")
assert kinds_of_chains["Conv2D + BatchNorm + Add + Relu"] == 16, "every block should be fused"
assert right_ones > 0.8, "it should tell rings from dots"
