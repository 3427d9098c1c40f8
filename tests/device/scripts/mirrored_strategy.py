"""`tf.distribute.MirroredStrategy`, as `tensorflow.org/tutorials/distribute/keras`, on as many GPUs as there are."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(10)
strategy = tf.distribute.MirroredStrategy()
print("Number of devices:", strategy.num_replicas_in_sync)

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8, 8, 1)).astype("float32")
y = rng.integers(0, 3, 64)
train_dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16 * strategy.num_replicas_in_sync)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )
history = model.fit(train_dataset, epochs=2, verbose=0)
losses = history.history["loss"]
