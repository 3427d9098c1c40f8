#!/bin/bash
# tokenizer_config.json says "add_bos_token": true beside a tokenizer.json without a post_processor: expected was that a
# text begins with the bos_token. transformers drops the field.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 2>/dev/null
"$folder/venv/bin/python" - "$folder" <<'EOF' 2>/dev/null
import json, sys
from pathlib import Path
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

folder = Path(sys.argv[1]) / "model"
folder.mkdir()
tokenizer = Tokenizer(models.WordLevel({"?": 0, "see": 1, "this": 2}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.add_special_tokens([AddedToken("<s>")])
tokenizer.save(str(folder / "tokenizer.json"))
config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "add_bos_token": True}
(folder / "tokenizer_config.json").write_text(json.dumps(config))
got = AutoTokenizer.from_pretrained(folder)("see this").input_ids
print("transformers", transformers.__version__)
print("expected: [3, 1, 2], with <s> first")
print("got:", got)
sys.exit(0 if got == [1, 2] else 1)
EOF
