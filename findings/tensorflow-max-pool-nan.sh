#!/bin/bash
# A window of NaN alone: expected was that max_pool gives NaN as reduce_max does, or at most drops it for a number
# beside it. TensorFlow's CPU kernel gives the lowest float32, so that a broken input looks like a number.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorflow-cpu==2.21.0 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - 2> errors <<'EOF' || { tail -n 3 errors; exit 1; }
import sys
import numpy as np, tensorflow as tf

nan = np.full((1, 2, 1), np.nan, "f4")
got, whole = tf.nn.max_pool1d(nan, 2, 2, "VALID").numpy().item(), tf.reduce_max(nan).numpy()
print("tensorflow", tf.__version__)
print("expected: nan of max_pool1d, as of reduce_max:", whole)
print("got:", got)
sys.exit(0 if got == np.finfo("f4").min and np.isnan(whole) else 1)
EOF
