#!/bin/bash
# safetensors' NumPy framework and bfloat16: expected was that what it can read depends on the file alone. The same call
# on the same file fails or succeeds by whether anything in the process has imported ml_dtypes.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 numpy==2.0.2 ml_dtypes==0.6.0 2>/dev/null
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import json, struct, sys
import numpy, safetensors

header = json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
open("a.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + struct.pack("<2H", 0x3F80, 0x4000))

def read():
    try:
        return safetensors.safe_open("a.safetensors", framework="numpy").get_tensor("a").astype("f4").tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

before = read()
import ml_dtypes  # not used
after = read()
print("safetensors", safetensors.__version__, "numpy", numpy.__version__)
print("expected: the same from both calls, a sentence of the package's own or [1.0, 2.0]")
print("got:", before, "and, behind `import ml_dtypes`,", after)
sys.exit(0 if isinstance(before, str) and after == [1.0, 2.0] else 1)
EOF
