#!/bin/bash
# The sum of 2^25 ones in float32 on MLX's CPU. Expected: 33554432, as NumPy adds in pairs and reductions in parts keep the
# error small. It is 16777216: from there on a running sum in float32 does not change by 1.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check 'mlx[cpu]==0.32.4' numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import mlx.core as mx
import numpy as np

ones = np.ones(2**25, np.float32)
got = mx.sum(mx.array(ones), stream=mx.cpu).item()
print("mlx", mx.__version__)
print("expected:", np.sum(ones))
print("got:     ", got)
raise SystemExit(got != 2**24)
END
