"""Quantization and back, and boxes that overlap better ones, on the device against the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import check, on_cpu, random, run

raw = tf.raw_ops
SHAPES = [((), -1), ((1,), -1), ((1025,), -1), ((3, 5), 0), ((3, 5), 1), ((2, 7, 3), 1), ((2, 3, 4, 5), 2),
          ((5000, 2), 1), ((0, 3), -1)]  # fmt: skip


def ends(shape, axis, given=(-1.5, 2.25)):
    n = () if axis < 0 else (shape[axis],)
    rng = np.random.default_rng(3)
    spread = rng.uniform(0.5, 1.5, n).astype("f")
    return {
        "input_min": tf.constant(np.float32(given[0]) * spread),
        "input_max": tf.constant(np.float32(given[1]) * spread),
    }


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_quantize_and_back(shape, axis):
    x = {"input": random(shape, scale=2.0)}
    for given, signed, narrow in itertools.product((False, True), repeat=3):
        if not given and 0 in shape:
            continue  # of nothing there is no range
        attrs = dict(range_given=given, signed_input=signed, narrow_range=narrow, axis=axis)
        for span in [(-1.5, 2.25), (0.25, 3.0), (-2.0, 0.0), (0.0, 0.0)]:
            inputs = x | ends(shape, axis if given else -1, span)
            if given and axis >= 0:  # for which the CPU has the third version alone
                bits = {"num_bits": tf.constant(8)}
                (want,) = on_cpu(raw.QuantizeAndDequantizeV3, inputs | bits, **attrs)
                (got,) = run(raw.QuantizeAndDequantizeV3, inputs | bits, ["num_bits"], **attrs)
                np.testing.assert_array_equal(got, want)
                for op in (raw.QuantizeAndDequantizeV2, raw.QuantizeAndDequantizeV4):
                    np.testing.assert_array_equal(run(op, inputs, **attrs)[0], want)
                continue
            for bits, mode in [(8, "HALF_TO_EVEN"), (3, "HALF_UP"), (16, "HALF_TO_EVEN")]:
                for op in (raw.QuantizeAndDequantizeV2, raw.QuantizeAndDequantizeV4):
                    check(op, inputs, error=0, num_bits=bits, round_mode=mode, **attrs)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_gradient(shape, axis):
    inputs = dict(gradients=random(shape, seed=1), input=random(shape, scale=2.0)) | ends(
        shape, axis
    )
    check(raw.QuantizeAndDequantizeV4Grad, inputs, error=0, axis=axis)


@pytest.mark.parametrize(
    ("attrs", "says"),
    [
        (dict(num_bits=0), "num_bits is out of range"),
        (dict(round_mode="UP"), "HALF_UP"),
        (dict(axis=3), "axis|rank"),
        (dict(axis=1), "shape|size|range"),
    ],
)
def test_bad(attrs, says):
    inputs = dict(input=random((2, 3))) | ends((2, 3), -1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(raw.QuantizeAndDequantizeV2, inputs, range_given=True, **attrs)


# ---- to whole numbers and back ---------------------------------------------------------------------------------------

QUANTIZED = [tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32]
RANGES = ["min_range", "max_range"]
MODES = [
    ("MIN_COMBINED", "HALF_AWAY_FROM_ZERO", False),
    ("MIN_FIRST", "HALF_AWAY_FROM_ZERO", False),
    ("SCALED", "HALF_AWAY_FROM_ZERO", False),
    ("SCALED", "HALF_TO_EVEN", True),
]


@pytest.mark.parametrize("dtype", QUANTIZED, ids=lambda t: t.name)
def test_quantize(dtype):
    for (shape, axis), (mode, rounding, narrow) in itertools.product(SHAPES, MODES):
        if mode == "MIN_FIRST" and axis >= 0:
            continue  # the CPU has it of one range alone
        for span in [(-1.5, 2.25), (0.25, 3.0), (-2.0, -1.0), (0.0, 0.0)]:
            given = dict(zip(RANGES, ends(shape, axis, span).values(), strict=True))
            x = random(shape, scale=2.0)
            if mode == "MIN_FIRST":  # values outside come around from the other end on the CPU
                x = tf.clip_by_value(x, min(0.0, given["min_range"]), max(0.0, given["max_range"]))
            inputs = {"input": x} | given
            attrs = dict(mode=mode, round_mode=rounding, narrow_range=narrow, axis=axis, T=dtype)
            want = on_cpu(raw.QuantizeV2, inputs, **attrs)
            got = run(raw.QuantizeV2, inputs, RANGES, **attrs)
            for a, b in zip(got, want, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_array_equal(got[1], want[1])
            np.testing.assert_array_equal(got[2], want[2])
            numbers = [x.numpy().astype("f8") for x in (got[0], want[0])]
            if dtype == tf.qint32:  # 2^31 is none, and the CPU's lowest
                inside = (numbers[0] < 2**31 - 2**8) | (numbers[1] > -(2**31))
                numbers = [x[inside] for x in numbers]
            np.testing.assert_array_equal(*numbers, f"{shape} {axis} {mode} {span}")


def dequantized(numbers, low, high, mode, narrow):
    """As the documentation of tf.quantization.dequantize has it: the CPU's own ends with a shape that is empty."""
    limits = np.iinfo(numbers.dtype)
    x, steps = numbers.astype("f8"), float(limits.max) - limits.min
    if mode == "MIN_COMBINED":
        return (x + (steps + 1) / 2 * (limits.min < 0)) * (high - low) / steps + low
    if mode == "MIN_FIRST":
        scale = (high - low) / steps
        return np.round(low / scale) * scale + (x - limits.min) * scale
    by_high = high / limits.max
    return x * (np.maximum(low / (limits.min + narrow), by_high) if limits.min < 0 else by_high)


@pytest.mark.parametrize("to", [tf.float32, tf.bfloat16], ids=lambda t: t.name)
# For other types TensorFlow has no arguments of functions on GPUs.
@pytest.mark.parametrize("dtype", [tf.qint8, tf.quint8, tf.qint32], ids=lambda t: t.name)
def test_dequantize(dtype, to):
    kind = np.dtype(dtype.as_numpy_dtype)[0].name
    for (shape, axis), (mode, _, narrow) in itertools.product(SHAPES, MODES):
        if mode == "MIN_FIRST" and axis >= 0:
            continue
        rng = np.random.default_rng(1)
        numbers = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape).astype(kind)
        with tf.device("CPU:0"):
            x = tf.bitcast(tf.constant(numbers), dtype)
        given = dict(zip(RANGES, ends(shape, axis).values(), strict=True))
        wide = [1 if i != axis else -1 for i in range(len(shape))]
        low, high = (np.asarray(v, "f8").reshape(wide if axis >= 0 else ()) for v in given.values())
        want = dequantized(numbers, low, high, mode, narrow)
        attrs = dict(mode=mode, narrow_range=narrow, axis=axis, dtype=to)
        (got,) = run(raw.Dequantize, {"input": x} | given, ["input", *RANGES], **attrs)
        assert got.dtype == to and got.shape == want.shape
        got, unit = tf.cast(got, tf.float64).numpy(), 2**-8 if to == tf.bfloat16 else 0
        np.testing.assert_allclose(got, want, rtol=unit + 1e-6, atol=2e-6)


def test_bad_ranges():
    x, one, two = tf.ones((2, 3)), tf.ones(()), tf.ones(2)
    for given, attrs, says in [
        (dict(min_range=one * 2, max_range=one), {}, "max_range must be larger"),
        (dict(min_range=two, max_range=two), {}, "must have 1 elements"),
        (dict(min_range=one, max_range=one), dict(axis=1), "must have 3 elements"),
        (
            dict(min_range=one, max_range=one),
            dict(round_mode="HALF_TO_EVEN"),
            "only supported for mode",
        ),
        (dict(min_range=one, max_range=one), dict(axis=2), "axis"),
        (dict(min_range=two, max_range=two), dict(axis=0, mode="MIN_FIRST"), "one range alone"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            run(raw.QuantizeV2, dict(input=x) | given, RANGES, T=tf.qint8, **attrs)


# ---- boxes ----------------------------------------------------------------------------------------------------------

HOST = ["max_output_size", "iou_threshold", "score_threshold"]


def boxes(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 1, (n, 2)), rng.uniform(-0.2, 0.4, (n, 2))
    scores = np.round(rng.normal(size=n), 1)  # some are equal
    return {
        "boxes": tf.constant(np.concatenate([corner, corner + size], 1).astype(dtype)),
        "scores": tf.constant(scores.astype(dtype)),
    }


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 1000])
def test_boxes(dtype, n):
    for most, threshold, score in [
        (0, 0.5, 0.0),
        (3, 0.5, -1e4),
        (1000, 0.3, 0.1),
        (50, 0.0, -1.0),
        (2000, 1.0, -1e4),
    ]:
        x = boxes(n, dtype) | {
            "max_output_size": tf.constant(most),
            "iou_threshold": tf.constant(threshold, dtype),
        }
        check(raw.NonMaxSuppressionV2, x, error=0, host=HOST, widen=False)
        x["score_threshold"] = tf.constant(score, dtype)
        check(raw.NonMaxSuppressionV3, x, error=0, host=HOST, widen=False)
        for pad in (False, True):
            check(
                raw.NonMaxSuppressionV4,
                x,
                error=0,
                host=HOST,
                widen=False,
                pad_to_max_output_size=pad,
            )


def test_thresholds_of_another_dtype():
    for kind, other in [("float16", "float32"), ("float32", "float16")]:
        x = boxes(100, kind) | {"max_output_size": tf.constant(50)}
        x["iou_threshold"] = tf.constant(0.25, other)
        check(raw.NonMaxSuppressionV2, x, error=0, host=HOST, widen=False)
        x["score_threshold"] = tf.constant(0.125, other)
        check(raw.NonMaxSuppressionV3, x, error=0, host=HOST, widen=False)
        check(raw.NonMaxSuppressionV4, x, error=0, host=HOST, widen=False)


def test_boxes_in_functions():
    x = boxes(200, "float32")

    def chosen(boxes, scores):
        return tf.gather(boxes, tf.image.non_max_suppression(boxes, scores, 20, 0.4))

    with tf.device("CPU:0"):
        want = chosen(**x)
    with tf.device("GPU:0"):
        got = tf.function(chosen)(*[tf.identity(v) for v in x.values()])
    np.testing.assert_array_equal(got, want)
    special = {"boxes": x["boxes"][:4], "scores": tf.constant([np.nan, -np.inf, np.inf, 1.0])}
    more = {"max_output_size": tf.constant(4), "iou_threshold": tf.constant(1.0)}
    assert on_cpu(raw.NonMaxSuppressionV2, special | more)[0].numpy().tolist() == [2, 3]
    assert run(raw.NonMaxSuppressionV2, special | more, HOST)[0].numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(boxes=tf.ones([3, 5])), "4"),
        (dict(scores=tf.ones([4])), "scores|must be equal"),
        (dict(max_output_size=tf.constant(-1)), "negative"),
        (dict(iou_threshold=tf.constant(1.5)), r"iou_threshold must be in \[0, 1\]"),
    ],
)
def test_bad_boxes(change, says):
    x = boxes(3, "float32") | {"max_output_size": tf.constant(3), "iou_threshold": tf.constant(0.5)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(raw.NonMaxSuppressionV2, x | change, HOST)
