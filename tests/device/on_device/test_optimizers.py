"""TensorFlow's optimizer steps on variables, resources and those of TensorFlow 1's graphs, against its CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import wide
from tests.device.on_device.test_ops import FLOATS

raw = tf.raw_ops
v1 = tf.compat.v1
GPU = "GPU:0"
# Slots, the inputs in order (variable and slots before them), attributes. Numbers are exact in every dtype.
ADAM = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")
NESTEROV = [{"use_nesterov": False}, {"use_nesterov": True}]
SLOTS = [{"update_slots": True}, {"update_slots": False}]
SCALED = [{"multiply_linear_by_lr": False}, {"multiply_linear_by_lr": True}]
DUAL = ("gradient_accumulator", "gradient_squared_accumulator")
LINEAR = ("accum", "linear")
STEPS = {
    "GradientDescent": ((), ("alpha", "delta"), [{}]),
    "Adam": (("m", "v"), ADAM, NESTEROV),
    "AdamWithAmsgrad": (("m", "v", "vhat"), ADAM, [{}]),
    "Momentum": (("accum",), ("lr", "grad", "momentum"), NESTEROV),
    "KerasMomentum": (("accum",), ("lr", "grad", "momentum"), NESTEROV),
    "Adagrad": (("accum",), ("lr", "grad"), SLOTS),
    "AdagradV2": (("accum",), ("lr", "epsilon", "grad"), SLOTS),
    "Adadelta": (("accum", "accum_update"), ("lr", "rho", "epsilon", "grad"), [{}]),
    "RMSProp": (("ms", "mom"), ("lr", "rho", "momentum", "epsilon", "grad"), [{}]),
    "CenteredRMSProp": (("mg", "ms", "mom"), ("lr", "rho", "momentum", "epsilon", "grad"), [{}]),
    "AdaMax": (("m", "v"), ("beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"), [{}]),
    "AddSign": (("m",), ("lr", "alpha", "sign_decay", "beta", "grad"), [{}]),
    "PowerSign": (("m",), ("lr", "logbase", "sign_decay", "beta", "grad"), [{}]),
    "ProximalGradientDescent": ((), ("alpha", "l1", "l2", "delta"), [{}]),
    "ProximalAdagrad": (("accum",), ("lr", "l1", "l2", "grad"), [{}]),
    "AdagradDA": (DUAL, ("grad", "lr", "l1", "l2", "global_step"), [{}]),
    "Ftrl": (LINEAR, ("grad", "lr", "l1", "l2", "lr_power"), SCALED),
    "FtrlV2": (LINEAR, ("grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"), SCALED),
}
NUMBERS = {
    "alpha": 0.5, "lr": 0.25, "momentum": 0.75, "rho": 0.875, "epsilon": 2**-6,
    "beta1": 0.75, "beta2": 0.875, "beta1_power": 0.5, "beta2_power": 0.75, "beta": 0.75,
    "sign_decay": 0.5, "logbase": 1.0, "l1": 0.5, "l2": 0.25, "l2_shrinkage": 0.125, "lr_power": -0.5, "global_step": 3,
}  # fmt: skip
# The CPU rounds half and bfloat after each operation; the device once.
TOLERANCE = {"float32": 2e-6, "float16": 6e-3, "bfloat16": 5e-2}


def assert_near(got, want, dtype: str = "float32", label: str = "") -> None:
    """Within the tolerance of `dtype`, absolute and relative."""
    bound = TOLERANCE[dtype]
    np.testing.assert_allclose(wide(got), wide(want), rtol=bound, atol=bound, err_msg=label)


def arguments(name: str, dtype, shape) -> tuple[dict, dict]:
    """Values of the variables, and of the other arguments."""
    slots, inputs, _ = STEPS[name]
    kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    rng = np.random.default_rng(5)
    variables = {slot: rng.uniform(1.25, 2, shape).astype(kind) for slot in ("var", *slots)}
    if "mg" in variables:  # the mean, whose square is not more than the mean of squares
        variables["mg"] = rng.uniform(-1, 1, shape).astype(kind)
    for slot in {"m", "linear", "gradient_accumulator"} & set(variables):  # of either sign
        variables[slot] = rng.uniform(-2, 2, shape).astype(kind)
    rest = {
        key: rng.uniform(-1, 1, shape).astype(kind)
        if key in ("grad", "delta")
        else np.asarray(NUMBERS[key], "int64" if key == "global_step" else kind)
        for key in inputs
    }
    return variables, rest


def single(values: dict) -> dict:
    return {k: v if v.dtype.kind == "i" else v.astype("float32") for k, v in values.items()}


def apply(device, name, variables, rest, **attributes) -> dict:
    with tf.device(device):
        held = {key: tf.Variable(value) for key, value in variables.items()}
        op = getattr(raw, f"ResourceApply{name}")
        for _ in range(2):
            op(
                **{key: variable.handle for key, variable in held.items()},
                **{key: tf.identity(value) for key, value in rest.items()},
                **attributes,
            )
        return {key: variable.numpy() for key, variable in held.items()}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", STEPS)
def test_steps(name, dtype):
    for shape in [(), (0,), (1,), (37, 3), (1025,)]:
        for attributes in STEPS[name][2]:
            for locking in (False, True):
                variables, rest = arguments(name, dtype, shape)
                options = {**attributes, "use_locking": locking}
                got = apply(GPU, name, variables, rest, **options)
                again = apply(GPU, name, variables, rest, **options)
                # The dtype's precision does not matter here: the CPU's step in float32 of the same numbers.
                want = apply("CPU:0", name, single(variables), single(rest), **options)
                for key, value in want.items():
                    np.testing.assert_array_equal(got[key], again[key])
                    assert got[key].dtype == variables[key].dtype
                    assert_near(got[key], value, dtype, f"{name} {key} {options}")


@pytest.mark.parametrize("name", ["Ftrl", "FtrlV2"])
@pytest.mark.parametrize(
    "numbers", [{"lr_power": -1.0}, {"lr_power": 0.0}, {"l1": 0.0}, {"l1": 9.0}, {"l2": 0.0}]
)
def test_numbers_of_ftrl(name, numbers):
    variables, rest = arguments(name, "float32", (37, 3))
    rest |= {key: np.float32(value) for key, value in numbers.items()}
    got, want = (apply(device, name, variables, rest) for device in (GPU, "CPU:0"))
    for key, value in want.items():
        assert_near(got[key], value)
    assert np.any(got["var"]) == (numbers.get("l1") != 9.0)


@pytest.mark.parametrize("name", ["ProximalGradientDescent", "ProximalAdagrad", "AdagradDA"])
@pytest.mark.parametrize("l1", [0.0, 9.0])
def test_numbers_of_proximal_steps(name, l1):
    variables, rest = arguments(name, "float32", (37, 3))
    rest["l1"] = np.float32(l1)
    got, want = (apply(device, name, variables, rest) for device in (GPU, "CPU:0"))
    for key, value in want.items():
        assert_near(got[key], value)
    assert np.any(got["var"]) == (l1 == 0.0)


# ---- the rows that indices name --------------------------------------------------------------------------------------

SPARSE = [name for name in STEPS if hasattr(raw, f"ResourceSparseApply{name}")]


def apply_by_indices(device, name, variables, rest, indices, **attributes) -> dict:
    rest = dict(rest)
    grad = rest.pop("delta" if "delta" in rest else "grad")
    with tf.device(device):
        held = {key: tf.Variable(value) for key, value in variables.items()}
        op = getattr(raw, f"ResourceSparseApply{name}")
        for _ in range(2):
            op(
                **{key: variable.handle for key, variable in held.items()},
                **{key: tf.identity(value) for key, value in rest.items()},
                grad=tf.identity(grad),
                indices=tf.identity(indices),
                **attributes,
            )
        return {key: variable.numpy() for key, variable in held.items()}


def sparse_arguments(name, dtype, shape, rows) -> tuple[dict, dict]:
    variables, rest = arguments(name, dtype, shape)
    key = "delta" if "delta" in rest else "grad"
    kind = rest[key].dtype
    rest[key] = np.random.default_rng(6).uniform(-1, 1, (rows, *shape[1:])).astype(kind)
    return variables, rest


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPARSE)
def test_steps_by_indices(name, dtype):
    """Rows that are named twice step twice, in the order of the indices."""
    cases = [((5,), [3, 0, 3]), ((0, 3), []), ((4, 3), []), ((40, 2, 35), [39, 7, 7, 0])]
    for shape, index in cases:
        for attributes in STEPS[name][2]:
            for kind in ("int32", "int64"):
                indices = np.array(index, kind)
                variables, rest = sparse_arguments(name, dtype, shape, len(index))
                options = {**attributes, "use_locking": kind == "int32"}
                got = apply_by_indices(GPU, name, variables, rest, indices, **options)
                want = apply_by_indices(
                    "CPU:0", name, single(variables), single(rest), indices, **options
                )
                others = sorted(set(range(shape[0])) - set(index))
                for key, value in want.items():
                    np.testing.assert_array_equal(got[key][others], variables[key][others])
                    assert_near(got[key], value, dtype, f"{name} {key} {options}")


@pytest.mark.parametrize("name", SPARSE)
def test_bad_arguments_by_indices(name):
    variables, rest = sparse_arguments(name, "float32", (4, 3), 2)
    for indices, wrong in [
        (np.zeros((2, 1), "int64"), r"indices has shape \[2, 1\], expected one dimension"),
        (np.zeros(3, "int64"), r"grad has shape \[2, 3\], expected \[3, 3\], a row of var"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=wrong):
            apply_by_indices(GPU, name, variables, rest, indices)
    # Rows that are not there are left out.
    got = apply_by_indices(GPU, name, variables, rest, np.array([4, -1]))
    for key, value in variables.items():
        np.testing.assert_array_equal(got[key], value)


@pytest.mark.parametrize("name", STEPS)
def test_bad_arguments(name):
    """Each is named, and nothing is written then: not even variables before it."""
    good_variables, good_rest = arguments(name, "float32", (3,))
    for wrong in [*good_variables, *good_rest]:
        if wrong == "var":
            continue
        kind = good_rest[wrong].dtype if wrong in good_rest else "float32"
        variables, rest = dict(good_variables), dict(good_rest)
        (variables if wrong in variables else rest)[wrong] = np.ones(2, kind)
        with tf.device(GPU):
            held = {key: tf.Variable(value) for key, value in variables.items()}
            with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\b{wrong} has shape \[2\]"):
                getattr(raw, f"ResourceApply{name}")(
                    **{key: variable.handle for key, variable in held.items()}, **rest
                )
            for key, variable in held.items():
                np.testing.assert_array_equal(variable.numpy(), variables[key])


# ---- TensorFlow 1's variables ---------------------------------------------------------------------------------------


def in_session(device, build, runs: int = 2):
    """The result of `build`, a list of tensors, is run after the initializer of all variables."""
    with tf.Graph().as_default(), tf.device(device):
        results = build()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return [session.run(results) for _ in range(runs)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [name for name in STEPS if hasattr(raw, f"Apply{name}")])
def test_steps_on_refs(name, dtype):
    variables, rest = arguments(name, dtype, (5, 3))

    def build(kind):
        held = {
            key: v1.Variable(value.astype(kind), use_resource=False)
            for key, value in variables.items()
        }
        step = getattr(raw, f"Apply{name}")(
            **{key: variable._ref() for key, variable in held.items()},
            **{
                key: tf.constant(value if key == "global_step" else value.astype(kind))
                for key, value in rest.items()
            },
            use_locking=True,
        )
        with tf.control_dependencies([step]):
            return [tf.identity(step), *(tf.identity(x._ref()) for x in held.values())]

    got = in_session(GPU, lambda: build(tf.as_dtype(dtype).as_numpy_dtype))
    want = in_session("CPU:0", lambda: build("float32"))
    for a, b in zip(np.concatenate(got), np.concatenate(want), strict=True):
        assert a.dtype == tf.as_dtype(dtype).as_numpy_dtype
        assert_near(a, b, dtype)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "complex64", "complex128", "int64", "uint32"]
)
def test_assignments_of_refs(dtype):
    rng = np.random.default_rng(2)
    start, value = (rng.integers(1, 9, (4, 3)).astype(dtype) for _ in range(2))

    def build(last):
        variable = v1.Variable(start, use_resource=False)
        for change, amount in [(v1.assign_add, value), (v1.assign_add, value), last]:
            result = change(variable, tf.constant(amount))
            with tf.control_dependencies([result]):
                variable = result
        return [tf.identity(result)]

    # Once: a graph's read of such a variable is its memory, which the next run writes.
    for last, want in [((v1.assign_sub, start), 2 * value), ((v1.assign, start), start)]:
        (got,) = in_session(GPU, lambda last=last: build(last), runs=1)
        np.testing.assert_array_equal(got[0], want)


@pytest.mark.parametrize("name", [name for name in SPARSE if hasattr(raw, f"SparseApply{name}")])
def test_steps_on_rows_of_refs(name):
    variables, rest = sparse_arguments(name, "float32", (5, 3), 2)

    def build():
        held = {key: v1.Variable(value, use_resource=False) for key, value in variables.items()}
        inputs = {"grad" if key == "delta" else key: tf.constant(v) for key, v in rest.items()}
        step = getattr(raw, f"SparseApply{name}")(
            **{key: variable._ref() for key, variable in held.items()}, **inputs, indices=[3, 0]
        )
        with tf.control_dependencies([step]):
            return [tf.identity(step), *(tf.identity(x._ref()) for x in held.values())]

    for got, want in zip(in_session(GPU, build), in_session("CPU:0", build), strict=True):
        for a, b in zip(got, want, strict=True):
            assert_near(a, b)


@pytest.mark.parametrize(
    ("change", "dtype"),
    [(change, "float32") for change in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")]
    + [(change, "int64") for change in ("Update", "Add", "Sub", "Mul", "Max", "Min")],
)
def test_rows_of_refs(change, dtype):
    start = np.random.default_rng(3).integers(3, 6, (5, 3)).astype(dtype)
    for updates in (np.array([[1, 9, 1], [9, 1, 9]], dtype), np.array(2, dtype)):

        def build(updates=updates):
            variable = v1.Variable(start, use_resource=False)
            op = getattr(raw, f"Scatter{change}")
            out = op(ref=variable._ref(), indices=[3, 0], updates=tf.constant(updates))
            with tf.control_dependencies([out]):
                return [tf.identity(out), tf.identity(variable._ref())]

        for got, want in zip(in_session(GPU, build), in_session("CPU:0", build), strict=True):
            np.testing.assert_array_equal(got, want)
            if change != "Max" or updates.ndim:
                assert not np.array_equal(got[0], start)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint32"])
@pytest.mark.parametrize("change", ["Update", "Add", "Sub", "Max", "Min"])
def test_refs_by_indices(change, dtype):
    start = np.random.default_rng(3).integers(3, 6, (5, 3)).astype(dtype)
    updates = np.array([[1, 9, 1], [9, 1, 9]], dtype)  # more and less

    def build():
        variable = v1.Variable(start, use_resource=False)
        op = getattr(raw, f"ScatterNd{change}")
        out = op(ref=variable._ref(), indices=[[3], [0]], updates=tf.constant(updates))
        with tf.control_dependencies([out]):
            return [tf.identity(out), tf.identity(variable._ref())]

    for got, want in zip(in_session(GPU, build), in_session("CPU:0", build), strict=True):
        np.testing.assert_array_equal(got, want)
        assert not np.array_equal(got[0], start)


def test_refs_without_a_value():
    with tf.Graph().as_default(), tf.device(GPU):
        variable = v1.Variable(np.ones(3, "f"), use_resource=False)
        steps = [
            raw.ApplyGradientDescent(var=variable._ref(), alpha=1.0, delta=tf.ones(3)),
            raw.AssignAdd(ref=variable._ref(), value=tf.ones(3)),
            raw.ScatterNdAdd(ref=variable._ref(), indices=[[0]], updates=[1.0]),
        ]
        with v1.Session() as session:
            for step in steps:
                with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                    session.run(step.op)


def test_gather_nd_of_variables():
    x = np.random.default_rng(1).normal(size=(5, 3, 2)).astype("float32")
    for index in ([[1, 2], [4, 0]], [[3], [3]]):
        with tf.device(GPU):
            variable = tf.Variable(x)
            got = raw.ResourceGatherNd(
                resource=variable.handle, indices=tf.constant(index), dtype=tf.float32
            )
            assert got.device.endswith(GPU)
        np.testing.assert_array_equal(got, x[tuple(np.transpose(index))])
