"""Gradients of convolutions, pools, batch norm and losses on the device, reductions, and a network that trains there.

Oracles: TensorFlow's CPU kernels in float32 (float64 where they have it), and NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests import placements
from tests.device.on_device.test_elementwise import INTEGERS, NUMBERS, on_cpu, twice, wide
from tests.device.on_device.test_nn import (
    CONVOLUTIONS,
    FLOATS,
    assert_rounded_once,
    back,
    check,
    random,
    turned,
    window_attrs,
)
from tests.device.on_device.test_ops import REDUCTIONS, SHAPES, ULP, numpy_type, on_device, put
from tests.device.on_device.test_ops import random as numbers
from tests.device.test_loading import CACHED

raw = tf.raw_ops
LAYOUTS = pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])


def compare(op, images: dict, rest: dict, host: dict, nchw: bool, dtype: str, terms: float, result_is_image: bool,
            attrs) -> None:  # fmt: skip
    """The CPU in float32 and NHWC; the device in the dtype and layout. `attrs` makes attributes of a layout."""

    def sizes(layout: bool) -> dict:
        found = {}
        for name, (shape, is_image) in host.items():
            n, h, w, c = shape
            found[name] = tf.constant([n, c, h, w] if layout and is_image else shape, tf.int32)
        return found

    with tf.device("CPU:0"):
        floats = {k: tf.cast(v, tf.float32) for k, v in {**images, **rest}.items()}
        want = op(**floats, **sizes(False), **attrs(False)).numpy()
    with tf.device("GPU:0"):
        placed = {k: tf.identity(turned(v, nchw)) for k, v in images.items()}
        placed |= {k: tf.identity(v) for k, v in rest.items()}
        got = op(**placed, **sizes(nchw), **attrs(nchw))
        again = op(**placed, **sizes(nchw), **attrs(nchw))
    assert got.device.endswith("GPU:0"), got.device
    np.testing.assert_array_equal(got, again)
    error = 4 * np.sqrt(terms) * 2**-23 * np.abs(want).max(initial=0.0)
    assert_rounded_once(
        back(got, nchw) if result_is_image else got, want, error, dtype, str(attrs(nchw))
    )


def output_shape(shape, kernel, strides, dilations, padding):
    with tf.device("CPU:0"):
        out = raw.Conv2D(input=tf.zeros((1, *shape[1:])), filter=tf.zeros(kernel),
                         **window_attrs(strides, padding, False, dilations))  # fmt: skip
    return (shape[0], *out.shape[1:])


# A filter's gradient is taken line by line, in one part or several, of few columns or many.
LONG_LINES = [
    ((2, 5, 40, 3), (3, 5, 3, 70), (1, 1), (1, 1), "SAME"),
    ((3, 30, 57, 5), (7, 7, 5, 64), (2, 2), (1, 1), "SAME"),
    ((3, 30, 57, 2), (2, 3, 2, 17), (1, 2), (1, 1), "VALID"),
    ((1, 3, 1100, 2), (1, 3, 2, 20), (1, 1), (1, 1), (0, 0, 3, 4)),
    ((2, 9, 30, 4), (1, 1, 4, 40), (1, 1), (1, 1), "VALID"),
]


# Several blocks of terms and more panels of columns than a thread takes.
MANY_TERMS = [
    ((2, 9, 13, 40), (3, 3, 40, 300), (1, 1), (1, 1), "SAME"),
    ((3, 7, 8, 50), (2, 3, 50, 49), (2, 1), (1, 1), "VALID"),
    ((2, 6, 9, 66), (1, 1, 66, 130), (1, 1), (1, 1), "VALID"),
]


# Unless a processor has vectors of 512 bits, large products have their terms cached.
@pytest.mark.parametrize("way", [None, CACHED])
@pytest.mark.parametrize("dtype", FLOATS)
@LAYOUTS
def test_conv_gradients(monkeypatch, dtype, nchw, way):
    if way:
        monkeypatch.setenv("METAL_OPS_GEMM", way)
    for shape, kernel, strides, dilations, padding in [
        *CONVOLUTIONS,
        *MANY_TERMS,
        ((5, 4, 4, 3), (4, 4, 3, 6), (1, 1), (1, 1), "VALID"),
        ((2, 7, 8, 3), (3, 2, 3, 4), (3, 2), (1, 1), (1, 2, 0, 1)),
        ((2, 6, 6, 2), (1, 1, 2, 3), (1, 1), (1, 1), (2, 2, 1, 1)),
        *LONG_LINES,
    ]:
        if shape[0] == 0:
            continue
        out = output_shape(shape, kernel, strides, dilations, padding)
        if max(dilations) > 1:
            continue  # test_dilated_conv_gradients: the CPU has none
        d_out, x, w = random(out, dtype), random(shape, dtype, 1), random(kernel, dtype, 2)

        def attrs(layout, of=(strides, padding, dilations)):
            return window_attrs(of[0], of[1], layout, of[2])

        compare(raw.Conv2DBackpropInput, {"out_backprop": d_out}, {"filter": w}, {"input_sizes": (shape, True)},
                nchw, dtype, kernel[0] * kernel[1] * kernel[3], True, attrs)  # fmt: skip
        compare(raw.Conv2DBackpropFilter, {"out_backprop": d_out, "input": x}, {}, {"filter_sizes": (kernel, False)},
                nchw, dtype, np.prod(out[:3]), False, attrs)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "padding"),
    [
        ((8, 9, 10, 16), (3, 3, 16, 24), (1, 1), "SAME"),
        ((16, 8, 7, 8), (3, 2, 8, 70), (2, 2), "VALID"),
        ((8, 6, 11, 24), (1, 1, 24, 8), (2, 1), "SAME"),
    ],
)
def test_conv_gradients_by_groups(monkeypatch, shape, kernel, strides, padding, dtype):
    """By shaders for GPUs, a filter's in parts of its long sums; they are the same from run to run."""
    monkeypatch.setenv("METAL_OPS_GEMM", "groups")
    attrs = window_attrs(strides, padding, False, (1, 1))
    d_out = random(output_shape(shape, kernel, strides, (1, 1), padding), dtype)
    x, w = random(shape, dtype, 1), random(kernel, dtype, 2)

    def gradients():
        d_x = raw.Conv2DBackpropInput(input_sizes=shape, filter=w, out_backprop=d_out, **attrs)
        d_w = raw.Conv2DBackpropFilter(input=x, filter_sizes=kernel, out_backprop=d_out, **attrs)
        return d_x.numpy(), d_w.numpy()

    with tf.device("CPU:0"):
        x, w, d_out = (tf.cast(t, tf.float32) for t in (x, w, d_out))
        expected = gradients()
    with tf.device("GPU:0"):
        x, w, d_out = (tf.cast(tf.identity(t), dtype) for t in (x, w, d_out))
        first, second = gradients(), gradients()
    for e, one, other in zip(expected, first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        terms = max(np.prod(d_out.shape[:3]), kernel[0] * kernel[1] * kernel[3])
        error = 4e-6 * terms**0.5 + ULP[dtype] * np.abs(e)
        assert (np.abs(wide(one) - e) <= error).all()


def test_dilated_conv_gradients():
    """A convolution is linear in either argument: the gradient's product with anything is a convolution's."""
    kernel = (3, 3, 4, 6)
    for width, padding, strides in [
        (12, "SAME", (1, 1)),
        (12, "VALID", (2, 1)),
        (40, "SAME", (1, 1)),
    ]:
        shape = (2, 11, width, 4)
        attrs = window_attrs(strides, padding, False, (2, 3))
        x, w = random(shape, seed=1), random(kernel, seed=2)
        with tf.device("GPU:0"):
            x, w = tf.identity(x), tf.identity(w)
            y = raw.Conv2D(input=x, filter=w, **attrs)
            d_y = tf.identity(random(y.shape, seed=3))
            d_x = raw.Conv2DBackpropInput(input_sizes=shape, filter=w, out_backprop=d_y, **attrs)
            d_w = raw.Conv2DBackpropFilter(input=x, filter_sizes=kernel, out_backprop=d_y, **attrs)
        total = np.sum(wide(y.numpy()) * d_y.numpy())
        for one, other in [(x, d_x), (w, d_w)]:
            np.testing.assert_allclose(np.sum(wide(one.numpy()) * other.numpy()), total, rtol=1e-4)


def test_conv_gradients_of_nothing():
    attrs = window_attrs((1, 1), "SAME", False)
    with tf.device("GPU:0"):
        w, none = tf.ones((3, 3, 2, 4)), tf.zeros((0, 6, 6, 4))
        got = raw.Conv2DBackpropInput(
            input_sizes=(0, 6, 6, 2), filter=w, out_backprop=none, **attrs
        )
        assert got.shape == (0, 6, 6, 2)
        got = raw.Conv2DBackpropFilter(
            input=tf.zeros((0, 6, 6, 2)), filter_sizes=w.shape, out_backprop=none, **attrs
        )
        np.testing.assert_array_equal(got, np.zeros(w.shape))


def test_conv_gradients_bad():
    attrs = window_attrs((1, 1), "SAME", False)
    with tf.device("GPU:0"):
        w, d_out = tf.ones((3, 3, 2, 4)), tf.ones((1, 5, 6, 4))
        for call in (
            lambda: raw.Conv2DBackpropInput(input_sizes=(1, 6, 6, 2), filter=w, out_backprop=d_out, **attrs),
            lambda: raw.Conv2DBackpropFilter(input=tf.ones((1, 6, 6, 2)), filter_sizes=w.shape, out_backprop=d_out,
                                             **attrs),
        ):  # fmt: skip
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"out_backprop.*\[1, ?6, ?6, ?4\]"
            ):
                call()
        with pytest.raises(tf.errors.InvalidArgumentError, match="input_sizes"):
            raw.Conv2DBackpropInput(input_sizes=(1, 6, 6), filter=w, out_backprop=d_out, **attrs)


@pytest.mark.parametrize("dtype", FLOATS)
@LAYOUTS
def test_depthwise_gradients(dtype, nchw):
    for shape, kernel, strides, padding in [
        ((2, 9, 7, 3), (3, 3, 3, 1), (1, 1), "SAME"),
        ((1, 8, 8, 5), (3, 3, 5, 2), (2, 2), "VALID"),
        ((40, 8, 8, 17), (5, 5, 17, 1), (2, 2), "SAME"),
        ((2, 5, 7, 16), (3, 3, 16, 1), (1, 1), "SAME"),
        ((2, 5, 7, 96), (3, 3, 96, 1), (2, 2), "SAME"),
        ((2, 5, 7, 8), (3, 3, 8, 2), (1, 1), "SAME"),
    ]:
        full = (*kernel[:3], kernel[2] * kernel[3])
        out = output_shape(shape, full, strides, (1, 1), padding)
        d_out, x, w = random(out, dtype), random(shape, dtype, 1), random(kernel, dtype, 2)

        def attrs(layout, of=(strides, padding)):
            return window_attrs(*of, layout)

        compare(raw.DepthwiseConv2dNativeBackpropInput, {"out_backprop": d_out}, {"filter": w},
                {"input_sizes": (shape, True)}, nchw, dtype, 25, True, attrs)  # fmt: skip
        compare(raw.DepthwiseConv2dNativeBackpropFilter, {"out_backprop": d_out, "input": x}, {},
                {"filter_sizes": (kernel, False)}, nchw, dtype, np.prod(out[:3]), False, attrs)  # fmt: skip


POOLS = [
    ((2, 9, 7, 3), (3, 3), (2, 2), "SAME"),
    ((1, 8, 8, 5), (2, 3), (2, 1), "VALID"),
    ((1, 4, 4, 33), (4, 4), (1, 1), "SAME"),
    ((2, 6, 6, 2), (2, 2), (3, 3), "VALID"),
    ((2, 9, 7, 16), (3, 3), (2, 2), "SAME"),
    ((2, 9, 7, 64), (3, 3), (2, 2), "SAME"),
]


@pytest.mark.parametrize("dtype", FLOATS)
@LAYOUTS
def test_pool_gradients(dtype, nchw):
    for shape, ksize, strides, padding in POOLS:
        # Whole numbers, so that windows have several largest elements.
        x = tf.round(random(shape, "float32") * 2)
        x = tf.cast(x, dtype)

        def attrs(layout, of=(ksize, strides, padding)):
            size = [1, 1, *of[0]] if layout else [1, *of[0], 1]
            return {"ksize": size, **window_attrs(of[1], of[2], layout)}

        with tf.device("CPU:0"):
            y = raw.MaxPool(input=x, **attrs(False))
        d_y = random(y.shape, dtype, 1)
        compare(
            raw.MaxPoolGrad,
            {"orig_input": x, "orig_output": y, "grad": d_y},
            {},
            {},
            nchw,
            dtype,
            9,
            True,
            attrs,
        )
        compare(
            raw.AvgPoolGrad,
            {"grad": d_y},
            {},
            {"orig_input_shape": (shape, True)},
            nchw,
            dtype,
            9,
            True,
            attrs,
        )


def test_the_gradient_of_a_window_with_nan_is_the_first_nans():
    x = np.arange(16, dtype="f").reshape(1, 4, 4, 1)
    x[0, 0, 1], x[0, 1, 0], x[0, 2:, 2:] = np.nan, np.nan, np.nan
    attrs = {"ksize": [1, 2, 2, 1], **window_attrs((2, 2), "VALID", False)}
    for channels in (1, 8):  # a lane, and several
        wide = tf.constant(np.repeat(x, channels, 3))
        with tf.device("GPU:0"):
            placed = tf.identity(wide)
            y = raw.MaxPool(input=placed, **attrs)
            d_y = tf.identity(tf.constant(np.arange(1, 4 * channels + 1, dtype="f"), shape=y.shape))
            got = raw.MaxPoolGrad(orig_input=placed, orig_output=y, grad=d_y, **attrs).numpy()
        want = np.zeros_like(wide)
        for (row, column), (i, j) in zip(
            [(0, 1), (1, 3), (3, 1), (2, 2)], np.ndindex(2, 2), strict=True
        ):
            want[0, row, column] = d_y[0, i, j]
        np.testing.assert_array_equal(got, want)


def test_batch_norm_gradients_of_no_images():
    with tf.device("GPU:0"):
        x, c, nothing = tf.zeros((0, 3, 4, 5)), tf.ones(5), tf.zeros(0)
        got = raw.FusedBatchNormGradV3(
            y_backprop=x, x=x, scale=c, reserve_space_1=c * np.nan, reserve_space_2=c * np.nan, reserve_space_3=nothing
        )  # fmt: skip
    assert got[0].shape == x.shape
    for i in (1, 2):
        np.testing.assert_array_equal(got[i], np.zeros(5))


def test_pool_gradients_bad():
    attrs = {"ksize": [1, 2, 2, 1], **window_attrs((2, 2), "VALID", False)}
    with tf.device("GPU:0"):
        x, y = tf.ones((1, 4, 4, 2)), tf.ones((1, 2, 2, 2))
        with pytest.raises(tf.errors.InvalidArgumentError, match="grad must have shape"):
            raw.MaxPoolGrad(orig_input=x, orig_output=y, grad=x, **attrs)
        with pytest.raises(tf.errors.InvalidArgumentError, match="orig_output must have shape"):
            raw.MaxPoolGrad(orig_input=x, orig_output=x, grad=y, **attrs)
        with pytest.raises(tf.errors.InvalidArgumentError, match="grad must have shape"):
            raw.AvgPoolGrad(orig_input_shape=[1, 4, 4, 2], grad=x, **attrs)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@LAYOUTS
def test_batch_norm_gradients(training, dtype, nchw):
    for shape in [(2, 3, 4, 5), (3, 20, 30, 7), (1, 1, 1, 3), (2, 3, 4, 2, 5)]:
        x = random(shape, dtype) * tf.constant(2, dtype) + tf.constant(3, dtype)
        d_y = random(shape, dtype, 1)
        gamma = random(shape[-1:], seed=2)
        mean, variance = tf.nn.moments(tf.cast(x, tf.float32), range(len(shape) - 1))
        variance = variance + 0.1
        for name in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"):
            if name == "FusedBatchNormGrad" and dtype != "float32":
                continue
            if len(shape) == 5 and name != "FusedBatchNormGradV3":
                continue
            op = getattr(raw, name)
            more = {"reserve_space_3": tf.zeros(0)} if name.endswith("3") else {}

            def call(a, b, layout, op=op, more=more, rest=(gamma, mean, variance)):
                g, m, v = rest
                layout = "NCHW" if layout else "NHWC"
                layout = layout.replace("H", "DH") if len(a.shape) == 5 else layout
                return op(y_backprop=a, x=b, scale=g, reserve_space_1=m, reserve_space_2=v, epsilon=0.01,
                          data_format=layout, is_training=training, **more)  # fmt: skip

            with tf.device("CPU:0"):
                want = call(tf.cast(d_y, tf.float32), tf.cast(x, tf.float32), False)
            with tf.device("GPU:0"):
                got = call(tf.identity(turned(d_y, nchw)), tf.identity(turned(x, nchw)), nchw)
            for i in range(3):
                assert got[i].device.endswith("GPU:0")
                size = np.abs(want[i].numpy()).max()
                error = 2e-6 * np.sqrt(np.prod(shape[:-1])) * max(size, 1)
                kind = dtype if i == 0 else "float32"
                assert_rounded_once(back(got[i], nchw), want[i], error, kind, f"{name} {i}")
    with (
        tf.device("GPU:0"),
        pytest.raises(tf.errors.InvalidArgumentError, match="scale must have the same number"),
    ):
        raw.FusedBatchNormGradV3(
            y_backprop=tf.ones((1, 2, 2, 3)), x=tf.ones((1, 2, 2, 3)), scale=tf.ones(2), reserve_space_1=tf.ones(3),
            reserve_space_2=tf.ones(3), reserve_space_3=tf.zeros(0), is_training=training,
        )  # fmt: skip


# ---- losses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy(dtype):
    for shape, labels in [((5, 7), (5, 7)), ((1, 1), (1, 1)), ((33, 1000), (33, 1000)), ((4, 3), (1, 3)),
                          ((1, 3), (4, 3)), ((0, 3), (0, 3))]:  # fmt: skip
        x, y = random(shape, dtype) * tf.constant(4, dtype), tf.nn.softmax(random(labels, dtype, 1))
        check(
            raw.SoftmaxCrossEntropyWithLogits,
            {"features": x, "labels": y},
            dtype,
            terms=shape[-1],
            around=8.0,
        )
        if shape != labels:
            continue
        classes = np.random.default_rng(2).integers(0, shape[1], shape[0])
        for kind in (tf.int32, tf.int64):
            inputs = {"features": x, "labels": tf.constant(classes, kind)}
            check(
                raw.SparseSoftmaxCrossEntropyWithLogits, inputs, dtype, terms=shape[-1], around=8.0
            )


def test_cross_entropy_of_large_logits_and_of_no_class():
    x = np.array([[1e4, -1e4, 0], [-1e30, 1e30, 3]], "float32")
    with tf.device("GPU:0"):
        loss, slope = raw.SparseSoftmaxCrossEntropyWithLogits(
            features=put(x), labels=put(np.array([0, 1]))
        )
        np.testing.assert_array_equal(loss, [0, 0])
        np.testing.assert_array_equal(slope, np.zeros((2, 3)))
        loss, slope = raw.SparseSoftmaxCrossEntropyWithLogits(
            features=put(x), labels=put(np.array([3, -1]))
        )
        assert np.isnan(loss).all() and np.isnan(slope).all()
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[rows, classes\]"):
            raw.SparseSoftmaxCrossEntropyWithLogits(features=put(x), labels=put(np.array([3])))
        with pytest.raises(tf.errors.InvalidArgumentError, match="2-dimensional"):
            raw.SoftmaxCrossEntropyWithLogits(features=put(x[0]), labels=put(x[0]))


# ---- reductions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "oracle"), [("Max", np.max), ("Min", np.min), ("Prod", np.prod), ("Sum", np.sum)]
)
def test_reductions(name, oracle):
    for dtype in NUMBERS:
        for shape, axes in REDUCTIONS:
            x = numbers(shape, dtype)
            if name in ("Max", "Min") and 0 in x.shape:
                continue  # NumPy has no answer: test_reductions_of_nothing
            if name == "Sum" and dtype in FLOATS:
                continue  # test_ops.py
            if name == "Prod" and dtype in FLOATS:
                if x.size > 5000:
                    continue
                x = (1 + x / 64).astype(x.dtype)
            got = on_device(getattr(raw, name)(input=put(x), axis=tf.constant(axes, tf.int32)))
            if dtype in INTEGERS:
                with np.errstate(over="ignore"):
                    want = np.asarray(oracle(x, axis=axes))
                np.testing.assert_array_equal(got, want.astype(dtype), f"{dtype} {shape} {axes}")
            else:
                want = np.asarray(oracle(wide(x), axis=axes))
                tolerance = ULP[dtype] + (1e-4 if name == "Prod" else 0)
                np.testing.assert_allclose(
                    wide(got), want.astype(x.dtype).astype("f8"), rtol=tolerance
                )


def test_reductions_of_nothing():
    none = put(np.zeros((3, 0), "float32"))
    for name, want in [("Max", -np.inf), ("Min", np.inf), ("Prod", 1), ("Sum", 0)]:
        np.testing.assert_array_equal(
            on_device(getattr(raw, name)(input=none, axis=[1])), [want] * 3
        )
    none = put(np.zeros((0, 2), "int16"))
    np.testing.assert_array_equal(on_device(raw.Max(input=none, axis=[0])), [-(2**15)] * 2)
    np.testing.assert_array_equal(on_device(raw.Min(input=none, axis=[0])), [2**15 - 1] * 2)


def test_reductions_keep_nan():
    x = np.arange(3000, dtype="float32")
    for place in (0, 7, 1500, 2999):
        x[place] = np.nan
        assert np.isnan(on_device(raw.Max(input=put(x), axis=[0])))
        assert np.isnan(on_device(raw.Min(input=put(x), axis=[0])))
        x[place] = place


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms(dtype):
    for shape, axes in REDUCTIONS:
        # Numbers whose squares are beyond float16.
        x = (numbers(shape, dtype) * 90).astype(numpy_type(dtype))
        want = np.sqrt(np.sum(wide(x) ** 2, axis=axes))
        if dtype == "float16":
            want = (
                want[...] if want.max(initial=0) < 60000 else np.where(want < 60000, want, np.inf)
            )
        got = on_device(raw.EuclideanNorm(input=put(x), axis=tf.constant(axes, tf.int32)))
        np.testing.assert_allclose(wide(got), want, rtol=ULP[dtype] + 1e-6)
        x = numbers(shape, dtype) / 16
        got = on_device(twice(lambda x: raw.L2Loss(t=x), x=np.asarray(x, numpy_type(dtype))))
        np.testing.assert_allclose(
            wide(got),
            np.sum(wide(np.asarray(x, numpy_type(dtype))) ** 2) / 2,
            rtol=ULP[dtype] + 1e-5,
        )


def test_all_and_any():
    for shape, axes in REDUCTIONS:
        for share in (0.0, 0.01, 0.99, 1.0):
            x = np.random.default_rng(1).random(shape) < share
            for name, oracle in [("All", np.all), ("Any", np.any)]:
                got = on_device(getattr(raw, name)(input=put(x), axis=tf.constant(axes, tf.int64)))
                np.testing.assert_array_equal(got, oracle(x, axis=axes))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bias_add_grad(dtype):
    for shape in [(3, 4), (2, 3, 4), (40, 30, 5, 4), (0, 4), (1, 1)]:
        for layout in ("NHWC", "NCHW"):
            if layout == "NCHW" and len(shape) < 3:
                continue
            x = numbers(shape, dtype)
            axes = tuple(
                i for i in range(len(shape)) if i != (1 if layout == "NCHW" else len(shape) - 1)
            )
            got = on_device(
                twice(
                    lambda x, layout=layout: raw.BiasAddGrad(out_backprop=x, data_format=layout),
                    x=x,
                )
            )
            with np.errstate(over="ignore"):
                want = wide(x).sum(axis=axes).astype(x.dtype)
            if dtype in INTEGERS:
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(wide(got), wide(want), rtol=ULP[dtype], atol=1e-3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 dimensions"):
        raw.BiasAddGrad(out_backprop=put(np.ones(3, "f")))


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_arg(name):
    op, oracle = getattr(raw, name), {"ArgMax": np.argmax, "ArgMin": np.argmin}[name]
    for dtype in [*NUMBERS, "int32", "bool"]:
        for shape in SHAPES:
            if 0 in shape:
                continue
            x = numbers(shape, dtype) if dtype not in FLOATS else np.round(numbers(shape, dtype))
            for axis in range(-len(shape), len(shape)):
                for kind in (tf.int32, tf.int64):
                    got = on_device(op(input=put(x), dimension=axis, output_type=kind))
                    np.testing.assert_array_equal(got, oracle(wide(x), axis=axis))
                    assert got.dtype == kind.as_numpy_dtype
    with pytest.raises(tf.errors.InvalidArgumentError, match="dimension"):
        op(input=put(np.ones((2, 3), "f")), dimension=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="empty"):
        op(input=put(np.ones((2, 0), "f")), dimension=1)
    assert on_cpu(lambda x: op(input=x, dimension=0), x=np.ones((2, 0), "f")).shape == (0,)
    assert on_device(op(input=put(np.ones((2, 0), "f")), dimension=0)).shape == (0,)


# ---- a network ------------------------------------------------------------------------------------------------------


def network_losses(device: str, steps: int) -> list[float]:
    rng = np.random.default_rng(5)
    with tf.device(device):

        def variable(*shape):
            return tf.Variable(
                tf.constant(rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1])), tf.float32)
            )

        filters = [
            variable(3, 3, 3, 8),
            variable(3, 3, 8, 2),
            variable(1, 1, 16, 12),
            variable(3, 3, 12, 12),
        ]
        gammas = [tf.Variable(tf.ones(8)), tf.Variable(tf.ones(12))]
        betas = [tf.Variable(tf.zeros(8)), tf.Variable(tf.zeros(12))]
        dense, bias = variable(12, 10), tf.Variable(tf.zeros(10))
        weights = [*filters, *gammas, *betas, dense, bias]
        moments = [(tf.Variable(tf.zeros_like(w)), tf.Variable(tf.zeros_like(w))) for w in weights]

        @tf.function
        def step(images, labels):
            with tf.GradientTape() as tape:
                x = tf.nn.conv2d(images, filters[0], 1, "SAME")
                x, *_ = tf.compat.v1.nn.fused_batch_norm(x, gammas[0], betas[0])
                x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
                x = tf.nn.relu6(tf.nn.depthwise_conv2d(x, filters[1], [1, 2, 2, 1], "SAME"))
                x = tf.nn.conv2d(x, filters[2], 1, "VALID")
                x, *_ = tf.compat.v1.nn.fused_batch_norm(x, gammas[1], betas[1])
                x = x + tf.nn.leaky_relu(tf.nn.conv2d(x, filters[3], 1, "SAME"))
                x = tf.reduce_mean(tf.nn.avg_pool2d(x, 2, 1, "SAME"), [1, 2])
                logits = tf.nn.bias_add(tf.matmul(x, dense), bias)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses) + 1e-3 * tf.add_n([tf.nn.l2_loss(w) for w in filters])
            for weight, gradient, (m, v) in zip(
                weights, tape.gradient(loss, weights), moments, strict=True
            ):
                raw.ResourceApplyAdam(
                    var=weight.handle, m=m.handle, v=v.handle, beta1_power=0.5, beta2_power=0.5, lr=0.01,
                    beta1=0.9, beta2=0.999, epsilon=1e-4, grad=gradient,
                )  # fmt: skip
            right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
            return loss, right

        images = tf.identity(tf.constant(rng.normal(size=(16, 12, 12, 3)), tf.float32))
        labels = tf.identity(tf.constant(rng.integers(0, 10, 16)))
        return [float(step(images, labels)[0]) for _ in range(steps)]


# Ops without values that a device computes with: arguments, results, their copies, shapes known beforehand.
FREE = {"_Arg", "_Retval", "_Send", "_Recv", "NoOp", "Const", "_HostSend", "_HostRecv"}


def test_a_network_trains_with_nothing_on_the_cpu():
    with placements.placed() as ops:
        losses = network_losses("GPU:0", 12)
    assert {op for op, devices in ops.items() if devices != {"GPU:0"}} <= FREE, dict(ops)
    for op in ("Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "MaxPoolGrad",
               "DepthwiseConv2dNativeBackpropFilter", "AvgPoolGrad", "FusedBatchNormGradV3", "BiasAddGrad",
               "SparseSoftmaxCrossEntropyWithLogits", "LeakyReluGrad", "ArgMax"):  # fmt: skip
        assert op in ops
    expected = network_losses("CPU:0", 12)
    np.testing.assert_allclose(losses[:4], expected[:4], rtol=1e-4)
    np.testing.assert_allclose(losses, expected, rtol=2e-2)
    assert losses[-1] < 0.6 * losses[0]
