"""The device's ops of whole layers and of images against TensorFlow's own on the CPU: twice, equal bit for bit.

The CPU computes in float32 from the same inputs; the device does so, too, and rounds float16 and bfloat16 results once.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

raw = tf.raw_ops
# The change by the one rounding of a result, as a part of it.
ROUNDING = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def random(shape, dtype="float32", seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    if dtype in INTEGERS:
        x = rng.integers(0 if dtype[0] == "u" else -100, 101, shape)
        return tf.constant(x.astype(dtype))
    return tf.cast(tf.constant((scale * rng.normal(size=shape)).astype("f")), dtype)


def as_list(outputs):
    return [outputs] if tf.is_tensor(outputs) else list(outputs)


def run(op, inputs, host=(), **attrs):
    """The op's results on the device, the second time as the first."""
    with tf.device("GPU:0"):
        placed = {k: v if k in host else tf.identity(v) for k, v in inputs.items()}
        got, again = (as_list(op(**placed, **attrs)) for _ in range(2))
    for a, b in zip(got, again, strict=True):
        assert a.device.endswith("GPU:0"), a.device
        assert a.numpy().tobytes() == b.numpy().tobytes(), "not the same twice"
    return got


def on_cpu(op, inputs, widen=("float16", "bfloat16"), **attrs):
    with tf.device("CPU:0"):
        wide = {
            k: tf.cast(v, tf.float32) if tf.is_tensor(v) and v.dtype.name in widen else v
            for k, v in inputs.items()
        }
        return as_list(op(**wide, **attrs))


def check(op, inputs, dtype="float32", host=(), error=4e-6, outputs=None, widen=True, **attrs):
    """`error`: a float32 result's, as a part of its tensor's largest value."""
    want = on_cpu(op, inputs, **({} if widen else {"widen": ()}), **attrs)
    got = run(op, inputs, host, **attrs)
    for i, (a, b) in enumerate(list(zip(got, want, strict=True))[:outputs]):
        context = f"{op.__name__} {dtype} {attrs} output {i}"
        assert a.shape == b.shape, context
        rounding = ROUNDING.get(a.dtype.name, 0.0)
        a, b = (np.asarray(tf.cast(x, tf.float64)) for x in (a, b))
        finite = np.where(np.isfinite(b), np.abs(b), 0)
        limit = error * finite.max(initial=0.0) + 1.01 * rounding * (finite + 2**-14)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            wrong = ~(same | (np.abs(a - b) <= limit))
        assert not wrong.any(), f"{context}: {a[wrong][:5]}, expected {b[wrong][:5]}"


# ---- recurrent cells ------------------------------------------------------------------------------------------------

NAMES = ["i", "cs", "f", "o", "ci", "co", "h"]


def lstm_inputs(batch, inputs, cells, dtype, steps=None):
    x = random((batch, inputs) if steps is None else (steps, batch, inputs), dtype, 1)
    shapes = dict(
        cs_prev=(batch, cells), h_prev=(batch, cells), w=(inputs + cells, 4 * cells),
        wci=(cells,), wcf=(cells,), wco=(cells,), b=(4 * cells,),
    )  # fmt: skip
    return {"x": x} | {k: random(s, dtype, i + 2, 0.5) for i, (k, s) in enumerate(shapes.items())}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_cell(dtype, peephole):
    for batch, inputs, cells in [(1, 1, 1), (3, 5, 7), (3, 2, 20), (17, 33, 64)]:
        x = lstm_inputs(batch, inputs, cells, dtype)
        for clip in (0.0, 0.3):
            check(raw.LSTMBlockCell, x, dtype, use_peephole=peephole, cell_clip=clip)
        saved = on_cpu(raw.LSTMBlockCell, x, use_peephole=peephole)
        more = {k: tf.cast(v, dtype) for k, v in zip(NAMES[:-1], saved, strict=False)}
        more |= {
            k: random((batch, cells), dtype, 20 + i) for i, k in enumerate(["cs_grad", "h_grad"])
        }
        check(raw.LSTMBlockCellGrad, x | more, dtype, use_peephole=peephole)
    # No sequences, which the CPU refuses.
    x = lstm_inputs(0, 3, 4, dtype)
    assert [y.shape for y in run(raw.LSTMBlockCell, x, use_peephole=peephole)] == [(0, 4)] * 7


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_sequence(dtype, version, peephole):
    forward, back = getattr(raw, "BlockLSTM" + version), getattr(raw, "BlockLSTMGrad" + version)
    for steps, used, batch, inputs, cells in [(1, 1, 2, 3, 4), (5, 5, 3, 5, 7), (4, 2, 3, 2, 8), (3, 0, 2, 2, 2),
                                              (7, 7, 16, 40, 33)]:  # fmt: skip
        x = {"seq_len_max": tf.constant(used, tf.int64)} | lstm_inputs(
            batch, inputs, cells, dtype, steps
        )
        common = dict(host=["seq_len_max"], use_peephole=peephole)
        want = on_cpu(forward, x, use_peephole=peephole, cell_clip=0.8)
        got = run(forward, x, cell_clip=0.8, **common)
        for a, b in zip(got, want, strict=True):
            a, b = (tf.cast(t, tf.float32).numpy() for t in (a, b))
            np.testing.assert_allclose(a[:used], b[:used], rtol=2 * ROUNDING[dtype], atol=3e-6)
            assert not a[used:].any()
        more = {k: tf.cast(v[:used], dtype) for k, v in zip(NAMES, want, strict=True)}
        more = {k: tf.pad(v, [[0, steps - used], [0, 0], [0, 0]]) for k, v in more.items()}
        more |= {
            k: random((steps, batch, cells), dtype, 20 + i)
            for i, k in enumerate(["cs_grad", "h_grad"])
        }
        check(back, x | more, dtype, error=1e-5, **common)


def test_gru_cell():
    for batch, inputs, cells in [(1, 1, 1), (3, 5, 7), (17, 33, 64)]:
        shapes = dict(x=(batch, inputs), h_prev=(batch, cells), w_ru=(inputs + cells, 2 * cells),
                      w_c=(inputs + cells, cells), b_ru=(2 * cells,), b_c=(cells,))  # fmt: skip
        x = {k: random(s, seed=i, scale=0.5) for i, (k, s) in enumerate(shapes.items())}
        check(raw.GRUBlockCell, x)
        saved = dict(zip("ruc", on_cpu(raw.GRUBlockCell, x), strict=False))
        check(raw.GRUBlockCellGrad, x | saved | {"d_h": random((batch, cells), seed=9)})
    empty = {k: tf.zeros([0 if d == batch else d for d in v.shape]) for k, v in x.items()}
    assert run(raw.GRUBlockCell, empty)[3].shape == (0, cells)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"w": tf.zeros([9, 12])}, r"w must have shape \[8, ?12\]"),
        ({"b": tf.zeros([3])}, r"b must have shape \[12\]"),
        ({"x": tf.zeros([2, 5])}, "x must have 3 dimensions"),
        ({"seq_len_max": tf.constant(5, tf.int64)}, "seq_len_max must be from 0 to 4"),
        ({"seq_len_max": tf.constant([5], tf.int64)}, "seq_len_max must be a scalar|rank 0"),
    ],
)
def test_lstm_bad(change, says):
    x = {"seq_len_max": tf.constant(4, tf.int64)} | lstm_inputs(2, 5, 3, "float32", 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(raw.BlockLSTM, x | change, host=["seq_len_max"])


# ---- images that are resized ----------------------------------------------------------------------------------------

FLOATS = ["float32", "float16", "bfloat16"]
RESIZES = [
    ((1, 1, 1, 1), (1, 1)), ((1, 1, 1, 2), (3, 4)), ((2, 5, 7, 3), (5, 7)), ((2, 5, 7, 3), (11, 3)),
    ((1, 4, 6, 1), (8, 12)), ((2, 9, 8, 5), (4, 3)), ((0, 3, 4, 2), (2, 2)), ((1, 17, 33, 16), (50, 31)),
    ((2, 3, 4, 35), (5, 7)),
]  # fmt: skip
CENTERS = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_resize(dtype):
    for (shape, size), (corners, centers) in itertools.product(RESIZES, CENTERS):
        if shape[0] == 0:
            continue
        common = dict(align_corners=corners, half_pixel_centers=centers, host=["size"])
        images = dict(images=random(shape, dtype), size=tf.constant(size))
        if dtype not in ("uint32", "uint64"):  # the op's declaration lacks them
            check(raw.ResizeBilinear, images, dtype, **common)
            check(raw.ResizeNearestNeighbor, images, dtype, error=0, **common)
        if dtype in FLOATS or dtype in ("uint8", "int8", "int32"):
            back = dict(
                grads=random((shape[0], *size, shape[3]), dtype), size=tf.constant(shape[1:3])
            )
            check(raw.ResizeNearestNeighborGrad, back, dtype, **common)
        if dtype in FLOATS:
            grads = random((shape[0], *size, shape[3]))
            back = dict(grads=grads, original_image=random(shape, dtype))
            del common["host"]
            check(raw.ResizeBilinearGrad, back, dtype, **common)


BOXES = [
    [0, 0, 1, 1],
    [0.2, 0.1, 0.7, 0.9],
    [0.9, 0.8, 0.1, 0.3],
    [-0.47, 0.51, 0.4, 1.63],
    [0.5, 0.5, 0.5, 0.5],
]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_crop_and_resize(dtype):
    if dtype in ("bfloat16", "uint32", "uint64"):
        pytest.skip("TensorFlow declares CropAndResize without it, on any device")
    boxes = dict(boxes=tf.constant(BOXES, tf.float32), box_ind=tf.constant([1, 0, 1, 1, 0]))
    for shape, size in [
        ((2, 5, 7, 3), (4, 6)),
        ((2, 8, 4, 1), (1, 1)),
        ((2, 1, 1, 2), (3, 2)),
        ((2, 9, 9, 17), (7, 7)),
        ((2, 3, 4, 35), (3, 4)),
    ]:
        image, crop = random(shape, dtype), tf.constant(size)
        inputs = dict(image=image, crop_size=crop) | boxes
        for method in ("bilinear", "nearest"):
            check(
                raw.CropAndResize,
                inputs,
                dtype,
                host=["crop_size"],
                method=method,
                extrapolation_value=7.5,
            )
        grads = random((len(BOXES), *size, shape[3]))
        check(raw.CropAndResizeGradBoxes, dict(grads=grads, image=image) | boxes, dtype, error=2e-5)
        if dtype in ("float32", "float16"):
            inputs = dict(grads=grads, image_size=tf.constant(shape)) | boxes
            for method in ("bilinear", "nearest"):
                crop_grad(inputs, dtype, method)


def crop_grad(inputs, dtype, method):
    op = raw.CropAndResizeGradImage
    (want,) = on_cpu(op, inputs, T=tf.float32, method=method)
    (got,) = run(op, inputs, host=["image_size"], T=dtype, method=method)
    got = tf.cast(got, tf.float32).numpy()
    np.testing.assert_allclose(got, want, rtol=2 * ROUNDING[dtype], atol=1e-5 + ROUNDING[dtype] / 8)


def test_crops_of_no_image_are_what_lies_outside():
    (got,) = run(
        raw.CropAndResize,
        dict(image=tf.ones([1, 2, 2, 1]), boxes=tf.zeros([2, 4]), box_ind=tf.constant([-1, 1]), crop_size=[1, 2]),
        host=["crop_size"], extrapolation_value=3.0,
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.full((2, 1, 2, 1), 3.0))


@pytest.mark.parametrize("dtype", [*FLOATS, "uint8", "int32", "int64"])
@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "WRAP", "NEAREST"])
def test_projective_transform(dtype, mode):
    turn = [0.9, -0.3, 2.1, 0.25, 1.1, -1.7, 0.003, -0.002]
    turns = [turn, [1.0, 0, 0, 0, 1, 0, 0, 0], [-1.3, 0.2, 30.0, 0, -0.7, 9.0, 0, 0]]
    # Far off to either side, more than one reflection away.
    far = [[1.1, 0, -13.3, 0, 0.9, 22.4, 0, 0], [0.7, 0, 41.2, 0, 1.2, -30.6, 0, 0]]
    for shape, size, transforms in [((3, 8, 9, 2), (8, 9), turns), ((2, 5, 7, 3), (6, 4), [turn]),
                                    ((2, 8, 9, 2), (9, 8), far), ((2, 1, 1, 1), (2, 3), [turn]),
                                    ((1, 5, 7, 35), (6, 4), [turn]), ((0, 3, 3, 1), (2, 2), [turn])]:  # fmt: skip
        for interpolation in ("NEAREST", "BILINEAR"):
            inputs = dict(
                images=random(shape, dtype), transforms=tf.constant(transforms, tf.float32),
                output_shape=tf.constant(size), fill_value=tf.constant(3.0),
            )  # fmt: skip
            # A number that is truncated may be one less.
            error = 1.01 / 100 if dtype in INTEGERS and interpolation == "BILINEAR" else 1e-5
            common = dict(error=error, interpolation=interpolation, fill_mode=mode)
            check(
                raw.ImageProjectiveTransformV3,
                inputs,
                dtype,
                host=["output_shape", "fill_value"],
                **common,
            )
            del inputs["fill_value"]
            check(raw.ImageProjectiveTransformV2, inputs, dtype, host=["output_shape"], **common)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "says"),
    [
        (raw.ResizeBilinear, dict(images=tf.ones([2, 3, 4]), size=[2, 2]), {}, "rank|4-dimensional"),
        (raw.ResizeBilinear, dict(images=tf.ones([1, 2, 2, 1]), size=[0, 2]), {}, "must be positive"),
        (raw.ResizeBilinear, dict(images=tf.ones([1, 0, 2, 1]), size=[1, 2]), {}, "non-zero size"),
        (raw.ResizeNearestNeighbor, dict(images=tf.ones([1, 2, 2, 1]), size=[2]), {}, "2 elements|must be 2"),
        (raw.ResizeBilinear, dict(images=tf.ones([1, 2, 2, 1]), size=[2, 2]),
         dict(align_corners=True, half_pixel_centers=True), "align_corners must be False"),
        (raw.CropAndResize, dict(image=tf.ones([1, 2, 2, 1]), boxes=tf.ones([3, 3]), box_ind=[0, 0, 0],
                                 crop_size=[1, 1]), {}, r"boxes must be \[boxes, 4\]|must be 4"),
        (raw.CropAndResize, dict(image=tf.ones([1, 2, 2, 1]), boxes=tf.ones([3, 4]), box_ind=[0],
                                 crop_size=[1, 1]), {}, "box_ind"),
        (raw.ImageProjectiveTransformV2, dict(images=tf.ones([2, 2, 2, 1]), transforms=tf.ones([3, 8]),
                                              output_shape=[2, 2]), dict(interpolation="NEAREST"), "num_images x 8"),
        (raw.ImageProjectiveTransformV2, dict(images=tf.ones([2, 2, 2, 1]), transforms=tf.ones([1, 8]),
                                              output_shape=[2, 2]), dict(interpolation="CUBIC"), "nterpolation"),
    ],
)  # fmt: skip
def test_images_bad(op, inputs, attrs, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(op, inputs, host=["size", "crop_size", "output_shape"], **attrs)


# ---- colours --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_colours(dtype):
    for shape in [(3,), (1, 1, 3), (4, 5, 3), (2, 33, 31, 3), (0, 4, 3)]:
        x = tf.abs(random(shape, dtype, scale=0.5))
        check(raw.RGBToHSV, dict(images=x), dtype, error=1e-5)
        hsv = tf.cast(tf.constant(np.random.default_rng(3).uniform(0, 1, shape)), dtype)
        check(raw.HSVToRGB, dict(images=hsv), dtype, error=1e-5)
        if len(shape) < 3 or dtype == "bfloat16":
            continue
        for amount in (-0.3, 0.0, 0.7, 1.6):
            number = tf.constant(amount)
            check(raw.AdjustContrastv2, dict(images=x, contrast_factor=number), dtype, error=1e-5)
            if x.shape[0] == 0:
                continue
            check(raw.AdjustHue, dict(images=x, delta=tf.constant(amount % 1.0)), dtype, error=1e-5)
            check(raw.AdjustSaturation, dict(images=x, scale=number), dtype, error=1e-5)
    grey = tf.constant(np.repeat(np.float32([0, 0.5, 1])[:, None], 3, 1))
    check(raw.RGBToHSV, dict(images=grey))


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        (raw.RGBToHSV, dict(images=tf.ones([2, 4])), "3"),
        (raw.AdjustHue, dict(images=tf.ones([2, 3]), delta=tf.constant(0.1)), "3"),
        (raw.AdjustHue, dict(images=tf.ones([2, 2, 3]), delta=tf.constant([0.1])), "scalar|rank 0"),
        (raw.AdjustContrastv2, dict(images=tf.ones([2, 3]), contrast_factor=tf.constant(0.1)), "3"),
    ],
)
def test_colours_bad(op, inputs, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(op, inputs)


# ---- fake quantization ----------------------------------------------------------------------------------------------

RANGES = [(-6.0, 6.0), (0.0, 4.0), (-3.0, -0.5), (0.2, 1.7), (-0.1, 5.3)]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_fake_quant(bits, narrow):
    attrs = dict(num_bits=bits, narrow_range=narrow)
    for shape, (least, largest) in itertools.product([(1,), (0,), (7, 5), (3, 1025)], RANGES):
        x, slope = random(shape, scale=4), random(shape, seed=1)
        given = dict(min=least, max=largest)
        step = (largest - least) / (2**bits - 1 - narrow)
        for op, inputs, more in [
            (raw.FakeQuantWithMinMaxArgs, dict(inputs=x), given),
            (raw.FakeQuantWithMinMaxVars, dict(inputs=x) | {k: tf.constant(v) for k, v in given.items()}, {}),
            (raw.FakeQuantWithMinMaxVarsPerChannel,
             dict(inputs=x) | {k: tf.constant([v] * shape[-1], tf.float32) for k, v in given.items()}, {}),
        ]:  # fmt: skip
            (want,) = on_cpu(op, inputs, **more, **attrs)
            (got,) = run(op, inputs, **more, **attrs)
            # A value between two steps to the last bit may be rounded to either.
            off = np.abs(got.numpy() - want.numpy())
            assert (off <= 1.001 * step + 1e-5).all() and (off > 1e-5).sum() <= off.size / 500
        back = dict(gradients=slope, inputs=x)
        check(raw.FakeQuantWithMinMaxArgsGradient, back, **given, **attrs)
        scalars = back | {k: tf.constant(v) for k, v in given.items()}
        check(raw.FakeQuantWithMinMaxVarsGradient, scalars, error=1e-5, **attrs)
        channels = back | {k: tf.constant([v] * shape[-1], tf.float32) for k, v in given.items()}
        check(raw.FakeQuantWithMinMaxVarsPerChannelGradient, channels, error=1e-5, **attrs)
    # No range: everything is 0, and gradients pass.
    none = dict(inputs=random((5,)), min=tf.constant(0.0), max=tf.constant(0.0))
    check(raw.FakeQuantWithMinMaxVars, none, error=0, **attrs)
    check(
        raw.FakeQuantWithMinMaxVarsGradient,
        dict(gradients=random((5,), seed=1)) | none,
        error=0,
        **attrs,
    )


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "says"),
    [
        (raw.FakeQuantWithMinMaxArgs, dict(inputs=tf.ones([2])), dict(min=1.0, max=1.0), "smaller than max"),
        (raw.FakeQuantWithMinMaxArgs, dict(inputs=tf.ones([2])), dict(num_bits=17), "between 2 and 16"),
        (raw.FakeQuantWithMinMaxVars, dict(inputs=tf.ones([2]), min=tf.zeros([2]), max=tf.ones([2])), {},
         "rank 0|scalar|min and max"),
        (raw.FakeQuantWithMinMaxVarsPerChannel, dict(inputs=tf.ones([2]), min=tf.zeros([3]), max=tf.ones([3])), {},
         "min|equal"),
        (raw.FakeQuantWithMinMaxVarsGradient, dict(gradients=tf.ones([3]), inputs=tf.ones([2]), min=tf.constant(0.0),
                                                   max=tf.constant(1.0)), {}, "same size|equal"),
    ],
)  # fmt: skip
def test_fake_quant_bad(op, inputs, attrs, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(op, inputs, **attrs)
