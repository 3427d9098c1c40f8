#!/bin/bash
# LayerNorm of flax.nnx over 10000 to 10007 in float32. Expected: what float64 gives, from -1.53 to 1.53; a rounding of 1e-3 at
# most. Its default is the variance as a difference of two sums, which is 0 here: it gives -3500 to 3500.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jax==0.10.2 flax==0.12.8 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import flax
import jax.numpy as jnp
import numpy as np
from flax import nnx

x = 10000 + np.arange(8, dtype=np.float32)[None]
exact = (x - x.mean(dtype="f8")) / np.sqrt(x.var(dtype="f8") + 1e-6)
got = np.asarray(nnx.LayerNorm(8, rngs=nnx.Rngs(0))(jnp.asarray(x)))
slow = np.asarray(nnx.LayerNorm(8, use_fast_variance=False, rngs=nnx.Rngs(0))(jnp.asarray(x)))
print("flax", flax.__version__)
print("expected:", exact[0].round(2), "(with use_fast_variance=False:", slow[0].round(2), ")")
print("got:     ", got[0])
raise SystemExit(not (abs(got).max() > 1000 and np.allclose(slow, exact, atol=1e-2)))
END
