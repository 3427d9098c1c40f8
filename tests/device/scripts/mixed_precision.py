"""Mixed precision, as `tensorflow.org/guide/mixed_precision`: float16 layers, float32 variables, scaled losses."""

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

keras.utils.set_random_seed(9)
mixed_precision.set_global_policy("mixed_float16")
rng = np.random.default_rng(0)
x_train = rng.normal(size=(128, 64)).astype("float32")
y_train = rng.integers(0, 10, 128)

inputs = keras.Input(shape=(64,), name="digits")
x = layers.Dense(32, activation="relu", name="dense_1")(inputs)
x = layers.Dense(32, activation="relu", name="dense_2")(x)
x = layers.Dense(10, name="dense_logits")(x)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(x)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile(
    loss="sparse_categorical_crossentropy",
    optimizer=keras.optimizers.RMSprop(),
    metrics=["accuracy"],
)
history = model.fit(x_train, y_train, batch_size=64, epochs=3, verbose=0)
losses = history.history["loss"]
mixed_precision.set_global_policy("float32")
