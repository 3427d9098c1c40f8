#!/bin/bash
# YaRN's `truncate: false` in the rope_parameters of a layer type, where Gemma 3 has them: expected was that it changes
# that type's frequencies, as it does in a model with one kind of layers. transformers looks for it beside the types.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.23.0 2>/dev/null || exit 2
"$folder/venv/bin/python" - <<'EOF'
import os, sys
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers
from transformers import Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

def yarn(truncate):
    return {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
        "truncate": truncate,
    }

def of_one_kind(truncate):
    config = LlamaConfig(head_dim=32, max_position_embeddings=256, rope_parameters=yarn(truncate))
    return ROPE_INIT_FUNCTIONS["yarn"](config)[0]

def of_layers(truncate):
    types = {"full_attention": yarn(truncate), "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    config = Gemma3TextConfig(head_dim=32, max_position_embeddings=256, rope_parameters=types)
    return ROPE_INIT_FUNCTIONS["yarn"](config, layer_type="full_attention")[0]

one, layers = ((make(True) - make(False)).abs().max().item() for make in (of_one_kind, of_layers))
print("transformers", transformers.__version__)
print("expected: 'truncate' changes frequencies of full_attention, too; without layer types by", round(one, 5))
print("got: of full_attention it changes them by", layers)
sys.exit(0 if one > 1e-5 and layers == 0 else 1)
EOF
