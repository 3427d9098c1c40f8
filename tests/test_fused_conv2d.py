"""MetalFusedConv2D and metal_ops.fused_conv2d against float64: values, gradients, bad arguments, threads."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.cases import all_pairs
from tests.fused_cases import ACTIVATIONS, CHAINS, DTYPES, SOME, Chain, assert_close, rounded
from tests.oracles import fused, numeric
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Every pair of these, with whatever the other axes are. Odd and even sizes, more channels than a tile is deep or wide.
AXES: dict[str, tuple[Any, ...]] = {
    "image": ((2, 17, 14), (1, 14, 19), (3, 15, 15)),
    "channels": (1, 3, 16, 35),
    "filters": (1, 4, 17, 64),
    "window": ((1, 1), (3, 3), (2, 5), (4, 1)),
    "strides": ((1, 1), (2, 1), (3, 2)),
    "dilations": ((1, 1), (2, 3)),
    "padding": ("SAME", "VALID", (2, 1, 0, 3)),
    "nchw": (False, True),
    "dtype": DTYPES,
    "chain": SOME,
}
# Cases that need shapes of their own.
EDGES: list[dict[str, Any]] = [
    dict(image=(1, 1, 1), window=(1, 1)),
    dict(image=(1, 1, 1), window=(3, 3), padding="SAME"),
    dict(image=(1, 3, 3), window=(3, 3)),  # one point comes out
    dict(image=(2, 1, 40), window=(1, 9), strides=(1, 2)),
    dict(image=(1, 2, 2), window=(3, 3), padding=(5, 6, 7, 8)),  # rows that see nothing but padding
    dict(image=(1, 9, 9), window=(2, 2), dilations=(8, 8)),
    dict(
        image=(1, 40, 40), channels=2, filters=2, strides=(7, 9), padding="SAME"
    ),  # strides beyond the window
    dict(image=(1, 4, 4), channels=300, filters=3),  # long sums
    dict(image=(1, 7, 7), channels=3, filters=130, window=(3, 3), padding="SAME"),
    dict(image=(0, 6, 6), padding="SAME"),
    dict(image=(0, 6, 6)),
    dict(image=(2, 6, 6), filters=0),
    dict(image=(2, 6, 6), channels=0),  # sums without terms
    dict(image=(2, 6, 6), channels=0, filters=40, window=(1, 1)),
    dict(image=(2, 0, 6), padding="SAME"),
]
EDGE = dict(channels=5, filters=6, window=(2, 2), strides=(1, 1), dilations=(1, 1), padding="VALID")


def normal(shape, dtype, seed):
    return rounded(np.random.default_rng(seed).normal(size=shape), dtype)


def spread(values, nchw):
    return [1, 1, *values] if nchw else [1, *values, 1]


def attributes(strides, padding, dilations, nchw):
    given = dict(strides=spread(strides, nchw), dilations=spread(dilations, nchw))
    if isinstance(padding, str):
        return given | dict(padding=padding, data_format="NCHW" if nchw else "NHWC")
    explicit = [0] * 4 + list(padding) if nchw else [0, 0, *padding, 0, 0]
    return given | dict(
        padding="EXPLICIT", explicit_paddings=explicit, data_format="NCHW" if nchw else "NHWC"
    )


def check(image, channels, filters, window, strides, dilations, padding, nchw, dtype, chain):
    context = (
        f"{(image, channels, filters, window, strides, dilations, padding, nchw, dtype)} {chain}"
    )
    n, h, w = image
    x = normal((n, channels, h, w) if nchw else (n, h, w, channels), dtype, 1)
    weights = normal((*window, channels, filters), dtype, 2)
    product = fused.conv2d(x, weights, strides, padding, dilations, nchw)
    args = chain.args(filters, product[0].shape, dtype, 3)
    got = raw_ops.metal_fused_conv2d(
        x, weights, args, **attributes(strides, padding, dilations, nchw), **chain.attributes()
    )
    expected = chain.expected(product, args, 1 if nchw else -1)
    assert_close(got, expected, window[0] * window[1] * channels, dtype, context)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_every_sequence(nchw, dtype):
    for chain in CHAINS:
        check((2, 4, 5), 3, 18, (2, 3), (1, 1), (1, 1), "SAME", nchw, dtype, chain)


def pairs() -> list[dict[str, Any]]:
    """A small selection of all combinations that has every pair of values."""
    # By index, as values must be hashable and told apart; the sequences take turns, every one comes with the rest in
    # turn.
    axes = {name: tuple(range(len(v))) for name, v in AXES.items() if name != "chain"}
    rows = [{name: AXES[name][i] for name, i in row.items()} for row in all_pairs(axes, ())]
    return [
        row | dict(chain=chain) for row, chain in zip(rows, itertools.cycle(SOME), strict=False)
    ]


def test_every_pair():
    rows = pairs()
    assert len(rows) >= 16  # as many as two axes of four have pairs
    for row in rows:
        check(**row)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_edges(nchw, dtype):
    for edge, chain in zip(EDGES, itertools.cycle(SOME), strict=False):
        check(**(EDGE | edge | dict(nchw=nchw, dtype=dtype, chain=chain)))


def test_padding_is_zero_and_not_the_border():
    """With ones everywhere each result counts the points of the window that lie inside."""
    ones = np.ones((1, 3, 4, 1), np.float32)
    got = raw_ops.metal_fused_conv2d(
        ones,
        np.ones((3, 3, 1, 1), np.float32),
        [],
        strides=[1] * 4,
        padding="SAME",
        fused_ops=["Relu"],
    )
    np.testing.assert_array_equal(got[0, :, :, 0], [[4, 6, 6, 4], [6, 9, 9, 6], [4, 6, 6, 4]])


def test_nan_reaches_its_window_alone():
    x = np.ones((1, 5, 5, 2), np.float32)
    x[0, 0, 0, 1] = np.nan
    for nchw in (False, True):
        got = raw_ops.metal_fused_conv2d(
            x.transpose(0, 3, 1, 2) if nchw else x, np.ones((3, 3, 2, 20), np.float32), [],
            fused_ops=["Relu"], **attributes((1, 1), "SAME", (1, 1), nchw),
        )  # fmt: skip
        seen = np.isnan(np.asarray(got)).any(axis=1 if nchw else 3)[0]
        assert seen[:2, :2].all() and seen.sum() == 4


# ---- the function ---------------------------------------------------------------------------------------------------


def test_function_says_the_same_as_the_op():
    x, w = normal((2, 6, 7, 3), "float32", 0), normal((3, 2, 3, 4), "float32", 1)
    names = {v: k for k, v in metal_ops.ops._fused.ACTIVATIONS.items()}
    for chain, nchw in itertools.product(SOME, (False, True)):
        image = x.transpose(0, 3, 1, 2) if nchw else x
        given = attributes((2, 1), (1, 0, 2, 3), (1, 2), nchw)
        product, _ = fused.conv2d(image, w, (2, 1), (1, 0, 2, 3), (1, 2), nchw)
        args = chain.args(4, product.shape, "float32", 2)
        stage = args[: len(args) - chain.add]
        named: dict[str, Any] = dict(residual=args[-1]) if chain.add else {}
        if stage:
            named |= dict(bias=stage[0]) if chain.stage == "BiasAdd" else dict(batch_norm=stage)
        pairs = np.reshape(given["explicit_paddings"], (4, 2)).tolist()
        got = metal_ops.fused_conv2d(
            image, w, (2, 1), pairs, data_format=given["data_format"], dilations=given["dilations"],
            activation=names.get(chain.activation), epsilon=chain.epsilon, alpha=chain.alpha, **named,
        )  # fmt: skip
        want = raw_ops.metal_fused_conv2d(image, w, args, **given, **chain.attributes())
        np.testing.assert_array_equal(got, want)


def test_shapes_are_known_in_graphs():
    spec = tf.TensorSpec

    def shape(x, w, *args, fused_ops=("Relu",), strides=(1, 1), padding="VALID", nchw=False):
        @tf.function(input_signature=[x, w, *args])
        def f(x, w, *args):
            given = attributes(strides, padding, (1, 1), nchw)
            return raw_ops.metal_fused_conv2d(x, w, args, fused_ops=list(fused_ops), **given)

        return f.get_concrete_function().output_shapes

    w = spec([3, 3, 4, 6])
    assert shape(spec([None, 8, None, 4]), w, strides=(2, 2)).as_list() == [None, 3, None, 6]
    assert shape(spec([2, None, 8, 9]), w, padding="SAME", nchw=True).as_list() == [2, 6, 8, 9]
    assert shape(spec([2, 8, 9, None]), spec([3, 3, None, None])).as_list() == [2, 6, 7, None]
    assert shape(spec(None), w).as_list() == [None, None, None, 6]
    add = dict(fused_ops=("Add",))
    assert shape(spec([None] * 4), w, spec([5, 6, None, None]), **add).as_list() == [5, 6, None, 6]


# ---- gradients ------------------------------------------------------------------------------------------------------

LAYERS = [
    # strides, padding, dilations, nchw
    ((1, 1), "SAME", (1, 1), False),
    ((2, 1), "VALID", (1, 1), True),
    ((1, 2), (1, 0, 2, 1), (2, 1), False),
    ((1, 1), "SAME", (2, 2), True),
    ((65536, 6), (1, 0, 2, 1), (1, 1), False),  # beyond the image
    ((3, 65536), "SAME", (1, 1), True),
]


@pytest.mark.parametrize(
    "chain", [SOME[0], SOME[1], SOME[3], Chain("BiasAdd", True, "Tanh")], ids=str
)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients(layer, chain):
    """Against differences of the oracle."""
    strides, padding, dilations, nchw = layer
    x, w = (
        normal((1, 2, 5, 4) if nchw else (1, 5, 4, 2), "float32", 1),
        normal((2, 2, 2, 3), "float32", 2),
    )
    shape = fused.conv2d(x, w, strides, padding, dilations, nchw)[0].shape
    args, incoming = chain.args(3, shape, "float32", 3), normal(shape, "float32", 4)

    def loss(at, value):
        given = [x, w, *args]
        given[at] = value
        product = fused.conv2d(given[0], given[1], strides, padding, dilations, nchw)
        return float(np.sum(chain.expected(product, given[2:], 1 if nchw else -1)[0] * incoming))

    sources = [tf.constant(v) for v in (x, w, *args)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = raw_ops.metal_fused_conv2d(
            sources[0], sources[1], sources[2:],
            **attributes(strides, padding, dilations, nchw), **chain.attributes(),
        )  # fmt: skip
    for at, got in enumerate(tape.gradient(y, sources, tf.constant(incoming))):
        want = numeric.gradient(lambda value, at=at: loss(at, value), sources[at].numpy())
        numeric.assert_gradient(got, want, 2e-5, f"input {at}")


def test_gradients_in_a_graph_of_unknown_shapes_and_in_half_precision():
    w, b = (tf.constant(normal(s, "float16", i)) for i, s in enumerate([(3, 3, 2, 4), (4,)]))
    x = tf.constant(normal((2, 5, 6, 2), "float16", 2))

    def slopes(x, w, b):
        with tf.GradientTape() as tape:
            tape.watch([x, w, b])
            y = metal_ops.fused_conv2d(x, w, bias=b, activation="gelu")
        return tape.gradient(y, [x, w, b])

    spec = [tf.TensorSpec(None, tf.float16)] * 3
    for got, want in zip(tf.function(slopes, spec)(x, w, b), slopes(x, w, b), strict=True):
        assert got.dtype == tf.float16
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-3)


def test_trains():
    """A layer of it learns the function of a stock layer."""
    tf.keras.utils.set_random_seed(0)
    x = tf.constant(normal((8, 6, 6, 3), "float32", 0))
    goal = tf.nn.relu(tf.nn.conv2d(x, normal((3, 3, 3, 4), "float32", 1), 1, "SAME"))
    w, b = tf.Variable(normal((3, 3, 3, 4), "float32", 2)), tf.Variable(tf.zeros(4))
    losses = []
    for _ in range(150):
        with tf.GradientTape() as tape:
            y = metal_ops.fused_conv2d(x, w, bias=b, activation="leaky_relu")
            losses.append(tf.reduce_mean(tf.square(y - goal)))
        for variable, slope in zip((w, b), tape.gradient(losses[-1], [w, b]), strict=True):
            variable.assign_sub(0.1 * slope)
    assert losses[-1] < 0.2 * losses[0]


# ---- determinism, threads -------------------------------------------------------------------------------------------


def test_many_threads_at_once():
    """Calls do not disturb each other: each gives the bits that it gives alone, and gives them again."""
    inputs = [
        (normal((2, 9 + i, 12, 5), "float32", i), normal((3, 3, 5, 33), "float32", 9 + i))
        for i in range(8)
    ]

    def run(pair):
        return raw_ops.metal_fused_conv2d(
            *pair, [], strides=[1] * 4, padding="SAME", fused_ops=["Swish"]
        ).numpy().tobytes()  # fmt: skip

    alone = [run(pair) for pair in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert list(pool.map(run, inputs)) == alone


# argv: intra-op threads. Sizes that are split among them in every way that there is: rows, columns, filters packed.
DIGEST = """
import hashlib, itertools, json, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from metal_ops import raw_ops
from tests.test_fused_conv2d import attributes, normal
seen = hashlib.sha256()
for nchw, dtype, image in itertools.product((False, True), ("float32", "bfloat16"), ((1, 40, 40), (1, 2, 3))):
    n, h, w = image
    x = normal((n, 33, h, w) if nchw else (n, h, w, 33), dtype, 0)
    y = raw_ops.metal_fused_conv2d(x, normal((3, 3, 33, 130), dtype, 1), [], fused_ops=["Tanh"],
                                   **attributes((1, 1), "SAME", (1, 1), nchw))
    seen.update(y.numpy().tobytes())
for rows in (1, 50, 700):
    a, b = normal((3, rows, 90), "float32", 2), normal((90, 300), "float32", 3)
    seen.update(raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["Swish"]).numpy().tobytes())
print(json.dumps(seen.hexdigest()))
"""


def test_same_bits_for_any_number_of_threads():
    processes = [Process("-c", DIGEST, threads) for threads in ("1", "2", "7")]
    assert len({process.result() for process in processes}) == 1


# ---- bad arguments --------------------------------------------------------------------------------------------------

F, H = np.float32, np.float16
X, W = np.ones((1, 4, 4, 6), F), np.ones((3, 3, 6, 5), F)
BAD = [
    # input, filter, args, attributes, the sentence
    (np.ones((4, 4, 6), F), W, [], {},
     r"MetalFusedConv2D: input must have shape \[batch, height, width, channels\], got \[4, 4, 6\]"),
    (np.ones((4, 4, 6), F), W, [], dict(data_format="NCHW"),
     r"input must have shape \[batch, channels, height, width\]"),
    (X, np.ones((3, 3, 6), F), [], {},
     r"filter must have shape \[height, width, channels, output channels\], got \[3, 3, 6\]"),
    # Grouped, of which a depthwise convolution is a case.
    (X, np.ones((3, 3, 2, 6), F), [], {},
     r"filter must have as many input channels as input, 6, got 2. Grouped convolutions are not fused: use tf.nn"),
    (X, np.ones((3, 3, 1, 6), F), [], {}, r"as input, 6, got 1. Grouped convolutions are not fused"),
    (X, np.ones((3, 3, 4, 6), F), [], {}, r"filter must have as many input channels as input, 6, got 4\.(?! Grouped)"),
    (X, np.ones((5, 3, 6, 5), F), [], {},
     r"filter must fit into input along height, got 5 \(5 with dilation\) for 4 with padding 0 and 0"),
    (X, W, [], dict(dilations=[1, 1, 2, 1]), r"along width, got 3 \(5 with dilation\) for 4"),
    (X, np.ones((0, 3, 6, 5), F), [], dict(padding="SAME"), r"filter must fit into input along height, got 0"),
    (X, W, [], dict(strides=[1, 1]), r"strides must have 4 values, got 2"),
    (X, W, [], dict(strides=[2, 1, 1, 1]), r"strides must be 1 for batch and channels, got \[2, 1, 1, 1\] with NHWC"),
    (X, W, [], dict(strides=[1, 1, 1, 2]), r"strides must be 1 for batch and channels"),
    (X, W, [], dict(strides=[1, 0, 1, 1]), r"strides must be from 1 to 2\^31 - 1, got \[1, 0, 1, 1\]"),
    (X, W, [], dict(dilations=[1, 1, -1, 1]), r"dilations must be from 1 to 2\^31 - 1, got \[1, 1, -1, 1\]"),
    (X, W, [], dict(dilations=[1, 2, 1, 1], data_format="NCHW"),
     r"dilations must be 1 for batch and channels, .* with NCHW"),
    (X, W, [], dict(padding="EXPLICIT"), r"explicit_paddings must have 8 values, .* got 0"),
    (X, W, [], dict(padding="EXPLICIT", explicit_paddings=[0, 0, 1, -1, 0, 0, 0, 0]),
     r"explicit_paddings must be from 0 to 2\^31 - 1, got \[0, 0, 1, -1, 0, 0, 0, 0\]"),
    (X, W, [], dict(padding="EXPLICIT", explicit_paddings=[1, 0, 0, 0, 0, 0, 0, 0]),
     r"explicit_paddings must be 0 for batch and channels, got \[1, 0, 0, 0, 0, 0, 0, 0\] with NHWC"),
    (X, W, [], dict(explicit_paddings=[0] * 8), r"explicit_paddings must be empty with padding VALID, got \[0, "),
    (X, W, [np.ones(6, F)], dict(fused_ops=["BiasAdd"]), r"bias \(args\[0\]\) must have shape \[5\], got \[6\]"),
    (X, W, [np.ones(5, H)], dict(fused_ops=["BiasAdd"]),
     r"args\[0\] must be float32 as input, got float16. Cast it first"),
    (X, W, [np.ones((1, 4, 4, 5), F)], dict(fused_ops=["Add"]),
     r"residual \(args\[0\]\) must have the output's shape \[1, 2, 2, 5\], got \[1, 4, 4, 5\]. It is not broadcast"),
    (X, W, [np.ones(5, F)] * 2 + [np.ones((2, 2, 5), F)], dict(fused_ops=["BatchNorm", "Add"]),
     r"residual \(args\[2\]\) must have the output's shape"),
    (X, W, [np.ones(5, F)] * 2, dict(fused_ops=["BatchNorm", "Add"]),
     r"args must have 3 or 5 tensors for fused_ops \[BatchNorm, Add\] .*, got 2"),
    (X, W, [np.ones(5, F)], dict(fused_ops=["Relu", "BiasAdd"]),
     r"fused_ops must be \[BiasAdd or BatchNorm\], .*, got \[Relu, BiasAdd\]"),
    # Sizes that only empty tensors have, whose products would not fit 64 bits.
    (np.ones((0, 4, 4, 6), F), np.ones((2**40, 3, 6, 0), F), [], {}, r"at most 2\^31 - 1 points along height"),
]  # fmt: skip


@pytest.mark.parametrize("x, w, args, given, sentence", BAD)
def test_bad_arguments(x, w, args, given, sentence):
    given = dict(fused_ops=["Relu"], strides=[1] * 4, padding="VALID") | given
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        raw_ops.metal_fused_conv2d(x, w, args, **given)
    with pytest.raises(ValueError, match=sentence):
        tf.function(lambda: raw_ops.metal_fused_conv2d(x, w, args, **given))()


def test_bad_arguments_found_when_the_graph_runs():
    unknown = tf.function(
        lambda x, w, r: raw_ops.metal_fused_conv2d(
            x, w, [r], strides=[1] * 4, padding="VALID", fused_ops=["Add"]
        ),
        input_signature=[tf.TensorSpec(None)] * 3,
    )
    np.testing.assert_array_equal(
        unknown(X, W, np.ones((1, 2, 2, 5), F)), np.full((1, 2, 2, 5), 55)
    )
    for x, w, r, sentence in [
        (
            X,
            W,
            np.ones((1, 2, 2, 1), F),
            r"residual .* must have the output's shape \[1, 2, 2, 5\]",
        ),
        (X, W[:, :, :2], np.ones((1, 2, 2, 5), F), "Grouped convolutions are not fused"),
        (X[0], W, np.ones((1, 2, 2, 5), F), "input must have shape"),
        (X[:, :1], W, np.ones((1, 0, 2, 5), F), "filter must fit into input along height"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
            unknown(x, w, r)


def test_bad_arguments_of_the_function():
    call = metal_ops.fused_conv2d
    for given, error, sentence in [
        ({}, ValueError, r"\[fused_conv2d\] .*at least one of them, got none. Without them it is tf.nn.conv2d"),
        (dict(bias=np.ones(5), batch_norm=[np.ones(5)] * 2), ValueError, "expected one of them, got both"),
        (dict(activation="softmax"), ValueError, "activation: expected one of relu, .* got 'softmax'"),
        (dict(activation="relu", padding="same"), ValueError, r"padding: expected 'SAME', .*'same'"),
        (dict(activation="relu", padding=[[1, 1], [1, 1]]), ValueError, "padding: expected four pairs"),
        (dict(activation="relu", strides=(1, 2, 3)), ValueError, r"strides: expected a number, .* got \(1, 2, 3\)"),
        (dict(activation="relu", dilations=()), ValueError, r"dilations: expected a number, .* got \(\)"),
        (dict(activation="relu", data_format="NHCW"), ValueError, "data_format: expected 'NHWC' or 'NCHW', got 'NHCW'"),
        (dict(residual=tf.ones([1, 4, 4, 5], tf.float16)), TypeError, "residual: expected dtype float32, got float16"),
        (dict(batch_norm=[tf.ones(5, tf.bfloat16)] * 2), TypeError, r"batch_norm \(scale\): expected dtype float32"),
    ]:  # fmt: skip
        with pytest.raises(error, match=sentence):
            call(X, W, **given)
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"\[fused_conv2d\] cannot be compiled by XLA"
    ):
        tf.function(lambda: call(X, W, activation="relu"), jit_compile=True)()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_has_a_name(activation):
    assert activation in metal_ops.ops._fused.ACTIVATIONS.values()
