#!/bin/bash
# np.unique of two equal rows with a NaN: expected was one row, as equal_nan is True by default and np.unique of [NaN,
# NaN] gives one. With axis=0 the argument has no effect.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.4.6 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import numpy as np

rows = np.array([[np.nan, 1.0], [np.nan, 1.0]])
got = np.unique(rows, axis=0, equal_nan=True)
print("numpy", np.__version__)
print("expected: 1 row, as 1 of", np.unique(rows[:, 0], equal_nan=True).size, "numbers without axis")
print("got:", len(got), "rows")
sys.exit(0 if len(got) == 2 and np.unique(rows[:, 0]).size == 1 else 1)
EOF
