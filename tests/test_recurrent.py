"""Recurrent sequences against NumPy in float64, and their gradients against its differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.ops.recurrent import GATES
from tests.calls import Call, normal
from tests.oracles import recurrent

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Sums of as many terms as there are units, in float32; then steps, each of which sees the error of the one before.
TOLERANCE = {"float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}
CALLS = {
    "lstm": Call(
        metal_ops.lstm,
        lambda: {
            "x": normal(7, 5, 6),
            "kernel": normal(6, 44, seed=1) / 3,
            "recurrent_kernel": normal(11, 44, seed=2) / 3,
            "bias": normal(44, seed=3),
        },
        ("x", "kernel", "recurrent_kernel", "bias"),
    ),
    "gru": Call(
        metal_ops.gru,
        lambda: {
            "x": normal(7, 5, 6),
            "kernel": normal(6, 33, seed=1) / 3,
            "recurrent_kernel": normal(11, 33, seed=2) / 3,
            "recurrent_bias": normal(33, seed=3),
        },
        ("x", "kernel", "recurrent_kernel", "recurrent_bias"),
    ),
    "minimal_gated_unit": Call(
        metal_ops.minimal_gated_unit,
        lambda: {
            "x": normal(7, 5, 6),
            "kernel": normal(6, 22, seed=1) / 3,
            "recurrent_kernel": normal(11, 22, seed=2) / 3,
        },
        ("x", "kernel", "recurrent_kernel"),
    ),
    "forget_gate_unit": Call(
        metal_ops.forget_gate_unit,
        lambda: {
            "x": normal(7, 5, 6),
            "kernel": normal(6, 22, seed=1) / 3,
            "recurrent_kernel": normal(11, 22, seed=2) / 3,
        },
        ("x", "kernel", "recurrent_kernel"),
    ),
}
CELLS = list(GATES)
# batch, time, features, units: tiles of the product in full and in part, one unit, empty tensors.
SIZES = [
    (1, 1, 1, 1),
    (3, 4, 2, 5),
    (13, 3, 5, 33),
    (31, 6, 3, 17),
    (2, 3, 4, 300),
    (0, 3, 2, 4),
    (2, 0, 3, 4),
    (2, 3, 0, 4),
    (2, 3, 2, 0),
]
SOURCES = ("x", "kernel", "recurrent_kernel", "bias", "h", "c", "projection", "recurrent_bias")
SOURCES += ("kernel_gamma", "recurrent_gamma", "cell_gamma", "cell_beta")


def make(cell, sizes, dtype="float32", masked=False, projected=None, normed=False):
    batch, steps, features, units = sizes
    random = np.random.default_rng(sum(sizes))
    kind = tf.as_dtype(dtype).as_numpy_dtype
    width, outputs = GATES[cell] * units, projected or units

    def values(*shape, scale=1.0):
        return (scale * random.normal(size=shape)).astype(kind)

    small = 1.0 / np.sqrt(max(units, 1))
    given = {
        "x": values(batch, steps, features),
        "kernel": values(features, width),
        "recurrent_kernel": values(outputs, width, scale=small),
        "bias": values(width),
        "h": values(batch, outputs, scale=0.5),
    }
    if cell == "lstm":
        given["c"] = values(batch, units)
    if cell == "gru":
        given["recurrent_bias"] = values(width)
    if cell == "forget_gate":
        given["beta"] = 0.7
    if projected:
        given["projection"] = values(units, projected, scale=small)
    if normed:
        given |= {
            f"{name}_gamma": (1 + values(width, scale=0.3)).astype(kind)
            for name in ("kernel", "recurrent")
        }
    if normed and cell == "lstm":
        given |= {
            "cell_gamma": (1 + values(units, scale=0.3)).astype(kind),
            "cell_beta": values(units),
        }
    if masked:
        given["mask"] = random.random((batch, steps)) < 0.6
    return given


def run(cell, given):
    """All states, the last one and, of an lstm, that of its cells."""
    given = {"bias": None, "h": None, **given}
    first = [given.pop(name) for name in ("x", "kernel", "recurrent_kernel", "bias")]
    h = given.pop("h")
    if cell == "lstm":
        return list(metal_ops.lstm(*first, None if h is None else (h, given.pop("c")), **given))
    if cell.startswith("gru"):
        return list(metal_ops.gru(*first, h, reset_after=cell == "gru", **given))
    kinds = {
        "minimal_gated": metal_ops.minimal_gated_unit,
        "forget_gate": metal_ops.forget_gate_unit,
    }
    return list(kinds[cell](*first, h, **given))


def tensors(given):
    return {k: v if k == "beta" else tf.constant(v) for k, v in given.items()}


def compare(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        a = np.asarray(a).astype(np.float64)
        assert np.max(np.abs(a - b), initial=0) <= tolerance * max(1, np.max(np.abs(b), initial=0))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", CELLS)
def test_states(cell, dtype):
    for sizes in SIZES:
        for masked in (False, True):
            given = make(cell, sizes, dtype, masked)
            found = run(cell, tensors(given))
            assert all(v.dtype == dtype for v in found)
            compare(found, recurrent.sequence(cell, given), TOLERANCE[dtype])


def test_without_the_optional():
    for cell in CELLS:
        given = make(cell, (3, 4, 2, 5))
        for name in ("bias", "h", "c", "recurrent_bias"):
            given.pop(name, None)
        compare(run(cell, tensors(given)), recurrent.sequence(cell, given), 2e-6)


@pytest.mark.parametrize("projected", [1, 3, 40])
@pytest.mark.parametrize("masked", [False, True])
def test_projection(projected, masked):
    given = make("lstm", (13, 4, 3, 17), masked=masked, projected=projected)
    compare(run("lstm", tensors(given)), recurrent.sequence("lstm", given), 2e-6)


# A norm over two units loses the digits of their difference; over many it is as exact as its input.
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", CELLS)
def test_layer_norm(cell, dtype):
    for sizes in [(3, 4, 2, 5), (13, 3, 5, 33), (31, 6, 3, 17), (2, 3, 4, 300), *SIZES[5:]]:
        for projected in (None, 3) if cell == "lstm" and sizes[3] else (None,):
            given = make(cell, sizes, dtype, sizes[0] == 13, projected, normed=True)
            found = run(cell, tensors(given))
            assert all(v.dtype == dtype for v in found)
            compare(found, recurrent.sequence(cell, given), 3 * TOLERANCE[dtype])


def test_each_norm_alone():
    for cell in CELLS:
        given = make(cell, (3, 4, 2, 9), normed=True)
        names = [name for name in SOURCES if name.endswith("_gamma") and name in given]
        for name in names:
            left = {k: v for k, v in given.items() if k not in names or k == name}
            if name != "cell_gamma":
                left.pop("cell_beta", None)
            compare(run(cell, tensors(left)), recurrent.sequence(cell, left), 6e-6)
        given.pop("cell_beta", None)
        compare(run(cell, tensors(given)), recurrent.sequence(cell, given), 6e-6)


def gradients(cell, given, incoming):
    inputs = tensors(given)
    sources = {k: inputs[k] for k in SOURCES if k in inputs}
    with tf.GradientTape() as tape:
        tape.watch(sources)
        found = run(cell, inputs)
    return tape.gradient(found, sources, output_gradients=[tf.constant(d) for d in incoming])


def test_gradients():
    """Gradients of every input, along two directions, against differences of the oracle."""
    cases = [
        (cell, masked, None, n) for cell in CELLS for masked in (False, True) for n in (False, True)
    ]
    cases += [("lstm", masked, 3, n) for masked in (False, True) for n in (False, True)]
    for cell, masked, projected, normed in cases:
        given = make(cell, (14, 5, 3, 21 if normed else 6), "float32", masked, projected, normed)
        random = np.random.default_rng(5)
        right = recurrent.sequence(cell, given)
        incoming = [random.normal(size=v.shape).astype(np.float32) for v in right]
        found = gradients(cell, given, incoming)
        for name, gradient in found.items():
            assert gradient.shape == given[name].shape
            for _ in range(2):
                direction = random.normal(size=gradient.shape)

                def loss(
                    step, name=name, direction=direction, given=given, incoming=incoming, cell=cell
                ):
                    moved = {**given, name: given[name].astype(np.float64) + step * direction}
                    states = recurrent.sequence(cell, moved)
                    return sum(np.sum(a * b) for a, b in zip(states, incoming, strict=True))

                expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
                actual = np.sum(np.asarray(gradient, np.float64) * direction)
                scale = np.linalg.norm(gradient) + 1
                case = (cell, masked, projected, normed, name)
                assert abs(actual - expected) <= 2e-5 * scale, case


# bfloat16 is eight times as coarse. A norm over few units multiplies their rounding errors.
@pytest.mark.parametrize("dtype, tolerance", [("float16", 5e-3), ("bfloat16", 4e-2)])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("normed", [False, True])
def test_gradients_of_halves(cell, normed, dtype, tolerance):
    kind = tf.as_dtype(dtype).as_numpy_dtype
    given = make(cell, (5, 4, 3, 21 if normed else 6), dtype, normed=normed)
    wide = {k: v if k == "beta" else v.astype(np.float32) for k, v in given.items()}
    random = np.random.default_rng(5)
    incoming = [random.normal(size=v.shape) for v in recurrent.sequence(cell, given)]
    found = gradients(cell, given, [v.astype(kind) for v in incoming])
    expected = gradients(cell, wide, [v.astype(np.float32) for v in incoming])
    for name, gradient in found.items():
        assert gradient.dtype == dtype
        compare([gradient], [np.asarray(expected[name], np.float64)], tolerance)


@pytest.mark.parametrize("sizes", [(0, 3, 2, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 2, 0)], ids=str)
def test_gradients_of_empty_tensors(sizes):
    for cell in CELLS:
        given = make(cell, sizes)
        incoming = [np.ones_like(v, np.float32) for v in recurrent.sequence(cell, given)]
        for name, gradient in gradients(cell, given, incoming).items():
            if name == "recurrent_bias" and sizes[3] == 0:
                continue  # [0] is none
            assert gradient.shape == given[name].shape
            if sizes[1] == 0 and name in ("h", "c"):
                np.testing.assert_array_equal(gradient, np.ones_like(gradient))


def test_lengths_are_a_mask():
    for cell in CELLS:
        given = make(cell, (4, 5, 2, 3))
        lengths = np.array([0, 2, 5, 9])
        found = run(cell, tensors(given | {"lengths": lengths}))
        mask = np.arange(5) < lengths[:, None]
        compare(found, recurrent.sequence(cell, given | {"mask": mask}), 2e-6)
        np.testing.assert_array_equal(found[0][1, 2:], np.stack(3 * [found[1][1]]))


LENGTHS = [2, 0, 5, 1]


def steps_of(x, lengths):
    """One sequence behind the other."""
    return np.asarray(x)[np.arange(x.shape[1]) < np.array(lengths, int)[:, None]]


def ragged(given, lengths=LENGTHS, kind="int64"):
    """The steps of each sequence alone."""
    splits = np.cumsum([0, *lengths]).astype(kind)
    return given | {"x": tf.RaggedTensor.from_row_splits(steps_of(given["x"], lengths), splits)}


def is_packed(found, expected, lengths=LENGTHS):
    """The states of steps, and the same behind them."""
    assert found[0].row_lengths().numpy().tolist() == lengths
    np.testing.assert_allclose(found[0].flat_values, steps_of(expected[0], lengths), atol=2e-6)
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_ragged_steps_are_lengths():
    for cell, kind in itertools.product(CELLS, ("int64", "int32")):
        given = make(cell, (4, 5, 2, 3), normed=kind == "int32")
        found = run(cell, ragged(given, kind=kind))
        is_packed(found, run(cell, given | {"lengths": LENGTHS}))
        assert found[0].row_splits.dtype == kind and found[0].shape.as_list() == [4, None, 3]
    for dtype in ("float16", "bfloat16"):
        found = run("gru", ragged(make("gru", (4, 5, 2, 3), dtype)))
        assert found[0].dtype == found[1].dtype == dtype


@pytest.mark.parametrize("lengths", [[], [0, 0], [3]], ids=str)
def test_ragged_without_steps(lengths):
    given = make("lstm", (len(lengths), 3, 2, 4))
    is_packed(
        run("lstm", ragged(given, lengths)), run("lstm", given | {"lengths": lengths}), lengths
    )


def test_gradients_of_ragged_steps():
    """As those of padded ones, of whose padding nothing is asked."""
    given = make("gru", (4, 5, 2, 3))
    weights = {k: tf.constant(v) for k, v in given.items() if k != "x"}
    packed, padded = ragged(given)["x"], tf.constant(given["x"])

    def gradients(x, **more):
        with tf.GradientTape() as tape:
            tape.watch([x.flat_values if isinstance(x, tf.RaggedTensor) else x, *weights.values()])
            y, h = run("gru", {"x": x, **weights, **more})
            y = y.flat_values if isinstance(y, tf.RaggedTensor) else tf.gather_nd(y, there)
            loss = tf.reduce_sum(tf.sin(y)) + tf.reduce_sum(h**2)
        x = x.flat_values if isinstance(x, tf.RaggedTensor) else x
        return tape.gradient(loss, {"x": x, **weights})

    there = np.argwhere(np.arange(5) < np.array(LENGTHS)[:, None])
    expected = gradients(padded, lengths=LENGTHS)
    expected["x"] = steps_of(expected["x"], LENGTHS)
    for call in (gradients, tf.function(gradients, autograph=False)):
        found = call(packed)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], atol=5e-6, err_msg=name)


def test_ragged_steps_in_a_graph_of_unknown_sizes(tmp_path):
    """And in a saved one."""
    given = make("lstm", (4, 5, 2, 3))
    weights = [tf.constant(given[name]) for name in ("kernel", "recurrent_kernel", "bias")]
    module = tf.Module()
    module.call = tf.function(
        lambda x: metal_ops.lstm(x, *weights),
        input_signature=[tf.RaggedTensorSpec([None, None, 2], ragged_rank=1)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for lengths in (LENGTHS, [1, 5, 5, 0]):
        x = ragged(given, lengths)["x"]
        expected = metal_ops.lstm(given["x"], *weights, lengths=lengths)
        is_packed(module.call(x), expected, lengths)
        is_packed(loaded.call(x), expected, lengths)


def test_rows_do_not_know_each_other():
    """The same bits whatever the batch, except for the instructions that a row's place in a tile takes."""
    given = make("lstm", (29, 6, 3, 40))
    whole = run("lstm", tensors(given))
    part = run("lstm", tensors({k: v[:5] if k in ("x", "h", "c") else v for k, v in given.items()}))
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_allclose(a[:5], b, atol=2e-6)


def test_in_a_graph_of_unknown_sizes():
    given = make("gru", (3, 4, 2, 5))
    kernel, recurrent_kernel = tf.constant(given["kernel"]), tf.constant(given["recurrent_kernel"])

    @tf.function(input_signature=[tf.TensorSpec([None, None, None])])
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            y, h = metal_ops.gru(x, kernel, recurrent_kernel)
        return y, h, tape.gradient(h, kernel)

    x = tf.constant(given["x"])
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        y, h = metal_ops.gru(x, kernel, recurrent_kernel)
    for a, b in zip(call(x), (y, h, tape.gradient(h, kernel)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_halves_in_a_graph(cell):
    """TensorFlow's graphs made one op of the product with x and the bias, which took minutes."""
    given = make(cell, (9, 7, 20, 24), "float16")
    given.pop("recurrent_bias", None)
    call = tf.function(lambda inputs: run(cell, inputs), autograph=False).get_concrete_function
    for missing in ((), ("bias",)):
        left = {k: v for k, v in given.items() if k not in missing}
        inputs = tensors(left)
        compiled = call(inputs)
        assert {"MatMul", "BiasAdd"}.isdisjoint(op.type for op in compiled.graph.get_operations())
        compare(compiled(inputs), recurrent.sequence(cell, left), TOLERANCE["float16"])


def test_gradients_of_halves_in_a_graph():
    """Against float64: results that are rounded once on the way, and sums of float32 over 63 rows."""
    given = make("lstm", (9, 7, 20, 24), "float16")
    random = np.random.default_rng(5)
    incoming = [random.normal(size=v.shape) for v in recurrent.sequence("lstm", given)]
    halves = [v.astype(np.float16) for v in incoming]
    found = tf.function(lambda: gradients("lstm", given, halves), autograph=False)()
    for name, gradient in found.items():
        direction = random.normal(size=gradient.shape)

        def loss(step, name=name, direction=direction):
            moved = {**given, name: given[name].astype(np.float64) + step * direction}
            states = recurrent.sequence("lstm", moved)
            return sum(np.sum(a * b) for a, b in zip(states, halves, strict=True))

        expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
        actual = np.sum(np.asarray(gradient, np.float64) * direction)
        assert abs(actual - expected) <= 2e-3 * (np.linalg.norm(gradient) + 1), name


X, W, R = tf.zeros([2, 3, 4]), tf.zeros([4, 12]), tf.zeros([3, 12])
RAGGED = tf.RaggedTensor.from_row_lengths(tf.zeros([3, 4]), [1, 2])
BAD = {
    "rank": (lambda: metal_ops.lstm(X[0], W, R), "x: expected [batch, time, features], got [3, 4]"),
    "kernel": (lambda: metal_ops.lstm(X, W[1:], R), "kernel: expected shape [4, None]"),
    "bias": (lambda: metal_ops.lstm(X, W, R, tf.zeros([3])), "bias: expected shape [12]"),
    "gates": (lambda: metal_ops.lstm(X, W[:, 1:], R[:, 1:]), "must be a multiple of 4"),
    "units": (lambda: metal_ops.lstm(X, W, R[1:]), "a row for each of the 3 units, got 2 rows"),
    "width": (lambda: metal_ops.lstm(X, W, R[:, 1:]), "recurrent_kernel must have shape"),
    "state": (
        lambda: metal_ops.lstm(X, W, R, None, (tf.zeros([2, 3]), tf.zeros([2, 4]))),
        "initial_c must have shape [batch, 3]",
    ),
    "mask": (lambda: metal_ops.lstm(X, W, R, mask=tf.ones([2, 4], bool)), "mask must have shape"),
    "both": (
        lambda: metal_ops.lstm(X, W, R, mask=tf.ones([2, 3], bool), lengths=[1, 2]),
        "mask, lengths: expected one of them, got both",
    ),
    "ragged mask": (
        lambda: metal_ops.lstm(RAGGED, W, R, mask=tf.ones([2, 3], bool)),
        "mask: expected None, as x is a RaggedTensor, which has its own lengths, got one",
    ),
    "ragged lengths": (
        lambda: metal_ops.lstm(RAGGED, W, R, lengths=[1, 2]),
        "lengths: expected None, as x is a RaggedTensor",
    ),
    "ragged features": (
        lambda: metal_ops.lstm(tf.ragged.constant([[[1.0], [2.0, 3.0]]]), W, R),
        "x: expected [batch, (time), features], of which steps alone are ragged, got a RaggedTensor of shape "
        "[1, None, None] and ragged_rank 2",
    ),
    "ragged kernel": (
        lambda: metal_ops.lstm(RAGGED, W[1:], R),
        "kernel: expected shape [4, None]",
    ),
    "projection": (
        lambda: metal_ops.lstm(X, W, R[:2], projection=tf.zeros([4, 2])),
        "projection must have shape [3, outputs]",
    ),
    "kernel_gamma": (
        lambda: metal_ops.lstm(X, W, R, kernel_gamma=tf.ones([3])),
        "kernel_gamma: expected shape [12] (the columns of kernel), got [3]",
    ),
    "recurrent_gamma": (
        lambda: metal_ops.lstm(X, W, R, recurrent_gamma=tf.ones([3])),
        "recurrent_gamma must have shape [width] with width = 12 as in gates, got [3]",
    ),
    "cell_gamma": (
        lambda: metal_ops.lstm(X, W, R, cell_gamma=tf.ones([12])),
        "cell_gamma must have shape [3]",
    ),
    "cell_beta": (
        lambda: metal_ops.lstm(X, W, R, cell_gamma=tf.ones([3]), cell_beta=tf.ones([2])),
        "cell_beta must have shape [3]",
    ),
    "beta alone": (
        lambda: metal_ops.lstm(X, W, R, cell_beta=tf.ones([3])),
        "cell_beta: expected None without cell_gamma",
    ),
    "epsilon": (
        lambda: metal_ops.lstm(X, W, R, epsilon=-1.0),
        "epsilon must be 0 or more, got -1",
    ),
    "recurrent_bias": (
        lambda: metal_ops.gru(X, W, R, recurrent_bias=tf.zeros([12]), reset_after=False),
        "recurrent_bias: expected None",
    ),
    "bias_shape": (
        lambda: metal_ops.gru(X, W, tf.zeros([4, 12]), recurrent_bias=tf.zeros([3])),
        "recurrent_bias must have shape",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(case):
    call, sentence = BAD[case]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as caught:
        call()
    assert sentence in str(caught.value)


def test_dtypes_differ():
    with pytest.raises(TypeError, match="kernel"):
        metal_ops.lstm(tf.cast(X, tf.float16), W, R)


def test_bad_raw_calls():
    none = tf.zeros([0])
    gates, state = tf.zeros([2, 3, 4]), tf.zeros([2, 2])
    for name, changed in {
        "initial_c must be [0], as only the lstm": {"initial_c": state},
        "projection must be [0], as only the lstm": {"projection": state},
        "recurrent_bias must be [0], as only the gru": {"recurrent_bias": tf.zeros([4])},
        "recurrent_gamma must have shape [width]": {"recurrent_gamma": tf.zeros([3])},
        "cell_gamma must be [0], as only the lstm": {"cell_gamma": tf.zeros([2])},
        "cell_beta must be [0], as only the lstm": {"cell_beta": tf.zeros([2])},
    }.items():
        optional = ("initial_c", "projection", "recurrent_bias")
        optional += ("recurrent_gamma", "cell_gamma", "cell_beta")
        given = dict.fromkeys(optional, none) | changed
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            raw_ops.recurrent_sequence(
                gates=gates,
                recurrent_kernel=tf.zeros([2, 4]),
                initial_h=state,
                mask=tf.zeros([0], tf.bool),
                cell="forget_gate",
                **given,
            )
        assert name in str(caught.value)


def test_second_derivatives_are_refused():
    x = tf.constant(normal(2, 3, 4))
    with pytest.raises(LookupError, match="RecurrentSequenceGrad"), tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y, *_ = metal_ops.lstm(x, W, R)
        outer.gradient(inner.gradient(y, x), x)
