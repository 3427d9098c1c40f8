"""Pools of every number and of three dimensions, pools that tell where the largest was, convolutions of volumes,
patches, dilation and local response normalisation on the device, against TensorFlow's own on the CPU.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import (
    FLOATS,
    INTEGERS,
    ROUNDING,
    check,
    on_cpu,
    random,
    run,
)

raw = tf.raw_ops
NUMBERS = [*FLOATS, *INTEGERS]
IMAGES = [
    # shape, window, strides, padding
    ((2, 9, 7, 3), (3, 3), (2, 2), "SAME"),
    ((1, 8, 8, 5), (2, 3), (2, 1), "VALID"),
    ((1, 4, 4, 17), (4, 4), (1, 1), "SAME"),
    ((3, 1, 1, 1), (1, 1), (1, 1), "VALID"),
    ((1, 9, 5, 2), (1, 4), (3, 1), "SAME"),
    # With as many channels a thread has several.
    ((1, 5, 4, 8), (3, 2), (2, 1), "SAME"),
    ((2, 5, 4, 32), (3, 3), (2, 1), "SAME"),
]
VOLUMES = [
    ((2, 5, 6, 7, 3), (2, 3, 2), (1, 2, 2), "SAME"),
    ((1, 4, 4, 4, 9), (2, 2, 2), (2, 2, 2), "VALID"),
    ((1, 1, 1, 1, 1), (1, 1, 1), (1, 1, 1), "SAME"),
    ((1, 3, 9, 5, 2), (3, 3, 4), (2, 3, 1), "SAME"),
    ((1, 3, 4, 3, 8), (2, 3, 3), (1, 2, 1), "SAME"),
    ((1, 3, 4, 3, 32), (2, 3, 3), (1, 2, 1), "SAME"),
]
# Strides past the window's end: TensorFlow's patches of volumes begin behind the edge then. So do its pools, but not
# with oneDNN.
SHIFTED = ((1, 3, 9, 5, 2), (3, 1, 4), (2, 3, 1), "SAME")


def ones(sizes):
    return [1, *sizes, 1]


def distinct(shape, dtype, seed=0):
    """No two alike where there are few: which of two is the first does not depend on rounding."""
    order = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)
    low = 0 if dtype[0] == "u" else -120
    return tf.cast(tf.constant(order % 240 + low), dtype)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_max_pool(dtype):
    for shape, window, strides, padding in IMAGES:
        x = distinct(shape, dtype)
        attrs = dict(ksize=ones(window), strides=ones(strides), padding=padding)
        inputs = dict(ksize=tf.constant(attrs["ksize"]), strides=tf.constant(attrs["strides"]))
        host = ["ksize", "strides"]
        if dtype not in ("uint32", "uint64"):  # the ops' declarations lack them
            check(raw.MaxPool, dict(input=x), dtype, error=0, widen=False, **attrs)
            check(
                raw.MaxPoolV2,
                dict(input=x) | inputs,
                dtype,
                host=host,
                error=0,
                widen=False,
                padding=padding,
            )
        pooled, _ = on_cpu(raw.MaxPoolWithArgmax, dict(input=x), (), **attrs)
        saved = dict(orig_input=x, orig_output=pooled)
        grad, outer = random(pooled.shape, dtype, 1), random(shape, dtype, 2)
        check(raw.MaxPoolGrad, saved | dict(grad=grad), dtype, **attrs)
        check(
            raw.MaxPoolGradV2, saved | dict(grad=grad) | inputs, dtype, host=host, padding=padding
        )
        check(raw.MaxPoolGradGrad, saved | dict(grad=outer), dtype, error=0, **attrs)
        check(
            raw.MaxPoolGradGradV2,
            saved | dict(grad=outer) | inputs,
            dtype,
            host=host,
            error=0,
            padding=padding,
        )


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("places", ["int32", "int64"])
def test_max_pool_with_argmax(dtype, places):
    for shape, window, strides, padding in IMAGES:
        x = distinct(shape, dtype)
        attrs = dict(ksize=ones(window), strides=ones(strides), padding=padding)
        for whole in (False, True):
            common = dict(attrs, include_batch_in_index=whole)
            check(
                raw.MaxPoolWithArgmax,
                dict(input=x),
                dtype,
                error=0,
                widen=False,
                Targmax=places,
                **common,
            )
            pooled, argmax = on_cpu(
                raw.MaxPoolWithArgmax, dict(input=x), (), Targmax="int64", **common
            )
            grad = random(pooled.shape, dtype, 1)
            (want,) = on_cpu(
                raw.MaxPoolGradWithArgmax, dict(input=x, grad=grad, argmax=argmax), **common
            )
            inputs = dict(input=x, grad=grad, argmax=tf.cast(argmax, places))
            (got,) = run(raw.MaxPoolGradWithArgmax, inputs, **common)
            got, want = (tf.cast(y, tf.float64).numpy() for y in (got, want))
            np.testing.assert_allclose(got, want, rtol=2 * ROUNDING.get(dtype, 0), atol=4e-6)
            # The gradient's gradient, which has no kernel on the CPU: the values at the places.
            outer = random(shape, dtype, 2)
            inputs = dict(input=x, grad=outer, argmax=tf.cast(argmax, places))
            (got,) = run(raw.MaxPoolGradGradWithArgmax, inputs, **common)
            base = 0 if whole else np.arange(shape[0]).reshape(-1, 1, 1, 1) * np.prod(shape[1:])
            np.testing.assert_array_equal(got, outer.numpy().reshape(-1)[argmax.numpy() + base])


def test_argmax_is_the_first_and_nan_is_kept_where_it_is_first():
    for values, place in [([3, 1, 3, 2], 0), ([np.nan, 1, 2, 3], 0), ([1, np.nan, 2, 2], 2)]:
        x = tf.constant(np.float32(values).reshape(1, 2, 2, 1))
        attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
        out, argmax = run(raw.MaxPoolWithArgmax, dict(input=x), **attrs)
        assert argmax.numpy().item() == place
        np.testing.assert_array_equal(out.numpy().item(), values[place])


def test_places_outside_are_skipped():
    x, grad = tf.zeros([2, 2, 2, 1]), tf.constant([1.0, 2.0], shape=[2, 1, 1, 1])
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    inputs = dict(input=x, grad=grad, argmax=tf.constant([-1, 3], tf.int64, shape=[2, 1, 1, 1]))
    (got,) = run(raw.MaxPoolGradWithArgmax, inputs, **attrs)
    np.testing.assert_array_equal(got.numpy().ravel(), [0, 0, 0, 0, 0, 0, 0, 2])
    (got,) = run(raw.MaxPoolGradGradWithArgmax, inputs | dict(grad=x + 5), **attrs)
    np.testing.assert_array_equal(got.numpy().ravel(), [0, 5])


@pytest.mark.parametrize("dtype", FLOATS)
def test_volume_pools(dtype):
    for shape, window, strides, padding in VOLUMES:
        x = distinct(shape, dtype)
        attrs = dict(ksize=ones(window), strides=ones(strides), padding=padding)
        check(raw.MaxPool3D, dict(input=x), dtype, error=0, **attrs)
        check(raw.AvgPool3D, dict(input=x), dtype, **attrs)
        (pooled,) = on_cpu(raw.MaxPool3D, dict(input=x), **attrs)
        grad = random(pooled.shape, dtype, 1)
        saved = dict(orig_input=x, orig_output=tf.cast(pooled, dtype))
        check(raw.MaxPool3DGrad, saved | dict(grad=grad), dtype, **attrs)
        check(
            raw.MaxPool3DGradGrad,
            saved | dict(grad=random(shape, dtype, 2)),
            dtype,
            error=0,
            **attrs,
        )
        inputs = dict(orig_input_shape=tf.constant(shape), grad=grad)
        check(raw.AvgPool3DGrad, inputs, dtype, host=["orig_input_shape"], **attrs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_volume_pools_with_channels_first(dtype):
    """The same numbers: the CPU has no such kernels."""
    for shape, window, strides, padding in VOLUMES:
        x = random(shape, dtype)
        first = tf.transpose(x, [0, 4, 1, 2, 3])
        for op in (raw.MaxPool3D, raw.AvgPool3D):
            (want,) = run(
                op, dict(input=x), ksize=ones(window), strides=ones(strides), padding=padding
            )
            (got,) = run(op, dict(input=first), ksize=[1, 1, *window], strides=[1, 1, *strides], padding=padding,
                         data_format="NCDHW")  # fmt: skip
            np.testing.assert_array_equal(tf.transpose(got, [0, 2, 3, 4, 1]), want)


def to_first(volume):
    return tf.transpose(volume, [0, 4, 1, 2, 3])


CONVOLUTIONS = [
    # input, filter, strides, padding
    ((2, 5, 6, 7, 3), (3, 3, 2, 3, 4), (1, 1, 1), "SAME"),
    ((1, 6, 5, 5, 2), (2, 3, 3, 2, 5), (2, 1, 2), "VALID"),
    ((2, 4, 6, 5, 8), (1, 3, 3, 8, 9), (1, 2, 2), "SAME"),
    ((1, 5, 3, 3, 2), (2, 1, 1, 2, 3), (3, 1, 1), "SAME"),
    ((1, 1, 1, 1, 1), (1, 1, 1, 1, 1), (1, 1, 1), "VALID"),
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_convolutions_of_volumes(dtype):
    for shape, kernel, strides, padding in CONVOLUTIONS:
        attrs = dict(strides=ones(strides), padding=padding)
        x, f = random(shape, dtype), random(kernel, dtype, 1)
        check(raw.Conv3D, dict(input=x, filter=f), dtype, error=2e-5, **attrs)
        (out,) = on_cpu(raw.Conv3D, dict(input=x, filter=f), **attrs)
        grad = random(out.shape, dtype, 2)
        # A gradient of the input is the sum of those by each of the filter's planes, of the dtype.
        error = 2e-5 + kernel[0] * ROUNDING[dtype]
        inputs = dict(input_sizes=tf.constant(shape), filter=f, out_backprop=grad)
        host = ["input_sizes", "filter_sizes"]
        check(raw.Conv3DBackpropInputV2, inputs, dtype, host=host, error=error, **attrs)
        inputs = dict(input=x, filter_sizes=tf.constant(kernel), out_backprop=grad)
        check(raw.Conv3DBackpropFilterV2, inputs, dtype, host=host, error=error, **attrs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_convolutions_of_volumes_with_channels_first(dtype):
    """The same numbers: the CPU has no such kernels."""
    for shape, kernel, strides, padding in [
        *CONVOLUTIONS,
        ((0, 4, 4, 4, 2), (2, 2, 2, 2, 3), (1, 1, 1), "SAME"),
    ]:
        last = dict(strides=ones(strides), padding=padding)
        first = dict(strides=[1, 1, *strides], padding=padding, data_format="NCDHW")
        x, f = random(shape, dtype), random(kernel, dtype, 1)
        (out,) = run(raw.Conv3D, dict(input=x, filter=f), **last)
        (got,) = run(raw.Conv3D, dict(input=to_first(x), filter=f), **first)
        np.testing.assert_array_equal(got, to_first(out))
        grad = random(out.shape, dtype, 2)
        inputs = dict(filter=f, input_sizes=tf.constant(shape), out_backprop=grad)
        (want,) = run(raw.Conv3DBackpropInputV2, inputs, host=["input_sizes"], **last)
        inputs |= dict(input_sizes=tf.constant(to_first(x).shape), out_backprop=to_first(grad))
        (got,) = run(raw.Conv3DBackpropInputV2, inputs, host=["input_sizes"], **first)
        np.testing.assert_array_equal(got, to_first(want))
        inputs = dict(input=x, filter_sizes=tf.constant(kernel), out_backprop=grad)
        (want,) = run(raw.Conv3DBackpropFilterV2, inputs, host=["filter_sizes"], **last)
        inputs |= dict(input=to_first(x), out_backprop=to_first(grad))
        (got,) = run(raw.Conv3DBackpropFilterV2, inputs, host=["filter_sizes"], **first)
        np.testing.assert_array_equal(got, want)


def test_dilated_convolutions_of_volumes():
    """Those of the same convolution by a filter with zeros between its points."""
    x, f = random((1, 7, 6, 6, 2)), random((3, 2, 2, 2, 3), seed=1)
    wide = np.zeros((5, 2, 3, 2, 3), "f")
    wide[::2, :, ::2] = f
    grad = random((1, 3, 5, 4, 3), seed=2)
    plain = dict(strides=ones((1, 1, 1)), padding="VALID")
    dilated = plain | dict(dilations=ones((2, 1, 2)))
    (want,) = on_cpu(raw.Conv3D, dict(input=x, filter=tf.constant(wide)), **plain)
    (got,) = run(raw.Conv3D, dict(input=x, filter=f), **dilated)
    np.testing.assert_allclose(got, want, atol=1e-5)
    sizes = dict(input_sizes=tf.constant(x.shape), filter_sizes=tf.constant(f.shape))
    inputs = dict(input_sizes=sizes["input_sizes"], out_backprop=grad)
    (want,) = on_cpu(raw.Conv3DBackpropInputV2, inputs | dict(filter=tf.constant(wide)), **plain)
    (got,) = run(
        raw.Conv3DBackpropInputV2, inputs | dict(filter=f), host=["input_sizes"], **dilated
    )
    np.testing.assert_allclose(got, want, atol=1e-5)
    inputs = dict(input=x, out_backprop=grad)
    (want,) = on_cpu(
        raw.Conv3DBackpropFilterV2, inputs | dict(filter_sizes=tf.constant(wide.shape)), **plain
    )
    (got,) = run(raw.Conv3DBackpropFilterV2, inputs | dict(filter_sizes=sizes["filter_sizes"]),
                 host=["filter_sizes"], **dilated)  # fmt: skip
    np.testing.assert_allclose(got, want.numpy()[::2, :, ::2], atol=1e-5)


@pytest.mark.parametrize("dtype", [*NUMBERS, "float64", "complex64"])
def test_patches(dtype):
    def numbers(shape):
        if dtype in NUMBERS:
            return random(shape, dtype)
        return tf.cast(random(shape), dtype)

    for shape, window, strides, padding in IMAGES:
        for rates in ((1, 1), (1, 2)):
            if padding == "VALID" and rates != (1, 1):
                continue
            attrs = dict(
                ksizes=ones(window), strides=ones(strides), rates=ones(rates), padding=padding
            )
            check(
                raw.ExtractImagePatches,
                dict(images=numbers(shape)),
                dtype,
                error=0,
                widen=False,
                **attrs,
            )
    for shape, window, strides, padding in [*VOLUMES, SHIFTED] if dtype != "complex64" else []:
        attrs = dict(ksizes=ones(window), strides=ones(strides), padding=padding)
        check(
            raw.ExtractVolumePatches,
            dict(input=numbers(shape)),
            dtype,
            error=0,
            widen=False,
            **attrs,
        )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_dilation(dtype):
    for shape, window, strides, padding in IMAGES:
        for rates in ((1, 1), (1, 2)):
            if padding == "VALID" and rates != (1, 1):
                continue
            # Halves of whole numbers are exact in every dtype: no two sums differ by rounding.
            x = tf.cast(tf.constant(np.random.default_rng(0).integers(0, 50, shape)), dtype)
            f = tf.cast(
                tf.constant(np.random.default_rng(1).integers(0, 9, (*window, shape[3]))), dtype
            )
            attrs = dict(strides=ones(strides), rates=ones(rates), padding=padding)
            inputs = dict(input=x, filter=f)
            check(raw.Dilation2D, inputs, dtype, error=0, **attrs)
            (out,) = on_cpu(raw.Dilation2D, inputs, (), **attrs)
            grad = tf.cast(tf.constant(np.random.default_rng(2).integers(0, 3, out.shape)), dtype)
            check(raw.Dilation2DBackpropInput, inputs | dict(out_backprop=grad), dtype, **attrs)
            check(raw.Dilation2DBackpropFilter, inputs | dict(out_backprop=grad), dtype, **attrs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_local_response_normalisation(dtype):
    for shape, attrs in [
        ((2, 3, 4, 7), {}),
        ((1, 2, 2, 33), dict(depth_radius=2, bias=1.5, alpha=0.3, beta=0.75)),
        ((1, 1, 1, 1), dict(depth_radius=0, alpha=0.2, beta=0.4)),
        ((1, 2, 1, 50), dict(depth_radius=4, alpha=0.2)),
        ((1, 1, 2, 40), dict(depth_radius=11, alpha=0.2)),
        ((1, 1, 2, 600), dict(depth_radius=8, alpha=0.2, beta=0.75)),
    ]:
        x = random(shape, dtype)
        check(raw.LRN, dict(input=x), dtype, error=1e-5, **attrs)
        (y,) = on_cpu(raw.LRN, dict(input=x), **attrs)
        inputs = dict(
            input_grads=random(shape, dtype, 1), input_image=x, output_image=tf.cast(y, dtype)
        )
        check(raw.LRNGrad, inputs, dtype, error=1e-5, **attrs)


def test_empty_batches():
    image, attrs = tf.zeros([0, 4, 4, 2]), dict(strides=ones((2, 2)), padding="SAME")
    assert run(raw.MaxPoolWithArgmax, dict(input=image), ksize=ones((2, 2)), **attrs)[1].shape == (
        0,
        2,
        2,
        2,
    )
    patches = run(
        raw.ExtractImagePatches,
        dict(images=image),
        ksizes=ones((2, 2)),
        rates=ones((1, 1)),
        **attrs,
    )
    assert patches[0].shape == (0, 2, 2, 8)
    inputs = dict(input=image, filter=tf.zeros([2, 2, 2]))
    assert run(raw.Dilation2D, inputs, rates=ones((1, 1)), **attrs)[0].shape == (0, 2, 2, 2)
    inputs |= dict(out_backprop=tf.zeros([0, 2, 2, 2]))
    (got,) = run(raw.Dilation2DBackpropFilter, inputs, rates=ones((1, 1)), **attrs)
    np.testing.assert_array_equal(got, np.zeros([2, 2, 2]))
    volume, kernel = tf.zeros([0, 4, 4, 4, 2]), tf.ones([2, 2, 2, 2, 3])
    attrs = dict(strides=ones((1, 1, 1)), padding="SAME")
    (out,) = run(raw.Conv3D, dict(input=volume, filter=kernel), **attrs)
    assert out.shape == (0, 4, 4, 4, 3)
    inputs = dict(input=volume, filter_sizes=tf.constant(kernel.shape), out_backprop=out)
    (got,) = run(raw.Conv3DBackpropFilterV2, inputs, host=["filter_sizes"], **attrs)
    np.testing.assert_array_equal(got, np.zeros(kernel.shape))
    assert run(raw.LRN, dict(input=image))[0].shape == image.shape


IMAGE, VOLUME = tf.ones([1, 4, 4, 2]), tf.ones([1, 4, 4, 4, 2])


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "error", "says"),
    [
        (raw.MaxPoolWithArgmax, dict(input=IMAGE), dict(ksize=[1, 2, 2], strides=ones((1, 1))),
         "InvalidArgument", "4"),
        (raw.MaxPoolWithArgmax, dict(input=IMAGE), dict(ksize=[1, 9, 9, 1], strides=ones((1, 1))),
         "InvalidArgument", "fit into input|Negative|negative"),
        (raw.MaxPoolWithArgmax, dict(input=IMAGE), dict(ksize=[1, 2, 2, 2], strides=[1, 1, 1, 2]),
         "Unimplemented", "batch and channels"),
        (raw.MaxPoolGradGrad, dict(orig_input=IMAGE, orig_output=IMAGE, grad=IMAGE),
         dict(ksize=ones((2, 2)), strides=ones((1, 1))), "InvalidArgument", "orig_output"),
        (raw.MaxPoolGradWithArgmax, dict(input=IMAGE, grad=IMAGE, argmax=tf.ones([1], tf.int64)),
         dict(ksize=ones((1, 1)), strides=ones((1, 1))), "InvalidArgument", "argmax"),
        (raw.MaxPool3D, dict(input=IMAGE), dict(ksize=ones((1, 1, 1)), strides=ones((1, 1, 1))),
         "InvalidArgument", "5"),
        (raw.Conv3D, dict(input=VOLUME, filter=tf.ones([1, 1, 1, 3, 2])), dict(strides=ones((1, 1, 1))),
         "InvalidArgument", "groups|channels|depth"),
        (raw.Conv3D, dict(input=VOLUME, filter=tf.ones([2, 0, 2, 2, 2])), dict(strides=ones((1, 1, 1))),
         "InvalidArgument", "filter must not have zero elements|non-positive"),
        (raw.ExtractImagePatches, dict(images=IMAGE), dict(ksizes=ones((0, 1)), strides=ones((1, 1)),
                                                           rates=ones((1, 1))), "InvalidArgument", "ksize"),
        (raw.Dilation2D, dict(input=IMAGE, filter=tf.ones([2, 2, 3])), dict(strides=ones((1, 1)), rates=ones((1, 1))),
         "InvalidArgument", "filter|equal"),
    ],
)  # fmt: skip
def test_bad(op, inputs, attrs, error, says):
    with pytest.raises(getattr(tf.errors, error + "Error"), match=says):
        run(op, inputs, padding="VALID", **attrs)


ANY_DIMENSIONS = {
    # Shapes, and attributes that are not the defaults.
    "images": ((3, 6, 7, 4), (3, 2, 4, 5), dict(strides=[1, 2, 1, 1])),
    "dilated": ((3, 6, 7, 4), (3, 2, 4, 5), dict(strides=[1] * 4, dilations=[1, 2, 1, 1])),
    "padded": ((3, 6, 7, 4), (3, 2, 4, 5), dict(
        strides=[1] * 4, padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 0, 2, 0, 0])),
    "two batches": ((2, 3, 6, 7, 4), (3, 2, 4, 5), dict(strides=[1] * 4, batch_dims=2)),
    "one image": ((6, 7, 4), (3, 2, 4, 5), dict(strides=[1] * 4, batch_dims=0, padding="VALID")),
    "none": ((0, 6, 7, 4), (3, 2, 4, 5), dict(strides=[1] * 4)),
    "volumes": ((2, 3, 6, 7, 4), (2, 3, 2, 4, 5), dict(strides=[1, 1, 2, 1, 1])),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ANY_DIMENSIONS)
def test_convolutions_of_any_dimensions(name, dtype):
    shape, of_filter, given = ANY_DIMENSIONS[name]
    x = {"input": random(shape, dtype), "filter": random(of_filter, dtype, seed=1)}
    check(raw.Conv, x, dtype, **{"padding": "SAME"} | given)


def test_convolutions_with_channels_first():
    """The CPU does not have them."""
    for shape, of_filter, turn in [
        ((3, 6, 7, 4), (3, 2, 4, 5), (0, 3, 1, 2)),
        ((2, 3, 6, 7, 4), (2, 3, 2, 4, 5), (0, 4, 1, 2, 3)),
    ]:
        x, f = random(shape), random(of_filter, seed=1)
        strides = [1, 2, *[1] * (len(shape) - 2)]
        (want,) = on_cpu(raw.Conv, {"input": x, "filter": f}, strides=strides, padding="SAME")
        given = dict(strides=[1, 1, *strides[1:-1]], padding="SAME", data_format="CHANNELS_FIRST")
        turned = np.ascontiguousarray(np.transpose(x, turn))
        (got,) = run(raw.Conv, {"input": turned, "filter": f}, **given)
        np.testing.assert_allclose(
            got.numpy(), np.transpose(want.numpy(), turn), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(strides=[1, 1]), "Sliding window strides field must specify 4 dimensions"),
        (dict(groups=2), "Grouped/Depthwise Convolutions are not supported yet"),
        (dict(batch_dims=2), "The input must have 2 or 3 spatial dimensions but got 1"),
        (dict(batch_dims=0), "The filter must have 5 dimensions"),
        (dict(input=np.ones((2, 6, 7, 3), np.float32)), "channels|divisible|depth"),
    ],
)
def test_convolutions_that_are_refused(given, says):
    made = dict(input=np.ones((2, 6, 7, 4), np.float32), filter=np.ones((3, 2, 4, 5), np.float32), strides=[1] * 4,
                padding="SAME")  # fmt: skip
    with tf.device("GPU:0"), pytest.raises(tf.errors.OpError, match=says):
        raw.Conv(**made | given)
