#!/bin/bash
# np.sort of bfloat16 and float8 with a NaN in it: expected was NumPy's order for floats, the numbers sorted and NaN
# last. The dtypes compare by <, so that a NaN stays in its place and parts of the numbers stay unsorted.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ml_dtypes==0.6.0 numpy==2.4.6 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import ml_dtypes, numpy as np

values = [2, np.nan, 0, 1]
right = np.sort(np.array(values, np.float16))
got = np.sort(np.array(values, ml_dtypes.float8_e4m3fn)).astype("f4")
print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
print("expected:", right, "as of float16")
print("got:", got, "of float8_e4m3fn")
sys.exit(0 if not np.array_equal(got, right.astype("f4"), equal_nan=True) else 1)
EOF
