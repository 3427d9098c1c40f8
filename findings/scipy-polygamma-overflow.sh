#!/usr/bin/env bash
# SciPy's polygamma(171, 60) is infinite: the factorial overflows before zeta's tiny value is multiplied with it.
# Exits with 0 while that is so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.1.3 scipy==1.15.3 mpmath==1.3.0
"$folder/venv/bin/python" - <<'PY'
import sys

import mpmath
import scipy
from scipy.special import polygamma

print("scipy", scipy.__version__)
right = mpmath.psi(171, 60)
got = float(polygamma(171, 60.0))
print("expected:", mpmath.nstr(right, 12), "(mpmath), and", mpmath.nstr(mpmath.psi(180, 200), 6), "of (180, 200)")
print("got:", got, "and", float(polygamma(180, 200.0)))
sys.exit(abs(got - float(right)) < 1)
PY
