"""Tokenizers of folders and of GGUF metadata: tokens as their own tools make them, text as it comes, refusals."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from metal_ops.lm import folder_tokenizer
from metal_ops.lm.pre_tokenizers import CUTS
from metal_ops.lm.tokenizers import Bytes, Tokenizer, tokenizer_of_folder, tokenizer_of_gguf
from metal_ops.lm.weights import WeightsError
from tests.lm.tokens import (
    BYTE_TOKENS,
    FOLDERS,
    GGUF_PIECES,
    SPACE_TOKENS,
    TEXTS,
    added,
    byte_pairs,
    gguf_byte_pairs,
    gguf_pieces,
    metaspace,
    pieces,
    split,
    template,
)

# Made by the tools that it names; none of them is installed here.
RIGHT = json.loads((Path(__file__).parent / "tokenizers.json").read_text(encoding="utf-8"))
BY_PRE = {pre: one["ids"] for one in RIGHT["gguf"] + RIGHT["gguf, newer"] for pre in one["pre"]}
END, OWN, BOS = len(BYTE_TOKENS), len(BYTE_TOKENS) + 1, len(BYTE_TOKENS) + 2


def folder(path: Path, tokenizer: Any, **files: Any) -> Path:
    """A folder with tokenizer.json and other files."""
    path.mkdir(exist_ok=True)
    for name, value in {"tokenizer": tokenizer, **files}.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (path / f"{name}.json").write_text(text, encoding="utf-8")
    return path


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.start + tokenizer.encode(text.encode(), True) + tokenizer.finish


def streamed(tokenizer: Tokenizer, before: list[int], tokens: list[int]) -> str:
    stream = tokenizer.stream(before)
    return (b"".join(map(stream.step, tokens)) + stream.end()).decode()


# ---- as their own tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre", ["", *CUTS])
def test_words_of_gguf(pre):
    tokenizer = tokenizer_of_gguf(gguf_byte_pairs(pre or None))
    assert [whole(tokenizer, text) for text in TEXTS] == BY_PRE[pre]


def test_the_cases_differ():
    """Else the wrong words would not be seen."""
    found = {json.dumps(ids) for ids in BY_PRE.values()}
    assert len(found) > 18 and BY_PRE.keys() == {"", *CUTS}


@pytest.mark.parametrize("name", GGUF_PIECES)
def test_pieces_of_gguf(name):
    tokenizer = tokenizer_of_gguf(GGUF_PIECES[name])
    assert [whole(tokenizer, text) for text in TEXTS] == RIGHT["pieces"][name]["ids"]
    assert sorted(tokenizer.ends) == RIGHT["pieces"][name]["ends"]


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name, tmp_path):
    described, files = FOLDERS[name]
    tokenizer = tokenizer_of_folder(folder(tmp_path / "a", described, **files))
    right = RIGHT["folders"][name]
    assert [whole(tokenizer, text) for text in TEXTS] == right["ids"]
    assert [streamed(tokenizer, [], ids) for ids in right["ids"]] == right["texts"]


@pytest.mark.parametrize(
    "name, tokenizer, text, right",
    [
        ("legacy", pieces(), "hi</s>hi", ["hi", "</s>", "\u2581hi"]),
        ("first", FOLDERS["first"][0], "hi</s>hi", ["hi", "</s>", "hi"]),
        ("always", FOLDERS["always"][0], "hi yo</s>hi", ["hi", "\u2581yo", "</s>", "\u2581hi"]),
        ("never", FOLDERS["never"][0], "hi", ["hi"]),
        ("prefix space", FOLDERS["prefix space"][0], "yo yo<|end|>yo", ["yo", "\u0120yo", "<|end|>", "\u0120yo"]),
    ],
)  # fmt: skip
def test_a_text_that_goes_on(name, tokenizer, text, right, tmp_path):
    """No space before it, as it is not the beginning; behind a special token the file's rule holds."""
    loaded = tokenizer_of_folder(folder(tmp_path / "a", tokenizer))
    assert [loaded.tokens[i] for i in loaded.encode(text.encode(), False)] == right


# ---- text as it comes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokenizer",
    [byte_pairs(), pieces(), pieces(decoder=metaspace("first")), pieces(decoder=None)],
    ids=["bytes", "fallback", "metaspace", "none"],
)
def test_streams_are_what_the_whole_is(tokenizer, tmp_path):
    """Characters whose bytes are several tokens, halves of such, special tokens between them."""
    from tokenizers import Tokenizer as Library

    path = folder(tmp_path / "a", tokenizer)
    ours, library = tokenizer_of_folder(path), Library.from_file(str(path / "tokenizer.json"))
    n, draw, seen = library.get_vocab_size(), random.Random(1), 0
    euro = ours.encode("\u20ac".encode(), False)
    for _ in range(150):
        length = draw.choice([3, 30, 300])
        tokens = [draw.choice([*euro, draw.randrange(n), n - 1, 0, 1]) for _ in range(length)]
        cut = draw.randrange(length)
        before, every = (library.decode(some) for some in (tokens[:cut], tokens))
        if every.startswith(before):
            seen += 1
            assert streamed(ours, tokens[:cut], tokens[cut:]) == every[len(before) :]
    assert seen > 50


def test_a_token_alone(tmp_path):
    """Bytes of a character one by one, added words, nothing for special tokens."""
    for tokenizer in (
        tokenizer_of_folder(folder(tmp_path / "a", byte_pairs())),
        tokenizer_of_folder(folder(tmp_path / "b", pieces())),
        tokenizer_of_gguf(gguf_byte_pairs("llama-bpe")),
        tokenizer_of_gguf(gguf_pieces()),
    ):
        text = "see: \u00e4 \u20ac\n".encode()
        # Bytes that are no UTF-8 are tokens of their own.
        for part in (text, b"Section5A", b"\xff\x00 z", b"\xe2\x82", text + b"\xfe" + text):
            tokens = tokenizer.encode(part, False)
            assert b"".join(map(tokenizer.decode, tokens)) == part
        special = tokenizer.tokens.index("<s>") if "<s>" in tokenizer.tokens else END
        assert tokenizer.decode(special) == b""
    assert Bytes().stream([]).step(65) == b"A"


def test_gguf_types():
    """The printed tokens: user-defined words, bytes; not control, unknown and unused ones."""
    metadata = gguf_pieces(
        token_type=[2, 3, 3] + [6] * 256 + [1] * (len(SPACE_TOKENS) - 261) + [5, 1, 4, 1, 1]
    )
    tokenizer = tokenizer_of_gguf(metadata)
    shown = [tokenizer.decode(i) for i in (0, 1, 3, 258, len(SPACE_TOKENS) - 2, len(SPACE_TOKENS))]
    assert shown == [b"", b"", b"\x00", b"\xff", b"", b"Section5A"]
    assert tokenizer.decode(len(SPACE_TOKENS) + 1) == b""  # <|im_end|>, whatever its type


# ---- beginnings and ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pre, more, start",
    [
        ("llama-bpe", {}, [BOS]),
        ("tekken", {}, [BOS]),
        ("chameleon", {}, [BOS]),
        ("gpt-2", {}, []),
        (None, {}, []),
        ("qwen2", {}, []),
        ("llama-bpe", {"add_bos_token": False}, []),
        ("gpt-2", {"add_bos_token": True}, [BOS]),
        # llama.cpp's default.
        ("gpt-2", {"add_bos_token": True, "bos_token_id": None}, [11]),
    ],
)
def test_starts_of_gguf(pre, more, start):
    metadata = {k: v for k, v in gguf_byte_pairs(pre, **more).items() if v is not None}
    assert tokenizer_of_gguf(metadata).start == start


@pytest.mark.parametrize(
    "processor, settings, start",
    [
        (None, {}, []),
        (None, {"add_bos_token": True, "bos_token": "<|end|>"}, [END]),
        (None, {"add_bos_token": True, "bos_token": {"content": "<|end|>"}}, [END]),
        (None, {"add_bos_token": True}, []),
        (template({"<|end|>": END}, {}), {}, [END]),
        (template({"<|end|>": END}, {}), {"add_bos_token": True, "bos_token": "Section5A"}, [END]),
        (template({"<|end|>": END}, {}), {"add_bos_token": False}, []),
        (template({"<|end|>": END}, {}), {"add_eos_token": False}, [END]),
    ],
)  # fmt: skip
def test_starts_of_folders(processor, settings, start, tmp_path):
    path = folder(
        tmp_path / "a", byte_pairs(post_processor=processor), tokenizer_config=settings, config={"bos_token_id": 5}
    )  # fmt: skip
    assert tokenizer_of_folder(path).start == start


@pytest.mark.parametrize(
    "config, generation, ends",
    [
        (None, None, set()),
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": [2, 3]}, None, {2, 3}),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 8]}, {7, 8}),
        ({"eos_token_id": 2}, {"temperature": 1}, {2}),
        ({"text_config": {"eos_token_id": 4}}, None, {4}),
    ],
)
def test_ends_of_folders(config, generation, ends, tmp_path):
    files = {"config": config, "generation_config": generation}
    given = {name: value for name, value in files.items() if value is not None}
    assert tokenizer_of_folder(folder(tmp_path / "a", byte_pairs(), **given)).ends == ends


@pytest.mark.parametrize(
    "names, more, ends",
    [
        (["<|eot_id|>", "<|eom_id|>", "<x>"], {}, [END, BOS + 1, BOS + 2]),
        (["<end_of_turn>", "<|im_end|>", "<|endoftext|>"], {}, [END, BOS + 1, BOS + 2, BOS + 3]),
        (["<x>", "<y>", "<z>"], {"eot_token_id": BOS + 1, "eom_token_id": BOS + 2}, [END, BOS + 1, BOS + 2]),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"], {}, [END, BOS + 1, BOS + 2, BOS + 3]),
        (["<|fim_pad|>", "<x>"], {"fim_pad_token_id": BOS + 2}, [END, BOS + 2]),
        (["<|end|>x", "<|return|>", "<|call|>"], {}, [END, BOS + 2, BOS + 3]),
    ],
)  # fmt: skip
def test_ends_of_gguf(names, more, ends):
    """By number and by name; such names are not printed, whatever their type."""
    metadata = gguf_byte_pairs("gpt-2", **more)
    metadata["tokenizer.ggml.tokens"] = [*BYTE_TOKENS, "</s>", "Section5A", "<s>", *names]
    metadata["tokenizer.ggml.token_type"] = [1] * (len(BYTE_TOKENS) + 3 + len(names))
    tokenizer = tokenizer_of_gguf(metadata)
    assert sorted(tokenizer.ends) == ends
    named = [i for i in ends if tokenizer.tokens[i] not in ("<x>", "<y>", "<z>")]
    assert {tokenizer.decode(i) for i in named} == {b""}


def test_an_end_that_is_none():
    """Where answers have parts, the end of a part ends no text, and is printed."""
    metadata = gguf_byte_pairs("gpt-2")
    metadata["tokenizer.ggml.tokens"] = [*BYTE_TOKENS, "<|end|>", "<|return|>", "<|call|>"]
    metadata["tokenizer.ggml.eos_token_id"] = OWN
    tokenizer = tokenizer_of_gguf(metadata)
    assert sorted(tokenizer.ends) == [OWN, BOS] and tokenizer.decode(END) == b"<|end|>"


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model": "plamo2"}, "'tokenizer.ggml.model' is 'plamo2', expected 'llama' or 'gpt2'"),
        ({"pre": "tiny_aya"}, "'tokenizer.ggml.pre' is 'tiny_aya', and words of that model are not cut"),
        ({"pre": 3}, "'tokenizer.ggml.pre' is 3"),
        ({"tokens": [1, 2]}, "'tokenizer.ggml.tokens' must be a list of texts"),
        ({"tokens": [*BYTE_TOKENS, "a", "a", "b"]}, "'tokenizer.ggml.tokens' has 'a' twice"),
        ({"token_type": [1, 2]}, "'tokenizer.ggml.token_type' must be a number a token"),
        ({"merges": ["a b c"]}, "a merge must be two pieces, got 'a b c'"),
        ({"merges": None}, "'tokenizer.ggml.merges' must be a list of texts, got None"),
        ({"bos_token_id": 100000}, f"'tokenizer.ggml.bos_token_id' is 100000, and there are {BOS + 1} tokens"),
        ({"eot_token_id": True}, "'tokenizer.ggml.eot_token_id' is True"),
        ({"add_bos_token": 1}, "'tokenizer.ggml.add_bos_token' must be true or false, got 1"),
        ({"pre": "glm4", "add_bos_token": True, "bos_token_id": None}, "'tokenizer.ggml.bos_token_id' names, and it"),
        ({"model": "llama"}, "'tokenizer.ggml.scores' must be a number a token"),
        ({"model": "llama", "scores": ["a"] * (BOS + 1)}, "'tokenizer.ggml.scores' must be a number a token"),
    ],
)  # fmt: skip
def test_gguf_that_is_refused(changes, words):
    metadata = gguf_byte_pairs("gpt-2") | {f"tokenizer.ggml.{k}": v for k, v in changes.items()}
    with pytest.raises(WeightsError, match=words) as why:
        tokenizer_of_gguf(metadata, "a.gguf")
    assert str(why.value).startswith("a.gguf: ")


def test_a_vocabulary_without_a_byte():
    metadata = gguf_pieces()
    metadata["tokenizer.ggml.tokens"][3 + 0xC3] = "<x>"
    tokenizer = tokenizer_of_gguf(metadata, "a.gguf")
    with pytest.raises(
        WeightsError, match="a.gguf: has no token for .* of the text, and none for its byte 195"
    ):
        tokenizer.encode("\u00ff".encode(), True)


BACKTRACKS = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}


@pytest.mark.parametrize(
    "tokenizer, files, words",
    [
        ("", {}, "is not a tokenizer that the package tokenizers reads: .*EOF while parsing"),
        ("[" * 10000, {}, "is not a tokenizer that the package tokenizers reads"),
        ({}, {}, "Model missing"),
        (byte_pairs(pre_tokenizer=split("(?=")), {}, "end pattern with unmatched parenthesis"),
        (byte_pairs(model={"merges": ["q q"]}), {}, "Token `qq` out of vocabulary"),
        (byte_pairs(model={"dropout": 0.5}), {}, "'model.dropout' is 0.5, which cuts words at random"),
        (byte_pairs(added_tokens=[added(900, "x y", False)]), {}, "numbers the added token 'x y' 900, and .* it 304"),
        (byte_pairs(), {"tokenizer_config": {"added_tokens_decoder": {"900": {"content": "x y"}}}}, "'x y' 900, and"),
        (byte_pairs(added_tokens=[3]), {}, "'added_tokens' cannot be read"),
        (byte_pairs(normalizer={"type": "Sequence", "normalizers": [GROWS] * 3}), {}, "10201 times as long"),
        (byte_pairs(post_processor=template({"<|end|>": 900}, {})), {}, r"tokens \[900\] are added to a text"),
        (byte_pairs(), {"config": {"eos_token_id": [1, 900]}}, r"'eos_token_id' in config.json is \[1, 900\]"),
        (byte_pairs(), {"generation_config": {"eos_token_id": "</s>"}}, "must be a token's number or a list"),
        (byte_pairs(), {"tokenizer_config": {"added_tokens_decoder": {"a": 1}}}, "its special or added tokens cannot"),
        (byte_pairs(), {"tokenizer_config": [1]}, r"expected an object, got \[1\]"),
        (byte_pairs(), {"tokenizer_config": {"add_bos_token": True, "bos_token": 5}}, "cannot be read"),
    ],
)  # fmt: skip
def test_folders_that_are_refused(tokenizer, files, words, tmp_path):
    path = folder(tmp_path / "a", tokenizer, **files)
    with pytest.raises(WeightsError, match=words) as why:
        tokenizer_of_folder(path, 400)
    assert str(why.value).startswith(str(path)) and len(str(why.value).splitlines()) == 1


def test_texts_that_are_refused(tmp_path):
    """Errors and panics of the library are sentences; tokens that the model does not have are named."""
    for change, text, words in (
        (
            {"normalizer": BACKTRACKS},
            "a" * 50 + "b",
            "cannot cut that text into tokens: .*retry-limit",
        ),
        (
            {"pre_tokenizer": split("(a+)+$")},
            "a" * 50 + "b",
            "cannot cut that text into tokens: .*retry-limit",
        ),
        (
            {},
            "see Section5A",
            f"'Section5A' of the text is token {OWN}, and the model has {OWN}; leave it out",
        ),
    ):
        tokenizer = tokenizer_of_folder(folder(tmp_path / "a", byte_pairs(**change)), OWN)
        with pytest.raises(WeightsError, match=words):
            tokenizer.encode(text.encode(), True)


def test_a_vocabulary_of_another_model(tmp_path):
    with pytest.raises(WeightsError, match="'model.vocab' must number texts below 100, got"):
        tokenizer_of_folder(folder(tmp_path / "a", byte_pairs()), 100)


def test_files_that_are_not_read(tmp_path, monkeypatch):
    with pytest.raises(WeightsError, match="tokenizer.json: no such file, .*; get it, too"):
        tokenizer_of_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(
        WeightsError, match="has tokenizer.model and no tokenizer.json, .* make it by transformers"
    ):
        tokenizer_of_folder(tmp_path)
    path = folder(tmp_path / "a", byte_pairs())
    monkeypatch.setattr(folder_tokenizer, "MOST_BYTES", 100)
    with pytest.raises(WeightsError, match="is larger than 0 MiB; it is no tokenizer"):
        tokenizer_of_folder(path)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(WeightsError, match="which is missing; `pip install tokenizers==0.23.3`"):
        tokenizer_of_folder(path)


def test_damaged_files_are_refused_or_read(tmp_path):
    """Any bytes of a tokenizer.json: a sentence, or a tokenizer that makes tokens."""
    path = folder(tmp_path / "a", pieces())
    data, draw, ends = (path / "tokenizer.json").read_bytes(), random.Random(0), set()
    head = data.index(b'"vocab"')
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(head)] = draw.choice(b'"[]{},:0129aflnrtu \\')
        (path / "tokenizer.json").write_bytes(changed)
        try:
            tokenizer = tokenizer_of_folder(path, 400)
            tokens = tokenizer.encode(b"hi yo</s>", True)
            streamed(tokenizer, [], tokens)
            ends.add("read")
        except WeightsError:
            ends.add("refused")
    assert ends == {"read", "refused"}
