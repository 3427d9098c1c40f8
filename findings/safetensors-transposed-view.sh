#!/bin/bash
# A transposed NumPy array: expected was that save and load give the array back, or that save refuses one that is not
# contiguous. safetensors' NumPy writer stores the memory as it lies, under the transposed shape.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 numpy==2.0.2 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import numpy as np, safetensors
from safetensors.numpy import load, save

x = np.arange(6, dtype="f4").reshape(2, 3).T
got = load(save({"x": x}))["x"]
print("safetensors", safetensors.__version__, "numpy", np.__version__)
print("expected:", x.tolist())
print("got:", got.tolist())
sys.exit(0 if got.shape == x.shape and (got != x).any() else 1)
EOF
