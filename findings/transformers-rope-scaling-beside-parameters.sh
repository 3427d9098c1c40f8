#!/bin/bash
# A config.json with the new rope_parameters and, for older readers, the old rope_scaling beside it: expected was that
# the new object counts, or that both are merged, as they agree. transformers drops rope_parameters with its theta.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 2>/dev/null
"$folder/venv/bin/python" - <<'EOF'
import os, sys
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers
from transformers import LlamaConfig

scaling = {"rope_type": "linear", "factor": 2.0}
both = LlamaConfig.from_dict(
    {"model_type": "llama", "rope_parameters": {"rope_theta": 500000.0, **scaling}, "rope_scaling": dict(scaling)}
)
alone = LlamaConfig.from_dict({"model_type": "llama", "rope_parameters": {"rope_theta": 500000.0, **scaling}})
print("transformers", transformers.__version__)
print("rope_parameters alone:", alone.rope_parameters)
print("expected: rope_theta 500000.0 also where rope_scaling with the same type and factor stands beside it")
got = both.rope_parameters["rope_theta"]
print("got: rope_theta", got)
assert alone.rope_parameters["rope_theta"] == 500000.0
sys.exit(0 if got == 10000.0 else 1)
EOF
