"""volume_render and render_weights against the sum written out in float64, and their gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal, samples
from tests.oracles import numeric, rays

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Two exponentials of up to 4 units in the last place, a product, a sum whose terms add up to at most the bound.
TOLERANCE = 2e-6
# Half-precision inputs are exact in float32; only gradients are rounded to them: half a unit in the last place.
ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
OUTPUTS = ("rgb", "opacity", "depth", "depth_median", "weights")

COUNTS = {
    "no rays": [],
    "one empty ray": [0],
    "one sample": [1],
    "empty rays between": [0, 3, 0, 0, 5, 1, 0],
    "around a vector": [15, 16, 17, 31, 33, 64],
    "around a piece": [255, 256, 257, 513],
}


def make(counts, channels=3, seed=0, density=4.0, dtype="float32"):
    """A scene: ordered samples with gaps; about one sample in four is empty."""
    random = np.random.default_rng(seed)
    packed_info = rays.pack(counts)
    n = int(np.sum(counts))
    sigmas = random.exponential(density, n) * (random.uniform(size=n) > 0.25)
    t_starts = np.concatenate([np.sort(random.uniform(0.5, 6, c)) for c in counts] + [[]])
    t_ends = t_starts + random.uniform(0.001, 0.1, n)
    cast = tf.as_dtype(dtype).as_numpy_dtype
    return {
        "sigmas": sigmas.astype(np.float32).astype(cast),
        "rgbs": random.uniform(-0.5, 1.5, (n, channels)).astype(np.float32).astype(cast),
        "t_starts": t_starts.astype(np.float32),
        "t_ends": t_ends.astype(np.float32),
        "packed_info": packed_info.astype(np.int32),
    }


def check_outputs(rendering, expected, scale=7.0):
    for name in OUTPUTS:
        actual = getattr(rendering, name).numpy()
        assert actual.dtype == np.float32
        bound = scale if name.startswith("depth") else 2.0
        np.testing.assert_allclose(
            actual, expected[name], rtol=0, atol=TOLERANCE * bound, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("channels", [1, 3, 4, 7])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_packed_rendering_is_the_sum_written_out(counts, channels, dtype):
    scene = make(counts, channels, dtype=dtype)
    background = np.random.default_rng(1).uniform(size=(len(counts), channels)).astype(np.float32)
    rendering = metal_ops.volume_render(**scene, background=background, normalize_depth=False)
    check_outputs(rendering, rays.volume_render(**scene, background=background))
    assert rendering.rgb.shape == (len(counts), channels)


@pytest.mark.parametrize("early_stop_eps", [0.0, 1e-4, 0.3])
def test_early_stop_drops_what_is_behind(early_stop_eps):
    scene = make([64] * 20, density=80.0)
    rendering = metal_ops.volume_render(
        **scene, early_stop_eps=early_stop_eps, normalize_depth=False
    )
    expected = rays.volume_render(**scene, early_stop_eps=early_stop_eps)
    check_outputs(rendering, expected)
    dropped = np.count_nonzero(
        (expected["weights"] == 0) & (scene["sigmas"] > 0) & (expected["transmittance"] > 0)
    )
    assert (dropped > 0) == (early_stop_eps > 0), "the case should make a difference"


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_three_ways_to_say_which_ray_are_one(index_dtype):
    counts = [40] * 6
    scene = make(counts)
    packed_info = scene.pop("packed_info").astype(index_dtype)
    background = np.ones(3, np.float32)
    packed = metal_ops.volume_render(**scene, packed_info=packed_info, background=background)
    indices = np.repeat(np.arange(6), counts).astype(index_dtype)
    by_index = metal_ops.volume_render(
        **scene, ray_indices=indices, n_rays=6, background=background
    )
    dense_scene = {name: value.reshape(6, 40, *value.shape[1:]) for name, value in scene.items()}
    dense = metal_ops.volume_render(**dense_scene, background=background)
    assert dense.weights.shape == (6, 40)
    for a, b, c in zip(packed, by_index, dense, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, tf.reshape(c, a.shape))


def test_samples_of_no_ray_weigh_nothing_and_get_no_gradient():
    scene = make([9])
    packed_info = np.array([[2, 3], [7, 0], [6, 2]], np.int32)
    scene["packed_info"] = packed_info
    sigmas = tf.constant(scene.pop("sigmas"))
    with tf.GradientTape() as tape:
        tape.watch(sigmas)
        rendering = metal_ops.volume_render(sigmas, **scene)
        loss = tf.reduce_sum(rendering.rgb) + tf.reduce_sum(rendering.weights)
    outside = [0, 1, 5, 8]
    assert np.all(rendering.weights.numpy()[outside] == 0)
    slope = tape.gradient(loss, sigmas).numpy()
    assert np.all(slope[outside] == 0) and np.all(np.isfinite(slope)) and np.any(slope != 0)


def test_weights_sum_to_the_opacity_and_constant_colour_stays():
    scene = make([100] * 10, density=1.0)
    scene["rgbs"] = np.full_like(scene["rgbs"], 0.25)
    rendering = metal_ops.volume_render(**scene, background=[0.25, 0.25, 0.25])
    sums = tf.reduce_sum(tf.reshape(rendering.weights, [10, 100]), axis=1)
    np.testing.assert_allclose(sums, rendering.opacity, atol=TOLERANCE)
    np.testing.assert_allclose(rendering.rgb, 0.25, atol=TOLERANCE)


def test_normalised_depth_is_the_expected_depth():
    scene = make([50] * 4)
    plain = metal_ops.volume_render(**scene, normalize_depth=False)
    normalised = metal_ops.volume_render(**scene)
    np.testing.assert_allclose(normalised.depth, plain.depth / plain.opacity, rtol=1e-6)
    empty = metal_ops.volume_render(**make([0]))
    assert empty.depth.numpy() == 0


def test_opaque_first_sample():
    scene = make([5])
    for sigma in (1e6, np.inf):
        scene["sigmas"][0] = sigma
        sigmas = tf.constant(scene["sigmas"])
        with tf.GradientTape() as tape:
            tape.watch(sigmas)
            rendering = metal_ops.volume_render(**{**scene, "sigmas": sigmas})
        np.testing.assert_array_equal(rendering.weights, [1, 0, 0, 0, 0])
        np.testing.assert_array_equal(rendering.rgb[0], scene["rgbs"][0])
        assert np.all(tape.gradient(rendering.rgb, sigmas).numpy() == 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_stay_within_their_ray(bad):
    scene = make([20, 20, 20])
    clean = metal_ops.volume_render(**scene)
    for name in ("sigmas", "rgbs"):
        spoilt = {**scene, name: scene[name].copy()}
        spoilt[name][25] = bad
        values = tf.constant(spoilt["sigmas"])
        with tf.GradientTape() as tape:
            tape.watch(values)
            rendering = metal_ops.volume_render(**{**spoilt, "sigmas": values})
        slope = tape.gradient(rendering.rgb, values).numpy()
        assert np.all(np.isfinite(slope[:20])) and np.all(np.isfinite(slope[40:]))
        for a, b in zip(rendering, clean, strict=True):
            a, b = a.numpy(), b.numpy()
            if len(a) == 60:
                np.testing.assert_array_equal(
                    np.delete(a, slice(20, 40)), np.delete(b, slice(20, 40))
                )
                np.testing.assert_array_equal(a[20:25], b[20:25])  # in front of it
            else:
                np.testing.assert_array_equal(np.delete(a, 1, 0), np.delete(b, 1, 0))
        if np.isnan(bad) or name == "rgbs":
            assert not np.any(np.isfinite(rendering.rgb.numpy()[1]))


def test_a_hundred_thousand_samples():
    """Thin fog: each term is 1e-5 of the sum, so that a float32 running sum would drift by 1e-3."""
    n = 100_000
    t = np.linspace(0, 3, n + 1, dtype=np.float32)
    random = np.random.default_rng(0)
    sigmas = random.uniform(0.5, 1.5, n).astype(np.float32)
    rgbs = random.uniform(size=(n, 3)).astype(np.float32)
    info = np.array([[0, n]], np.int32)
    sigma_values = tf.constant(sigmas)
    with tf.GradientTape() as tape:
        tape.watch(sigma_values)
        rendering = metal_ops.volume_render(sigma_values, rgbs, t[:-1], t[1:], info)
    thickness = sigmas.astype(np.float64) * (t[1:].astype(np.float64) - t[:-1])
    after = np.exp(-np.cumsum(thickness))
    weights = np.exp(-(np.cumsum(thickness) - thickness)) * -np.expm1(-thickness)
    # t_end - t_start is rounded: 2^-24 * 3 of 3e-5, but without bias.
    np.testing.assert_allclose(rendering.weights, weights, rtol=1e-5, atol=0)
    np.testing.assert_allclose(rendering.rgb[0], weights @ rgbs, rtol=5e-6)
    h = rgbs.astype(np.float64).sum(axis=1)
    behind = np.cumsum((weights * h)[::-1])[::-1] - weights * h
    expected = (after * h - behind) * (t[1:].astype(np.float64) - t[:-1])
    numeric.assert_gradient(tape.gradient(rendering.rgb, sigma_values), expected, 1e-5, "sigmas")


@pytest.mark.parametrize("layout", ["packed", "dense"])
@pytest.mark.parametrize("early_stop_eps", [0.0, 0.3])
@pytest.mark.parametrize("shared_background", [True, False])
def test_gradients_are_those_of_the_sum_written_out(layout, early_stop_eps, shared_background):
    counts = [6, 6, 6] if layout == "dense" else [5, 0, 1, 9]
    scene = make(counts, seed=3, density=12.0)
    random = np.random.default_rng(2)
    n_rays = len(counts)
    scene["background"] = random.uniform(size=3 if shared_background else (n_rays, 3))
    scene["background"] = scene["background"].astype(np.float32)
    mix = {
        "rgb": random.normal(size=(n_rays, 3)) + 0.5,
        "opacity": random.normal(size=n_rays) + 0.5,
        "depth": random.normal(size=n_rays) + 0.5,
        "depth_median": random.normal(size=n_rays) + 0.5,
        "weights": random.normal(size=sum(counts)) + 0.5,
    }

    def loss_of(**changed):
        out = rays.volume_render(**{**scene, **changed}, early_stop_eps=early_stop_eps)
        return sum(np.sum(out[name] * factor) for name, factor in mix.items())

    wanted = ("sigmas", "rgbs", "t_starts", "t_ends", "background")
    values = {name: tf.constant(scene[name]) for name in wanted}
    packing = {"packed_info": scene["packed_info"]}
    if layout == "dense":
        packing = {}
        for name in wanted[:4]:
            values[name] = tf.reshape(values[name], [n_rays, 6, *values[name].shape[1:]])

    @tf.function
    def gradients(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            out = metal_ops.volume_render(
                **values,
                **packing,
                early_stop_eps=early_stop_eps,
                normalize_depth=False,
                t_gradients=True,
            )
            loss = sum(
                tf.reduce_sum(
                    getattr(out, name)
                    * tf.reshape(tf.cast(factor, tf.float32), getattr(out, name).shape)
                )
                for name, factor in mix.items()
            )
        return tape.gradient(loss, values)

    for mode in ("graph", "eager"):
        slopes = gradients(values) if mode == "graph" else gradients.python_function(values)
        for name in wanted:
            expected = numeric.gradient(lambda x, n=name: loss_of(**{n: x}), scene[name])
            actual = tf.reshape(slopes[name], expected.shape)
            numeric.assert_gradient(actual, expected, 2e-5, f"{mode} {name}")


@pytest.mark.parametrize("output", OUTPUTS)
def test_each_output_alone_has_its_gradient(output):
    """In a traced function the other outputs' gradients are absent: the kernel must take that for zero."""
    scene = make([7, 4], seed=5)
    background = np.array([0.2, 0.5, 0.9], np.float32)

    @tf.function
    def slope(sigmas):
        with tf.GradientTape() as tape:
            tape.watch(sigmas)
            out = metal_ops.volume_render(
                **{**scene, "sigmas": sigmas}, background=background, normalize_depth=False
            )
            loss = tf.reduce_sum(getattr(out, output) ** 2)
        return tape.gradient(loss, sigmas)

    def loss_of(sigmas):
        out = rays.volume_render(**{**scene, "sigmas": sigmas}, background=background)
        return np.sum(out[output] ** 2)

    expected = numeric.gradient(loss_of, scene["sigmas"])
    numeric.assert_gradient(slope(tf.constant(scene["sigmas"])), expected, 2e-5, output)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_gradients_are_rounded_once(dtype):
    """Same values in float32: the same gradients except for the final rounding."""
    scene = make([300, 20], dtype=dtype)
    wide = {**scene, "sigmas": scene["sigmas"].astype(np.float32)}
    wide["rgbs"] = scene["rgbs"].astype(np.float32)
    slopes = []
    for case in (scene, wide):
        values = [tf.constant(case["sigmas"]), tf.constant(case["rgbs"])]
        with tf.GradientTape() as tape:
            tape.watch(values)
            out = metal_ops.volume_render(
                *values, case["t_starts"], case["t_ends"], case["packed_info"]
            )
            loss = 64 * tf.reduce_sum(out.rgb * out.opacity[:, None])
        slopes.append(tape.gradient(loss, values))
    for half, full in zip(*slopes, strict=True):
        assert half.dtype == dtype
        np.testing.assert_allclose(
            tf.cast(half, tf.float32), full, rtol=ROUNDING[dtype] * 1.01, atol=2.0**-25
        )


def test_gradient_of_t_is_absent_unless_asked_for():
    scene = make([4])
    t = tf.constant(scene["t_starts"])
    with tf.GradientTape() as tape:
        tape.watch(t)
        out = metal_ops.volume_render(**{**scene, "t_starts": t})
    assert tape.gradient(out.rgb, t) is None


@pytest.mark.parametrize("early_stop_eps", [0.0, 0.3])
def test_render_weights_and_its_gradient(early_stop_eps):
    counts = [0, 5, 12, 1]
    scene = make(counts, seed=8, density=12.0)
    random = np.random.default_rng(4)
    mix_w, mix_t = random.normal(size=(2, sum(counts))) + 0.5
    names = ("sigmas", "t_starts", "t_ends")
    values = {name: tf.constant(scene[name]) for name in names}
    with tf.GradientTape() as tape:
        tape.watch(values)
        weights, transmittance = metal_ops.render_weights(
            **values,
            packed_info=scene["packed_info"],
            early_stop_eps=early_stop_eps,
            t_gradients=True,
        )
        loss = tf.reduce_sum(weights * tf.cast(mix_w, tf.float32))
        loss += tf.reduce_sum(transmittance * tf.cast(mix_t, tf.float32))
    expected = rays.volume_render(**scene, early_stop_eps=early_stop_eps)
    np.testing.assert_allclose(weights, expected["weights"], atol=TOLERANCE)
    np.testing.assert_allclose(transmittance, expected["transmittance"], atol=TOLERANCE)
    slopes = tape.gradient(loss, values)
    for name in names:

        def loss_of(x, name=name):
            out = rays.volume_render(**{**scene, name: x}, early_stop_eps=early_stop_eps)
            return np.sum(out["weights"] * mix_w) + np.sum(out["transmittance"] * mix_t)

        numeric.assert_gradient(slopes[name], numeric.gradient(loss_of, scene[name]), 2e-5, name)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 70), max_size=12),
    channels=st.integers(1, 5),
    early_stop_eps=st.sampled_from([0.0, 0.01]),
    seed=st.integers(0, 1000),
)
def test_any_shape(counts, channels, early_stop_eps, seed):
    scene = make(counts, channels, seed)
    out = metal_ops.volume_render(**scene, early_stop_eps=early_stop_eps, normalize_depth=False)
    expected = rays.volume_render(**scene, early_stop_eps=early_stop_eps)
    # The stop may fall on the other side of a sample that lies on it.
    light = expected["transmittance"]
    if early_stop_eps and np.any(np.abs(light / early_stop_eps - 1) < 1e-4):
        return
    check_outputs(out, expected)


def test_rays_without_samples_take_no_time():
    """2^40 of them: a loop over the rays would not end."""
    nothing, dense = tf.zeros([2**40, 0]), tf.zeros([0, 2], tf.int32)
    assert metal_ops.render_weights(nothing, nothing, nothing).weights.shape == [2**40, 0]
    gradients = metal_ops.raw_ops.render_weights_grad(*[nothing] * 5, dense)
    assert gradients[0].shape == [2**40, 0]


def test_unaligned_memory():
    """A slice of a tensor may begin anywhere."""
    scene = make([33, 20])
    shifted = {}
    for name in ("sigmas", "rgbs", "t_starts", "t_ends"):
        padded = tf.concat([tf.zeros_like(scene[name][:1]), scene[name]], axis=0)
        shifted[name] = padded[1:]
    a = metal_ops.volume_render(**scene)
    b = metal_ops.volume_render(**shifted, packed_info=scene["packed_info"])
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_same_bits_every_time():
    scene = make([64] * 500)
    first = metal_ops.volume_render(**scene)
    for _ in range(3):
        for a, b in zip(first, metal_ops.volume_render(**scene), strict=True):
            np.testing.assert_array_equal(a, b)


BAD = {
    "rgbs rows": (dict(rgbs=np.zeros((4, 3))), r"rgbs must have shape \[samples, channels\]"),
    "t_starts": (dict(t_starts=[0.0]), r"t_starts must have shape \[samples\] with samples = 3"),
    "t_ends": (dict(t_ends=np.zeros((3, 1))), r"t_ends must have shape \[samples\]"),
    "background": (dict(background=[1.0, 1.0]), r"background must have shape \[channels\]"),
    "background rows": (dict(background=np.ones((3, 3))), r"background must have shape \[rays"),
    "info rank": (dict(packed_info=[0, 3]), r"packed_info must have shape \[rays, 2\]"),
    "info beyond": (
        dict(packed_info=[[0, 1], [1, 3]]),
        r"packed_info\[1\] must be .* within the 3",
    ),
    "info negative": (dict(packed_info=[[-1, 1], [1, 1]]), r"packed_info\[0\] must be"),
    "info count": (dict(packed_info=[[0, -1], [1, 1]]), r"packed_info\[0\] must be"),
    "info overlap": (
        dict(packed_info=[[0, 2], [1, 1]]),
        r"packed_info\[1\] must start at sample 2",
    ),
    "stop": (dict(early_stop_eps=1.0), r"early_stop_eps must be a transmittance in \[0, 1\)"),
    "stop nan": (dict(early_stop_eps=float("nan")), r"early_stop_eps must be"),
}


@pytest.mark.parametrize("change, sentence", BAD.values(), ids=BAD)
def test_bad_arguments_are_refused(change, sentence):
    arguments = dict(
        sigmas=np.ones(3),
        rgbs=np.ones((3, 3)),
        t_starts=np.zeros(3),
        t_ends=np.ones(3),
        packed_info=[[0, 2], [2, 1]],
    )
    metal_ops.volume_render(**arguments)
    arguments |= change
    with pytest.raises(tf.errors.InvalidArgumentError, match="volume_render: " + sentence):
        metal_ops.volume_render(**arguments)
    if "info " not in sentence and "info" not in str(change):
        with pytest.raises(ValueError, match=sentence):
            tf.function(lambda: metal_ops.volume_render(**arguments))()


def test_bad_ways_to_say_which_ray():
    samples = dict(sigmas=np.ones(3), rgbs=np.ones((3, 3)), t_starts=np.zeros(3), t_ends=np.ones(3))
    info, indices = [[0, 3]], [0, 0, 0]
    with pytest.raises(ValueError, match="expected one of them .* got neither"):
        metal_ops.volume_render(**samples)
    with pytest.raises(ValueError, match="expected one of them .* got both"):
        metal_ops.volume_render(**samples, packed_info=info, ray_indices=indices)
    with pytest.raises(ValueError, match="n_rays: expected the number of rays"):
        metal_ops.volume_render(**samples, ray_indices=indices)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"ray_indices\[1\] must be in \[1, 2\)"
    ):
        metal_ops.volume_render(**samples, ray_indices=[1, 0, 1], n_rays=2)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"ray_indices\[0\] must be in \[0, 1\)"
    ):
        metal_ops.volume_render(**samples, ray_indices=[-1, 0, 0], n_rays=1)
    dense = {name: np.expand_dims(value, 0) for name, value in samples.items()}
    with pytest.raises(ValueError, match="expected neither with dense samples"):
        metal_ops.volume_render(**dense, packed_info=info)
    with pytest.raises(TypeError, match="rgbs: expected dtype float16 as of sigmas"):
        metal_ops.volume_render(
            tf.ones([3], tf.float16), tf.ones([3, 3]), np.zeros(3), np.ones(3), info
        )
    with pytest.raises(TypeError, match="t_starts: expected dtype float32, got float16"):
        metal_ops.volume_render(
            np.ones(3), np.ones((3, 3)), tf.zeros([3], tf.float16), np.ones(3), info
        )


def test_second_derivatives_are_refused():
    scene = make([4])
    sigmas = tf.constant(scene.pop("sigmas"))
    with tf.GradientTape() as outer:
        outer.watch(sigmas)
        with tf.GradientTape() as inner:
            inner.watch(sigmas)
            out = metal_ops.volume_render(sigmas, **scene)
        slope = inner.gradient(out.rgb, sigmas)
    with pytest.raises(LookupError, match="second derivatives are not provided"):
        outer.gradient(slope, sigmas)


def test_nothing_weighs_behind_the_early_stop():
    """Exactly nothing, however long the ray is: it is worked on in pieces."""
    n, eps = 3000, 0.1
    starts = np.arange(n, dtype=np.float32)[None]
    weights, transmittance = metal_ops.render_weights(
        np.full((1, n), 0.05, np.float32), starts, starts + 1, early_stop_eps=eps
    )
    light = np.exp(-0.05 * np.arange(n))  # before each sample
    np.testing.assert_array_equal(weights[0].numpy()[light < 0.99 * eps], 0)
    assert (weights[0].numpy()[light > 1.01 * eps] > 0).all()
    np.testing.assert_allclose(transmittance[0], light, rtol=1e-4, atol=1e-6)


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def with_colours(dense: bool = False) -> dict[str, np.ndarray]:
    given = samples(dense)
    return given | {"rgbs": normal(*given["sigmas"].shape, 3), "background": normal(3)}


RENDERED = ("sigmas", "rgbs", "t_starts", "t_ends", "background")
CALLS = {
    "volume_render": Call(
        lambda **a: metal_ops.volume_render(**a, early_stop_eps=1e-3, t_gradients=True),
        with_colours,
        RENDERED,
    ),
    "volume_render, dense": Call(
        metal_ops.volume_render, lambda: with_colours(True), ("sigmas", "rgbs", "background")
    ),
    "render_weights": Call(metal_ops.render_weights, samples, ("sigmas",)),
}
