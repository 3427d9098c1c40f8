"""Reviews with two bidirectional LSTMs, as `keras.io/examples/nlp/bidirectional_lstm_imdb`, of words made here."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(4)
max_features = 200
maxlen = 12

rng = np.random.default_rng(0)
x_train = rng.integers(1, max_features, (64, maxlen))
y_train = (x_train < 20).any(axis=1).astype("float32")

inputs = keras.Input(shape=(None,), dtype="int32")
x = layers.Embedding(max_features, 16)(inputs)
x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
x = layers.Bidirectional(layers.LSTM(8))(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=32, epochs=2, verbose=0)
losses = history.history["loss"]
