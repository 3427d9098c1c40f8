#!/bin/bash
# A query whose attention_mask hides every key: expected was one result, whether scores are asked for or not. Keras
# gives the mean of the values by one path and zeros by the other.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 keras==3.15.1 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import keras, numpy as np

x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("f4")
layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
hidden = np.zeros((1, 3, 3), bool)
alone = np.array(layer(x, x, attention_mask=hidden))
beside, scores = (np.array(y) for y in layer(x, x, attention_mask=hidden, return_attention_scores=True))
print("keras", keras.__version__)
print("expected: the same output with and without return_attention_scores")
print("got:", alone[0, 0, :3], "alone,", beside[0, 0, :3], "beside scores of", scores[0, 0, 0])
sys.exit(0 if np.abs(alone).max() > 0.01 and not beside.any() else 1)
EOF
