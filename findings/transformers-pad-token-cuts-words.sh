#!/bin/bash
# A tokenizer.json has a padding section with the pad_token "!", and padding is never asked for: expected was that it does
# not change the tokens of a text. transformers makes "!" a special token, and "!!", one token of the vocabulary, is cut.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 2>/dev/null
"$folder/venv/bin/python" - "$folder" <<'EOF' 2>/dev/null
import sys
from pathlib import Path
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

file = str(Path(sys.argv[1]) / "tokenizer.json")
tokenizer = Tokenizer(models.BPE({"!": 0, "a": 1, "!!": 2}, [("!", "!")]))
tokenizer.enable_padding(pad_id=0, pad_token="!")
tokenizer.save(file)
before = Tokenizer.from_file(file)
before.no_padding()
right = before.encode("a!!").ids
got = PreTrainedTokenizerFast(tokenizer_file=file)("a!!").input_ids
print("transformers", transformers.__version__)
print("expected:", right, "as without padding")
print("got:", got)
sys.exit(0 if right == [1, 2] and got == [1, 0, 0] else 1)
EOF
