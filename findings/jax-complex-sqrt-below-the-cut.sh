#!/bin/bash
# The square root of -4 - 0i by JAX. Expected: -2i, the side of the cut that the sign of zero says, as NumPy and C have it, and as
# JAX itself says of the logarithm, -pi. It is +2i.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import jax
import jax.numpy as jnp
import numpy as np

below = np.complex64(complex(-4, -0.0))
got, log = np.asarray(jnp.sqrt(below)), np.asarray(jnp.log(below))
print("jax", jax.__version__)
print("expected:", np.sqrt(below), "(the logarithm has the imaginary part", log.imag, ")")
print("got:     ", got)
raise SystemExit(not (got.imag > 0 > log.imag))
END
