#!/usr/bin/env bash
# NumPy's log1p of a tiny complex number is 0, while that of the same real number is the number: 1 + x is rounded first.
# Exits with 0 while that is so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.1.3 mpmath==1.3.0
"$folder/venv/bin/python" - <<'PY'
import sys

import mpmath
import numpy as np

print("numpy", np.__version__)
z = complex(1e-17, 0)
with mpmath.workdps(60):
    right = complex(mpmath.log(1 + mpmath.mpc(z)))
got = complex(np.log1p(z))
print("expected:", right, "(mpmath), as of the real number:", np.log1p(z.real))
print("got:", got)
sys.exit(abs(got - right) < 1e-20)
PY
