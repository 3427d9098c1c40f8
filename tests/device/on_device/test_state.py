"""Variables of every type, optimizer steps, memory round trips, interior pointers, functions, loops, SavedModel."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests import doctests, placements

pytestmark = [pytest.mark.instrumented, pytest.mark.release]

GPU = "GPU:0"
FLOATS = ["float32", "float16", "bfloat16"]
# Every type with arithmetic that a "GPU" variable can have: TensorFlow keeps int32 variables on the CPU.
NUMBERS = [*FLOATS, "float64", "complex64", "complex128", "int8", "int16", "int64", "uint8", "uint16",
           "uint32", "uint64"]  # fmt: skip


def values(dtype: str, shape=(5, 3), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    x = rng.integers(0, 10, shape)  # exact in every type, sums too
    return (
        (x + 1j * rng.integers(0, 10, shape)).astype(kind) if "complex" in dtype else x.astype(kind)
    )


# ---- variables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 3), (70001,)])
def test_assign(dtype, shape):
    with tf.device(GPU):
        a, b, c = (values(dtype, shape, i) for i in range(3))
        v = tf.Variable(a)
        assert v.device.endswith(GPU)
        before = v.read_value()
        np.testing.assert_array_equal(v.numpy(), a)
        v.assign(b)
        np.testing.assert_array_equal(v.numpy(), b)
        np.testing.assert_array_equal(before.numpy(), a)
        if dtype == "bool":
            return
        kept = v.read_value()
        v.assign_add(c)
        np.testing.assert_array_equal(v.numpy(), b + c)
        # The old value is still read: it must not change under its readers.
        np.testing.assert_array_equal(kept.numpy(), b)
        v.assign_sub(c)
        v.assign_sub(b)
        np.testing.assert_array_equal(v.numpy(), np.zeros(shape))


def test_count_up_to():
    """Until the limit, at which the error does not change the variable."""
    with tf.device(GPU):
        variable = tf.Variable(tf.constant(3, tf.int64))
        count = partial(tf.raw_ops.ResourceCountUpTo, resource=variable.handle, limit=5, T=tf.int64)
        assert [int(count()), int(count())] == [3, 4]
        with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 5"):
            count()
        assert int(variable) == 5
    with tf.Graph().as_default(), tf.device(GPU):
        variable = tf.compat.v1.Variable(np.array(3, "int64"), use_resource=False)
        step = tf.raw_ops.CountUpTo(ref=variable._ref(), limit=5)
        with tf.compat.v1.Session() as session:
            session.run(variable.initializer)
            assert [session.run(step) for _ in range(2)] == [3, 4]
            with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 5"):
                session.run(step)
            assert session.run(variable) == 5


# The argument of a slice, and its shape where not the slice's.
SLICES = {
    "a row": (np.s_[1], ()),
    "rows": (np.s_[1:3], (2, 4, 6)),
    "broadcast": (np.s_[1:3], (4, 1)),
    "more ones in front": (np.s_[..., 2:4], (1, 1, 5, 4, 2)),
    "backwards": (np.s_[::-2, 3:0:-1, ..., -2], (3, 3)),
    "a new axis": (np.s_[:, np.newaxis, 1:2], (5, 1, 1, 6)),
    "nothing": (np.s_[5:], (0, 4, 6)),
    "all": (np.s_[...], (5, 4, 6)),
    "an element": (np.s_[4, 0, -1], ()),
}


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("case", SLICES)
def test_slices_of_variables_are_assigned(dtype, case):
    part, shape = SLICES[case]
    before, value = values(dtype, (5, 4, 6)), values(dtype, shape, 1)
    want = before.copy()
    want[part] = value
    with tf.device(GPU):
        v = tf.Variable(before)
        kept = v.read_value()
        v[part].assign(value)
        np.testing.assert_array_equal(v.numpy(), want)
        np.testing.assert_array_equal(kept.numpy(), before)
        in_a_function = tf.Variable(before)

        @tf.function
        def assign(x):
            in_a_function[part].assign(x)
            return in_a_function.read_value()

        np.testing.assert_array_equal(assign(value).numpy(), want)


def test_slices_of_tensors_and_of_old_variables_are_updated():
    arguments = {"begin": [1, 0], "end": [5, 3], "strides": [2, 1], "value": [[7.0], [8.0]]}
    x = values("float32", (5, 4))
    want = x.copy()
    want[1:5:2, 0:3] = [[7], [8]]
    with tf.device(GPU):
        tensor = tf.constant(x)
        np.testing.assert_array_equal(
            tf.raw_ops.TensorStridedSliceUpdate(input=tensor, **arguments).numpy(), want
        )
        np.testing.assert_array_equal(tensor.numpy(), x)
    with tf.Graph().as_default(), tf.device(GPU), tf.compat.v1.Session() as session:
        old = tf.compat.v1.get_variable("old", initializer=x, use_resource=False)
        session.run(old.initializer)
        done = tf.raw_ops.StridedSliceAssign(ref=old._variable, **arguments)
        assert done.device.endswith(GPU)
        np.testing.assert_array_equal(session.run(done), want)


def test_what_does_not_fit_a_slice_is_named():
    with tf.device(GPU):
        v = tf.Variable(tf.zeros([4, 3]))
        message = r"value must be broadcastable to the slice, of shape \[2, 3\], got shape \[3, 3\]"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            v[1:3].assign(tf.zeros([3, 3]))
        np.testing.assert_array_equal(v.numpy(), np.zeros([4, 3]))


def test_updates_in_a_function():
    with tf.device(GPU):
        v = tf.Variable(tf.zeros([1000]))

        @tf.function
        def step(x):
            v.assign_add(x)
            v.assign_sub(x * 0.5)
            return v.read_value()

        for _ in range(50):
            got = step(tf.ones([1000]))
        np.testing.assert_array_equal(got, np.full(1000, 25.0))


def test_bad_assignments():
    with tf.device(GPU):
        v = tf.Variable([1.0, 2.0])
        for op in (tf.raw_ops.AssignAddVariableOp, tf.raw_ops.AssignSubVariableOp):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2\].*\[3\]"):
                op(resource=v.handle, value=tf.constant([1.0, 2.0, 3.0]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
            tf.raw_ops.AssignVariableOp(
                resource=v.handle, value=tf.constant([1.0]), validate_shape=True
            )
        # No such variable: an error, where TensorFlow's C API would end the process.
        nothing = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="never made")
        for op in (tf.raw_ops.AssignAddVariableOp, tf.raw_ops.AssignSubVariableOp):
            with pytest.raises((tf.errors.OpError, ValueError)):
                op(resource=nothing, value=tf.constant([1.0, 2.0]))
        np.testing.assert_array_equal(v.numpy(), [1, 2])


# ---- optimizer steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nesterov", [False, True])
def test_adam(dtype, nesterov):
    kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    rng = np.random.default_rng(3)
    w, m, v, g = (rng.uniform(0.1, 1, (37, 3)).astype(kind) for _ in range(4))
    scalars = [np.asarray(s, kind) for s in (0.81, 0.98, 0.01, 0.9, 0.99, 1e-3)]
    with tf.device(GPU):
        variables = [tf.Variable(x) for x in (w, m, v)]
        tf.raw_ops.ResourceApplyAdam(
            var=variables[0].handle, m=variables[1].handle, v=variables[2].handle,
            beta1_power=scalars[0], beta2_power=scalars[1], lr=scalars[2], beta1=scalars[3],
            beta2=scalars[4], epsilon=scalars[5], grad=g, use_nesterov=nesterov,
        )  # fmt: skip
    b1p, b2p, lr, b1, b2, eps = (np.float64(s) for s in scalars)
    w, m, v, g = (x.astype("float64") for x in (w, m, v, g))
    m = m + (g - m) * (1 - b1)
    v = v + (g * g - v) * (1 - b2)
    direction = g * (1 - b1) + b1 * m if nesterov else m
    w = w - lr * np.sqrt(1 - b2p) / (1 - b1p) * direction / (np.sqrt(v) + eps)
    # A few float32 operations, then one rounding to the dtype.
    tolerance = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for variable, expected in zip(variables, (w, m, v), strict=True):
        np.testing.assert_allclose(variable.numpy().astype("float64"), expected, rtol=tolerance)


ADAM = ("m", "v", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")


@pytest.mark.parametrize("wrong", ADAM)
def test_adam_names_the_argument_that_does_not_fit(wrong):
    """Nothing is written then: not even variables before it."""
    arguments = {name: np.float32(0.5) for name in ADAM}
    arguments |= {name: np.ones(3, "float32") for name in ("m", "v", "grad")}
    arguments[wrong] = np.ones(2, "float32")
    with tf.device(GPU):
        variables = {name: tf.Variable(arguments.pop(name)) for name in ("m", "v")}
        variables["var"] = tf.Variable(np.ones(3, "float32"))
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\b{wrong} has shape \[2\]"):
            tf.raw_ops.ResourceApplyAdam(
                **{name: variable.handle for name, variable in variables.items()}, **arguments
            )
        for variable in variables.values():
            np.testing.assert_array_equal(variable.numpy(), 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_descent(dtype):
    kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    rng = np.random.default_rng(4)
    w, g = (rng.uniform(0.1, 1, (33,)).astype(kind) for _ in range(2))
    with tf.device(GPU):
        v = tf.Variable(w)
        tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=np.asarray(0.5, kind), delta=g)
        with pytest.raises(tf.errors.InvalidArgumentError, match="delta|shape"):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=v.handle, alpha=np.asarray(0.5, kind), delta=np.ones(3, kind)
            )
    expected = w.astype("float64") - 0.5 * g.astype("float64")
    tolerance = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    np.testing.assert_allclose(
        v.numpy().astype("float64"), expected, rtol=tolerance, atol=tolerance * 0.1
    )


# ---- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_round_trip(dtype):
    # No int32: TensorFlow keeps it in host memory. All sizes around a page, and more than one.
    for n in (0, 1, 3, 255, 256, 257, 4095, 4097, 300001):
        x = values(dtype, (n,), n)
        with tf.device(GPU):
            y = tf.identity(tf.constant(x))
        np.testing.assert_array_equal(y.numpy(), x)
        with tf.device("CPU:0"):
            np.testing.assert_array_equal(tf.identity(y), x)


def test_interior_pointers():
    # TensorListFromTensor's elements are slices of one tensor: pointers into the middle of its buffer.
    with tf.device(GPU):
        x = values("float32", (20, 33))
        items = tf.raw_ops.TensorListFromTensor(
            tensor=tf.constant(x), element_shape=tf.constant([33])
        )
        for i in (0, 1, 7, 19):
            item = tf.raw_ops.TensorListGetItem(
                input_handle=items, index=i, element_shape=[33], element_dtype=tf.float32
            )
            assert item.device.endswith(GPU)
            np.testing.assert_array_equal(item + 0.0, x[i])  # a shader reads it
            np.testing.assert_array_equal(item, x[i])  # and a copy to the host
        stacked = tf.raw_ops.TensorListStack(
            input_handle=items, element_shape=[33], element_dtype=tf.float32
        )
        np.testing.assert_array_equal(stacked, x)


def test_memory_is_given_back():
    from metal_ops import device

    def use():
        with tf.device(GPU):
            x = tf.zeros([1 << 20])
            for _ in range(10):
                x = x + 1.0
            return x.numpy()[0]

    assert use() == 10
    device.synchronize()
    before = device.memory()["in_use"]
    for _ in range(5):
        use()
    device.synchronize()
    assert device.memory()["in_use"] <= before + 4096
    assert device.memory()["peak"] >= 4 << 20


# ---- functions, loops, models ---------------------------------------------------------------------------------------


def test_gathering_copies_no_variable():
    """Although a result that was read, and shares its memory, is still held."""
    from metal_ops import device

    with tf.device(GPU):
        v = tf.Variable(tf.ones([1 << 18, 4]))
        kept = v.read_value()
        before = device.memory()["in_use"]
        for gathered in (tf.gather(v, [1]), tf.gather_nd(v, [[1, 2]])):
            device.synchronize()
            assert device.memory()["in_use"] <= before + 4096
            assert gathered.numpy().sum() == gathered.shape.num_elements()
        v.assign_add(tf.ones([1 << 18, 4]))  # the control
        assert device.memory()["in_use"] >= before + (4 << 20) and kept.numpy()[0, 0] == 1


@pytest.mark.parametrize("initialized", [False, True])
def test_variables_without_a_value(initialized):
    """None there, and one whose value was taken back."""
    with tf.device(GPU):
        handle = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[3], shared_name=f"without a value, {initialized}"
        )
        if initialized:
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.ones([3]))
            tf.raw_ops.DestroyResourceOp(resource=handle)
        calls = {
            "assign_add": lambda: tf.raw_ops.AssignAddVariableOp(
                resource=handle, value=tf.ones([3])
            ),
            "gather": lambda: tf.raw_ops.ResourceGather(
                resource=handle, indices=[0], dtype=tf.float32
            ),
            "scatter": lambda: tf.raw_ops.ResourceScatterAdd(
                resource=handle, indices=[0], updates=tf.ones([1])
            ),
            "step": lambda: tf.raw_ops.ResourceApplyGradientDescent(
                var=handle, alpha=1.0, delta=tf.ones([3])
            ),
        }
        for name, call in calls.items():
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized variable"):
                call()
                pytest.fail(name)


def test_assigning_another_dtype_is_refused():
    with tf.device(GPU):
        v = tf.Variable(tf.ones([3]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="wrong dtype"):
            tf.raw_ops.AssignVariableOp(resource=v.handle, value=tf.ones([3], tf.float16))
        assert v.numpy().tolist() == [1, 1, 1]


def test_function_matches_the_cpu():
    def body(x, y):
        z = x * y - tf.cast(tf.shape(x)[0], tf.float32)
        z = tf.concat([z, tf.square(x)], 1)
        return tf.reduce_mean(z * z), tf.slice(z, [0, 1], [-1, 2]), z[..., 1:]

    x, y = values("float32", (40, 3)), values("float32", (1, 3), 1)
    z = np.concatenate([x * y - 40, x**2], 1)
    expected = [np.mean(z.astype(np.float64) ** 2), z[:, 1:3], z[:, 1:]]
    for where in (GPU, "CPU:0"):
        with tf.device(where), placements.placed() as ops:
            results = tf.function(body, jit_compile=False)(tf.constant(x), tf.constant(y))
        for op in ("Mul", "ConcatV2", "Mean", "Slice", "StridedSlice"):
            assert ops[op] == {where}, op
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_gradients_match_the_cpu():
    def loss_and_gradient(where):
        with tf.device(where):
            w = tf.Variable(values("float32", (4, 3)) + 1)
            x, target = (
                tf.constant(values("float32", (1, 3), 2)),
                tf.constant(values("float32", (4, 3), 3)),
            )
            with tf.GradientTape() as tape:
                error = w * x - target
                loss = tf.reduce_mean(tf.square(error)) + tf.reduce_sum(w)
            gradient = tape.gradient(loss, w)
            w.assign_sub(0.125 * gradient)
            return loss.numpy(), gradient.numpy(), w.numpy()

    for got, expected in zip(loss_and_gradient(GPU), loss_and_gradient("CPU:0"), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_while_loop():
    @tf.function
    def power(x, n):
        y = tf.ones_like(x)
        for _ in tf.range(n):
            y = y * x
        return y

    with tf.device(GPU):
        x = values("float32", (6,))
        np.testing.assert_array_equal(power(tf.constant(x), tf.constant(5)), x**5)


def test_while_loop_gradient():
    # The gradient of a loop keeps intermediate values in TensorLists on the device, and adds lists up where a value is
    # read twice.
    @tf.function
    def gradient(x):
        rows = tf.TensorArray(tf.float32, 4).unstack(x)
        y = tf.ones_like(x[0])
        for i in tf.range(4):
            y = y * rows.read(i) + rows.read(3 - i)
        return tf.gradients(y, x)[0]

    x = values("float32", (4, 6), 1)
    with tf.device(GPU), placements.placed() as ops:
        result = gradient(tf.constant(x))
    assert ops["Mul"] == ops["AddV2"] == {GPU} and result.device.endswith(GPU)
    # By hand: y_i+1 = y_i x_i + x_3-i, so d y_4 / d x_k is y_k times the x after k, and for row 3 - k the x after k.
    y, after = [np.ones(6)], [np.ones(6)]
    for i in range(4):
        y.append(y[-1] * x[i] + x[3 - i])
        after.append(after[-1] * x[3 - i])
    expected = [y[k] * after[3 - k] + after[k] for k in range(4)]
    np.testing.assert_array_equal(result, expected)


def test_cond():
    @tf.function
    def choose(flag, x):
        return tf.cond(flag, lambda: x + x, lambda: x * x)

    with tf.device(GPU):
        x = tf.constant([3.0, 5.0])
        np.testing.assert_array_equal(choose(tf.constant(True), x), [6, 10])
        np.testing.assert_array_equal(choose(tf.constant(False), x), [9, 25])


class Affine(tf.Module):
    """A module whose variables live on the device."""

    def __init__(self):
        self.w = tf.Variable(values("float32", (3,)))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x):
        return x * self.w + 1.0


def test_saved_model(tmp_path):
    tf.config.set_soft_device_placement(True)  # writing and reading files is the CPU's
    try:
        with tf.device(GPU):
            module = Affine()
            expected = module(tf.ones([2, 3])).numpy()
            tf.saved_model.save(module, str(tmp_path))
            loaded = tf.saved_model.load(str(tmp_path))
            np.testing.assert_array_equal(loaded(tf.ones([2, 3])), expected)
            assert loaded.w.device.endswith(GPU)
    finally:
        tf.config.set_soft_device_placement(False)
    np.testing.assert_array_equal(expected, np.tile(values("float32", (3,)) + 1, (2, 1)))


def test_examples_in_docstrings():
    """Those of metal_ops.device, which run nowhere else, as the device stays for the life of a process."""
    doctests.run(doctests.PACKAGE / "device.py")
