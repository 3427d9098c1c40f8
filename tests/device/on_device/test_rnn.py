"""LSTM and GRU layers over whole sequences: CudnnRNNV3 on the device against the same written out in float64, with all
gradients; and Keras' layers, which call it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.device.on_device.test_ops import FLOATS, on_device

raw = tf.raw_ops
# float16 and bfloat16 round inputs and results, float32 the sums.
ERROR = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def written_out(mode, x, h, c, params, lengths, time_major):
    """Outputs and last states, by ops of TensorFlow."""
    if not time_major:
        x, h, c = (tf.transpose(t, [1, 0, 2]) for t in (x, h, c))
    steps, _, inputs = x.shape
    h, c, cells = h[0], c[0], h.shape[2]
    gates = (4 if mode == "lstm" else 3) * cells
    w, r, b, s = tf.split(params, [gates * inputs, gates * cells, gates, gates])
    w, r = tf.reshape(w, [gates, inputs]), tf.reshape(r, [gates, cells])
    outputs = []
    for step in range(steps):
        of_x = tf.matmul(x[step], w, transpose_b=True) + b
        of_h = tf.matmul(h, r, transpose_b=True) + s
        if mode == "lstm":
            i, f, g, o = tf.split(of_x + of_h, 4, axis=1)
            next_c = tf.sigmoid(i) * tf.tanh(g) + tf.sigmoid(f) * c
            next_h = tf.sigmoid(o) * tf.tanh(next_c)
        else:
            (z, q, g), (y, p, k) = tf.split(of_x, 3, axis=1), tf.split(of_h, 3, axis=1)
            keep, next_c = tf.sigmoid(z + y), c
            next_h = keep * h + (1 - keep) * tf.tanh(g + tf.sigmoid(q + p) * k)
        goes_on = (step < lengths)[:, None]
        outputs.append(tf.where(goes_on, next_h, 0))
        h, c = tf.where(goes_on, next_h, h), tf.where(goes_on, next_c, c)
    out = tf.stack(outputs)
    return (
        (out, h[None], c[None])
        if time_major
        else (tf.transpose(out, [1, 0, 2]), h[:, None], c[:, None])
    )


def sizes_of(mode, steps, batch, inputs, cells, time_major, seed=0):
    rng = np.random.default_rng(seed)
    count = (4 if mode == "lstm" else 3) * cells * (inputs + cells + 2)
    states = (1, batch, cells) if time_major else (batch, 1, cells)
    x = (steps, batch, inputs) if time_major else (batch, steps, inputs)
    numbers = [rng.normal(size=shape) for shape in (x, states, states, (count,))]
    numbers[3] *= 0.3
    return numbers


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("time_major", [True, False])
def test_layer_and_its_gradients(mode, dtype, time_major):
    for (steps, batch, inputs, cells), ragged in itertools.product(
        [(1, 1, 1, 1), (5, 3, 4, 7), (3, 2, 9, 16), (4, 5, 3, 33), (6, 2, 0, 2)], [False, True]
    ):
        numbers = [
            v.astype(tf.as_dtype(dtype).as_numpy_dtype)
            for v in sizes_of(mode, steps, batch, inputs, cells, time_major)
        ]
        lengths = np.full(batch, steps, np.int32)
        if ragged:
            lengths[:] = [steps - i % (steps + 1) for i in range(batch)]
        rng = np.random.default_rng(9)
        found = []
        for device in ("CPU:0", "GPU:0"):
            with tf.device(device), tf.GradientTape() as tape:
                wide = tf.float64 if device == "CPU:0" else dtype
                given = [tf.identity(tf.constant(v.astype("f8"), wide)) for v in numbers]
                tape.watch(given)
                if device == "CPU:0":
                    results = written_out(mode, *given, lengths, time_major)
                    slopes = [rng.normal(size=r.shape) for r in results]
                else:
                    x, h, c, params = given
                    results = raw.CudnnRNNV3(
                        input=x, input_h=h, input_c=c if mode == "lstm" else tf.zeros([], dtype), params=params,
                        sequence_lengths=lengths, rnn_mode=mode, time_major=time_major)[:3]  # fmt: skip
                    results = results[: 3 if mode == "lstm" else 2]
                    assert all(on_device(r).dtype == numbers[0].dtype for r in results)
                loss = [
                    tf.reduce_sum(r * tf.constant(s, wide))
                    for r, s in zip(results, slopes, strict=False)
                ]
                loss = tf.add_n(loss[: 3 if mode == "lstm" else 2])
            grads = tape.gradient(loss, given[:2] + given[2:3] * (mode == "lstm") + given[3:])
            found.append([*results, *grads])
        want, got = found
        if mode == "gru":
            del want[2]
        names = ["output", "h", "c"][: 3 if mode == "lstm" else 2] + ["dx", "dh", "dc", "dparams"]
        if mode == "gru":
            names.remove("dc")
        for name, a, b in zip(names, got, want, strict=True):
            b, scale = b.numpy(), max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(
                on_device(a).astype("f8"), b, rtol=0, atol=ERROR[dtype] * scale * max(1, steps / 2),
                err_msg=f"{name} of {mode}, {steps, batch, inputs, cells}")  # fmt: skip


def bad(**given):
    x, h, c, params = sizes_of("lstm", 3, 2, 4, 5, True)
    made = dict(
        input=x, input_h=h, input_c=c, params=params, sequence_lengths=np.array([3, 2], np.int32)
    )
    made = {
        name: np.asarray(v, "f") if name != "sequence_lengths" else v for name, v in made.items()
    } | given
    return raw.CudnnRNNV3(**made)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(rnn_mode="rnn_relu"), "layers of rnn_mode lstm or gru.*got rnn_relu"),
        (dict(direction="bidirectional"), "unidirectional"),
        (dict(dropout=0.5), "without dropout"),
        (dict(input=np.zeros((3, 2), "f")), "must have 3 dimensions"),
        (
            dict(input_h=np.zeros((2, 2, 5), "f")),
            r"input_h .of one layer. must have shape .1, 2, 5.",
        ),
        (dict(input_c=np.zeros((1, 2, 4), "f")), "input_c must have shape"),
        (dict(params=np.zeros(219, "f")), r"params must have shape .220.|.220., got .219."),
        (dict(sequence_lengths=np.array([3], np.int32)), "sequence_lengths must have shape"),
        (dict(sequence_lengths=np.array([3, 4], np.int32)), "from 0 to 3.*got 4 for sequence 1"),
        (dict(sequence_lengths=np.array([-1, 2], np.int32)), "from 0 to 3.*got -1 for sequence 0"),
    ],
)
def test_bad_arguments(given, says):
    with tf.device("GPU:0"), pytest.raises(tf.errors.OpError, match=says):
        bad(**given)


def test_layers_of_nothing():
    """No steps, no sequences: the states are unchanged."""
    with tf.device("GPU:0"), tf.GradientTape() as tape:
        h = tf.identity(tf.ones([1, 2, 5]))
        x, params = tf.identity(tf.zeros([0, 2, 4])), tf.identity(tf.zeros([220]))
        tape.watch([h, x, params])
        out, last, cell, *_ = raw.CudnnRNNV3(
            input=x, input_h=h, input_c=2 * h, params=params, sequence_lengths=np.zeros(2, np.int32))  # fmt: skip
        loss = tf.reduce_sum(last * 3) + tf.reduce_sum(cell)
    assert on_device(out).shape == (0, 2, 5)
    np.testing.assert_array_equal(on_device(last), np.ones((1, 2, 5)))
    np.testing.assert_array_equal(on_device(cell), 2 * np.ones((1, 2, 5)))
    d_h, d_x, d_params = tape.gradient(loss, [h, x, params])
    np.testing.assert_array_equal(on_device(d_h), 5 * np.ones((1, 2, 5)))
    assert on_device(d_x).shape == (0, 2, 4) and not on_device(d_params).any()


# ---- Keras --------------------------------------------------------------------------------------


@pytest.fixture
def keras():
    """TensorFlow's choice of where whole numbers are, which are the host's."""
    import keras

    tf.config.set_soft_device_placement(True)
    yield keras
    tf.config.set_soft_device_placement(False)


def kinds(function, *args) -> dict[str, int]:
    """Ops by name, all of them on the device."""
    ops = metal_ops.device.report(function, *args).ops
    assert set(ops) == {"GPU:0"}, ops
    return ops["GPU:0"]


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_step_of_training_runs_each_way_in_one_op(keras, name):
    def losses(device):
        keras.utils.set_random_seed(3)
        with tf.device(device):
            layers = [
                getattr(keras.layers, name)(24, return_sequences=True),
                getattr(keras.layers, name)(7),
            ]
            model = keras.Sequential([keras.Input((6, 5)), *layers, keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
            found = [
                model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0) for _ in range(3)
            ]
        return model, [f.history["loss"][0] for f in found]

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 6, 5)).astype("f"), rng.normal(size=(16, 1)).astype("f")
    model, got = losses("GPU:0")
    _, want = losses("CPU:0")
    np.testing.assert_allclose(got, want, rtol=1e-5)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        return tape.gradient(loss, model.trainable_variables)

    found = kinds(step, tf.identity(x), tf.identity(y))
    assert found["CudnnRNNV3"] == found["CudnnRNNBackpropV3"] == 2
    assert not any("While" in kind or "TensorList" in kind for kind in found), found


# Padded at the end, the start, anywhere, everywhere.
MASKS = np.array([
    [1, 1, 1, 1, 1],
    [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]
], bool)  # fmt: skip


@pytest.mark.parametrize("mask", ["masks", "none"])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize("backwards, sequences, both, dtype", [
    (False, False, False, "float32"),
    (False, True, False, "float32"),
    (True, True, False, "float32"),
    (True, False, False, "mixed_float16"),
    (False, True, True, "float32"),
])  # fmt: skip
def test_layers_are_what_keras_writes_out(keras, backwards, sequences, both, dtype, name, mask):
    """Outputs, states and gradients, of layers with `use_cudnn=False`."""
    rng = np.random.default_rng(1)
    x = tf.constant(rng.normal(size=(len(MASKS), 5, 4)).astype("f"))
    masked = tf.constant(MASKS) if mask == "masks" else None
    kind = getattr(keras.layers, name)
    given = dict(return_sequences=sequences, return_state=True, go_backwards=backwards, dtype=dtype)
    found = []
    for use in ("auto", False):
        keras.utils.set_random_seed(5)
        layer = kind(6, use_cudnn=use, bias_initializer="random_normal", **given)
        if both:
            layer = keras.layers.Bidirectional(layer)

        @tf.function
        def run(x, layer=layer, both=both):
            with tf.GradientTape() as tape:
                tape.watch(x)
                states = [tf.cast(tf.cos(x[:, 0, :1] * np.arange(1, 7)), layer.compute_dtype)] * (
                    (2 if name == "LSTM" else 1) * (2 if both else 1))  # fmt: skip
                results = [
                    tf.cast(r, tf.float32) for r in layer(x, mask=masked, initial_state=states)
                ]
                loss = tf.add_n([tf.reduce_sum(r * tf.cos(r + i)) for i, r in enumerate(results)])
            return [
                *results,
                *tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)]),
            ]

        found.append([r.numpy() for r in run(x)])
        ops = {op.type for op in run.get_concrete_function(x).graph.get_operations()}
        assert ("CudnnRNNV3" in ops) == (use == "auto")
        assert any("While" in op for op in ops) == (use is False)
    for got, want in zip(*found, strict=True):
        scale = max(1, np.abs(want).max())
        np.testing.assert_allclose(
            got, want, atol=(1e-5 if dtype == "float32" else 1e-2) * scale, rtol=0
        )


@pytest.mark.parametrize(
    "given",
    [dict(activation="relu"), dict(recurrent_activation="tanh"), dict(recurrent_dropout=0.5), dict(unroll=True),
     dict(use_bias=False), dict(dtype="float64")],
)  # fmt: skip
def test_what_keras_writes_out(keras, given):
    """By Keras' own conditions, and in a dtype that the device does not have."""
    layer = keras.layers.LSTM(3, **given)
    x = tf.ones([2, 4, 5], tf.float64 if "dtype" in given else tf.float32)

    @tf.function
    def run(x):
        return layer(x, training=True)

    assert run(x).shape == (2, 3)
    ops = {op.type for op in run.get_concrete_function(x).graph.get_operations()}
    assert "CudnnRNNV3" not in ops
    with pytest.raises(ValueError, match="use_cudnn=True"):
        keras.layers.LSTM(3, use_cudnn=True, **given)(x, training=True)


def test_layers_on_the_cpu_are_written_out(keras):
    layer = keras.layers.GRU(3)
    x = tf.ones([2, 4, 5])
    with tf.device("CPU:0"):
        for call in (layer, tf.function(layer)):
            y = call(x)
            assert y.device.endswith("CPU:0")
    np.testing.assert_allclose(layer(x).numpy(), y.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_masks_of_other_shapes_are_errors(keras, name):
    """They were read as if they were of the sequences' steps."""
    layer = getattr(keras.layers, name)(4)
    x = tf.ones([2, 5, 3])
    for shape in [(2, 4), (2, 6), (3, 5), (2, 5, 1)]:
        found = re.escape(
            f"{name}: mask must have the shape [batch, steps] of the sequences, (2, 5), got {shape}"
        )
        with pytest.raises(ValueError, match=found):
            layer(x, mask=tf.ones(shape, tf.bool))
    assert layer(x, mask=tf.ones([2, 5], tf.bool)).shape == (2, 4)

    of_any = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, None], tf.bool)]
    run = tf.function(lambda x, mask: layer(x, mask=mask), input_signature=of_any)
    assert run(x, tf.ones([2, 5], tf.bool)).shape == (2, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{name}: mask must have"):
        run(x, tf.ones([2, 4], tf.bool))
