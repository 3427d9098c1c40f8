#!/usr/bin/env bash
# Keras: asking MultiHeadAttention for its scores changes its output, of a query whose mask hides every key.
# Exits with 0 while that is so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet keras==3.15.1 jax==0.6.2 numpy==2.1.3
KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'PY'
import sys

import keras
import numpy as np

print("keras", keras.__version__)
layer = keras.layers.MultiHeadAttention(2, 4)
x = np.random.default_rng(0).normal(size=(1, 4, 8)).astype("float32")
mask = np.ones((1, 4, 4), bool)
mask[0, 1] = False
alone = np.asarray(layer(x, x, attention_mask=mask))[0, 1]
with_scores = np.asarray(layer(x, x, attention_mask=mask, return_attention_scores=True)[0])[0, 1]
print("expected: the same output of query 1 both times")
print("got: without scores", alone[:4], "with scores", with_scores[:4])
sys.exit(np.allclose(alone, with_scores, atol=1e-3))
PY
