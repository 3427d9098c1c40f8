#!/bin/bash
# Attention with a mask that hides every key, once as booleans and once as -inf to be added: expected was one result,
# NaN, as the two mean the same. MLX gives the mean of the values for booleans, and NaN for -inf.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "mlx[cpu]==0.32.4" numpy==2.4.6 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import mlx.core as mx, numpy as np

key, value = mx.ones((1, 1, 2, 4)), mx.arange(8.0).reshape(1, 1, 2, 4)
query = mx.ones((1, 1, 1, 4))

def attend(mask):
    return np.array(mx.fast.scaled_dot_product_attention(query, key, value, scale=0.5, mask=mask)).ravel()

booleans = attend(mx.zeros((1, 1, 1, 2), dtype=mx.bool_))
added = attend(mx.full((1, 1, 1, 2), -float("inf")))
print("mlx", mx.__version__)
print("expected: nan of both masks")
print("got:", booleans, "of booleans,", added, "of -inf")
sys.exit(0 if np.isfinite(booleans).all() and np.isnan(added).all() else 1)
EOF
