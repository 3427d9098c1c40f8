"""The CTC loss on the device: the loss and the gradient of the CPU's kernel, and by TensorFlow's functions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import on_cpu, run

raw = tf.raw_ops
HOST = ["labels_indices", "labels_values", "sequence_length"]


def sequences(labels, times, classes, lengths=None, seed=0):
    rng = np.random.default_rng(seed)
    places = [(b, i) for b, row in enumerate(labels) for i in range(len(row))]
    return dict(
        inputs=tf.constant(3 * rng.normal(size=(times, len(labels), classes)).astype("f")),
        labels_indices=tf.constant(np.array(places, "int64").reshape(-1, 2)),
        labels_values=tf.constant(np.array([x for row in labels for x in row], "int32")),
        sequence_length=tf.constant(np.array(lengths or [times] * len(labels), "int32")),
    )


CASES = {
    "one": ([[0]], 1, 2, None),
    "short": ([[0, 1]], 5, 4, None),
    "repeats": ([[1, 1, 0, 0], [2, 2, 2]], 12, 4, None),
    "lengths": ([[0, 1], [2], [1, 0, 1]], 9, 4, [9, 1, 6]),
    "no time": ([[0, 1], [2]], 4, 4, [4, 1]),
    "long": ([list(range(30)), list(range(5))], 100, 40, [100, 37]),
    "many": ([[i % 7, i % 5] for i in range(70)], 6, 9, None),
    "no path": ([[1, 1, 1]], 3, 3, None),
    "null at the end": ([[0, 1, 3, 3]], 6, 4, None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("collapse", [False, True])
def test_as_on_the_cpu(case, merge, collapse):
    x = sequences(*CASES[case])
    attrs = dict(ctc_merge_repeated=merge, preprocess_collapse_repeated=collapse)
    want = on_cpu(raw.CTCLoss, x | {"inputs": tf.cast(x["inputs"], tf.float64)}, **attrs)
    got = run(raw.CTCLoss, x, HOST, **attrs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    # Logarithms of some hundreds are rounded to 2e-5, and their powers are the gradient.
    np.testing.assert_allclose(got[1], want[1], atol=5e-4 if case == "long" else 2e-5)


def test_sequences_without_time_are_left_out():
    x = sequences([[0, 1, 2], [2], [1]], 4, 4, [2, 4, 0])
    attrs = dict(ignore_longer_outputs_than_inputs=True)
    want, got = on_cpu(raw.CTCLoss, x, **attrs), run(raw.CTCLoss, x, HOST, **attrs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], want[1], atol=2e-5)
    np.testing.assert_array_equal(got[1][:, 0], 0)


def test_large_logits():
    x = sequences([[0, 1], [2]], 8, 4)
    x["inputs"] *= 30.0
    wide = {k: tf.cast(v, tf.float64) if k == "inputs" else v for k, v in x.items()}
    got = run(raw.CTCLoss, x, HOST)
    loss, gradient = on_cpu(raw.CTCLoss, wide)
    np.testing.assert_allclose(got[0], loss, rtol=1e-5)
    np.testing.assert_allclose(got[1], gradient, atol=1e-4)


@pytest.mark.parametrize("blank", [0, 2, -1])
@pytest.mark.parametrize("in_graph", [False, True])
def test_functions(blank, in_graph):
    """`tf.nn.ctc_loss` takes the second version on a GPU, with sparse and dense labels."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(7, 3, 5)).astype("f")
    labels = np.array([[1, 3, 3], [4, 0, 0], [3, 1, 0]], "int32")
    if blank != 0:
        labels = np.array([[1, 3, 3], [3, 0, 0], [3, 1, 0]], "int32")
    counts = np.array([3, 1, 2], "int32")
    places = [(b, i) for b in range(3) for i in range(counts[b])]
    sparse = tf.SparseTensor(places, [labels[p] for p in places], [3, 3])

    def loss_and_gradient(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = tf.nn.ctc_loss(sparse, logits, None, tf.constant([7, 5, 6]), blank_index=blank)
            total = tf.reduce_sum(loss * tf.constant([1.0, 2.0, 3.0]))
        return loss, tape.gradient(total, logits)

    function = tf.function(loss_and_gradient) if in_graph else loss_and_gradient
    with tf.device("CPU:0"):
        want = loss_and_gradient(tf.constant(logits))
    with tf.device("GPU:0"):
        got = function(tf.identity(tf.constant(logits)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_second_version():
    """Its blank is the first class."""
    x = sequences([[1, 2], [3], []], 6, 4, [6, 4, 5])
    moved = x | {
        "inputs": tf.concat([x["inputs"][:, :, 1:], x["inputs"][:, :, :1]], 2)[:, :2],
        "labels_values": x["labels_values"] - 1,
        "sequence_length": x["sequence_length"][:2],
    }
    loss, gradient = on_cpu(raw.CTCLoss, moved)
    got = run(raw.CTCLossV2, x, HOST)
    np.testing.assert_allclose(got[0][:2], loss, rtol=1e-5)
    np.testing.assert_allclose(tf.roll(got[1], -1, 2)[:, :2], gradient, atol=2e-5)
    logs = tf.nn.log_softmax(x["inputs"])[:5, 2, 0]
    np.testing.assert_allclose(got[0][2], -tf.reduce_sum(logs), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(sequence_length=tf.constant([9, 9])), r"sequence_length\(0\)"),
        (dict(sequence_length=tf.constant([1, 4])), "Not enough time.*required: 2, available: 1"),
        (dict(labels_values=tf.constant([0, -1, 2])), "nonnegative"),
        (dict(labels_values=tf.constant([3, 0, 1])), "following a null label"),
        (
            dict(labels_indices=tf.constant([[0, 0], [0, 1], [5, 0]], tf.int64)),
            "zero in batch 1|names sequence 5",
        ),
        (dict(labels_indices=tf.constant([[0, 1], [0, 0], [1, 0]], tf.int64)), "out of order"),
    ],
)
def test_bad(change, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(raw.CTCLoss, sequences([[0, 1], [2]], 4, 4) | change, HOST)
