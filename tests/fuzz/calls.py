"""Calls of every public function and raw op: right ones, and mutations of them.

No TensorFlow in here: the description of a call travels to the process that makes it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import random
from typing import Any

import numpy as np

from tests.processes import Process

from . import engine, ops
from .values import PACKED, POINTS, N, Special

# "public": arguments of functions by name, with the default in a list, or none. "raw": of ops, inputs as (shape, dtype,
# type of the variable) and attributes. metal_kernel and MetalKernel have tests of their own.
Declared = dict[str, dict[str, Any]]
Table = dict[str, dict[str, Any]]


def stated() -> tuple[Table, Table]:
    """The calls of public functions and of raw ops that the files of ops/ state, one for a family."""
    public: Table = {}
    raw: Table = {}
    for file in pkgutil.iter_modules(ops.__path__):
        found = importlib.import_module(f"{ops.__name__}.{file.name}")
        public |= getattr(found, "PUBLIC", {})
        raw |= getattr(found, "RAW", {})
    return public, raw


def derived(declared: Declared) -> tuple[Table, Table]:
    """Calls that follow from signatures and declarations: points for each input whose shape is
    free."""
    public = {
        name: {key: default[0] if default else POINTS for key, default in arguments.items()}
        for name, arguments in declared["public"].items()
    }
    raw = {}
    for name, (inputs, attributes) in declared["raw"].items():
        arguments: dict[str, Any] = {
            key: [] if said is None else _input(*said) for key, said in inputs.items()
        }
        raw[name] = arguments | attributes
    return public, raw


def _input(shape: str, dtype: str, variable_of: str) -> Any:
    """An input as its declaration has it: "any", "like x", "[]", "[N, 3]"."""
    if not shape.startswith("["):
        value = POINTS.astype(dtype)
    else:
        sizes = [word.strip() for word in shape.strip("[]").split(",") if word.strip()]
        dims = [int(word) if word.isdigit() else N for word in sizes]
        value = np.ones(dims, dtype)[()]
    return Special("handle", value) if variable_of else value


@functools.cache
def tables() -> tuple[Table, Table]:
    """Calls of every public function and raw op: stated where they cannot be derived."""
    return tables_of(Process("-m", "tests.fuzz.declared").result())


def tables_of(declared: Declared) -> tuple[Table, Table]:
    """The same, from the output of tests.fuzz.declared."""
    public, raw = derived(declared)
    stated_public, stated_raw = stated()
    return public | stated_public, raw | stated_raw


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
    public, raw = tables()
    where, table = rng.choice((("public", public), ("raw", raw)))
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
        return tensor and value.kind in ("variable", "handle", "cast", "constant", "dtype")
    return isinstance(value, np.ndarray | np.generic | float)


def _same_length(arguments: dict[str, Any], size: int) -> dict[str, Any]:
    def change(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim and len(value) == N:
            return np.resize(value, (size, *value.shape[1:]))
        if value is PACKED:
            return np.array([[0, size // 2], [size // 2, size - size // 2]], np.int32)
        if isinstance(value, Special) and value.kind in ("variable", "handle"):
            return Special(value.kind, change(value.value))
        return value

    return {key: change(value) for key, value in arguments.items()}


def _mutate(value: Any, rng: random.Random) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), rng)
    if isinstance(value, Special):
        if value.kind in ("variable", "handle") and rng.random() < 0.8:
            changed = _array(value.value, rng)
            return Special(value.kind, changed) if isinstance(changed, np.ndarray) else changed
        if value.kind == "quantized" and rng.random() < 0.9:
            part = rng.choice(sorted(value.value))
            return Special("quantized", {**value.value, part: _mutate(value.value[part], rng)})
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
        try:
            return value.astype(dtype)
        except ValueError:  # a text that is no number
            return value


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
