"""Small tokenizers as tokenizer.json and as GGUF metadata, and texts for them; `tokenizers.json` has their tokens."""

from __future__ import annotations

from typing import Any

SPACE = "\u2581"
CONTROL = ["<unk>", "<s>", "</s>"]
TEXTS = [
    "Hello hello, it's IT'S 123 12345!!\n\n  f(x).x\tend ",
    "don't WE'LL a  b\r\n\r\n \n x\u00b2\u00b3 \u0663\u0664 \u2167",
    "e\u0301 \u00e9 \u00df\u00c9 \u65e5\u672c\u8a9e hello\u3042\u30a2 \ud55c\uae00\u3001\u3002 \u01c5 1\u03b1",
    "see Section5A</s>hi <s> Section5A! hi</s> yo <0x41>",
    "a/b_c ${x}[0] <= ~`|^  $5.00+3 ...\u2026\u201cq\u201d\u200b\u00a0z \U0001f642",
    "",
    " ",
    " hi qx",
]
_WORDS = [
    " the", "Hello", " hello", "hello", "123", "12", "23", " 12", "'s", "'S", "!!", "\n\n", "  ", " \n", "\u00e9",
    " \u00e9", "\u65e5", "\u672c", "(x", ".x", " x", "...", "\r\n", "\u2026", " $", "00", "$5", "ab", "yo",
]  # fmt: skip


def letters() -> list[str]:
    """GPT-2's letters of the 256 bytes."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


LETTERS = letters()


def _merges(words: list[str]) -> list[tuple[str, str]]:
    """Merges that make each word a token, from the left."""
    found: dict[tuple[str, str], None] = {}
    for word in words:
        for end in range(1, len(word)):
            found.setdefault((word[:end], word[end]))
    return list(found)


BYTE_MERGES = _merges(["".join(LETTERS[b] for b in word.encode()) for word in _WORDS]) + [
    ("\u0120", "yo")
]
BYTE_TOKENS = list(dict.fromkeys([*LETTERS, *(a + b for a, b in BYTE_MERGES)]))
SPACE_MERGES = _merges(["hi", "yo", SPACE * 2, "hel", "lo", "\u65e5\u672c"]) + [
    (SPACE, "hi"),
    (SPACE, "yo"),
]
SPACE_TOKENS = list(
    dict.fromkeys(
        [
            *CONTROL,
            *(f"<0x{b:02X}>" for b in range(256)),
            SPACE,
            *"abcdefghijlnorstxySen0123456789.,!'\u65e5\u672c",
        ]
        + [a + b for a, b in SPACE_MERGES]
    )
)
OWN = [("<|end|>", True), ("Section5A", False)]


def added(number: int, text: str, special: bool, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    none = {name: False for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return {"id": number, "content": text, "special": special} | none | flags


def template(start: dict[str, int], finish: dict[str, int]) -> dict[str, Any]:
    """A `post_processor` with tokens around a text."""

    def of(names: dict[str, int]) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]

    text = {"Sequence": {"id": "A", "type_id": 0}}
    every = (start | finish).items()
    return {
        "type": "TemplateProcessing",
        "single": [*of(start), text, *of(finish)],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in every},
    }


def byte_level(prefix: bool, regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }


def split(regex: str, behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


def cuts(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def metaspace(scheme: str, cut: bool = False) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": cut}


def byte_pairs(**parts: Any) -> dict[str, Any]:
    """tokenizer.json over bytes: GPT-2's, with other parts."""
    n = len(BYTE_TOKENS)
    vocab = {token: i for i, token in enumerate(BYTE_TOKENS)}
    model = {"type": "BPE", "vocab": vocab, "merges": [" ".join(pair) for pair in BYTE_MERGES]}
    base = {
        "version": "1.0",
        "added_tokens": [added(n + i, *one) for i, one in enumerate(OWN)],
        "pre_tokenizer": byte_level(False, True),
        "decoder": byte_level(True, True),
        "model": model | parts.pop("model", {}),
    }
    return base | parts


def pieces(**parts: Any) -> dict[str, Any]:
    """tokenizer.json with spaces as letters and bytes for characters without a token: Llama 2's, with other parts."""
    n = len(SPACE_TOKENS)
    return {
        "version": "1.0",
        "added_tokens": [added(i, text, True) for i, text in enumerate(CONTROL)] + [added(n, "Section5A", False)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            ],
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "post_processor": template({"<s>": 1}, {}),
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
            "vocab": {t: i for i, t in enumerate(SPACE_TOKENS)}, "merges": [list(pair) for pair in SPACE_MERGES],
        },
    } | parts  # fmt: skip


_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PLAIN = byte_level(False, False)
_DIGITS = {"type": "Digits", "individual_digits": True}
_END = len(BYTE_TOKENS)
# Name: tokenizer.json, other files.
FOLDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": (byte_pairs(), {}),
    "llama3": (
        byte_pairs(pre_tokenizer=cuts(split(_LLAMA3), _PLAIN), model={"ignore_merges": True},
                   post_processor={"type": "Sequence", "processors": [_PLAIN, template({"<|end|>": _END}, {})]}), {}
    ),
    "prefix space": (byte_pairs(pre_tokenizer=byte_level(True, True)), {}),
    "digits": (byte_pairs(pre_tokenizer=cuts(_DIGITS, byte_level(False, True))), {}),
    "deepseek": (
        byte_pairs(pre_tokenizer=cuts(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                      split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), _DIGITS, _PLAIN)), {}
    ),
    "tekken": (byte_pairs(pre_tokenizer=cuts(split(_TEKKEN), _PLAIN), model={"ignore_merges": True}), {}),
    "no regex": (byte_pairs(pre_tokenizer=_PLAIN), {}),
    "NFC, lower case": (
        byte_pairs(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}), {}
    ),
    "strips": (
        byte_pairs(added_tokens=[added(_END, "<|end|>", True, lstrip=True, rstrip=True),
                                 added(_END + 1, "Section5A", False, single_word=True, normalized=True)]), {}
    ),
    "around": (byte_pairs(post_processor=template({"<|end|>": _END}, {"Section5A": _END + 1})), {}),
    "limits": (
        byte_pairs(truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
                   padding={"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                            "pad_type_id": 0, "pad_token": "!"}), {}
    ),
    "more tokens": (
        byte_pairs(), {"tokenizer_config": {"added_tokens_decoder": {
            str(_END + 1): {"content": "Section5A", "special": True},
            str(BYTE_TOKENS.index("hello")): {"content": "hello", "lstrip": True, "special": False},
            str(_END + 2): {"content": "x\u00b2", "special": False}}, "eos_token": "12"}}
    ),
    "older files": (
        byte_pairs(), {"added_tokens": {"12": BYTE_TOKENS.index("12"), "x\u00b2": _END + 2}, "special_tokens_map": {
            "eos_token": {"content": "hello", "rstrip": True}, "bos_token": "Section5A", "pad_token": "12"}}
    ),
    "names are text": (byte_pairs(), {"tokenizer_config": {"split_special_tokens": True}}),
    "legacy": (pieces(), {}),
    "first": (pieces(normalizer=None, pre_tokenizer=metaspace("first")), {}),
    "always": (pieces(normalizer=None, pre_tokenizer=metaspace("always", True)), {}),
    "never": (pieces(normalizer=None, pre_tokenizer=metaspace("never"), decoder=metaspace("never")), {}),
    "unigram": (
        pieces(normalizer=None, pre_tokenizer=metaspace("first"), decoder=metaspace("first"), model={
            "type": "Unigram", "unk_id": 0, "byte_fallback": False,
            "vocab": [[t, -float(i % 11)] for i, t in enumerate(SPACE_TOKENS)]}), {}
    ),
}  # fmt: skip


def gguf_byte_pairs(pre: str | None, **more: Any) -> dict[str, Any]:
    """Metadata with byte pairs."""
    names = [text for text, _ in OWN] + ["<s>"]
    merges = [" ".join(pair) for pair in BYTE_MERGES]
    found = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*BYTE_TOKENS, *names],
        "tokenizer.ggml.token_type": [1] * len(BYTE_TOKENS) + [3, 4, 3],
        # One that makes no token.
        "tokenizer.ggml.merges": [*merges, "q x"],
        "tokenizer.ggml.bos_token_id": len(BYTE_TOKENS) + 2,
        "tokenizer.ggml.eos_token_id": len(BYTE_TOKENS),
    }
    if pre is not None:
        found["tokenizer.ggml.pre"] = pre
    return found | {f"tokenizer.ggml.{name}": value for name, value in more.items()}


def gguf_pieces(**more: Any) -> dict[str, Any]:
    """Metadata with SentencePiece's scores, some of them equal."""
    tokens = [*SPACE_TOKENS, "Section5A", "<|im_end|>", "<|endoftext|>"]
    scores = [0.0] * 259 + [
        -float(len(t) == 1) * 100 - i % 3 for i, t in enumerate(SPACE_TOKENS[259:])
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [*scores, 0.0, 0.0, 0.0],
        "tokenizer.ggml.token_type": [2, 3, 3]
        + [6] * 256
        + [1] * (len(SPACE_TOKENS) - 259)
        + [4, 1, 1],
    } | {f"tokenizer.ggml.{name}": value for name, value in more.items()}


GGUF_PIECES = {
    "plain": gguf_pieces(),
    "no space first": gguf_pieces(add_space_prefix=False, add_bos_token=False),
    "end": gguf_pieces(add_eos_token=True, eos_token_id=5),
    # Its special tokens swallow spaces behind them.
    "phi-3": gguf_pieces() | {"general.name": "Phi-3 Mini"},
}
