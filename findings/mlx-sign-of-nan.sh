#!/bin/bash
# The sign of NaN by MLX. Expected: NaN, as NumPy, JAX and TensorFlow have it. It is 0: an error that a NaN would show is lost.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check 'mlx[cpu]==0.32.4' numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import mlx.core as mx
import numpy as np

got = mx.sign(mx.array([float("nan")]), stream=mx.cpu).item()
print("mlx", mx.__version__)
print("expected:", np.sign(np.float32("nan")))
print("got:     ", got)
raise SystemExit(got != 0)
END
