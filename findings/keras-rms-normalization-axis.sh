#!/bin/bash
# keras.layers.RMSNormalization(axis=1) of a square input: expected was that row i is multiplied by scale i, the number
# of its place along axis 1. Keras multiplies along the last axis; where the axes differ in size it is an error.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 keras==3.15.1 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import keras, numpy as np

layer = keras.layers.RMSNormalization(axis=1, epsilon=0.0)
layer.build((1, 3, 3))
layer.scale.assign(np.array([1.0, 10.0, 100.0]))
y = np.array(layer(np.ones((1, 3, 3), "f4")))[0]
print("keras", keras.__version__)
print("expected: rows of 1, 10 and 100, as axis 1 is that of the rows")
print("got:", y.tolist())
sys.exit(0 if np.array_equal(y, np.tile([1.0, 10.0, 100.0], (3, 1))) else 1)
EOF
