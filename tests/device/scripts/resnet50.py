"""ResNet-50 from `keras.applications` on pictures of 32x32."""

import keras
import numpy as np

keras.utils.set_random_seed(2)
rng = np.random.default_rng(0)
pictures = rng.uniform(size=(8, 32, 32, 3)).astype("float32")
labels = rng.integers(0, 10, 8)

model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
model.compile(
    optimizer=keras.optimizers.SGD(1e-7, momentum=0.9), loss="sparse_categorical_crossentropy"
)
history = model.fit(pictures, labels, batch_size=8, epochs=2, verbose=0)
losses = history.history["loss"]
