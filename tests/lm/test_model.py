"""The transformer against NumPy in float64; its caches, its quantized copies, and its learning."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.lm.adapted import wrapped
from metal_ops.lm.config import ModelConfig, TrainConfig
from metal_ops.lm.generate import Sampling, Writer, choose
from metal_ops.lm.model import Transformer
from metal_ops.lm.passes import Pass
from metal_ops.lm.train import Trainer
from metal_ops.programs.errors import ProgramError

SMALL = ModelConfig(width=32, layers=2, heads=4, kv_heads=2, hidden=48, context=16)


def oracle(model: Transformer, tokens: np.ndarray) -> np.ndarray:
    """Logits [length, 256] in float64."""
    config = model.config
    state = {name: v.numpy().astype(np.float64) for name, v in model.state().items()}
    size, n = config.width // config.heads, len(tokens)

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    def turn(x):  # [heads, n, size]
        w = np.arange(n)[:, None] * config.rope_base ** (-np.arange(0, size, 2) / size)
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([a * np.cos(w) - b * np.sin(w), a * np.sin(w) + b * np.cos(w)], -1)

    x = state["embedding"][tokens]
    for i in range(config.layers):
        both = norm(x, state[f"layer{i}_attention_norm"]) @ state[f"layer{i}_qkv"]
        heads = both.reshape(n, -1, size).transpose(1, 0, 2)
        q, k, v = np.split(heads, [config.heads, config.heads + config.kv_heads])
        k, v = (np.repeat(part, config.heads // config.kv_heads, axis=0) for part in (turn(k), v))
        scores = turn(q) @ k.transpose(0, 2, 1) / np.sqrt(size)
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        joined = (weights @ v).transpose(1, 0, 2).reshape(n, -1)
        x = x + joined @ state[f"layer{i}_out"]
        gate, up = np.split(
            norm(x, state[f"layer{i}_feed_forward_norm"]) @ state[f"layer{i}_gate_up"], 2, axis=-1
        )
        x = x + (gate / (1 + np.exp(-gate)) * up) @ state[f"layer{i}_down"]
    return norm(x, state["last_norm"]) @ state["embedding"].T


def tokens_of(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, n).astype(np.int32)


def scaled(config: ModelConfig) -> Transformer:
    """With an embedding so large that logits differ."""
    model = Transformer(config, seed=1)
    model.embedding.assign(20 * model.embedding)
    return model


def test_is_the_oracle():
    model, tokens = scaled(SMALL), tokens_of(13)
    np.testing.assert_allclose(model(tokens[None])[0], oracle(model, tokens), atol=1e-3, rtol=1e-4)


def test_what_comes_does_not_change_what_was():
    model, tokens = scaled(SMALL), tokens_of(12)
    other = np.concatenate([tokens[:7], tokens_of(5, seed=1)])
    first, second = model(tokens[None])[0], model(other[None])[0]
    np.testing.assert_allclose(first[:7], second[:7], atol=1e-4)
    assert np.max(np.abs(first[7:] - second[7:])) > 0.1


@pytest.mark.parametrize("pieces", [[13], [1] * 13, [8, 4, 1]], ids=str)
def test_caches_give_the_same(pieces):
    model, tokens, at = scaled(SMALL), tokens_of(13), 0
    right, caches = model(tokens[None])[0], model.caches(16)
    for n in pieces:
        logits = model.extend(tf.constant(tokens[None, at : at + n]), caches)
        at += n
        np.testing.assert_allclose(logits[0], right[at - 1], atol=1e-3)


@pytest.mark.parametrize("kind", ["floats", "codes", "adapter"])
def test_passes(kind):
    """Compiled, a token's in the order of its ops, they give the same as ops one by one."""
    model, tokens = scaled(SMALL), tokens_of(7)[None]
    if kind != "floats":
        model = model.quantized(4)
    if kind == "adapter":
        model, _ = wrapped(model)
    first, second = model.caches(16), model.caches(16)
    passes = {n: Pass(model, second, n) for n in (4, 1)}
    for at, n in ((0, 4), (4, 1), (5, 1), (6, 1)):
        part = tf.constant(tokens[:, at : at + n])
        np.testing.assert_array_equal(passes[n](part), model.extend(part, first))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.k, other.k)
        assert one.lengths.numpy() == other.lengths.numpy() == [7]


def test_full_caches_are_refused():
    model = scaled(SMALL)
    one = Pass(model, model.caches(2), 1)
    for _ in range(2):
        one(tf.constant([[65]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="the cache has room for 2 rows"):
        one(tf.constant([[65]]))


def test_a_token_moves_no_heads():
    """A token's heads lie in the order that attention wants."""
    model = scaled(SMALL).quantized(4)
    extend = tf.function(lambda tokens: model.extend(tokens, caches))
    for n, transposes in ((1, 0), (4, 4)):
        caches = model.caches(16)
        graph = extend.get_concrete_function(tf.TensorSpec([1, n], tf.int32)).graph
        kinds = [node.type for node in graph.get_operations()]
        assert kinds.count("Transpose") == transposes
        # Around the products of two layers there are none.
        assert kinds.count("Reshape") <= 6, kinds.count("Reshape")


def test_weights_of_the_picture():
    model, tokens = scaled(SMALL), tokens_of(9)
    weights = model.attention_weights(tf.constant(tokens)).numpy()
    assert weights.shape == (2, 4, 9, 9)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(weights, 1).any() and (weights[:, :, 5, :6] > 0).all()


@pytest.mark.parametrize("bits, off", [(8, 0.02), (4, 0.3)])
def test_quantized(bits, off):
    model, tokens = scaled(SMALL), tokens_of(13)
    few = model.quantized(bits)
    right, found = model(tokens[None]).numpy(), few(tokens[None]).numpy()
    error = np.linalg.norm(found - right) / np.linalg.norm(right)
    assert 0 < error < off
    matrices = sum(m.shape.num_elements() for layer in model.matrices for m in layer.values())
    saved = model.n_bytes() - few.n_bytes()
    assert saved > matrices * 4 * (0.65 if bits == 8 else 0.8)
    # The model that it was made of is unchanged.
    np.testing.assert_array_equal(model(tokens[None]), right)


@pytest.mark.parametrize("bits, off", [(8, 0.02), (4, 0.08)])
def test_dynamic(bits, off):
    """All products of the layers are with rounded inputs, an adapter's base included, and near those without."""
    few, tokens = scaled(SMALL).quantized(bits), tokens_of(13)[None]
    right = few(tokens).numpy()
    few.dynamic = True
    found = few(tokens).numpy()
    assert 0 < np.linalg.norm(found - right) / np.linalg.norm(right) < off
    for model in (few, wrapped(few)[0]):
        graph = tf.function(model).get_concrete_function(tf.TensorSpec([1, 13], tf.int32)).graph
        kinds = [node.type for node in graph.get_operations()]
        assert kinds.count("MetalDynamicMatMul") == 8 and "MetalQuantizedMatMul" not in kinds
    np.testing.assert_array_equal(wrapped(few)[0](tokens), found)


def test_choice():
    logits, random = np.log([0.5, 0.3, 0.15, 0.05]), np.random.default_rng(0)

    def drawn(**options):
        return np.bincount(
            [choose(logits, Sampling(**options), random) for _ in range(2000)], minlength=4
        )

    np.testing.assert_allclose(
        drawn(temperature=1.0, top_p=1.0) / 2000, [0.5, 0.3, 0.15, 0.05], atol=0.04
    )
    assert (drawn(temperature=0.0) == [2000, 0, 0, 0]).all()
    assert (drawn(temperature=1.0, top_p=1.0, top_k=2) > 0).tolist() == [True, True, False, False]
    assert (drawn(temperature=1.0, top_p=0.9) > 0).tolist() == [True, True, True, False]
    assert (drawn(temperature=1.0, top_p=0.0) == [2000, 0, 0, 0]).all()


def test_draws_of_a_seed():
    """A seed and logits give the same tokens in each release."""
    logits = 3 * np.sin(np.arange(50.0)).astype(np.float32)

    def drawn(**options):
        sampling = Sampling(seed=3, **options)
        random = np.random.default_rng(sampling.seed)
        return [choose(logits, sampling, random) for _ in range(12)]

    assert drawn() == [33, 8, 21, 2, 33, 27, 20, 14, 1, 14, 27, 20]
    high = drawn(temperature=1.5, top_k=20, top_p=1.0)
    assert high == [14, 39, 7, 45, 14, 2, 2, 8, 26, 14, 20, 46]


def test_what_is_written_is_what_is_drawn():
    model, sampling = scaled(SMALL), Sampling(temperature=1.0, top_p=1.0, seed=5)
    writer = Writer(model, sampling)
    writer.tell(b"012")
    text = b"012" + b"".join(writer.write(10))
    random = np.random.default_rng(sampling.seed)
    for n in range(3, 13):
        tokens = tf.constant([list(text[:n])])
        assert choose(model(tokens)[0, -1].numpy(), sampling, random) == text[n]


def test_writing_beyond_the_context():
    """Text written after the context was full follows from its second half alone."""
    model = scaled(SMALL)
    writer = Writer(model, Sampling(temperature=0.0))
    writer.tell(b"0123456789")
    text = b"0123456789" + b"".join(writer.write(30))
    assert len(text) == 40 and writer.n_written == 30
    again = Writer(model, Sampling(temperature=0.0))
    again.tell(text[:16])
    assert b"".join(again.write(1)) == text[16:17]


def learned(**options) -> Trainer:
    text = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 60, np.uint8)
    config = TrainConfig(seconds=None, learning_rate=1e-2, **{"steps": 120, "batch": 8, **options})
    return Trainer((text[:-200], text[-200:]), SMALL, config)


def test_learns_a_sentence_by_heart():
    trainer = learned()
    before = trainer.held_out()
    while not trainer.done:
        trainer.train_step()
    assert before > 6 and trainer.held_out() < 0.7
    writer = Writer(trainer.model, Sampling(temperature=0.0))
    writer.tell(b"the quick bro")
    assert b"".join(writer.write(12)) == b"wn fox jumps"


def test_goes_on_bit_by_bit(tmp_path):
    whole, first = learned(steps=6), learned(steps=6)
    losses = [whole.train_step() for _ in range(6)]
    begun = [first.train_step() for _ in range(3)]
    first.save(tmp_path / "checkpoint.npz", None)
    from metal_ops.programs import checkpoint

    second = learned(steps=6)
    second.load(*checkpoint.load(tmp_path / "checkpoint.npz"), "here")
    assert begun + [second.train_step() for _ in range(3)] == losses
    for name, variable in whole.model.state().items():
        np.testing.assert_array_equal(variable, second.model.state()[name], err_msg=name)


def test_a_loss_that_is_no_number():
    trainer = learned()
    trainer.model.last_norm.assign(np.full(32, np.nan, np.float32))
    with pytest.raises(ProgramError, match=r"the loss of step 1 is nan: training diverged"):
        trainer.train_step()


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(width=30), "field 'width' must be an even multiple of the 4 heads"),
        (dict(kv_heads=3), "field 'kv_heads' must divide the 4 heads"),
        (dict(width=4 * 258), "at most 256"),
        (dict(layers=0), "field 'layers' must be a whole number from 1"),
        (dict(context=1.5), "field 'context' must be a whole number"),
    ],
)
def test_bad_sizes(options, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig(**options)
