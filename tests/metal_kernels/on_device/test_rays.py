"""Rendering, scans, marching and distortion along rays on the Metal device.

First everything that tests of the CPU kernels ask, asked of the device: the same oracles, cases and tolerances. Then
tests that need two devices: they agree, in results and in the errors for bad arguments.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_ray_march, test_volume_render

DTYPES = ("float32", "float16", "bfloat16")
# Half a unit in the last place.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

# ---- the tests of the CPU kernels ----------------------------------------------------------------

OPS = {
    op: getattr(raw_ops, op)
    for op in (
        "volume_render",
        "volume_render_grad",
        "render_weights",
        "render_weights_grad",
        "packed_scan",
        "packed_prod_grad",
        "pack_ray_indices",
        "ray_march",
        "pack_occupancy",
        "distortion_loss",
        "scale_rays",
    )
}
# Asked in another way below: on the device that error would have to wait for the work's end.
INSTEAD = {
    "distortion_loss_bad_arguments": "test_samples_out_of_order_have_no_distortion",
    "distortion_loss_a_sample_before_its_forerunner": "test_samples_out_of_order_have_no_distortion",
    "packed_scan_rays_without_samples_take_no_time": "test_more_rays_than_a_grid_has_threads",
    "volume_render_rays_without_samples_take_no_time": "test_more_rays_than_a_grid_has_threads",
}


def adopt(family: str) -> None:
    """The tests of tests/test_<family>.py, under names of their own."""
    for name, function in vars(importlib.import_module(f"tests.test_{family}")).copy().items():
        adopted = f"{family}_{name.removeprefix('test_')}"
        if name.startswith("test_") and inspect.isfunction(function) and adopted not in INSTEAD:
            globals()[f"test_{adopted}"] = function


for _family in ("volume_render", "packed_scan", "ray_march", "distortion_loss"):
    adopt(_family)


ADOPTED = [name for name in globals() if name.startswith("test_")]
# Tests whose arguments are refused before an op runs.
REFUSED = {"test_volume_render_bad_ways_to_say_which_ray"}


@pytest.fixture(autouse=True)
def on_the_device(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """TensorFlow puts ops where they have a kernel; this sees to it that it was the device's, and that some ran."""
    ran: list[str] = []
    for name, op in OPS.items():
        monkeypatch.setattr(raw_ops, name, watched(op, ran))
    yield
    name = request.node.originalname
    assert ran or name not in ADOPTED or name in REFUSED, f"no op of {name} ran"


def watched(op: Callable[..., Any], ran: list[str]) -> Callable[..., Any]:
    @functools.wraps(op)  # public functions ask it for its arguments' names
    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = op(*args, **kwargs)
        ran.append(op.__name__)
        if tf.executing_eagerly():
            # packed_info lies in host memory wherever it was made.
            infos = (
                outputs if op is OPS["pack_ray_indices"] else getattr(outputs, "packed_info", ())
            )
            for output in tf.nest.flatten(outputs):
                if not any(output is info for info in tf.nest.flatten(infos)):
                    assert output.device.endswith("GPU:0"), f"{op.__name__}: {output.device}"
        return outputs

    return call


# ---- CPU = device --------------------------------------------------------------------------------


def run(op: str, device: str, inputs: list[Any], **attrs: Any) -> list[tf.Tensor]:
    """A raw op on a device that is named, so that it runs there or fails."""
    with tf.device(device):
        return tf.nest.flatten(OPS[op](*[tf.constant(value) for value in inputs], **attrs))


def assert_agree(op: str, inputs: list[Any], tolerance: float = 4e-6, **attrs: Any) -> None:
    """Runs on both, twice on the device. `tolerance` is of the largest value."""
    expected = run(op, "CPU:0", inputs, **attrs)
    actual = run(op, "GPU:0", inputs, **attrs)
    again = run(op, "GPU:0", inputs, **attrs)
    for i, (want, have, repeated) in enumerate(zip(expected, actual, again, strict=True)):
        what = f"output {i} of {op}"
        assert (have.dtype, have.shape) == (want.dtype, want.shape), what
        np.testing.assert_array_equal(have, repeated, f"{what}: the same on every run")
        dtype = want.dtype.name
        if dtype not in ROUNDING:
            np.testing.assert_array_equal(have, want, what)
            continue
        want, have = (x.numpy().astype(np.float64) for x in (want, have))
        finite = np.isfinite(want)
        np.testing.assert_array_equal(have[~finite], want[~finite], what)
        scale = np.max(np.abs(want[finite]), initial=0.0)
        # Both are rounded, perhaps to different sides.
        allowed = tolerance * scale + 2 * ROUNDING[dtype] * np.abs(want)
        error = np.abs(have - want)
        assert np.all(error[finite] <= allowed[finite]), f"{what}: off by {np.nanmax(error):.3g}"


COUNTS = {
    **test_volume_render.COUNTS,
    "samples of no ray": [0, 3, 5],  # and 3 samples more than the rays have
    "dense": (5, 7),
    "dense, one": (1, 1),
    "dense, no samples": (4, 0),
    "dense, no rays": (0, 4),
}


def scene_of(counts: Any, channels: int, dtype: str, index_dtype: str) -> dict[str, np.ndarray]:
    """Samples as tests/test_volume_render.py makes them, dense where counts is a shape."""
    dense = counts if isinstance(counts, tuple) else None
    scene = test_volume_render.make(
        [dense[1]] * dense[0] if dense else counts, channels, seed=3, density=20.0, dtype=dtype
    )
    scene["packed_info"] = scene["packed_info"].astype(index_dtype).reshape(-1, 2)
    if dense:
        for name in ("sigmas", "t_starts", "t_ends"):
            scene[name] = scene[name].reshape(dense)
        scene["rgbs"] = scene["rgbs"].reshape(*dense, channels)
        scene["packed_info"] = np.zeros((0, 2), index_dtype)
    elif counts == COUNTS["samples of no ray"]:
        scene["packed_info"][2] = (4, 1)
        scene["packed_info"][1] = (1, 2)
    return scene


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize(
    "channels, shared, early_stop_eps, t_gradients",
    [(3, True, 0.0, False), (1, False, 0.3, True), (5, True, 0.01, True), (0, False, 0.0, False)],
)
def test_rendering_agrees(
    counts: Any,
    dtype: str,
    channels: int,
    shared: bool,
    early_stop_eps: float,
    t_gradients: bool,
) -> None:
    scene = scene_of(counts, channels, dtype, "int64" if shared else "int32")
    random = np.random.default_rng(0)
    attrs = {"early_stop_eps": early_stop_eps, "t_gradients": t_gradients}
    samples = scene["sigmas"].shape
    info = scene["packed_info"]
    n_rays = samples[0] if len(samples) == 2 else len(info)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    background = normal(channels) if shared else normal(n_rays, channels)
    inputs = [scene[name] for name in ("sigmas", "rgbs", "t_starts", "t_ends")]
    assert_agree("volume_render", [*inputs, info, background], **attrs)
    assert_agree("volume_render", [*inputs, info, np.zeros(0, np.float32)], **attrs)
    gradients = [normal(n_rays, channels), *(normal(n_rays) for _ in range(3)), normal(*samples)]
    assert_agree("volume_render_grad", [*gradients, *inputs, info, background], **attrs)
    for absent in range(5):
        some = [*gradients]
        some[absent] = np.zeros((0, 0) if absent == 0 else (0,), np.float32)
        assert_agree("volume_render_grad", [*some, *inputs, info, background], **attrs)

    weights = [scene[name] for name in ("sigmas", "t_starts", "t_ends")] + [info]
    assert_agree("render_weights", weights, **attrs)
    none = np.zeros(0, np.float32)
    for pair in ([normal(*samples), normal(*samples)], [normal(*samples), none], [none, none]):
        assert_agree("render_weights_grad", [*pair, *weights], **attrs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_depth_agrees(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The division by the opacity, which is 0 for a ray without samples, is on the device too."""
    monkeypatch.undo()  # this one has the CPU as well
    scene = scene_of([3, 0, 40, 1], 3, dtype, "int32")
    found = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device), tf.GradientTape() as tape:
            sigmas = tf.identity(tf.constant(scene["sigmas"]))
            tape.watch(sigmas)
            rendering = metal_ops.volume_render(**{**scene, "sigmas": sigmas}, normalize_depth=True)
            depth = rendering.depth
            slopes = tape.gradient(depth, sigmas)
        assert depth.device.endswith(device) and slopes.device.endswith(device)
        found.append((depth.numpy(), slopes.numpy().astype(np.float32)))
    assert found[0][0][1] == 0 and np.abs(found[0][1]).max() > 1e-3
    for expected, actual in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2 * ROUNDING[dtype] + 1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_scans_and_distortion_agree(counts: Any, dtype: str) -> None:
    scene = scene_of(counts, 1, dtype, "int32")
    info, samples = scene["packed_info"], scene["sigmas"].shape
    random = np.random.default_rng(1)
    values, incoming = (
        random.normal(size=samples).astype(tf.as_dtype(dtype).as_numpy_dtype) for _ in range(2)
    )
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"exclusive": exclusive, "reverse": reverse}
            for reduction in ("sum", "prod"):
                # Both sums are exact to 2^-46, so nothing but the final rounding may differ.
                assert_agree("packed_scan", [values, info], 1e-11, reduction=reduction, **attrs)
            assert_agree("packed_prod_grad", [incoming, values, info], 1e-11, **attrs)
    if dtype == "float32":
        for t_gradients in (False, True):
            inputs = [values, scene["t_starts"], scene["t_starts"] + np.float32(0.05), info]
            assert_agree("distortion_loss", inputs, t_gradients=t_gradients)
        n_rays = samples[0] if len(samples) == 2 else len(info)
        assert_agree("scale_rays", [random.normal(size=n_rays).astype(np.float32), values, info])


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("n_rays", [0, 1, 333])
@pytest.mark.parametrize("cone_angle", [0.0, 0.02])
def test_marching_agrees_to_the_bit(n_rays: int, cone_angle: float, index_dtype: str) -> None:
    """Both kernels are compiled from one header, without contraction of products and sums."""
    random = np.random.default_rng(n_rays)
    occupied = random.uniform(size=(3, 12**3)) < 0.2
    origins, directions = test_ray_march.random_rays(n_rays)
    origins[5:8] = np.nan
    near = random.uniform(0, 2, n_rays).astype(np.float32)
    inputs = [origins, directions, test_ray_march.bits_of(occupied), test_ray_march.AABB]
    inputs += [near, np.float32(np.inf), np.array([1, 2], np.int32)]
    attrs = {"resolution": 12, "step": 0.03, "cone_angle": cone_angle, "Tindices": index_dtype}
    for stratified in (False, True):
        for expected, actual in zip(
            run("ray_march", "CPU:0", inputs, stratified=stratified, **attrs),
            run("ray_march", "GPU:0", inputs, stratified=stratified, **attrs),
            strict=True,
        ):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)
        assert len(actual) == n_rays and (n_rays < 2 or tf.reduce_sum(actual[:, 1]) > n_rays)


@pytest.mark.parametrize("shape", [(1, 8), (2, 27), (3, 1), (0, 8), (1, 0), (16, 4096)], ids=str)
def test_packing_agrees(shape: tuple[int, int]) -> None:
    densities = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    densities.reshape(-1)[::7] = np.nan
    assert_agree("pack_occupancy", [densities, np.float32(0.25)])
    for dtype in ("int32", "int64"):
        indices = np.sort(np.random.default_rng(0).integers(0, 50, shape[1])).astype(dtype)
        assert_agree("pack_ray_indices", [indices, np.array(50, dtype)])


def test_products_that_leave_the_range_of_float32_on_the_way() -> None:
    info = np.array([[0, 400]], np.int32)
    values = np.repeat(np.float32([1e30, 1e-30]), 200)
    product = run("packed_scan", "GPU:0", [values, info], reduction="prod")[0].numpy()
    np.testing.assert_array_equal(np.isinf(product), [False] + [True] * 397 + [False] * 2)
    # 1e30 1e-30 is 1 to 2^-24, 200 times over.
    np.testing.assert_allclose(product[[0, 398, 399]], [1e30, 1e30, 1.0], rtol=200 * 2.0**-23)


def test_samples_out_of_order_have_no_distortion() -> None:
    inputs = [np.ones(5), np.array([0, 2, 1, 3, 4]), np.array([0.5, 2.5, 1.5, 3.5, 4.5])]
    inputs = [value.astype(np.float32) for value in inputs]
    info = np.array([[0, 3], [3, 2]], np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must ascend along each ray.*ray 0"):
        run("distortion_loss", "CPU:0", [*inputs, info], t_gradients=True)
    outputs = run("distortion_loss", "GPU:0", [*inputs, info], t_gradients=True)
    assert np.isnan(outputs[0][0]) and np.isfinite(outputs[0][1])
    for slope in outputs[1:]:
        np.testing.assert_array_equal(np.isnan(slope), [True] * 3 + [False] * 2)


# ---- bad arguments -------------------------------------------------------------------------------

SAMPLES = {
    "sigmas": np.ones(3, np.float32),
    "rgbs": np.ones((3, 3), np.float32),
    "t_starts": np.zeros(3, np.float32),
    "t_ends": np.ones(3, np.float32),
    "packed_info": np.array([[0, 2], [2, 1]], np.int32),
    "background": np.ones(3, np.float32),
}
NONE, NO_RGB = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
# op: inputs in order, attributes
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "volume_render": (SAMPLES, {}),
    "volume_render_grad": (
        {"rgb": NO_RGB, "opacity": NONE, "depth": NONE, "median": NONE, "weights": NONE, **SAMPLES},
        {},
    ),
    "render_weights": (
        {name: SAMPLES[name] for name in ("sigmas", "t_starts", "t_ends", "packed_info")},
        {},
    ),
    "packed_scan": ({"inputs": SAMPLES["sigmas"], "packed_info": SAMPLES["packed_info"]}, {}),
    "packed_prod_grad": (
        {
            "gradients": SAMPLES["sigmas"],
            "inputs": SAMPLES["sigmas"],
            "packed_info": SAMPLES["packed_info"],
        },
        {},
    ),
    "pack_ray_indices": (
        {"ray_indices": np.array([0, 0, 1], np.int32), "n_rays": np.array(2, np.int32)},
        {},
    ),
    "ray_march": (
        {
            "origins": np.float32([[0.5, 0.5, -1.0]]),
            "directions": np.float32([[0, 0, 1]]),
            "occupancy": np.full((1, 8), 255, np.uint8),
            "aabb": np.float32([0, 0, 0, 1, 1, 1]),
            "t_min": np.float32(0),
            "t_max": np.float32(9),
            "seed": np.zeros(2, np.int32),
        },
        {"resolution": 4, "step": 0.1},
    ),
    "pack_occupancy": (
        {"densities": np.ones((1, 8), np.float32), "threshold": np.float32(0)},
        {},
    ),
    "distortion_loss": (
        {
            "weights": SAMPLES["sigmas"],
            **{name: SAMPLES[name] for name in ("t_starts", "t_ends", "packed_info")},
        },
        {},
    ),
    "scale_rays": (
        {
            "incoming": np.ones(2, np.float32),
            "slope": SAMPLES["sigmas"],
            "packed_info": SAMPLES["packed_info"],
        },
        {},
    ),
}
PACKINGS = {
    "beyond": [[0, 2], [2, 2]],
    "negative start": [[-1, 2], [2, 1]],
    "negative count": [[0, -2], [2, 1]],
    "overlap": [[0, 2], [1, 1]],
    "rank": [0, 3],
    "columns": [[0, 1, 2]],
}
BAD: list[tuple[str, dict[str, Any]]] = [
    (op, {"packed_info": np.array(info, np.int32)})
    for op, (inputs, _) in CALLS.items()
    if "packed_info" in inputs
    for info in PACKINGS.values()
] + [
    ("volume_render", {"rgbs": np.ones((2, 3), np.float32)}),
    ("volume_render", {"t_ends": np.ones((3, 1), np.float32)}),
    ("volume_render", {"sigmas": np.ones((1, 1, 3), np.float32)}),
    ("volume_render", {"background": np.ones(2, np.float32)}),
    ("volume_render", {"background": np.ones((1, 3), np.float32)}),
    ("volume_render", {"early_stop_eps": 1.0}),
    ("volume_render", {"early_stop_eps": float("nan")}),
    ("volume_render_grad", {"rgb": np.ones((3, 3), np.float32)}),
    ("volume_render_grad", {"opacity": np.ones(3, np.float32)}),
    ("volume_render_grad", {"weights": np.ones(2, np.float32)}),
    ("render_weights", {"t_starts": np.ones(2, np.float32)}),
    ("packed_prod_grad", {"gradients": np.ones(2, np.float32)}),
    ("pack_ray_indices", {"ray_indices": np.array([0, 1, 0, -1], np.int32)}),
    ("pack_ray_indices", {"ray_indices": np.array([0, 1, 2], np.int32)}),
    ("pack_ray_indices", {"ray_indices": np.array([-1, 1], np.int32)}),
    ("pack_ray_indices", {"ray_indices": np.repeat([0, 1, 0, 1], 3000).astype(np.int32)}),
    ("pack_ray_indices", {"n_rays": np.array(-1, np.int32)}),
    ("pack_ray_indices", {"n_rays": np.array([2], np.int32)}),
    ("ray_march", {"origins": np.ones((2, 3), np.float32)}),
    ("ray_march", {"resolution": 5}),
    ("ray_march", {"aabb": np.float32([0, 0, 0, 1, -1, 1])}),
    ("ray_march", {"aabb": np.float32([0, 0, 0, 1, np.nan, 1])}),
    ("ray_march", {"seed": np.zeros(3, np.int32)}),
    ("ray_march", {"t_min": np.zeros(2, np.float32)}),
    ("ray_march", {"step": 0.0}),
    ("ray_march", {"step": 1e-9}),
    ("ray_march", {"cone_angle": 1.5}),
    ("ray_march", {"max_samples_per_ray": 0}),
    ("pack_occupancy", {"densities": np.ones(8, np.float32)}),
    ("pack_occupancy", {"threshold": np.zeros(1, np.float32)}),
    ("distortion_loss", {"t_ends": np.ones(2, np.float32)}),
    ("scale_rays", {"incoming": np.ones(3, np.float32)}),
]


def call(op: str, device: str, changes: dict[str, Any]) -> list[tf.Tensor]:
    inputs, attrs = CALLS[op]
    attrs = attrs | {name: value for name, value in changes.items() if name not in inputs}
    return run(
        op,
        device,
        list((inputs | {k: changes[k] for k in inputs & changes.keys()}).values()),
        **attrs,
    )


@pytest.mark.instrumented
@pytest.mark.parametrize("op", CALLS)
def test_good_arguments(op: str) -> None:
    for on_device, on_cpu in zip(call(op, "GPU:0", {}), call(op, "CPU:0", {}), strict=True):
        np.testing.assert_allclose(on_device, on_cpu, rtol=1e-6)


@pytest.mark.instrumented
@pytest.mark.parametrize("op, changes", BAD, ids=str)
def test_bad_arguments(op: str, changes: dict[str, Any]) -> None:
    messages = []
    for device in ("CPU:0", "GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            [output.numpy() for output in call(op, device, changes)]
        # Behind it TensorFlow names the node, if inputs had to be moved between memories.
        message = caught.value.message.partition(" [Op:")[0].partition("\n")[0]
        messages.append(message.replace(device, "<device>"))
    assert messages[0] == messages[1]  # one voice for all devices


# ---- several ops, several threads ----------------------------------------------------------------


def march_and_render(device: str) -> list[np.ndarray]:
    """From rays to colours in one graph: packed_info goes from op to op."""
    origins, directions = test_ray_march.random_rays(200)
    bits = test_ray_march.bits_of(np.random.default_rng(0).uniform(size=(1, 8**3)) < 0.5)

    @tf.function
    def render(origins: tf.Tensor, directions: tf.Tensor) -> list[tf.Tensor]:
        with tf.device(device):
            samples = OPS["ray_march"](
                origins,
                directions,
                bits,
                test_ray_march.AABB,
                0.0,
                np.float32(np.inf),
                [3, 4],
                resolution=8,
                step=0.05,
                stratified=True,
            )
            sigmas = samples.t_ends
            with tf.GradientTape() as tape:
                tape.watch(sigmas)
                weights = OPS["render_weights"](
                    sigmas, samples.t_starts, samples.t_ends, samples.packed_info
                ).weights
                inclusive = OPS["packed_scan"](weights, samples.packed_info)
            return [weights, inclusive, tape.gradient(inclusive, sigmas), samples.packed_info]

    return [output.numpy() for output in render(origins, directions)]


@pytest.mark.instrumented
def test_from_rays_to_weights_in_one_graph() -> None:
    on_cpu, on_device = march_and_render("CPU:0"), march_and_render("GPU:0")
    assert len(on_cpu[0]) > 1000
    for expected, actual in zip(on_cpu, on_device, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.instrumented
def test_from_many_threads() -> None:
    scene = scene_of([64] * 50, 3, "float32", "int32")
    names = ("sigmas", "rgbs", "t_starts", "t_ends", "packed_info")
    inputs = [*(scene[name] for name in names), np.ones(3, np.float32)]
    jobs: dict[str, Callable[[], list[np.ndarray]]] = {
        "render": lambda: [x.numpy() for x in run("volume_render", "GPU:0", inputs)],
        "march": lambda: march_and_render("GPU:0"),
        "scan": lambda: [
            x.numpy() for x in run("packed_scan", "GPU:0", [inputs[0], inputs[4]], reduction="prod")
        ],
    }
    expected = {name: job() for name, job in jobs.items()}

    def work(name: str) -> None:
        for _ in range(5):
            for actual, want in zip(jobs[name](), expected[name], strict=True):
                np.testing.assert_array_equal(actual, want)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [*jobs, *jobs]))


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("reduction", ["sum", "prod"])
def test_infinity_goes_on_as_infinity(reduction, bad):
    """In the pair of floats 0 times infinity would make NaN of it."""
    values = np.array([0.5, 2.0, bad, 3.0, 0.25], np.float32)
    info = np.array([[0, 5]], np.int32)
    for exclusive in (False, True):
        assert_agree("packed_scan", [values, info], reduction=reduction, exclusive=exclusive)
    (scan,) = run("packed_scan", "GPU:0", [values, info], reduction=reduction)
    assert np.isinf(scan[-1])


def test_more_rays_than_a_grid_has_threads():
    for op, n_inputs in (("packed_scan", 1), ("packed_prod_grad", 2), ("render_weights", 3)):
        nothing = [tf.zeros([2**40, 0])] * n_inputs
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{2**40} rays are more than"):
            run(op, "GPU:0", [*nothing, np.zeros([0, 2], np.int32)])
