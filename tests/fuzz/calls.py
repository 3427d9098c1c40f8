"""Calls of every public function and raw op: right ones, and what a mutation makes of them.

No TensorFlow in here: what is said about a call travels to the process that makes it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from . import engine

N, RAYS, L, F = 7, 2, 2, 2
F4 = np.float32
POINTS = np.linspace(0, 1, 3 * N, dtype=F4).reshape(N, 3)
T = np.arange(N, dtype=F4)
PACKED = np.array([[0, 3], [3, 4]], np.int32)
COLOURS = np.linspace(0, 1, 3 * N, dtype=F4).reshape(N, 3)
ALONG = dict(t_starts=T, t_ends=T + 1, packed_info=PACKED)
OFFSETS = np.array([0, 64, 128], np.int32)
TABLE = np.ones((128, F), F4)
WIDE = np.ones((N, L * F), F4)
MARCH = dict(
    origins=POINTS - 1,
    directions=POINTS + 0.1,
    occupancy=np.full((1, 64), 255, np.uint8),
    aabb=np.array([0, 0, 0, 1, 1, 1], F4),
    step=0.1,
    resolution=8,
)
GRID = dict(log2_per_level_scale=1.0, resolution_coarsest=4)
RENDERED = dict(sigmas=T, rgbs=COLOURS, **ALONG, background=np.ones(3, F4))


class Special:
    """Something that only TensorFlow can make, by name: "variable", "ragged", "dtype", ..."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value

    def __repr__(self) -> str:
        return f"Special({self.kind!r}, {self.value!r})"


def _variable(value: np.ndarray) -> Special:
    return Special("variable", value)


PUBLIC: dict[str, dict[str, Any]] = {
    "hash_encode": dict(
        points=POINTS,
        table=TABLE,
        grid=Special("grid", dict(n_levels=L, log2_hashmap_size=6, base_resolution=4)),
    ),
    "frequency_encode": dict(x=POINTS, n_frequencies=3, include_input=True, times_pi=True),
    "sh_encode": dict(directions=POINTS, degree=3),
    "volume_render": dict(**RENDERED, early_stop_eps=0.0, normalize_depth=True, t_gradients=False),
    "render_weights": dict(sigmas=T, **ALONG, early_stop_eps=0.0, t_gradients=True),
    "distortion_loss": dict(weights=T, **ALONG, t_gradients=True),
    **{
        name: dict(inputs=T, packed_info=PACKED, reverse=False)
        for name in ("inclusive_sum", "exclusive_sum", "inclusive_prod", "exclusive_prod")
    },
    "pack_ray_indices": dict(ray_indices=np.array([0, 0, 1], np.int32), n_rays=2),
    "ray_march": dict(
        **MARCH,
        near=F4(0),
        far=F4(9),
        cone_angle=0.0,
        max_samples_per_ray=32,
        seed=np.array([1, 2], np.int32),
    ),
    "focal_loss": dict(
        logits=POINTS, targets=POINTS, alpha=0.25, gamma=2.0, label_smoothing=0.0, reduce_last=False
    ),
    "robust_loss": dict(x=POINTS, targets=POINTS, alpha=F4(1), scale=F4(1), reduce_last=False),
    "softshrink": dict(x=POINTS, lambd=0.5),
    "null_op": dict(x=POINTS, scale=2.0),
    "zero_out": dict(x=POINTS),
    "fused_matmul": dict(
        a=POINTS,
        b=np.ones((3, 5), F4),
        bias=np.ones(5, F4),
        residual=np.ones((N, 5), F4),
        activation="relu",
        transpose_a=False,
        transpose_b=False,
    ),
    "fused_conv2d": dict(
        input=np.ones((1, 4, 4, 2), F4),
        filters=np.ones((3, 3, 2, 2), F4),
        bias=np.ones(2, F4),
        strides=1,
        padding="SAME",
        dilations=1,
        activation="relu",
    ),
    "fused_adam": dict(
        variable=_variable(POINTS),
        m=_variable(POINTS),
        v=_variable(POINTS),
        gradient=POINTS,
        step=1,
        learning_rate=0.1,
        weight_decay=0.0,
        skip_zero_rows=False,
    ),
    "fused_sgd": dict(
        variable=_variable(POINTS),
        gradient=POINTS,
        learning_rate=0.1,
        momentum=0.9,
        m=_variable(POINTS),
        nesterov=False,
    ),
}
HASH = dict(
    inputs=POINTS,
    embeddings=TABLE,
    hashmap_offsets=OFFSETS,
    **GRID,
    interpolation="linear",
    grid_kind="hash",
)
OPTIMIZER = {name: np.float64(value) for name, value in dict(lr=0.1, weight_decay=0).items()}
RAW: dict[str, dict[str, Any]] = {
    "distortion_loss": dict(weights=T, **ALONG, t_gradients=True),
    "frequency_encode": dict(inputs=POINTS, n_frequencies=3, include_input=True, times_pi=True),
    "frequency_encode_grad": dict(
        gradients=np.ones((N, 21), F4), inputs=POINTS, n_frequencies=3, include_input=True
    ),
    "hash_encode": HASH,
    "hash_encode_grad": dict(incoming_gradients=WIDE, **HASH),
    "hash_encode_jvp": dict(tangents=POINTS, **HASH),
    "hash_encode_jvp_grad": dict(tangents=POINTS, incoming_gradients=WIDE, **HASH),
    "hash_encode_jvp_point_grad": dict(tangents=POINTS, incoming_gradients=WIDE, **HASH),
    "hash_encode_point_grad": dict(incoming_gradients=WIDE, **HASH),
    "metal_fused_conv2d": dict(
        input=np.ones((1, 4, 4, 2), F4),
        filter=np.ones((3, 3, 2, 2), F4),
        args=[np.ones(2, F4)],
        strides=[1, 1, 1, 1],
        padding="SAME",
        fused_ops=["BiasAdd"],
        explicit_paddings=[],
        data_format="NHWC",
        dilations=[1, 1, 1, 1],
        epsilon=1e-4,
    ),
    "metal_fused_mat_mul": dict(
        a=POINTS,
        b=np.ones((3, 5), F4),
        args=[np.ones(5, F4)],
        fused_ops=["BiasAdd"],
        transpose_a=False,
        transpose_b=False,
    ),
    "null_op": dict(x=POINTS, scale=2.0),
    "pack_occupancy": dict(densities=np.ones((1, 64), F4), threshold=F4(0.5)),
    "pack_ray_indices": dict(ray_indices=np.array([0, 0, 1], np.int32), n_rays=np.int32(2)),
    "packed_prod_grad": dict(
        gradients=T, inputs=T, packed_info=PACKED, exclusive=False, reverse=False
    ),
    "packed_scan": dict(
        inputs=T, packed_info=PACKED, reduction="sum", exclusive=False, reverse=False
    ),
    "ray_march": dict(
        **MARCH,
        t_min=F4(0),
        t_max=F4(9),
        seed=np.array([1, 2], np.int32),
        cone_angle=0.0,
        max_samples_per_ray=32,
        stratified=True,
    ),
    "render_weights": dict(sigmas=T, **ALONG, early_stop_eps=0.0, t_gradients=True),
    "render_weights_grad": dict(
        weights_gradient=T,
        transmittance_gradient=T,
        sigmas=T,
        **ALONG,
        early_stop_eps=0.0,
        t_gradients=True,
    ),
    "resource_fused_adam": dict(
        var=_variable(POINTS),
        m=_variable(POINTS),
        v=_variable(POINTS),
        hats=[],
        step=np.int64(1),
        beta1=np.float64(0.9),
        beta2=np.float64(0.99),
        epsilon=np.float64(1e-8),
        gradient=POINTS,
        skip_zero_rows=False,
        **OPTIMIZER,
    ),
    "resource_fused_sgd": dict(
        var=_variable(POINTS),
        momenta=[_variable(POINTS)],
        momentum=np.float64(0.9),
        gradient=POINTS,
        nesterov=False,
        **OPTIMIZER,
    ),
    "robust_loss": dict(
        predictions=POINTS,
        targets=POINTS,
        alpha=F4(1),
        scale=F4(1),
        reduce_last=False,
        parameter_gradients=True,
    ),
    "scale_rays": dict(incoming=np.ones(RAYS, F4), slope=T, packed_info=PACKED),
    "scale_slope": dict(incoming=POINTS, slope=POINTS),
    "scale_slope_sum": dict(incoming=POINTS, slope=POINTS, parameter=F4(1)),
    "sh_encode": dict(directions=POINTS, degree=3),
    "sh_encode_grad": dict(gradients=np.ones((N, 9), F4), directions=POINTS, degree=3),
    "sigmoid_focal_loss": dict(
        logits=POINTS,
        targets=POINTS,
        alpha=0.25,
        gamma=2.0,
        label_smoothing=0.0,
        balanced=True,
        reduce_last=False,
    ),
    "softmax_focal_loss": dict(
        logits=POINTS, targets=POINTS, alpha=0.25, gamma=2.0, label_smoothing=0.0
    ),
    "softshrink": dict(features=POINTS, lambd=0.5),
    "softshrink_grad": dict(gradients=POINTS, features=POINTS, lambd=0.5),
    "volume_render": dict(**RENDERED, early_stop_eps=0.0, t_gradients=False),
    "volume_render_grad": dict(
        rgb_gradient=np.ones((RAYS, 3), F4),
        opacity_gradient=np.ones(RAYS, F4),
        depth_gradient=np.ones(RAYS, F4),
        depth_median_gradient=np.ones(RAYS, F4),
        weights_gradient=T,
        **RENDERED,
        t_gradients=True,
    ),
    "zero_out": dict(to_zero=POINTS),
}

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "str",
)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64, 65)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-45,
    1e-38,
    1e38,
    3.4e38,
    1e300,
    np.nan,
    np.inf,
    -np.inf,
    2.0,
    100.0,
)
INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    16,
    31,
    32,
    33,
    64,
    1000,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    -(2**31),
    2**62,
    2**63 - 1,
    2**64,
)
WORDS = (
    "",
    "linear",
    "smoothstep",
    "hash",
    "dense",
    "sum",
    "prod",
    "SAME",
    "VALID",
    "EXPLICIT",
    "NHWC",
    "NCHW",
    "relu",
    "relu6",
    "gelu",
    "softmax",
    "sigmoid",
    "BiasAdd",
    "Add",
    "Relu",
    "FusedBatchNorm",
    "LeakyRelu",
    "Gelu",
    "Swish",
    "x" * 1000,
    "\0",
    "\ud800",
    "é",
)
Call = tuple[
    str, str, dict[str, Any], bool, bool
]  # where, name, arguments, with gradient, in a function


def make(rng: random.Random) -> Call:
    where, table = rng.choice((("public", PUBLIC), ("raw", RAW)))
    name = rng.choice(list(table))
    arguments = dict(table[name])
    if rng.random() < 0.3:  # all of them smaller or larger, so that they still go together
        arguments = _same_length(arguments, rng.choice(SIZES))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        key = rng.choice(list(arguments))
        if rng.random() < 0.03:
            del arguments[key]
            if not arguments:
                break
        else:
            changed = _mutate(arguments[key], rng)
            if where == "public" or _has_a_type(changed, _is_tensor(arguments[key])):
                arguments[key] = changed
    return where, name, arguments, rng.random() < 0.25, rng.random() < 0.02


def _is_tensor(value: Any) -> bool:
    """Whether an argument of a raw op is an input or inputs, and no attribute."""
    if isinstance(value, list):
        return all(_is_tensor(item) for item in value) and bool(value)
    return isinstance(value, np.ndarray | np.generic | Special)


def _has_a_type(value: Any, tensor: bool) -> bool:
    """Whether it is a tensor's value or an attribute's.

    Raw ops are as TensorFlow generates them, and its generated code ends in a SystemError or std::bad_alloc where it is
    given halves of surrogate pairs, lists of several kinds, or variables for attributes or lists.
    """
    if isinstance(value, list):
        return all(_has_a_type(item, tensor) and type(item) is type(value[0]) for item in value)
    if isinstance(value, str):
        return value.isprintable()
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, Special):
        return tensor and value.kind in ("variable", "cast", "constant", "dtype")
    return isinstance(value, np.ndarray | np.generic | float)


def _same_length(arguments: dict[str, Any], size: int) -> dict[str, Any]:
    def change(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim and len(value) == N:
            return np.resize(value, (size, *value.shape[1:]))
        if value is PACKED:
            return np.array([[0, size // 2], [size // 2, size - size // 2]], np.int32)
        if isinstance(value, Special) and value.kind == "variable":
            return Special("variable", change(value.value))
        return value

    return {key: change(value) for key, value in arguments.items()}


def _mutate(value: Any, rng: random.Random) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), rng)
    if isinstance(value, Special):
        if value.kind == "variable" and rng.random() < 0.8:
            changed = _array(value.value, rng)
            return Special("variable", changed) if isinstance(changed, np.ndarray) else changed
        if value.kind == "grid" and rng.random() < 0.9:
            return Special("grid", {**value.value, **_grid(rng)})
        return _anything(rng)
    if isinstance(value, list) and rng.random() < 0.8:
        changed = list(value)
        kind = rng.randrange(4)
        if kind == 0 or not changed:
            changed.insert(0, _mutate(changed[0], rng) if changed else _anything(rng))
        elif kind == 1:
            changed.pop()
        elif kind == 2:
            changed = changed * rng.choice((2, 3, 50))
        else:
            changed[0] = _mutate(changed[0], rng)
        return changed
    if rng.random() < 0.15:
        return _anything(rng)
    if isinstance(value, bool):
        return rng.choice((True, False))
    if isinstance(value, int):
        return rng.choice(INTEGERS)
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, str):
        return rng.choice(WORDS)
    return _anything(rng)


def _grid(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            dict(n_dims=rng.choice((1, 2, 4))),
            dict(n_levels=rng.choice((1, 3, 32, 33))),
            dict(n_features_per_level=rng.choice(INTEGERS)),
            dict(log2_hashmap_size=rng.choice((1, 5, 10, 40))),
            dict(base_resolution=rng.choice(INTEGERS)),
            dict(kind="dense"),
            dict(interpolation="smoothstep"),
            dict(per_level_scale=rng.choice(FLOATS)),
        )
    )


def _array(value: np.ndarray, rng: random.Random) -> Any:
    kind = rng.randrange(10)
    if kind == 0:
        return _cast(value, rng.choice(DTYPES))
    if kind == 1:
        shape = [rng.choice(SIZES) for _ in range(rng.randrange(6))]
        while np.prod(shape, dtype=float) > 1e5:
            shape.pop()
        return np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
    if kind == 2 and value.ndim:
        shape = list(value.shape)
        shape[rng.randrange(len(shape))] = rng.choice(SIZES)
        return np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
    if kind == 3:
        return rng.choice((value[None], value[..., None], value.reshape(-1), value.T))
    if kind <= 6 and value.size:
        changed = value.copy()
        pool = FLOATS if value.dtype.kind == "f" else INTEGERS
        for _ in range(rng.choice((1, 1, 3, 10))):
            with np.errstate(all="ignore"):
                changed.reshape(-1)[rng.randrange(value.size)] = _fit(rng.choice(pool), value.dtype)
        return changed
    if kind == 7 and value.size:
        pool = FLOATS if value.dtype.kind == "f" else INTEGERS
        with np.errstate(all="ignore"):
            return np.full(value.shape, _fit(rng.choice(pool), value.dtype), value.dtype)
    if kind == 8:
        half = rng.choice(("float16", "bfloat16", "int64"))
        return _cast(value, half)
    return _anything(rng)


def _fit(number: Any, dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return max(min(int(number), info.max), info.min)
    return number


def _cast(value: np.ndarray, dtype: str) -> Any:
    if dtype == "bfloat16":
        return Special("cast", (value, dtype))
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def _anything(rng: random.Random) -> Any:
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice(
            (
                None,
                True,
                "text",
                b"\xff",
                1 + 2j,
                (),
                {},
                [[1.0], [1.0, 2.0]],
                10**400,
                engine.TEXTS,
            )
        )
    if kind == 1:
        return rng.choice(FLOATS)
    if kind == 2:
        return rng.choice(INTEGERS)
    if kind == 3:
        return rng.choice(WORDS)
    if kind == 4:
        return Special(
            "dtype",
            rng.choice(
                ("float32", "float16", "float64", "int32", "resource", "string", "variant", "qint8")
            ),
        )
    if kind == 5:
        return Special(
            rng.choice(("ragged", "sparse", "slices", "keras", "unknown", "object", "set"))
        )
    if kind == 6:
        return Special(
            "variable",
            np.zeros([rng.choice(SIZES)], rng.choice(("float32", "float64", "int32", "bool"))),
        )
    if kind == 7:
        return Special(
            "constant",
            np.zeros(
                [rng.choice(SIZES)] * rng.randrange(3), rng.choice(("float32", "int64", "uint8"))
            ),
        )
    return [_anything(rng) for _ in range(rng.randrange(3))]
