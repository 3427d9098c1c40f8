"""A training loop from scratch: `tf.data`, a `tf.function` with a `GradientTape`, a script's usual questions about
the GPU."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

gpus = tf.config.list_physical_devices("GPU")
print("Num GPUs Available:", len(gpus))
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
print(tf.config.list_logical_devices("GPU"), tf.test.is_gpu_available(), tf.test.gpu_device_name())

tf.random.set_seed(8)
rng = np.random.default_rng(0)
x_train = rng.normal(size=(128, 20)).astype("float32")
y_train = (x_train[:, :1] * x_train[:, 1:2] > 0).astype("float32")
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
train_dataset = train_dataset.shuffle(128, seed=1).batch(32).prefetch(tf.data.AUTOTUNE)

model = keras.Sequential(
    [
        keras.layers.Dense(
            32, activation="tanh", kernel_initializer=keras.initializers.GlorotUniform(seed=1)
        ),
        keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=2)),
    ]
)
optimizer = keras.optimizers.Adam(1e-2)
loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
metric = keras.metrics.BinaryAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    optimizer.apply_gradients(zip(grads, model.trainable_weights, strict=True))
    metric.update_state(y, logits)
    return loss_value


losses = []
for _epoch in range(3):
    for x, y in train_dataset:
        losses.append(float(train_step(x, y)))
losses.append(float(metric.result()))
