#!/bin/bash
# The mean of int4 numbers: expected was 7 of [7, 7], as NumPy adds small integers in the machine's own and means in
# float64. The dtype is not NumPy's, so the sum stays in int4 and wraps: the mean of two sevens is -1.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ml_dtypes==0.6.0 numpy==2.4.6 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import ml_dtypes, numpy as np

sevens = np.array([7, 7], ml_dtypes.int4)
got, total = sevens.mean(), sevens.sum()
print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
print("expected: mean 7.0 and sum 14, as of int8:", np.array([7, 7], np.int8).mean(), np.array([7, 7], np.int8).sum())
print("got: mean", got, "and sum", total)
sys.exit(0 if int(got) == -1 and int(total) == -2 else 1)
EOF
