"""GGUF and safetensors of Llama-like models: logits against NumPy in float64, tokens, text, files that are refused."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import QuantizedWeights, cli
from metal_ops.lm import pretrained
from metal_ops.lm.gguf import Gguf
from metal_ops.lm.llama import as_weights
from metal_ops.lm.tokenizers import Bytes
from metal_ops.lm.weights import WeightsError
from tests.lm.files import (
    CONFIG,
    METADATA,
    SIZE,
    oracle,
    packed,
    random_model,
    write_gguf,
    write_safetensors,
)

WRITTEN = [5, 300, 17, 301, 2, 255, 311, 9, 9, 340, 76]


def lm(*arguments: object) -> int:
    return cli.main(["lm", *map(str, arguments)])


def logits_of(model) -> np.ndarray:
    return model(tf.constant([WRITTEN], tf.int32)).numpy()[0]


def check_close(found: np.ndarray, right: np.ndarray, off: float = 2e-4) -> None:
    assert np.linalg.norm(found - right) < off * np.linalg.norm(right)


@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_gguf(kind, tied, tmp_path):
    """The oracle has the file's values as weights: the differences are the roundings of float32."""
    meant = write_gguf(tmp_path / "a.gguf", random_model(tied=tied), kind)
    model, _ = pretrained.load(tmp_path / "a.gguf", None)
    check_close(logits_of(model), oracle(meant, WRITTEN))
    quantized = kind.startswith("Q")
    assert isinstance(model.matrices[0]["q"], QuantizedWeights) == quantized
    assert isinstance(model.embedding, QuantizedWeights) == quantized
    if quantized:  # as many bytes as the file has for them, norms apart
        n = sum(v.size for k, v in meant.items() if v is not None and v.ndim == 2)
        a_block = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}[kind]
        assert model.n_bytes() - n * a_block // 32 == pytest.approx(4 * 5 * 64, abs=64)


@pytest.mark.parametrize(
    "kind, parts, tied", [("F32", 1, False), ("F16", 2, True), ("BF16", 3, False)]
)
def test_safetensors(kind, parts, tied, tmp_path):
    meant = write_safetensors(tmp_path / "a", random_model(1, tied), kind, parts=parts)
    model, _ = pretrained.load(tmp_path / "a", None)
    check_close(logits_of(model), oracle(meant, WRITTEN))


def test_one_safetensors_file(tmp_path):
    meant = write_safetensors(tmp_path / "a", random_model(2))
    model, _ = pretrained.load(tmp_path / "a" / "model-0.safetensors", 16)
    check_close(logits_of(model), oracle(meant, WRITTEN))
    assert model.config.context == 16


def test_both_formats_agree(tmp_path):
    model = random_model(3)
    write_gguf(tmp_path / "a.gguf", model)
    write_safetensors(tmp_path / "a", model)
    first, second = (pretrained.load(tmp_path / name, None)[0] for name in ("a.gguf", "a"))
    check_close(logits_of(first), logits_of(second), 1e-5)


@pytest.mark.parametrize("kind", ["F32", "Q4_0"])
def test_caches_give_the_same(kind, tmp_path):
    write_gguf(tmp_path / "a.gguf", random_model(4), kind)
    model, _ = pretrained.load(tmp_path / "a.gguf", None)
    right, caches, at = logits_of(model), model.caches(32), 0
    for n in (4, 1, 1, 5):
        logits = model.extend(tf.constant([WRITTEN[at : at + n]], tf.int32), caches)
        at += n
        check_close(logits[0].numpy(), right[at - 1], 1e-4)


def test_scaled_positions(tmp_path):
    """GGUF's factors, and Llama 3's formula by another hand."""
    plain = CONFIG["rope_theta"] ** (-np.arange(0, SIZE, 2) / SIZE)
    factors = np.linspace(1, 8, SIZE // 2).astype(np.float32)
    meant = write_gguf(tmp_path / "a.gguf", random_model(5), more={"rope_freqs.weight": factors})
    model, _ = pretrained.load(tmp_path / "a.gguf", None)
    check_close(logits_of(model), oracle(meant, WRITTEN, plain / factors))
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }  # fmt: skip
    right = []
    for frequency in plain:
        length = 2 * np.pi / frequency
        smooth = (32 / length - 1) / 3
        if length < 32 / 4:
            right.append(frequency)
        elif length > 32:
            right.append(frequency / 8)
        else:
            right.append((1 - smooth) * frequency / 8 + smooth * frequency)
    meant = write_safetensors(
        tmp_path / "a", random_model(5), config=CONFIG | {"rope_scaling": scaling}
    )
    model, _ = pretrained.load(tmp_path / "a", None)
    np.testing.assert_allclose(model.config.frequencies, right)
    assert len({round(a / b, 3) for a, b in zip(plain, right, strict=True)}) > 2
    check_close(logits_of(model), oracle(meant, WRITTEN, np.array(right)))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_floats_of_a_tensor(kind, tmp_path):
    values = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    content, meant = packed(values, kind)
    # Half a step of the blocks' spread, or of the mantissa.
    assert np.abs(meant - values).max() < {
        "F32": 1e-9,
        "F16": 4e-3,
        "BF16": 4e-2,
        "Q8_0": 0.03,
    }.get(kind, 0.3)
    model = random_model()
    model["0 gate"][:6] = values
    write_gguf(tmp_path / "a.gguf", model, kind)
    found = Gguf(tmp_path / "a.gguf").floats("blk.0.ffn_gate.weight")
    np.testing.assert_allclose(found[:6], meant, atol=1e-6)


def q4_k(block: bytes) -> list[float]:
    """256 weights, one after the other, as the format says."""
    step, low = struct.unpack("<2e", block[:4])
    q, found = block[4:16], []
    for j in range(8):
        if j < 4:
            scale, minimum = q[j] & 63, q[j + 4] & 63
        else:
            scale = (q[j + 4] & 15) | (q[j - 4] >> 6) << 4
            minimum = (q[j + 4] >> 4) | (q[j] >> 6) << 4
        for i in range(32):
            byte = block[16 + 32 * (j // 2) + i]
            found.append(step * scale * (byte >> 4 if j % 2 else byte & 15) - low * minimum)
    return found


def q6_k(block: bytes) -> list[float]:
    (step,) = struct.unpack("<e", block[208:])
    scales = struct.unpack("<16b", block[192:208])
    found = []
    for i in range(256):
        half, place = divmod(i, 128)
        quarter, at = divmod(place, 32)
        byte = block[64 * half + 32 * (quarter % 2) + at]
        low = byte >> 4 if quarter > 1 else byte & 15
        high = block[128 + 32 * half + at] >> (2 * quarter) & 3
        found.append(step * scales[i // 16] * ((low | high << 4) - 32))
    return found


@pytest.mark.parametrize("kind, number, of", [("Q4_K", 12, q4_k), ("Q6_K", 14, q6_k)])
def test_k_quants(kind, number, of, tmp_path):
    """Any bytes of theirs, and the product with them where they are multiplied as they are."""
    size, random = {"Q4_K": 144, "Q6_K": 210}[kind], np.random.default_rng(0)
    blocks = []
    for _ in range(3 * 2):
        block = bytearray(random.bytes(size))
        for at in (0, 2) if kind == "Q4_K" else (208,):
            block[at : at + 2] = struct.pack("<e", random.uniform(-1, 1))
        blocks.append(bytes(block))
    right = np.array([of(block) for block in blocks]).reshape(3, 512)
    more = {"some": ((3, 512), number, b"".join(blocks))}
    write_gguf(tmp_path / "a.gguf", random_model(), more=more)
    file = Gguf(tmp_path / "a.gguf")
    np.testing.assert_allclose(file.floats("some"), right, rtol=1e-5, atol=1e-4)
    weights = as_weights(file.packed("some"))
    assert isinstance(weights, QuantizedWeights) == (kind == "Q4_K")
    x = random.standard_normal((2, 512)).astype(np.float32)
    product = metal_ops.quantized_matmul(x, weights) if kind == "Q4_K" else x @ weights
    np.testing.assert_allclose(product, x @ right.T, rtol=1e-3, atol=0.05)


# ---- the program ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    write_gguf(path, random_model(), "Q8_0")
    return path


def test_generate_and_chat(small, capfdbinary, monkeypatch):
    import io
    import sys

    texts = []
    for options in ([], [], ["--seed", 3], ["--bits", 4], ["--dynamic"]):
        assert lm("generate", "--model", small, "the", "--tokens", 12, *options) == 0
        out, said = capfdbinary.readouterr()
        assert b"2 layers, width 64, 361 tokens" in out and re.search(rb"\d+ tokens written", said)
        texts.append(out.split(b"bytes.\n", 1)[1])
    assert texts[0] == texts[1] != texts[2] and texts[0].startswith(b"the")
    # Bytes that are no text, as the command line has them.
    assert lm("generate", "--model", small, "\udcff", "--tokens", 2) == 0
    assert "bytes.\n\N{REPLACEMENT CHARACTER}".encode() in capfdbinary.readouterr()[0]
    monkeypatch.setattr(sys, "stdin", io.StringIO("One\nTwo\n"))
    assert lm("chat", "--model", small, "--tokens", 8) == 0


def test_the_end_ends(small):
    """A token that ends a text is not written."""
    from metal_ops.lm.generate import Sampling, Writer

    model, tokenizer = pretrained.load(small, None)
    writer = Writer(model, Sampling(temperature=0.0), tokenizer)
    writer.tell(b"the")
    tokens = [1, *tokenizer.encode(b"the", True)]
    likeliest = int(np.argmax(model(tf.constant([tokens], tf.int32))[0, -1]))
    assert next(writer.write(1)) == tokenizer.decode(likeliest)
    again = Writer(model, Sampling(temperature=0.0), tokenizer)
    tokenizer.ends = frozenset({likeliest})
    again.tell(b"the")
    assert list(again.write(5)) == [] and again.n_written == 0


def test_what_is_written_is_what_the_whole_is(tmp_path):
    """Bytes of characters that come one by one, and those that are none."""
    from metal_ops.lm.generate import Sampling, Writer

    write_safetensors(tmp_path / "a", random_model())
    model, tokenizer = pretrained.load(tmp_path / "a", None)
    writer = Writer(model, Sampling(seed=2), tokenizer)
    tokenizer.finish, tokenizer.ends = [259], frozenset()
    writer.tell(b"the</s> in")
    before = list(writer._tokens)
    assert before == [1, *tokenizer.encode(b"the</s> in", True), 259]
    written = b"".join(writer.write(40)).decode()
    texts = [tokenizer.text(tokens) for tokens in (before, writer._tokens)]
    assert texts[1] == texts[0] + written and "\ufffd" in written


def test_logits_that_are_no_numbers(small):
    from metal_ops.lm.generate import Sampling, Writer
    from metal_ops.programs.errors import ProgramError

    for temperature in (0.0, 1.0):
        model, tokenizer = pretrained.load(small, None)
        model.last_norm = model.last_norm * float("nan")
        writer = Writer(model, Sampling(temperature), tokenizer)
        writer.tell(b"the")
        with pytest.raises(ProgramError, match="logits are not finite: its weights are damaged"):
            next(writer.write(1))


def test_a_prompt_without_tokens(small):
    from metal_ops.lm.generate import Sampling, Writer
    from metal_ops.programs.errors import ProgramError

    class Nothing(Bytes):
        def encode(self, text: bytes, first: bool) -> list[int]:
            return []

    model, _ = pretrained.load(small, None)
    with pytest.raises(ProgramError, match="has no tokens for that text"):
        next(Writer(model, Sampling(), Nothing()).write(1))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["generate"], "give the folder of a run, or --model"),
        (["generate", "--model", "nowhere.gguf"], "nowhere.gguf: no such model"),
        (["generate", "--model", "SMALL", "a", "b"], "'b' is one word too many"),
        (["generate", "--model", "SMALL", "--context", 65], "sees 64 tokens at once, --context 65 is more"),
        (["generate", "run", "--context", 9], "--context: a run has the one"),
        (["generate", "SMALL", "a"], "small.gguf: is a model from a file, .* give it by --model .*small.gguf"),
        (["chat", "--model", "SMALL", "x"], "'x' is one word too many"),
    ],
)  # fmt: skip
def test_mistakes(arguments, words, small, capsys):
    assert lm(*(small if word == "SMALL" else word for word in arguments)) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("lm: ") and len(said.splitlines()) == 1


# ---- files that are refused -----------------------------------------------------------------------------------------


def changed(**changes):
    """Metadata with other values; None takes one away."""
    names = {name.rsplit(".", 1)[-1]: name for name in METADATA}
    metadata = dict(METADATA)
    for name, value in changes.items():
        key = names.get(name, name.replace("__", "."))
        metadata[key] = value
        if value is None:
            del metadata[key]
    return metadata


@pytest.mark.parametrize(
    "metadata, words",
    [
        (changed(architecture="gemma"), "'general.architecture' is 'gemma', expected 'llama'"),
        (
            changed(llama__rope__scaling__type="su"),
            "'llama.rope.scaling.type' is 'su', expected none, linear",
        ),
        (changed(embedding_length=None), "'llama.embedding_length' must be a number from 1 to"),
        (changed(block_count="two"), "'llama.block_count' must be a number"),
        (changed(head_count_kv=3), "4 heads of 16 and 3 of keys do not fit"),
        (changed(block_count=3), "tensor 'blk.2.attn_q.weight' is missing"),
        (changed(feed_forward_length=128), r"has shape \[96, 64\], expected \[128, 64\]"),
        (changed(model="bert"), "'tokenizer.ggml.model' is 'bert', expected 'llama' or 'gpt2'"),
        (changed(tokens=[1, 2]), "'tokenizer.ggml.tokens' must be a list of texts"),
        (changed(general__alignment=0), "'general.alignment' is 0"),
    ],
)
def test_other_models_as_gguf(metadata, words, tmp_path):
    write_gguf(tmp_path / "a.gguf", random_model(), metadata=metadata)
    with pytest.raises(WeightsError, match=words):
        pretrained.load(tmp_path / "a.gguf", None)


def test_tensors_that_a_llama_does_not_have(tmp_path):
    for name, words in (
        ("blk.0.attn_q_norm.weight", "'blk.0.attn_q_norm.weight' is none that such a model has"),
        ("blk.1.attn_q.bias", "'blk.1.attn_q.bias' is none that such a model has"),
        ("blk.0.attn_q.bias", "'blk.1.attn_q.bias' is missing"),
    ):
        write_gguf(tmp_path / "a.gguf", random_model(), more={name: np.zeros(64)})
        with pytest.raises(WeightsError, match=words):
            pretrained.load(tmp_path / "a.gguf", None)


def patched(content: bytes, name: bytes, offset: int, form: str, value: int) -> bytes:
    """Another number behind the name of a tensor."""
    at = content.index(name) + len(name) + offset
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


def test_hostile_gguf(tmp_path):
    write_gguf(tmp_path / "a.gguf", random_model())
    whole = (tmp_path / "a.gguf").read_bytes()
    name = b"blk.0.attn_q.weight"
    huge = (1 << 62) + 1
    cases = {
        b"": "it has 0 bytes",
        b"GGML" + whole[4:]: "is no GGUF file of version 2 or 3",
        b"GGUF" + struct.pack("<I", 1) + whole[8:]: "is no GGUF file of version 2 or 3",
        whole[:8] + struct.pack("<Q", huge) + whole[16:]: "declares 4611686018427387905 tensors",
        whole[:24] + struct.pack("<Q", huge) + whole[32:]: "is damaged at byte 32",
        whole[:500]: "is damaged at byte",
        whole[:-1000]: "ends behind the file's last byte; it is cut off",
        patched(whole, name, 0, "<I", 9): "has 9 dimensions, expected 1 to 4",
        patched(whole, name, 4, "<Q", huge): "ends behind the file's last byte",
        patched(whole, name, 20, "<I", 11): "has rows of 64, expected a multiple of 256 for Q3_K",
        patched(whole, name, 20, "<I", 15): "has type Q8_K, which the package gguf has no floats for",
        patched(whole, name, 20, "<I", 99): "has type number 99, which the package gguf has no floats for",
        whole.replace(b"blk.0.attn_q.w", b"blk.1.attn_q.w"): "is there twice",
        patched(whole, b"llama.context_length", 0, "<I", 77): "metadata of type 77",
    }  # fmt: skip
    for content, words in cases.items():
        (tmp_path / "b.gguf").write_bytes(content)
        with pytest.raises(WeightsError, match=words) as refused:
            pretrained.load(tmp_path / "b.gguf", None)
        assert str(refused.value).startswith(str(tmp_path / "b.gguf"))


def test_damaged_heads_are_refused_or_read(tmp_path):
    write_gguf(tmp_path / "a.gguf", random_model())
    whole = (tmp_path / "a.gguf").read_bytes()
    random, ends = np.random.default_rng(0), set()
    head = whole.index(b"blk.1.ffn_norm.weight") + 60
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            data[random.integers(head)] = random.integers(256)
        (tmp_path / "b.gguf").write_bytes(data)
        try:
            pretrained.load(tmp_path / "b.gguf", None)
            ends.add("read")
        except WeightsError:
            ends.add("refused")
    assert ends == {"read", "refused"}


@pytest.mark.parametrize(
    "file, change, words",
    [
        ("config.json", {"model_type": "gpt_neox"}, "'model_type' is 'gpt_neox', expected 'llama' or 'mistral'"),
        ("config.json", {"hidden_act": "relu"}, "'hidden_act' is 'relu'"),
        ("config.json", {"rope_scaling": {"type": "su"}}, "'type' is 'su'"),
        ("config.json", {"num_hidden_layers": 1.5}, "'num_hidden_layers' must be a whole number"),
        ("config.json", {"vocab_size": 10}, "must number texts below 10"),
        ("config.json", {"intermediate_size": 64}, r"has shape \[96, 64\], expected \[64, 64\]"),
        ("tokenizer.json", {"model": {"vocab": 3}}, "is not a tokenizer that the package tokenizers reads"),
    ],
)  # fmt: skip
def test_other_models_as_safetensors(file, change, words, tmp_path):
    write_safetensors(tmp_path / "a", random_model())
    path = tmp_path / "a" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(WeightsError, match=words):
        pretrained.load(tmp_path / "a", None)


def test_hostile_safetensors(tmp_path):
    write_safetensors(tmp_path / "a", random_model())
    path = tmp_path / "a" / "model-0.safetensors"
    whole = path.read_bytes()

    def with_header(text: bytes) -> bytes:
        return struct.pack("<Q", len(text)) + text + bytes(8)

    entry = b'{"a": {"dtype": "%s", "shape": [%s], "data_offsets": [%s]}}'
    cases = {
        b"": "not a readable safetensors file: .*header too small",
        struct.pack("<Q", 1 << 60) + whole[8:]: "header too large",
        with_header(b"\xff\xfe"): "invalid UTF-8 in header",
        with_header(b"{"): "invalid JSON in header",
        with_header(b"[]"): "invalid type: sequence",
        with_header(b'{"a": 3}'): "invalid type: integer `3`",
        with_header(entry % (b"I64", b"1", b"0, 8")): "has type I64, expected one of F32, F16, BF16, F64",
        with_header(entry % (b"F32", b"-1", b"0, 4")): "invalid value: integer `-1`",
        with_header(entry % (b"F32", b"1e9", b"0, 4")): "expected usize",
        with_header(entry % (b"F32", b"4", b"0, 16")): "file not fully covered",
        with_header(entry % (b"F32", b"2", b"8, 0")): "invalid offset for tensor `a`",
        with_header(entry % (b"F32", b"4611686018427387904, 4611686018427387904", b"0, 8")): "overflow",
        with_header(
            entry % (b"F32", b"2", b"0, 8")
        ): "'model.layers.0.self_attn.q_proj.weight' is missing",
        whole[:-4]: "file not fully covered; get it again",
    }  # fmt: skip
    for content, words in cases.items():
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=words):
            pretrained.load(tmp_path / "a", None)
