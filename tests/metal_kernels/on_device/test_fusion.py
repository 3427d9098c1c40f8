"""The fusion pass on the Metal device: on by default, for nodes placed there, with the result of the plain ops."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings

import metal_ops
from metal_ops import cli
from tests.fusion import test_batch_norm_grad as norm_grad
from tests.fusion import test_bias_grad as bias_grad
from tests.fusion import test_expressions as expressions
from tests.fusion import test_quantized_product as products
from tests.fusion import test_random_graphs as random_graphs
from tests.fusion import test_rope as rope
from tests.fusion import test_rope_grad as rope_grad
from tests.fusion import test_swiglu_grad as swiglu_grad
from tests.fusion import test_updates as updates
from tests.fusion.harness import assert_rounded, look, same_as_eager, values, wide
from tests.processes import Process

pytestmark = pytest.mark.release

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.fixture(autouse=True)
def on_the_device(request):
    """With soft placement off: ops without a kernel there fail. Keras needs it for seeds and counters, random graphs
    for calculations with shapes."""
    with_keras = "keras" in request.node.name
    tf.config.set_soft_device_placement(with_keras or "random" in request.node.name)
    with contextlib.nullcontext() if with_keras else tf.device("/GPU:0"):
        yield
    tf.config.set_soft_device_placement(False)


def operands(dtype: str = "float32", nchw: bool = False) -> dict[str, tf.Tensor]:
    shape, out = ((2, 4, 5, 6), (2, 6, 5, 6)) if nchw else ((2, 5, 6, 4), (2, 5, 6, 6))
    given = {"x": shape, "w": (3, 3, 4, 6), "b": (6,), "r": out}
    made = {name: values(shape, dtype, seed) for seed, (name, shape) in enumerate(given.items())}
    return made | {"w": made["w"] / tf.constant(4.0, dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_by_default(dtype):
    t = operands(dtype)

    def fn(x, t=t):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"]) + t["r"])

    expected = fn(t["x"])
    assert expected.device.endswith("GPU:0")
    before = metal_ops.fusion.status()
    got = tf.function(fn)(t["x"])
    assert got.device.endswith("GPU:0")
    assert metal_ops.fusion.status().fused == before.fused + 1
    assert_rounded(got, fn(wide(t["x"]), wide(t)))
    assert np.abs(np.asarray(got, "f")).max() > 0.5


@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("strides, dilations", [(1, 1), (2, 1), (1, (2, 1))], ids=str)
@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
def test_layouts(nchw, strides, dilations, padding):
    t = operands(nchw=nchw)
    layout = "NCHW" if nchw else "NHWC"
    if padding == "EXPLICIT":
        of_size = [[2, 1], [0, 3]]
        padding = [[0, 0], [0, 0], *of_size] if nchw else [[0, 0], *of_size, [0, 0]]

    def fn(x):
        v = tf.nn.conv2d(x, t["w"], strides, padding, data_format=layout, dilations=dilations)
        return tf.nn.elu(tf.nn.bias_add(v, t["b"], data_format=layout))

    assert same_as_eager(fn, t["x"], cpu=False).fused == [["BiasAdd", "Elu"]]


fused_chains: list[int] = []  # of each random graph

ACTIVATIONS = {
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "Elu": tf.nn.elu,
    "LeakyRelu": lambda v: tf.nn.leaky_relu(v, 0.3),
    "Sigmoid": tf.sigmoid,
    "Tanh": tf.tanh,
    "Swish": tf.nn.silu,
    "GeluExact": tf.nn.gelu,
    "GeluApproximate": lambda v: tf.nn.gelu(v, approximate=True),
    "Mish": keras.activations.mish,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    """After a convolution with a residual, by AddN, and after a batch of products."""
    t = operands(dtype)
    a, b = values((2, 3, 7, 5), dtype), values((3, 5, 6), dtype)
    activation = ACTIVATIONS[name]

    def fn(x, a, b=b, t=t):
        v = tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"])
        return activation(tf.raw_ops.AddN(inputs=[t["r"], v])), activation(tf.matmul(a, b) + t["b"])

    seen = same_as_eager(fn, t["x"], a, cpu=False, exact=fn(*wide([t["x"], a, b, t])))
    assert sorted(seen.fused) == sorted([["BiasAdd", "Add", name], ["BiasAdd", name]])
    assert {node.device for node in seen.explanation.after} == {"GPU:0"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_batch_norm(nchw, decomposed, dtype):
    """TensorFlow's op and Keras' ops, along the channels of either layout; with a bias before."""
    t = operands(dtype, nchw=nchw)
    layout = "NCHW" if nchw else "NHWC"
    mean, variance = values((6,), seed=8), tf.constant(np.abs(values((6,), seed=9)))
    gamma, beta = values((6,), seed=10), values((6,), seed=11)
    vectors = [tf.cast(v, dtype) for v in (gamma, beta)]
    if nchw:
        vectors = [tf.reshape(v, [6, 1, 1]) for v in vectors]

    def fn(x, t=t, vectors=vectors):
        v = tf.nn.conv2d(x, t["w"], 1, "SAME", data_format=layout)
        v = tf.nn.bias_add(v, t["b"], data_format=layout)
        if decomposed:
            v = vectors[0] * v - vectors[1]
        else:
            v = tf.raw_ops.FusedBatchNormV3(
                x=v, scale=gamma, offset=beta, mean=mean, variance=variance, epsilon=0.5,
                data_format=layout, is_training=False,
            ).y  # fmt: skip
        return tf.nn.relu6(v + t["r"])

    # With a bias before, a shift is made of it, and rounded.
    exact, before = fn(*wide([t["x"], t, vectors])), 3.0 if decomposed else 0.0
    seen = same_as_eager(fn, t["x"], cpu=False, size=16.0, exact=exact, before=before)
    assert seen.fused == [["BatchNorm", "Add", "Relu6"]]


def test_nchw_bias_along_width():
    """A [C] on NCHW runs along the width, which here is as long as there are channels; a [C, 1, 1] is a bias."""
    t = operands(nchw=True)

    def fn(x, b):
        return tf.nn.conv2d(x, t["w"], 1, "SAME", data_format="NCHW") + b

    bias = tf.reshape(t["b"], [6, 1, 1])
    assert same_as_eager(fn, t["x"], bias, cpu=False).fused == [["BiasAdd"]]
    seen = same_as_eager(fn, t["x"], t["b"], cpu=False)
    assert seen.fused == [] and seen.conditions == {"bias_layout"}


def test_switched_off():
    """Then the plain ops run. TensorFlow's own remapper would make an op of them that no Metal device has."""
    t = operands()

    def fn(x, a):
        v = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"]))
        return v, tf.nn.relu(tf.nn.bias_add(tf.matmul(a, a), t["b"][:5]))

    a = values((5, 5))
    expected = fn(t["x"], a)
    with metal_ops.fusion.disabled():
        before = metal_ops.fusion.status()
        got = tf.function(fn)(t["x"], a)
        assert metal_ops.fusion.status() == before
    for want, each in zip(expected, got, strict=True):
        assert each.device.endswith("GPU:0")
        np.testing.assert_array_equal(each, want)


def test_one_device():
    t = operands()

    def fn(x, device):
        v = tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"])
        with tf.device(device):
            return tf.nn.relu(v)

    assert same_as_eager(lambda x: fn(x, "/GPU:0"), t["x"], cpu=False).fused == [
        ["BiasAdd", "Relu"]
    ]
    seen = same_as_eager(lambda x: fn(x, "/CPU:0"), t["x"], cpu=True)
    assert seen.fused == [["BiasAdd"]] and seen.conditions == {"one_device"}


def test_the_cpu_is_left_alone():
    t = operands()

    def fn(x):
        with tf.device("/CPU:0"):
            return tf.nn.relu(tf.nn.conv2d(x, t["w"], 1, "SAME"))

    seen = same_as_eager(fn, t["x"], cpu=False)
    assert seen.fused == [] and seen.conditions == {"cpu"}


@pytest.mark.parametrize("transpose", [False, True])
def test_products(transpose):
    a, b, bias = values((3, 7, 5)), values((6, 5) if transpose else (5, 6)), values((6,))

    def fn(a):
        return tf.nn.gelu(tf.matmul(a[0], b, transpose_b=transpose) + bias)

    assert same_as_eager(fn, a, cpu=False).fused == [["BiasAdd", "GeluExact"]]


def test_batch_norm_with_its_bias():
    t = operands()
    gamma, mean, variance = (
        values((6,), seed=7),
        values((6,), seed=8),
        tf.constant(np.abs(values((6,), seed=9))),
    )

    def fn(x):
        v = tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"])
        v = tf.nn.batch_normalization(v, mean, variance + 0.5, t["b"], gamma, 0.01)
        return tf.nn.relu(v + t["r"])

    seen = same_as_eager(fn, t["x"], cpu=False, size=16.0)
    assert seen.fused == [["BatchNorm", "Add", "Relu"]]
    assert len(seen.explanation.fused[0].added) == 2


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = image = keras.Input((8, 8, 3))
    x = shortcut = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, padding="same")(x))
    x = keras.layers.Activation("silu")(keras.layers.Add()([x, shortcut]))
    model = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    # XLA has no compiler for METAL.
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return model


IMAGES = np.asarray(values((5, 8, 8, 3)))


def test_keras_predict():
    model = network()
    expected = model(IMAGES, training=False)
    before = metal_ops.fusion.status()
    got = model.predict(IMAGES, batch_size=2, verbose=0)
    after = metal_ops.fusion.status()
    assert after.fused >= before.fused + 3 and after.errors == before.errors
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_keras_fit():
    """20 steps, of batches of 2, 2 and 1: equal losses."""
    losses, fused = [], []
    labels = np.asarray(values((5, 3), seed=2))
    for switched in (contextlib.nullcontext(), metal_ops.fusion.disabled()):
        model, before = network(), metal_ops.fusion.status()
        with switched:
            history = model.fit(IMAGES, labels, batch_size=2, epochs=7, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
        fused.append(metal_ops.fusion.status().fused - before.fused)
    assert fused[0] >= 3 and fused[1] == 0
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < 0.9 * losses[0][0]


def test_keras_saved_model_by_the_command(tmp_path, capsys):
    """Saved clean, served fused; and `fusion explain` says so."""
    model = network()
    expected = model(IMAGES, training=False)
    folder = tmp_path / "model"
    model.export(str(folder), verbose=False)
    assert b"MetalFused" not in (folder / "saved_model.pb").read_bytes()
    before = metal_ops.fusion.status().fused
    (got,) = (
        tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(IMAGES)).values()
    )
    assert metal_ops.fusion.status().fused >= before + 3
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)

    page = tmp_path / "page.html"
    capsys.readouterr()
    assert cli.main(["fusion", "explain", str(folder), "--html", str(page)]) == 0
    said = capsys.readouterr().out
    assert "3 of 3 candidates fused" in said and "MetalFusedConv2D[BatchNorm, Add, Swish]" in said
    assert "MetalFusedConv2D" in page.read_text() and '"GPU:0"' in page.read_text()


def test_loops_branches_and_any_batch():
    t = operands()
    square = values((3, 3, 4, 4)) / 4.0

    def block(x):
        return tf.nn.relu(tf.nn.conv2d(x, square, 1, "SAME") + t["b"][:4] + x)

    def plain(x, turns):
        for _ in range(turns):
            x = block(x)
        return block(x) if turns > 2 else -x

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None, None, None, 4]), tf.TensorSpec([], tf.int32)],
    )
    def fn(x, turns):
        turned = tf.while_loop(
            lambda i, _: i < turns, lambda i, x: (i + 1, block(x)), [0, x],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None, None, 4])],
        )[1]  # fmt: skip
        return tf.cond(turns > 2, lambda: block(turned), lambda: -turned)

    before = metal_ops.fusion.status()
    for x, turns in ((t["x"], 3), (t["x"][:1], 2)):
        np.testing.assert_allclose(fn(x, turns), plain(x, turns), rtol=0, atol=1e-4)
    after = metal_ops.fusion.status()
    assert after.fused == before.fused + 2 and after.errors == before.errors


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(random_graphs.GRAPH)
def test_random_graphs(graph):
    """Those of the CPU's suite, a few of them: fused is unfused here too."""
    fn = random_graphs.build(graph)
    x = values((graph["batch"], 5, 4, random_graphs.C), seed=30)
    batch = graph["batch"] if graph["known_batch"] else None
    signature = [tf.TensorSpec([batch, *x.shape[1:]])]
    size = max(8.0, *(float(np.abs(t).max()) for t in fn(x)))
    # Each of up to 11 steps passes an error on, at most about twice as large.
    seen = same_as_eager(fn, x, signature=signature, cpu=False, size=64 * size)
    fused_chains.append(len(seen.fused))


def test_the_graphs_above_were_fused():
    assert len(fused_chains) >= 60
    assert sum(n >= 1 for n in fused_chains) >= 25 and sum(n >= 2 for n in fused_chains) >= 6


EXPRESSIONS = {
    "layer-norm": (expressions.by_hand, [expressions.X]),
    "keras-layer-norm": (expressions.by_moments, [expressions.X[0]]),
    "rms-norm": (expressions.rms, [expressions.X]),
    "swiglu": (expressions.GATES["tf.nn.silu"], [expressions.X]),
    "split": (expressions.split, [expressions.X]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name, dtype):
    fn, args = EXPRESSIONS[name]
    args = [tf.cast(arg, dtype) for arg in args]
    seen = same_as_eager(fn, *args, cpu=False, exact=fn(*wide(args)), before=0.02)
    assert len(seen.fused) == 1, seen.explanation
    large = {node.device for node in seen.explanation.after if node.dtype == dtype}
    assert large == {"GPU:0"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", products.FORMATS)
def test_dequantized_products(name, dtype):
    x, weights = tf.cast(products.X, dtype), products.MADE[name]
    exact = products.dequantized(wide(x), weights)
    products.one_product(lambda x: products.dequantized(x, weights), x, cpu=False, exact=exact)


@pytest.mark.parametrize("name", products.ELEMENTS)
def test_products_of_codes_in_elementary_ops(name):
    products.one_product(products.ELEMENTS[name], products.X, cpu=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slope", bias_grad.SLOPES)
def test_bias_gradients(slope, dtype):
    d, y = (tf.cast(v, dtype) for v in (bias_grad.D, bias_grad.Y))
    for total in bias_grad.SUMS:

        def fn(d, y, total=total):
            return bias_grad.both(d, y, slope, total)

        exact = fn(*wide([d, y]))
        seen = bias_grad.one_op(fn, d, y, slope=slope, cpu=False, exact=exact, before=1.0)
        large = {node.device for node in seen.explanation.after if node.dtype == dtype}
        assert large == {"GPU:0"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slope", norm_grad.SLOPES)
def test_gradients_of_batch_norm(slope, dtype):
    args = [tf.cast(v, dtype) for v in (norm_grad.D, norm_grad.Y, norm_grad.X)]
    for training in (True, False):

        def fn(*args, training=training):
            return norm_grad.both(*args, slope, training=training)

        exact = fn(*wide(args))
        seen = norm_grad.one_op(fn, *args, slope=slope, cpu=False, exact=exact, size=16.0)
        assert {node.device for node in seen.explanation.after if node.dtype == dtype} == {"GPU:0"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", rope_grad.FORMS)
def test_rope_gradients(name, dtype):
    d, x, cos, sin = (tf.cast(v, dtype) for v in (rope_grad.D, rope.X, rope.COS, rope.SIN))
    exact = rope_grad.gradient(*wide([d, x]), name, cos=wide(cos), sin=wide(sin))
    seen = same_as_eager(
        lambda d, x: rope_grad.gradient(d, x, name, cos=cos, sin=sin), d, x, cpu=False, exact=exact
    )
    assert seen.fused == [["RopeGrad"]], seen.explanation


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", swiglu_grad.GATES)
def test_swiglu_gradients(name, dtype):
    args = [tf.cast(v, dtype) for v in (swiglu_grad.A, swiglu_grad.B, swiglu_grad.D)]
    gate = swiglu_grad.GATES[name]
    exact = swiglu_grad.gradients(*wide(args), gate)
    seen = same_as_eager(
        lambda *args: swiglu_grad.gradients(*args, gate), *args, cpu=False, exact=exact
    )
    assert seen.fused == [["SwigluGrad"]], seen.explanation


@pytest.mark.parametrize("rows", [30, None])
@pytest.mark.parametrize("name", bias_grad.SEVERAL)
def test_gradients_of_several_ops(name, rows):
    bias_grad.test_activations_of_several_ops(name, rows)


def test_gradients_with_channels_second():
    for total in bias_grad.PLANES:
        bias_grad.test_channels_second(total)
    norm_grad.test_channels_second(True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", rope.FORMS)
def test_rope(name, dtype):
    turn, interleaved = rope.FORMS[name]
    x, cos, sin = (tf.cast(v, dtype) for v in (rope.X, rope.COS, rope.SIN))
    exact = rope.apply(turn, *wide([x, cos, sin]))
    seen = rope.one_rope(
        lambda x: rope.apply(turn, x, cos, sin), x, interleaved=interleaved, cpu=False, exact=exact
    )
    assert {node.device for node in seen.explanation.after if node.dtype == dtype} == {"GPU:0"}


def test_attention_is_left_to_the_cpu():
    """One op was measured slower here than the three that it would replace."""
    fn, args = expressions.attend, expressions.qkv()
    seen = same_as_eager(fn, *args, cpu=False)
    assert not seen.fused and "attention_device" in seen.conditions


@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("epilogue", [True, False], ids=["Relu", "alone"])
def test_pad(epilogue, nchw):
    t = operands(nchw=nchw)
    sides = [[0, 0], [0, 0], [1, 2], [3, 0]] if nchw else [[0, 0], [1, 2], [3, 0], [0, 0]]
    layout = "NCHW" if nchw else "NHWC"

    def fn(x):
        v = tf.nn.conv2d(tf.pad(x, sides), t["w"], 1, "VALID", data_format=layout)
        return tf.nn.relu(v) if epilogue else v

    seen = same_as_eager(fn, t["x"], cpu=False)
    assert seen.fused == [["Pad", "Relu"] if epilogue else ["Pad"]]
    assert "Pad" not in {node.op for node in seen.explanation.after}


def test_without_fused_kernels_there_is_nothing_to_fuse():
    """A "GPU" may be any device: whether it has fused kernels is asked of TensorFlow's registry."""
    code = """
import json, tensorflow as tf, metal_ops
metal_ops.device.load(kernels=False)
w = tf.ones([3, 3, 4, 6])
found = metal_ops.fusion.explain(
    lambda x: tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")), tf.TensorSpec([2, 5, 6, 4]))
print(json.dumps([len(found.fused), *((m.condition, m.reason) for m in found.missed)]))
"""
    fused, (condition, reason) = Process("-c", code).result()
    assert (fused, condition) == (0, "kernel")
    assert reason.startswith(
        "No kernel of MetalFusedConv2D for float on GPU devices takes 'Conv2D'"
    )
    t = operands()
    assert look(lambda x: tf.nn.relu(tf.nn.conv2d(x, t["w"], 1, "SAME")), t["x"], cpu=False).fused


# Momentum with everything around it; of the others, the cases in which shaders differ.
AROUND = [("given", name) for name in updates.AROUND] + [
    (kind, name)
    for kind in updates.KINDS
    if kind != "given"
    for name in ("m-read-before", "weights-written-between", "m-written-after")
]


@pytest.mark.parametrize("kind, name", AROUND)
def test_updates(kind: str, name: str):
    """Optimizers in elementary ops: one op, which the device has, with the order kept."""
    rule = updates.KINDS[kind]
    assert updates.check(updates.AROUND[name], 1, rule).fused == [[rule.shown]]


@pytest.mark.parametrize("name", updates.OPTIMIZERS)
def test_optimizers_of_keras(name: str):
    updates.test_keras_optimizer(name)
