"""A small residual network of pictures with tf_keras, the Keras before 3, which asks for XLA in words of Keras 3."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import layers

tf.random.set_seed(2)
rng = np.random.default_rng(0)
prototypes = rng.uniform(size=(4, 16, 16, 3))
labels = rng.integers(0, 4, 96)
pictures = (prototypes[labels] + 0.2 * rng.normal(size=(96, 16, 16, 3))).astype("float32")


def glorot(seed):
    return keras.initializers.GlorotUniform(seed=seed)


inputs = keras.Input((16, 16, 3))
x = layers.Conv2D(8, 3, padding="same", kernel_initializer=glorot(1))(inputs)
x = layers.BatchNormalization()(x)
y = layers.Conv2D(8, 3, padding="same", activation="relu", kernel_initializer=glorot(2))(x)
x = layers.MaxPooling2D()(layers.add([x, y]))
x = layers.Dropout(0.2, seed=3)(layers.Flatten()(x))
outputs = layers.Dense(4, activation="softmax", kernel_initializer=glorot(4))(x)
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile="auto")
history = model.fit(pictures, labels, batch_size=32, epochs=3, shuffle=False, verbose=0)
losses = [*history.history["loss"], model.evaluate(pictures, labels, verbose=0)[0]]
