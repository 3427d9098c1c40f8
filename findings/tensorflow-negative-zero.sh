#!/bin/bash
# Two scalar constants, -0.0 and then 0.0: expected was that each tensor has the value that it was made of, so that 1
# / 0.0 is inf. TensorFlow keeps eager scalars by Python's equality, and the second constant is the first one.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import tensorflow as tf

minus, plus = tf.constant(-0.0), tf.constant(0.0)
got = (1 / plus).numpy()
print("tensorflow", tf.__version__)
print("expected: 1 / tf.constant(0.0) = inf, whatever was made before")
print("got:", got, "behind tf.constant(-0.0)")
sys.exit(0 if got == -float("inf") else 1)
EOF
