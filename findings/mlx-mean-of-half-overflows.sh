#!/bin/bash
# The mean of float16 values whose sum is beyond float16, by MLX on the CPU. Expected: 60000, as NumPy and JAX, which add in
# float32, say. It is infinite.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check 'mlx[cpu]==0.32.4' numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import mlx.core as mx
import numpy as np

values = np.full(2, 60000, np.float16)
got = mx.mean(mx.array(values), stream=mx.cpu).item()
print("mlx", mx.__version__)
print("expected:", np.mean(values))
print("got:     ", got)
raise SystemExit(not np.isinf(got))
END
