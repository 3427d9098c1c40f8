#!/bin/bash
# A tokenizer.json numbers an added word 500, in a vocabulary of 3 words: expected was that the package tokenizers gives
# it the number that the file states. It gives it the next free one, 3, and stays silent.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tokenizers==0.23.3 2>/dev/null
"$folder/venv/bin/python" - <<'EOF'
import json, sys
import tokenizers

word = {"id": 500, "content": "Section5A", "special": False}
word |= {name: False for name in ("single_word", "lstrip", "rstrip", "normalized")}
file = {
    "version": "1.0",
    "added_tokens": [word],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"see": 0, "the": 1, "?": 2}, "unk_token": "?"},
}
tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
got = tokenizer.encode("see Section5A").ids
print("tokenizers", tokenizers.__version__)
print("expected: [0, 500], as the file numbers the word")
print("got:", got)
sys.exit(0 if got == [0, 3] else 1)
EOF
