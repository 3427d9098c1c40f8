"""A small U-Net that finds discs in pictures, as `keras.io/examples/vision/oxford_pets_image_segmentation`."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)
rows, columns = np.mgrid[:32, :32]
centers = rng.uniform(8, 24, (16, 2, 1, 1))
masks = ((rows - centers[:, 0]) ** 2 + (columns - centers[:, 1]) ** 2 < 36).astype("uint8")
pictures = (masks[..., None] + 0.4 * rng.normal(size=(16, 32, 32, 3))).astype("float32")

inputs = keras.Input(shape=(32, 32, 3))
x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
x = layers.BatchNormalization()(x)
x = layers.Activation("relu")(x)
previous_block_activation = x
for filters in [16, 32]:
    x = layers.Activation("relu")(x)
    x = layers.SeparableConv2D(filters, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    residual = layers.Conv2D(filters, 1, strides=2, padding="same")(previous_block_activation)
    x = layers.add([x, residual])
    previous_block_activation = x
for filters in [32, 16, 8]:
    x = layers.Activation("relu")(x)
    x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.UpSampling2D(2)(x)
    residual = layers.UpSampling2D(2)(previous_block_activation)
    residual = layers.Conv2D(filters, 1, padding="same")(residual)
    x = layers.add([x, residual])
    previous_block_activation = x
outputs = layers.Conv2D(2, 3, activation="softmax", padding="same")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy")
history = model.fit(pictures, masks, batch_size=8, epochs=2, verbose=0)
losses = history.history["loss"]
