"""Digits with a small convolutional network, as `keras.io/examples/vision/mnist_convnet`, of pictures made here."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
num_classes = 10
input_shape = (28, 28, 1)

rng = np.random.default_rng(0)
prototypes = rng.uniform(size=(num_classes, *input_shape))
y_train = rng.integers(0, num_classes, 256)
x_train = (prototypes[y_train] + 0.3 * rng.normal(size=(256, *input_shape))).astype("float32")
y_train = keras.utils.to_categorical(y_train, num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(16, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=32, epochs=3, validation_split=0.125, verbose=0)
score = model.evaluate(x_train, y_train, verbose=0)
losses = [*history.history["loss"], *history.history["val_loss"], score[0]]
