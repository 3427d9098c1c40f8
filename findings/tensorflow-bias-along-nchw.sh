#!/bin/bash
# A bias_add with data_format NCHW behind a convolution in NHWC: expected was that tf.function gives what the same
# lines give eagerly. Grappler's remapper fuses the two, and adds the bias along the last dimension.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import numpy as np, tensorflow as tf

x = np.random.default_rng(0).normal(size=(2, 4, 4, 4)).astype("f4")
w = np.random.default_rng(1).normal(size=(3, 3, 4, 4)).astype("f4")
bias = np.arange(4, dtype="f4")

def along_rows(x):
    return tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), bias, data_format="NCHW")

eager, graph = along_rows(x).numpy(), tf.function(along_rows, autograph=False)(x).numpy()
right = tf.nn.conv2d(x, w, 1, "SAME").numpy() + bias[:, None, None]
print("tensorflow", tf.__version__)
print("expected: the same to 1e-5")
print("got: eager is off by", np.abs(eager - right).max(), "and tf.function by", np.abs(graph - right).max())
sys.exit(0 if np.abs(eager - right).max() < 1e-4 and np.abs(graph - right).max() > 1 else 1)
EOF
