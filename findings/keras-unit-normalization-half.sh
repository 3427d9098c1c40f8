#!/bin/bash
# UnitNormalization of Keras in float16, of a vector whose squares are beyond float16. Expected: a vector of length 1, as
# LayerNormalization and RMSNormalization reckon in float32 inside. It is zeros.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check keras==3.15.1 jax==0.10.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

x = np.array([[300, -300, 600, -600]], np.float16)
got = np.asarray(keras.layers.UnitNormalization(dtype="float16")(x))
rms = np.asarray(keras.layers.RMSNormalization(dtype="float16")(x))
wide = x.astype(np.float64)
print("keras", keras.__version__)
print("expected:", (wide / np.linalg.norm(wide)).round(3), "(RMSNormalization:", rms, ")")
print("got:     ", got)
raise SystemExit(bool(got.any()) or not rms.all())
END
