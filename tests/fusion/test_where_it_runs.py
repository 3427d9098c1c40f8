"""Where functions come from and where they are run: in each place they are fused, with the same result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.fusion import _explain, _native
from tests.fusion.harness import values
from tests.processes import Process

X = values((4, 6, 6, 3), seed=1)
W = values((3, 3, 3, 3), seed=2) / 4.0
B = values((3,), seed=3)


def block(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.conv2d(x, W, strides=1, padding="SAME") + B + x)


@contextlib.contextmanager
def fuses(at_least: int = 1, at_most: int | None = None) -> Iterator[None]:
    """Asserts that this many chains are fused inside, on the CPU, and nothing fails."""
    before = metal_ops.fusion.status()
    with metal_ops.fusion.enabled(cpu=True):
        yield
    after = metal_ops.fusion.status()
    assert after.errors == before.errors
    assert at_least <= after.fused - before.fused
    assert at_most is None or after.fused - before.fused <= at_most


def assert_close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)


def network(seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    x = image = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    shortcut = x
    x = keras.layers.Conv2D(4, 3, padding="same")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Add()([x, shortcut])
    x = keras.layers.Activation("silu")(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(5, activation="gelu")(x)
    return keras.Model(image, keras.layers.Dense(3)(x))


IMAGES = np.asarray(values((24, 8, 8, 3), seed=4))
LABELS = np.arange(24) % 3


def test_nested_functions():
    inner = tf.function(block)
    outer = tf.function(lambda x: inner(inner(x)))
    with fuses(2):
        y = outer(X)
    assert_close(y, block(block(X)))


def test_dynamic_batch_and_size():
    fn = tf.function(block, input_signature=[tf.TensorSpec([None, None, None, 3])])
    with fuses(1, 1):
        for x in (X, X[:1], X[:, :2]):
            assert_close(fn(x), block(x))
    with metal_ops.fusion.enabled(cpu=True):
        assert metal_ops.fusion.explain(fn).fused[0].fused_ops == ["BiasAdd", "Add", "Relu"]


@pytest.mark.parametrize("v2", [True, False], ids=["while-v2", "while-v1"])
def test_while_body(v2):
    def loop(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, block(x)), [0, x])[1]

    if v2:
        fn = tf.function(loop, autograph=False)
    else:
        fn = tf.compat.v1.wrap_function(loop, [tf.TensorSpec(X.shape)])
    with fuses(1):
        y = fn(X)
    assert_close(y, block(block(block(X))))


def test_cond_branches():
    @tf.function(autograph=False)
    def fn(x, flag):
        return tf.cond(flag, lambda: block(x), lambda: block(x + 1.0) * 2.0)

    with fuses(2):
        yes, no = fn(X, tf.constant(True)), fn(X, tf.constant(False))
    assert_close(yes, block(X))
    assert_close(no, block(X + 1.0) * 2.0)


def test_tf_data_map():
    with fuses(1):
        data = tf.data.Dataset.from_tensors(X).map(block)
        y = next(iter(data))
    assert_close(y, block(X))


def test_a_traced_function_keeps_its_graph():
    """Switches act on functions that have not been run yet."""
    fn = tf.function(block)
    with metal_ops.fusion.enabled(cpu=True):
        fn(X)
    with metal_ops.fusion.disabled():
        before = metal_ops.fusion.status().fused
        assert_close(fn(X), block(X))
        late = tf.function(block)
        late(X)
    with metal_ops.fusion.enabled(cpu=True):
        late(X)
        assert metal_ops.fusion.status().fused == before
        late(X[:2])  # another kind of argument is a new graph
        assert metal_ops.fusion.status().fused == before + 1


def test_gradients_are_unchanged():
    """They are traced before the pass, from the plain ops; in one function with them the forward part is fused."""
    w, b = tf.Variable(W), tf.Variable(B)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            v = tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME") + b + x)
            v = tf.nn.relu6(tf.nn.conv2d(v, w, 1, "SAME") + b)
            loss = tf.reduce_sum(tf.square(v))
        return loss, tape.gradient(loss, [x, w, b])

    expected = step(X)
    function = tf.function(step)
    with fuses(2):
        got = function(X)
    for a, c in zip(tf.nest.flatten(expected), tf.nest.flatten(got), strict=True):
        np.testing.assert_allclose(c, a, rtol=1e-5, atol=1e-4)
        assert np.abs(a).max() > 0.1


def test_gradient_of_a_function_that_was_fused():
    """The tape outside: the function is split in a forward and a backward part, and the tensors that backward
    needs are kept."""
    function = tf.function(block)
    with fuses(0), tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        inside, outside = function(X), block(X)
    assert_close(tape.gradient(inside, X), tape.gradient(outside, X))


def test_keras_predict():
    expected = network()(IMAGES, training=False)
    model = network()
    with fuses(4):
        got = model.predict(IMAGES, batch_size=7, verbose=0)
    assert_close(got, expected)


def test_keras_fit():
    """Losses of 20 steps, with a last batch of another size each epoch."""
    losses = []
    for enabled in (False, True):
        model = network()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        with fuses(1) if enabled else contextlib.nullcontext():
            history = model.fit(IMAGES, LABELS, batch_size=10, epochs=7, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[1][-1] < 0.9 * losses[1][0]


def test_saved_model(tmp_path):
    """The saved file is clean: the pass runs where the model is served."""
    model = network()
    with metal_ops.fusion.enabled(cpu=True):
        model.export(str(tmp_path / "model"), verbose=False)
        model.predict(IMAGES[:1], verbose=0)
    assert b"MetalFused" not in (tmp_path / "model" / "saved_model.pb").read_bytes()
    expected = model(IMAGES, training=False)

    served = tf.saved_model.load(str(tmp_path / "model"))
    signature = served.signatures["serving_default"]
    with fuses(4):
        (got,) = signature(tf.constant(IMAGES)).values()
    assert_close(got, expected)
    with metal_ops.fusion.enabled(cpu=True):
        found = metal_ops.fusion.explain(signature)
    assert ["BatchNorm", "Add", "Swish"] in [f.fused_ops for f in found.fused], found


def test_xla_and_eager_are_left_alone():
    compiled = tf.function(block, jit_compile=True)
    with fuses(0, 0):
        assert_close(compiled(X), block(X))
    with metal_ops.fusion.enabled(cpu=True):
        found = metal_ops.fusion.explain(compiled, X)
    assert [miss.condition for miss in found.missed] == ["xla"] and not found.fused
    assert found.after == found.before


def test_the_cpu_is_left_alone_by_default():
    before = metal_ops.fusion.status()
    tf.function(block)(X)
    assert metal_ops.fusion.status() == before


def test_control_outputs_are_kept():
    """A function may be told to run a node that no result needs: it is known by name, and has to stay."""

    concrete = tf.function(
        lambda x: tf.nn.relu(tf.nn.conv2d(x, W, 1, "SAME"))
    ).get_concrete_function(X)
    definition = concrete.function_def
    conditions = []
    for keep in (False, True):
        if keep:
            definition.signature.control_output.append("kept")
            definition.control_ret["kept"] = "Conv2D"
        request = _explain.placing_request(tf, concrete, definition)
        with metal_ops.fusion.enabled(cpu=True):
            reply = _native.explain(request.SerializeToString())
        conditions.append([miss["condition"] for miss in reply["missed"]])
    assert conditions == [[], ["fetched"]]


def test_sessions_are_left_to_grappler():
    """A session's graph is placed before its fetches are known: any node may be fetched later."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, fuses(0, 0):
        x = tf.compat.v1.placeholder(tf.float32, X.shape)
        v = tf.nn.conv2d(x, W.numpy(), 1, "SAME")
        y = tf.nn.relu(v)
        a = session.run(y, {x: X.numpy()})
        b, c = session.run([v, y], {x: X.numpy()})
        d = session.run(y, {v: -X.numpy()})
    assert_close(a, np.maximum(b, 0))
    assert_close(a, c)
    assert_close(d, np.maximum(-X, 0))


def test_environment_variable():
    """METAL_OPS_FUSION, in processes that run side by side."""
    code = (
        "import json, metal_ops; s = metal_ops.fusion.status(); "
        "everything = [p.name for p in metal_ops.fusion.patterns()]; "
        "print(json.dumps([s.enabled, s.cpu, s.patterns, everything]))"
    )
    wrong = Process("-c", code, METAL_OPS_FUSION="bias,residuals")
    asked = ("0", "1", "", "bias, residual")
    running = [Process("-c", code, METAL_OPS_FUSION=each) for each in asked]
    for each, process in zip(asked, running, strict=True):
        enabled, cpu, patterns, everything = process.result()
        assert enabled == (each != "0") and not cpu
        chosen = ["conv2d", "matmul", "bias", "residual"] if "bias" in each else everything
        assert patterns == chosen
    code_of_exit, _, error = wrong.finish()
    assert code_of_exit != 0
    assert "no pattern 'residuals'; expected some of conv2d" in error
    assert "METAL_OPS_FUSION is 'bias,residuals'" in error
