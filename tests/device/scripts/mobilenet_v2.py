"""MobileNetV2 from `keras.applications` with flipped and turned pictures in front, RMSprop."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(3)
rng = np.random.default_rng(0)
pictures = rng.uniform(0, 255, size=(8, 32, 32, 3)).astype("float32")
labels = rng.integers(0, 5, 8)

base = keras.applications.MobileNetV2(
    weights=None, input_shape=(32, 32, 3), alpha=0.35, include_top=False
)
inputs = keras.Input((32, 32, 3))
x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
x = base(x)
x = layers.GlobalAveragePooling2D()(x)
x = layers.Dropout(0.2)(x)
outputs = layers.Dense(5, activation="softmax")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.RMSprop(1e-6), loss="sparse_categorical_crossentropy")
history = model.fit(pictures, labels, batch_size=8, epochs=2, verbose=0)
losses = history.history["loss"]
