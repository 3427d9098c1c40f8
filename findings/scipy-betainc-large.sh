#!/usr/bin/env bash
# SciPy's betainc(a, a, 1/2) leaves 1/2, which it is by symmetry for every a, the more the larger a is.
# Exits with 0 while that is so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.1.3 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import sys

import scipy
from scipy.special import betainc

print("scipy", scipy.__version__)
got = {a: float(betainc(a, a, 0.5)) for a in (1e6, 1e10, 1e15)}
print("expected: 0.5 for each a, to about 1e-15")
print("got:", got)
sys.exit(abs(got[1e15] - 0.5) < 1e-3)
PY
