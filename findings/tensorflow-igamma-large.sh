#!/bin/bash
# The regularised incomplete gamma function P(a, a), which falls to 1/2 as a grows: expected were three digits in
# float32 and ten in float64. TensorFlow's CPU kernel gives a probability above 1, and is wrong by half in float64,
# too.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import numpy as np, tensorflow as tf

one = tf.math.igamma(np.float32(1e6), np.float32(1e6)).numpy()
two = tf.math.igamma(np.float64(1e7), np.float64(1e7)).numpy()
print("tensorflow", tf.__version__)
print("expected: 0.50013 of float32 1e6, 0.5000420 of float64 1e7 (1/2 + 1 / (3 sqrt(2 pi a)))")
print("got:", one, "and", two)
sys.exit(0 if one > 1 and two < 0.4 else 1)
EOF
