"""focal_loss and softmax_cross_entropy against formulas in extended precision, Keras' losses and differences."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal
from tests.oracles import losses as oracle
from tests.oracles import numeric

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

TOLERANCE = 3e-6
OPTIONS = {
    "defaults": dict(alpha=0.25),
    "cross entropy": dict(alpha=None, gamma=0.0),
    "gamma 1": dict(alpha=None, gamma=1.0),
    "half": dict(alpha=0.6, gamma=0.5),
    "fraction": dict(alpha=0.6, gamma=2.7),
    "smooth": dict(alpha=None, label_smoothing=0.1),
    "all": dict(alpha=0.7, gamma=1.5, label_smoothing=0.3),
    "smooth all the way": dict(alpha=None, gamma=3.0, label_smoothing=1.0),
}
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def logits_of(shape, seed=0, spread=3.0):
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(np.float32)


def one_hot(shape, seed=1):
    labels = np.random.default_rng(seed).integers(0, shape[-1], shape[:-1])
    return labels, np.eye(shape[-1], dtype=np.float32)[labels]


def slope_of(loss, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = loss(x)
    return tape.gradient(total, x)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sigmoid(options, soft):
    x = logits_of((70, 5))
    y = np.random.default_rng(1).uniform(size=x.shape).astype(np.float32)
    y = y if soft else np.round(y)
    mix = np.random.default_rng(2).normal(size=x.shape) + 0.5

    def loss(x):
        actual = metal_ops.focal_loss(x, y, **options)
        expected = oracle.sigmoid_focal(x, y, **options).astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-9)
        return tf.reduce_sum(actual * tf.cast(mix, tf.float32))

    expected = numeric.gradient(
        lambda v: float(np.sum(mix * oracle.sigmoid_focal(v, y, **options))), x
    )
    numeric.assert_gradient(slope_of(loss, tf.constant(x)), expected, 3e-6, "logits")


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 7, 33])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_softmax(options, classes, soft):
    x = logits_of((9, classes))
    labels, y = one_hot(x.shape)
    if soft:
        y = np.random.default_rng(3).dirichlet(np.ones(classes), 9).astype(np.float32)
    mix = np.random.default_rng(2).normal(size=9) + 0.5
    gamma = options.get("gamma", 2.0)
    if classes == 1 and 0 < gamma < 1:
        pytest.skip("0^gamma has no derivative there")

    def loss(x):
        actual = metal_ops.focal_loss(x, y, "softmax", **options)
        expected = oracle.softmax_focal(x, y, **options).astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-9)
        return tf.reduce_sum(actual * tf.cast(mix, tf.float32))

    slope = slope_of(loss, tf.constant(x))
    expected = numeric.gradient(
        lambda v: float(np.sum(mix * oracle.softmax_focal(v, y, **options))), x
    )
    if classes == 1:
        np.testing.assert_allclose(slope, np.zeros_like(x), atol=1e-9)
    else:
        numeric.assert_gradient(slope, expected, 3e-6, "logits")
    if soft:
        return
    for dtype in (tf.int32, tf.int64):
        sparse = slope_of(
            lambda x, dtype=dtype: tf.reduce_sum(
                metal_ops.focal_loss(x, tf.cast(labels, dtype), "softmax", **options)
                * tf.cast(mix, tf.float32)
            ),
            tf.constant(x),
        )
        np.testing.assert_allclose(sparse, slope, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_equals_keras(smoothing):
    x = logits_of((40, 6), spread=1.5)
    _, y = one_hot(x.shape)
    binary = keras.losses.BinaryFocalCrossentropy(
        apply_class_balancing=True,
        alpha=0.3,
        gamma=1.5,
        from_logits=True,
        label_smoothing=smoothing,
        reduction="none",
    )
    ours = metal_ops.losses.FocalLoss(
        alpha=0.3, gamma=1.5, label_smoothing=smoothing, reduction="none"
    )
    np.testing.assert_allclose(ours(y, x), binary(y, x), rtol=1e-5)
    categorical = keras.losses.CategoricalFocalCrossentropy(
        alpha=0.3, gamma=1.5, from_logits=True, label_smoothing=smoothing, reduction="none"
    )
    ours = metal_ops.losses.FocalLoss(
        "softmax", alpha=0.3, gamma=1.5, label_smoothing=smoothing, reduction="none"
    )
    np.testing.assert_allclose(ours(y, x), categorical(y, x), rtol=1e-5, atol=1e-7)


def test_cross_entropy_is_gamma_zero():
    x = logits_of((30, 5))
    labels, y = one_hot(x.shape)
    np.testing.assert_allclose(
        metal_ops.focal_loss(x, y, alpha=None, gamma=0.0),
        tf.nn.sigmoid_cross_entropy_with_logits(y, x),
        rtol=1e-5,
        atol=1e-7,
    )
    np.testing.assert_allclose(
        metal_ops.focal_loss(x, labels, "softmax", alpha=None, gamma=0.0),
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x),
        rtol=1e-5,
        atol=1e-7,
    )


def test_large_logits():
    """Where p rounds to 1, the loss of being right keeps its digits, and that of being wrong is a line."""
    x = np.float32([-60, -20, 20, 60])
    for gamma in (0.5, 2.0):
        for y in (np.zeros(4), np.ones(4)):
            expected = oracle.sigmoid_focal(x, y, None, gamma).astype(np.float64)
            actual = metal_ops.focal_loss(x, y, alpha=None, gamma=gamma)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-37)
        logits = np.stack([x, np.zeros(4, np.float32)], axis=1)
        expected = oracle.sigmoid_focal(x, np.ones(4), None, gamma).astype(np.float64)
        actual = metal_ops.focal_loss(
            logits, np.zeros(4, np.int32), "softmax", alpha=None, gamma=gamma
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-37)
        slopes = slope_of(
            lambda v, gamma=gamma: metal_ops.focal_loss(v, np.ones(4), gamma=gamma), tf.constant(x)
        )
        assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_half_precision(kind, dtype):
    x = tf.cast(logits_of((20, 5)), dtype)
    _, y = one_hot((20, 5))
    y = tf.cast(y, dtype)
    wide = tf.cast(x, tf.float32)
    half = metal_ops.focal_loss(x, y, kind)
    assert half.dtype == dtype
    options = dict(rtol=ROUNDING[dtype] * 1.01, atol=2.0**-25)
    full = metal_ops.focal_loss(wide, tf.cast(y, tf.float32), kind)
    np.testing.assert_allclose(tf.cast(half, tf.float32), full, **options)
    np.testing.assert_allclose(
        tf.cast(slope_of(lambda v: metal_ops.focal_loss(v, y, kind), x), tf.float32),
        slope_of(lambda v: metal_ops.focal_loss(v, tf.cast(y, tf.float32), kind), wide),
        **options,
    )


@settings(max_examples=40, deadline=None)
@given(
    leading=st.lists(st.integers(0, 4), max_size=3),
    classes=st.integers(1, 20),
    kind=st.sampled_from(["sigmoid", "softmax"]),
    reduce_last=st.booleans(),
)
def test_any_shape(leading, classes, kind, reduce_last):
    shape = (*leading, classes)
    x = logits_of(shape)
    _, y = one_hot(shape)
    if kind == "softmax":
        actual = metal_ops.focal_loss(x, y, kind, alpha=None)
        expected = oracle.softmax_focal(x, y)
    else:
        actual = metal_ops.focal_loss(x, y, kind, alpha=None, reduce_last=reduce_last)
        expected = oracle.sigmoid_focal(x, y)
        expected = expected.mean(axis=-1) if reduce_last else expected
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected.astype(np.float64), rtol=1e-5, atol=1e-9)


def test_nan_stays_where_it_is():
    x = logits_of((30, 4))
    labels, y = one_hot(x.shape)
    clean = metal_ops.focal_loss(x, y).numpy(), metal_ops.focal_loss(x, labels, "softmax").numpy()
    x[13, 2] = np.nan
    spoilt = metal_ops.focal_loss(x, y).numpy(), metal_ops.focal_loss(x, labels, "softmax").numpy()
    assert np.isnan(spoilt[0][13, 2]) and np.isnan(spoilt[1][13])
    spoilt[0][13, 2], spoilt[1][13] = clean[0][13, 2], clean[1][13]
    for a, b in zip(spoilt, clean, strict=True):
        np.testing.assert_array_equal(a, b)


CROSS_ENTROPY = {
    "plain": {},
    "z": dict(z_loss=0.03),
    "smooth": dict(label_smoothing=0.1),
    "both": dict(label_smoothing=0.3, z_loss=0.5),
}


@pytest.mark.parametrize("targets", ["probabilities", "int32", "int64"])
@pytest.mark.parametrize("classes", [1, 7, 130])
@pytest.mark.parametrize("options", CROSS_ENTROPY.values(), ids=CROSS_ENTROPY)
def test_cross_entropy(options, classes, targets):
    x = logits_of((9, classes))
    labels, y = one_hot(x.shape)
    given = labels.astype(targets) if targets != "probabilities" else None
    if given is None:
        given = y = np.random.default_rng(3).dirichlet(np.ones(classes), 9).astype(np.float32)
    mix = np.random.default_rng(2).normal(size=9) + 0.5

    def loss(x):
        actual = metal_ops.softmax_cross_entropy(x, given, **options)
        expected = oracle.softmax_cross_entropy(x, y, **options).astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-6 * (classes == 1))
        return tf.reduce_sum(actual * tf.cast(mix, tf.float32))

    slope = slope_of(loss, tf.constant(x))
    expected = numeric.gradient(
        lambda v: float(np.sum(mix * oracle.softmax_cross_entropy(v, y, **options))), x
    )
    if classes == 1:  # nothing of the entropy
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-8)
    else:
        numeric.assert_gradient(slope, expected, 3e-6, "logits")


@pytest.mark.parametrize("dtype", ["float32", *ROUNDING])
@pytest.mark.parametrize("classes", [5, 130])
def test_rows_of_the_ignored_class_count_for_nothing(classes, dtype):
    x = tf.cast(logits_of((2, 4, classes)), dtype)
    labels, _ = one_hot(x.shape)
    for index, options in ((-100, {}), (int(labels[1, 2]), dict(label_smoothing=0.2, z_loss=0.1))):
        given = labels.copy()
        given[0, 1] = given[1, 3] = index
        kept = given != index

        def loss(x, targets, options=options, **more):
            return metal_ops.softmax_cross_entropy(x, targets, **options, **more)

        whole, part = tf.constant(x), tf.boolean_mask(x, kept)
        # Ignored values may be anything.
        whole = tf.where(kept[..., None], whole, tf.constant(np.nan, dtype))
        found = loss(whole, given, ignore_index=index).numpy()
        np.testing.assert_array_equal(found[~kept], np.zeros(np.sum(~kept)))
        np.testing.assert_array_equal(found[kept], loss(part, given[kept]))
        slope = slope_of(lambda v: loss(v, given, ignore_index=index), whole).numpy()  # noqa: B023
        assert not slope[~kept].any()
        np.testing.assert_array_equal(
            slope[kept],
            slope_of(lambda v: loss(v, given[kept]), part),  # noqa: B023
        )


def test_cross_entropy_equals_keras_and_saves_its_options():
    x = logits_of((40, 6))
    labels, y = one_hot(x.shape)
    labels[::3] = -1
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    ours = metal_ops.losses.SoftmaxCrossEntropy(ignore_class=-1)
    np.testing.assert_allclose(ours(labels, x), theirs(labels, x), rtol=1e-5)
    np.testing.assert_allclose(ours(labels[:, None], x), theirs(labels, x), rtol=1e-5)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    ours = metal_ops.losses.SoftmaxCrossEntropy(label_smoothing=0.1)
    np.testing.assert_allclose(ours(y, x), theirs(y, x), rtol=1e-5)
    ours = metal_ops.losses.SoftmaxCrossEntropy(0.1, 0.01, -1, "sum")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    assert again.get_config() == ours.get_config()
    np.testing.assert_array_equal(again(labels, x), ours(labels, x))


def test_bad_arguments():
    Invalid = tf.errors.InvalidArgumentError
    with pytest.raises(Invalid, match="z_loss must be 0 or more, got -1"):
        metal_ops.softmax_cross_entropy([[1.0]], [0], z_loss=-1.0)
    with pytest.raises(ValueError, match="ignore_index: expected None with targets of dtype float"):
        metal_ops.softmax_cross_entropy([[1.0]], [[1.0]], ignore_index=0)
    with pytest.raises(Invalid, match=r"targets\[1\] must be in \[0, 2\).* got -7"):
        metal_ops.softmax_cross_entropy([[1.0, 2.0]] * 2, [-1, -7], ignore_index=-1)
    with pytest.raises(ValueError, match="kind: expected 'sigmoid' or 'softmax', got 'hinge'"):
        metal_ops.focal_loss([1.0], [1.0], "hinge")
    with pytest.raises(Invalid, match="gamma must be 0 or more, got -1"):
        metal_ops.focal_loss([1.0], [1.0], gamma=-1.0)
    with pytest.raises(Invalid, match=r"label_smoothing must be in \[0, 1\], got 1.5"):
        metal_ops.focal_loss([1.0], [1.0], label_smoothing=1.5)
    with pytest.raises(Invalid, match="targets must be shaped like logits"):
        metal_ops.focal_loss([1.0], [1.0, 2.0])
    for label in (-1, 2):
        with pytest.raises(Invalid, match=rf"targets\[1\] must be in \[0, 2\).* got {label}"):
            metal_ops.focal_loss([[1.0, 2.0]] * 2, [0, label], "softmax")
    with pytest.raises(Invalid, match=r"targets must have shape \[rows\] with rows = 2"):
        metal_ops.focal_loss([[1.0, 2.0]] * 2, [0, 1, 1], "softmax")
    with pytest.raises(ValueError, match="reduce_last: expected False"):
        metal_ops.focal_loss([[1.0, 2.0]], [0], "softmax", reduce_last=True)
    with pytest.raises(TypeError, match="targets: expected dtype float32 as of logits"):
        metal_ops.focal_loss([1.0], tf.constant([1.0], tf.float16))


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def logits(classes: int) -> dict[str, np.ndarray]:
    labels = np.random.default_rng(3).integers(0, classes, 3000)
    return {"logits": normal(3000, classes), "targets": np.eye(classes, dtype=np.float32)[labels]}


CALLS = {
    "focal_loss": Call(
        lambda **a: metal_ops.focal_loss(**a, reduce_last=True), lambda: logits(11), ("logits",)
    ),
    "focal_loss, softmax": Call(
        lambda **a: metal_ops.focal_loss(**a, kind="softmax"), lambda: logits(33), ("logits",)
    ),
    "softmax_cross_entropy": Call(
        lambda **a: metal_ops.softmax_cross_entropy(**a, label_smoothing=0.1, z_loss=1e-3),
        lambda: logits(33),
        ("logits",),
    ),
}
