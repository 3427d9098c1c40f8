#!/bin/bash
# attn_logit_softcapping of Gemma 3, which its configuration describes as the cap of attention scores: expected was that
# a cap of 0.5 changes the logits, as final_logit_softcapping does. transformers stores the field and never applies it.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.23.0 2>/dev/null
"$folder/venv/bin/python" - <<'EOF'
import os, sys
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch, transformers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

def logits(**caps):
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, initializer_range=0.8, attn_implementation="eager", **caps
    )
    with torch.no_grad():
        return Gemma3ForCausalLM(config).eval()(torch.arange(20)[None]).logits

plain = logits()
final = (logits(final_logit_softcapping=0.5) - plain).abs().max().item()
attention = (logits(attn_logit_softcapping=0.5) - plain).abs().max().item()
print("transformers", transformers.__version__)
print("expected: both caps of 0.5 change the logits, the final one by", round(final, 3))
print("got: attn_logit_softcapping changes them by", attention)
sys.exit(0 if final > 0.1 and attention == 0 else 1)
EOF
