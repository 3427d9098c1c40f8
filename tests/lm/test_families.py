"""Families and rotary positions: logits and likeliest tokens of transformers, from folders and from GGUF."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import adapters
from metal_ops.lm import adapted, pretrained
from metal_ops.lm.generate import Sampling, Writer
from metal_ops.lm.llama import Llama
from metal_ops.lm.passes import Pass
from metal_ops.lm.tokenizers import Bytes
from tests.lm import families
from tests.lm.families import CASES, LOOKED_AT, PROMPT, WRITTEN, prompt

EXPECTED = np.load(families.EXPECTED)


def loaded(folder, name: str, context: int = 160) -> Llama:
    config = CASES[name]
    path = families.write(folder / name, config, families.weights(config))
    return pretrained.load(path, context)[0]


def written(model: Llama, pieces: tuple[int, ...] = (PROMPT,)) -> list[int]:
    """The likeliest tokens, by caches that are told the prompt in pieces."""
    caches, tokens, at = model.caches(model.config.context), prompt(), 0
    for n in pieces:
        logits = Pass(model, caches, n)(tf.constant([tokens[at : at + n]], tf.int32))
        at += n
    found, one = [], Pass(model, caches, 1)
    for _ in range(WRITTEN):
        found.append(int(np.argmax(logits[0])))
        logits = one(tf.constant([found[-1:]], tf.int32))
    return found


@pytest.mark.parametrize("name", CASES)
def test_as_transformers(name, tmp_path):
    model = loaded(tmp_path, name)
    logits = model(tf.constant([prompt()], tf.int32)).numpy()[0, list(LOOKED_AT)]
    assert np.abs(logits - EXPECTED[f"{name} logits"]).max() < 1e-3
    assert written(model) == EXPECTED[f"{name} written"].tolist()


@pytest.mark.parametrize("name", ["mistral", "qwen2-windows", "gemma3"])
def test_windows_and_pieces_of_a_prompt(name, tmp_path):
    """Longer and shorter than a window, and around its end."""
    model = loaded(tmp_path, name)
    assert {cache.window for cache in model.caches(160)} >= {16}
    assert {cache.window for cache in model.caches(16)} == {None}
    right = EXPECTED[f"{name} written"].tolist()
    for pieces in ((1, 20, 16, 1, 10), (15, 33)):
        assert written(model, pieces) == right


@pytest.mark.parametrize("name", ["longrope-prompt", "gemma3"])
def test_the_program_writes_the_same(name, tmp_path):
    """A prompt whose length matters to its positions is read at once, others in pieces of a power of two."""
    model = loaded(tmp_path, name)
    assert model.at_once == (name == "longrope-prompt")
    writer = Writer(model, Sampling(temperature=0.0), Bytes())
    writer.tell(bytes(prompt()))
    assert list(b"".join(writer.write(WRITTEN))) == EXPECTED[f"{name} written"].tolist()


@pytest.mark.parametrize("name", ["biases", "qwen3", "gemma3"])
def test_quantized_and_adapted(name, tmp_path):
    """8 bits are near the floats, caches agree with the pass over all, and an adapter of zeros changes nothing."""
    model = loaded(tmp_path, name)
    few = model.quantized(8)
    tokens = tf.constant([prompt()], tf.int32)
    floats, logits = model(tokens).numpy(), few(tokens).numpy()
    assert 0 < np.linalg.norm(logits - floats) < 0.1 * np.linalg.norm(floats)
    assert few.n_bytes() < model.n_bytes()
    for one in (model, few):
        other, layers = adapted.wrapped(one)
        adapters.add(layers, 2, 4.0, name="some")
        whole = other(tokens).numpy()
        np.testing.assert_allclose(whole, one(tokens), atol=1e-4)
        caches = other.caches(64)
        for n, at in ((40, 0), (8, 40)):
            last = other.extend(tokens[:, at : at + n], caches)
        np.testing.assert_allclose(last, whole[:, -1], atol=1e-3)


def test_pictures_of_what_tokens_look_at(tmp_path):
    """Gemma's by its scale and windows: with them, values are those of the pass over all."""
    model = loaded(tmp_path, "gemma3")
    tokens = tf.constant(prompt(), tf.int32)
    weights = model.attention_weights(tokens).numpy()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    before = np.arange(PROMPT)[:, None] - np.arange(PROMPT)
    assert (weights[:, :, before < 0] == 0).all() and (weights[[0, 2]][..., before > 15] == 0).all()
    assert (weights[1][:, before > 15] > 0).all()
    q, k, v = model._heads(0, model._embedded(tokens), [1, PROMPT], None)
    heads = metal_ops.scaled_dot_product_attention(q, k, v, causal=True, **model._attention(0))
    right = weights[0] @ np.repeat(v[0], families.HEADS // families.KV_HEADS, 0)
    np.testing.assert_allclose(heads[0], right, atol=1e-5)


def test_gradients_of_an_adapter_reach_every_layer(tmp_path):
    model, layers = adapted.wrapped(loaded(tmp_path, "gemma3"))
    adapters.add(layers, 2, 4.0, name="some")
    variables = [variable.value for variable in layers.trainable_variables]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.constant([prompt()], tf.int32)) ** 2)
    found = tape.gradient(loss, variables)
    # The first of the two narrow matrices is behind the zeros of the second.
    assert sum(bool(tf.reduce_any(one != 0)) for one in found) == len(variables) // 2


def llama3_factors() -> dict[str, np.ndarray]:
    """The converter's numbers for them: the factors that slow pairs down."""
    size, scaled = 8, CASES["llama3"]["rope_parameters"]
    length = 2 * np.pi * 500.0 ** (np.arange(0, size, 2) / size)
    low, high = (32 / scaled[f"{name}_freq_factor"] for name in ("low", "high"))
    smooth = (32 / length - 1) / 3
    between = 1 / ((1 - smooth) / 4 + smooth)
    found = np.where(length < high, 1, np.where(length > low, 4, between))
    assert 1 < np.unique(found).size
    return {"rope_freqs.weight": found.astype(np.float32)}


THETA = {"rope.freq_base": 500.0}
YARN = {
    **THETA,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
}
LONG = {
    **THETA, "rope.scaling.type": "longrope", "rope.scaling.original_context_length": 40,
    "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(6) / np.log(40))),
}  # fmt: skip
GEMMA = {
    "rope.freq_base": 5000.0, "rope.freq_base_swa": 100.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
    "attention.sliding_window": 16,
}  # fmt: skip
GGUF = {
    "theta": ("default", THETA),
    "a size of rope": ("default", {**THETA, "rope.dimension_count": 8}),
    "kv heads of each layer": ("default", {**THETA, "attention.head_count_kv": [2, 2, 2]}),
    "no scaling": ("default", {**THETA, "rope.scaling.type": "none", "rope.scaling.factor": 8.0}),
    "linear": ("linear", {**THETA, "rope.scaling.type": "linear", "rope.scaling.factor": 3.0}),
    "a factor alone": ("linear", {**THETA, "rope.scaling.factor": 3.0}),
    "of 2023": ("linear", {**THETA, "rope.scale_linear": 3.0}),
    "both factors": ("linear", {**THETA, "rope.scaling.factor": 3.0, "rope.scale_linear": 9.0}),
    "llama3": ("llama3", THETA),
    "yarn": ("yarn", YARN),
    "yarn by its factor": ("yarn", {**YARN, "rope.scaling.yarn_attn_factor": 1.1386294}),
    "yarn's betas": ("yarn", {**YARN, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}),
    "no ramp": ("linear", {**YARN, "rope.scaling.factor": 3.0, "rope.scaling.yarn_ext_factor": 0.0}),
    "longrope": ("longrope-prompt", LONG),
    "biases": ("biases", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"rope.freq_base": 1e6}),
    "gemma3": ("gemma3-older", {**GEMMA, "attention.sliding_window_pattern": 2}),
    "gemma3's layers": ("gemma3-older", {**GEMMA, "attention.sliding_window_pattern": [True, False, True]}),
}  # fmt: skip


@pytest.mark.parametrize("case", GGUF)
def test_gguf_as_transformers(case, tmp_path):
    name, metadata = GGUF[case]
    config, more = CASES[name], {}
    if case == "llama3":
        more = llama3_factors()
    if case == "longrope":
        parameters = config["rope_parameters"]
        for kind in ("short", "long"):
            more[f"rope_factors_{kind}.weight"] = np.array(parameters[f"{kind}_factor"], np.float32)
    tensors = families.weights(config)
    path = families.write_gguf(tmp_path / "a.gguf", config, tensors, metadata, more=more)
    model = pretrained.load(path, 160)[0]
    logits = model(tf.constant([prompt()], tf.int32)).numpy()[0, list(LOOKED_AT)]
    assert np.abs(logits - EXPECTED[f"{name} logits"]).max() < 1e-3
    if name in ("default", "biases", "mistral", "qwen2", "qwen3", "gemma3-older"):
        assert written(model) == EXPECTED[f"{name} written"].tolist()
