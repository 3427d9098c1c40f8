"""metal_kernel: shaders written in Python, against NumPy. On the Metal device they run again (on_device/)."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

AXPY = "z[i] = a * x[i] + y[i];"
ROW_SUM = """
uint row = threadgroup_position_in_grid.x;
float sum = 0;
for (uint column = thread_index_in_threadgroup; column < uint(x_shape[1]); column += threads_per_threadgroup.x)
  sum += x[row * x_shape[1] + column];
sum = simd_sum(sum);
if (thread_index_in_simdgroup == 0) partial[simdgroup_index_in_threadgroup] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (thread_index_in_threadgroup == 0) {
  float total = 0;
  for (uint s = 0; s < simdgroups_per_threadgroup; ++s) total += partial[s];
  out[row] = total;
}
"""
FLOATS = ("float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
SHAPES = ((), (0,), (1,), (7,), (0, 3), (3, 5, 2), (1031,))


def kernel(source, inputs=("x",), outputs=("z",), name="tried", **options):
    return metal_ops.metal_kernel(name, list(inputs), list(outputs), source, **options)


def axpy(**options):
    options = {"params": {"a": "float"}, "shapes": lambda x, y: x.shape, **options}
    return kernel(AXPY, ("x", "y"), name="axpy", **options)


def numbers(shape, dtype="float32", seed=0):
    # Through NumPy, as the expected result below is: the device does not have every stock op for
    # every dtype.
    values = np.asarray(np.random.default_rng(seed).integers(0, 9, shape))
    return tf.constant(values.astype(tf.as_dtype(dtype).as_numpy_dtype))


def counting(n):
    return tf.constant(np.arange(n, dtype=np.float32))


def row_sum():
    return kernel(
        ROW_SUM,
        outputs=["out"],
        name="row_sum",
        shapes=lambda x: [x.shape[0]],
        grid=lambda x: x.shape[0] * 64,
        threadgroup=64,
        threadgroup_memory={"partial": ("float", 2)},
    )


# ---- values ---------------------------------------------------------------------------------------------------------


def of_all_dtypes(form, inputs=True, **options):
    """A kernel with an output of each dtype, and an input, of one text: compiling takes longest. `form` has `{}` for
    the place of a dtype."""
    places = range(len(DTYPES))
    return kernel(
        "".join(form.format(*[n] * form.count("{}")) for n in places),
        [f"x{n}" for n in places] if inputs else [],
        [f"z{n}" for n in places],
        dtypes={f"z{n}": DTYPES[n] for n in places},
        **options,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_dtype_and_shape(shape, device):
    given = [numbers(shape, dtype, seed) for seed, dtype in enumerate(DTYPES)]
    found = of_all_dtypes("z{}[i] = x{}[i];")(*given)
    for x, z in zip(given, found, strict=True):
        assert z.dtype == x.dtype and z.shape == x.shape and z.device.endswith(device.strip("/"))
        np.testing.assert_array_equal(z.numpy(), x.numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_axpy(dtype, device):
    x, y = numbers((5, 3), dtype), numbers((5, 3), dtype, 1)
    # Narrower types than float need a conversion in the text: bfloat is not made of a float.
    run = kernel(
        "z[i] = T(a * x[i] + y[i]);",
        ("x", "y"),
        params={"a": "float"},
        template={"T": lambda x: x.dtype},
    )
    np.testing.assert_array_equal(run(x, y, a=2.0), 2 * x.numpy() + y.numpy())
    if dtype == "float32":
        np.testing.assert_array_equal(axpy()(x, y, a=2.0), 2 * x.numpy() + y.numpy())


def test_what_a_body_may_name(device):
    """Shapes, strides, ranks and sizes of inputs and outputs, and the thread's attributes."""
    x, y = numbers((3, 4, 2)), numbers(())
    source = """
        z[0] = x_shape[0]; z[1] = x_shape[2]; z[2] = x_strides[0]; z[3] = x_ndim; z[4] = x_size;
        z[5] = y_ndim; z[6] = y_size; z[7] = z_shape[0]; z[8] = z_size; z[9] = x_strides[2];
    """
    z = kernel(source, ("x", "y"), shapes=[10], dtypes=tf.int32, grid=1)(x, y)
    np.testing.assert_array_equal(z, [3, 2, 8, 3, 24, 0, 1, 10, 10, 1])
    source = """
        uint at = (thread_position_in_grid.z * threads_per_grid.y + thread_position_in_grid.y) * threads_per_grid.x + i;
        z[at] = at + 100 * threadgroup_position_in_grid.y + 1000 * thread_position_in_threadgroup.x;
    """
    z = kernel(
        source, (), shapes=[2, 4, 6], dtypes=tf.int32, grid=(6, 4, 2), threadgroup=(3, 2, 1)
    )()
    k, j, i = np.meshgrid(range(2), range(4), range(6), indexing="ij")
    np.testing.assert_array_equal(z, (k * 4 + j) * 6 + i + 100 * (j // 2) + 1000 * (i % 3))


def test_words_in_comments_and_a_variable_of_the_same_name(device):
    source = """// x_shape, thread_index_in_simdgroup
        uint i = 2 - thread_position_in_grid.x;  /* y_size */
        z[i] = x[i];"""
    np.testing.assert_array_equal(kernel(source)(tf.constant([1.0, 2.0, 3.0])), [1, 2, 3])


def test_params(device):
    values = [
        np.array(1 + n * (kind != "bool"), tf.as_dtype(kind).as_numpy_dtype)
        for n, kind in enumerate(DTYPES)
    ]
    run = of_all_dtypes(
        "z{}[i] = a{};",
        inputs=False,
        shapes=[[1]] * len(DTYPES),
        params={f"a{n}": kind for n, kind in enumerate(DTYPES)},
    )
    with tf.device("CPU:0"):  # which int32 variables are on alone
        variables = [tf.Variable(value) for value in values]
    for given in (values, [tf.constant(value) for value in values], variables):
        found = run(**{f"a{n}": a for n, a in enumerate(given)})
        for value, z in zip(values, found, strict=True):
            assert z.numpy().dtype == value.dtype and z.numpy().tolist() == [value]


def test_template_and_header(device):
    run = kernel(
        "T t = x[i]; z[i] = twice(t) * N + (FLAG ? 1 : 0);",
        header="template <typename U> U twice(U u) { return u + u; }",
        template={"T": lambda x: x.dtype, "N": 4, "FLAG": True},
    )
    for dtype in ("float32", "float16", "int32"):
        np.testing.assert_array_equal(run(x := numbers(5, dtype)), 8 * x.numpy() + 1)


def test_simdgroups_and_threadgroup_memory(device):
    for shape in ((5, 100), (3, 1), (2, 64), (0, 4)):
        x = numbers(shape)
        np.testing.assert_array_equal(row_sum()(x), x.numpy().sum(1))


@pytest.mark.slow("4 GB of memory")
def test_more_elements_than_30_bits_count(device):
    """Takes 4 GB."""
    n = 2**30 + 5
    x = np.arange(n, dtype=np.uint32).astype(np.uint8)
    z = kernel("z[i] = x[i] + 1;")(tf.constant(x)).numpy()
    x += 1
    assert np.array_equal(z, x)


def test_threadgroup_memory_of_the_size_of_an_input(device):
    source = """shared[i] = x[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        z[i] = shared[x_size - 1 - i];"""
    run = kernel(
        source,
        threadgroup=lambda x: x.size,
        threadgroup_memory={"shared": ("float", lambda x: x.size)},
    )
    for n in (1, 5, 200):
        np.testing.assert_array_equal(run(counting(n)), np.arange(n)[::-1])


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
def test_atomics_and_init_value(dtype, device):
    bins = kernel(
        "atomic_fetch_add_explicit(&bins[x[i]], T(1), memory_order_relaxed);",
        outputs=["bins"],
        shapes=[5],
        dtypes=dtype,
        template={"T": tf.as_dtype(dtype)},
        grid=lambda x: x.size,
        init_value=7,
        atomic_outputs=True,
    )
    x = tf.constant(numbers(1000, "int32").numpy() % 4)
    np.testing.assert_array_equal(bins(x), 7 + np.bincount(x, minlength=5))


full = pytest.mark.full("a text of its own to compile")


@pytest.mark.parametrize("value", [
    *(1.5, float("-inf"), float("nan"), 2.0**-140, True),
    *(pytest.param(value, marks=full) for value in (0, -3, float("inf"))),
])  # fmt: skip
def test_init_value(value, device):
    """Without a thread that writes."""
    options = dict(shapes=[[3]] * 3, dtypes=dict(zip("abc", FLOATS, strict=True)), grid=0)
    for z in kernel("", (), "abc", init_value=value, **options)():
        assert z.numpy().tobytes() == np.full(3, value, z.numpy().dtype).tobytes()


@pytest.mark.parametrize("dtype", [
    *("int8", "int64", "uint64"),
    *(pytest.param(dtype, marks=full) for dtype in ("int16", "int32")),
])  # fmt: skip
def test_lowest_and_highest_init_value(dtype, device):
    for value in (tf.as_dtype(dtype).min, tf.as_dtype(dtype).max):
        z = kernel("", (), shapes=[3], dtypes=dtype, grid=0, init_value=value)()
        assert set(z.numpy().tolist()) == {value}


def test_several_outputs(device):
    run = kernel(
        "s[i] = x[i] + y[i]; d[i] = int(x[i] - y[i]);",
        ("x", "y"),
        ("s", "d"),
        dtypes={"s": tf.float16, "d": tf.int32},
        shapes=lambda x: {"d": x.shape, "s": x.shape},
    )
    x, y = numbers(5), numbers(5, seed=1)
    s, d = run(x, y)
    assert (s.dtype, d.dtype) == (tf.float16, tf.int32)
    np.testing.assert_array_equal(s, x.numpy() + y.numpy())
    np.testing.assert_array_equal(d, x.numpy() - y.numpy())


def test_shapes_may_depend_on_params(device):
    run = kernel(
        "z[i] = x[i * step];",
        params={"step": "int"},
        shapes=lambda x, step: [(x.shape[0] + step - 1) // step],
    )
    x = numbers(10)
    for step in (1, 3, np.int32(4), tf.constant(5)):
        np.testing.assert_array_equal(run(x, step=step), x.numpy()[:: int(step)])
    # Functions of a graph, too: of numbers its shape is known.
    traced = tf.function(lambda x: run(x, step=3)).get_concrete_function(tf.TensorSpec([10]))
    assert traced.output_shapes == [4]
    dynamic = tf.function(lambda x, step: run(x, step=step))
    np.testing.assert_array_equal(dynamic(x, tf.constant(4)), x.numpy()[::4])


def test_math_modes(device):
    """Exact by default: the compiler may not take x + y - y for x."""
    source = "z[i] = x[i] + 1e8f - 1e8f;"
    x = tf.constant([3.0])
    assert kernel(source)(x).numpy() != 3
    assert kernel(source, math_mode="fast")(x).numpy() == 3


# ---- graphs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([5, 3]),
        tf.TensorSpec([None, 3]),
        tf.TensorSpec([None, None]),
        tf.TensorSpec(None),
    ],
    ids=str,
)
def test_in_a_function(spec, device):
    x = numbers((5, 3))
    traced = tf.function(lambda x, y: axpy()(x, y, a=2.0)).get_concrete_function(spec, spec)
    np.testing.assert_array_equal(traced(x, x), 3 * x.numpy())
    assert (
        traced.structured_outputs.shape.as_list() == spec.shape.as_list()
        if spec.shape.rank
        else True
    )
    if spec.shape.rank is not None:
        sums = tf.function(lambda x: row_sum()(x)).get_concrete_function(spec)
        np.testing.assert_array_equal(sums(x), x.numpy().sum(1))
        assert sums.structured_outputs.shape.as_list() == [spec.shape[0]]


def test_shapes_of_constants_are_known_to_the_graph():
    """By the op itself, which a graph that was loaded has alone."""
    with tf.Graph().as_default() as graph:
        axpy()(tf.zeros([4, 3]), tf.zeros([4, 3]), a=1.0)
    again = tf.Graph()
    with again.as_default():
        tf.import_graph_def(graph.as_graph_def(), name="")
    (op,) = [op for op in again.get_operations() if op.type == "MetalKernel"]
    assert op.outputs[0].shape == [4, 3]


def test_in_a_loop(device):
    run = kernel("z[i] = x[i] + 1;")

    @tf.function
    def loop(x, n):
        for _ in tf.range(n):
            x = run(x)
        return x

    np.testing.assert_array_equal(loop(tf.zeros([3]), tf.constant(5)), 5 * np.ones(3))


# ---- derivatives ----------------------------------------------------------------------------------------------------

SQUARE = dict(source="z[i] = x[i] * x[i];", name="square")


def squares():
    second = kernel("d_x[i] = 2 * x[i] * d_z[i];", ("x", "d_z"), ("d_x",), name="square_grad")
    return {
        "a function": kernel(**SQUARE, vjp=lambda x, d_z: 2 * x * d_z),
        "a function of a dict": kernel(**SQUARE, vjp=lambda x, d_z: {"x": 2 * x * d_z}),
        "a kernel": kernel(**SQUARE, vjp=second),
        "of the output": kernel(**SQUARE, vjp=lambda x, z, d_z: 2 * z / x * d_z),
    }


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("kind", squares())
def test_gradient(kind, graph, device):
    run = squares()[kind]

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(x) * tf.constant([1.0, 2.0, 3.0])
        return tape.gradient(y, x)

    x = tf.constant([3.0, -2.0, 0.5])
    np.testing.assert_array_equal(
        (tf.function(gradient) if graph else gradient)(x), 2 * x * [1, 2, 3]
    )


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_gradient_of_a_param_and_of_several_outputs(graph, device):
    run = kernel(
        "s[i] = a * x[i]; q[i] = x[i] * x[i];",
        outputs=["s", "q"],
        params={"a": "float"},
        vjp=lambda x, d_s, d_q, a: {"x": a * d_s + 2 * x * d_q, "a": tf.reduce_sum(x * d_s)},
    )
    x, a = tf.constant([1.0, 2.0, 3.0]), tf.Variable(0.5)

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            s, q = run(x, a=a)
            loss = tf.reduce_sum(s) + 3 * tf.reduce_sum(q)
        return tape.gradient(loss, [x, a])

    found = (tf.function(gradients) if graph else gradients)()
    np.testing.assert_array_equal(found[0], 0.5 + 6 * x)
    assert found[1].numpy() == 6


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_derivative_of_the_derivative(graph, device):
    third = kernel("r[i] = 2 * x[i] * d_z[i];", ("x", "d_z"), ("r",), name="slope",
                   vjp=lambda x, d_z, d_r: (2 * d_z * d_r, 2 * x * d_r))  # fmt: skip
    run = kernel(**SQUARE, vjp=lambda x, d_z: third(x, d_z))

    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = run(x)
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x)

    x = tf.constant([3.0, -2.0])
    np.testing.assert_array_equal((tf.function(second) if graph else second)(x), [2, 2])


def test_two_kernels_that_differ_in_their_gradients_alone(device):
    x = tf.constant([3.0])
    for factor in (2.0, 5.0):
        run = kernel("z[i] = x[i];", name="same", vjp=lambda d_z, factor=factor: factor * d_z)
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = run(x)
        assert tape.gradient(z, x).numpy() == factor


def test_graphs_have_the_source_and_calls_outside_a_handle(device, monkeypatch):
    """A graph runs in other processes; outside of graphs TensorFlow reads every attribute in every call."""
    run = kernel("z[i] = x[i] + 41;")
    handles = []
    by_handle = raw_ops.metal_kernel_by_handle

    def watched(*arguments):
        handles.append(arguments[4])
        return by_handle(*arguments)

    monkeypatch.setattr(raw_ops, "metal_kernel_by_handle", watched)
    x = tf.constant([1.0])
    assert run(x).numpy() == run(x).numpy() == 42 and len(set(handles)) == 1
    function = tf.function(run).get_concrete_function(x)
    (op,) = [op for op in function.graph.get_operations() if op.type.startswith("MetalKernel")]
    assert op.type == "MetalKernel" and b"z[i] = x[i] + 41;" in op.get_attr("source")
    assert function(x).numpy() == 42 and len(handles) == 2


def test_without_a_gradient(device):
    x = tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = kernel("z[i] = x[i];", name="constant_to_tapes")(x)
    with pytest.raises(LookupError, match=r"\[constant_to_tapes\] has no gradient.*vjp"):
        tape.gradient(y, x)
    partial = kernel("z[i] = x[i] + y[i];", ("x", "y"), vjp=lambda d_z: (d_z, None))
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = partial(x, x * 2)
    assert tape.gradient(z, x).numpy() == 1


def test_gradient_against_differences(device):
    swish = kernel(
        "z[i] = x[i] / (1 + exp(-x[i]));",
        vjp=kernel(
            "float s = 1 / (1 + exp(-x[i])); d_x[i] = d_z[i] * s * (1 + x[i] * (1 - s));",
            ("x", "d_z"),
            ("d_x",),
            name="swish_grad",
        ),
    )
    x = tf.constant(np.random.default_rng(0).normal(size=23), tf.float32)
    theory, numeric = tf.test.compute_gradient(swish, [x], delta=2.0**-7)
    np.testing.assert_allclose(theory[0], numeric[0], rtol=0, atol=1e-4)


# ---- Keras, saved models, processes ---------------------------------------------------------------------------------


class Scaled(keras.layers.Layer):
    """a * x, with a trained a."""

    def build(self, _):
        self.a = self.add_weight(shape=(), initializer="ones", name="a")
        self.run = kernel(
            "z[i] = a * x[i];",
            params={"a": "float"},
            vjp=lambda x, d_z, a: {"x": a * d_z, "a": tf.reduce_sum(x * d_z)},
        )

    def call(self, x):
        return self.run(x, a=self.a.value)


def test_keras_fit(device):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([3]), Scaled(), keras.layers.Dense(1)])
    error = kernel(
        "float d = p[i] - t[i]; z[i] = d * d;",
        ("t", "p"),
        name="squared_error",
        vjp=lambda t, p, d_z: (None, 2 * (p - t) * d_z),
    )
    model.compile("adam", loss=lambda t, p: tf.reduce_mean(error(t, p)), jit_compile=False)
    x = np.random.default_rng(0).normal(size=(256, 3)).astype(np.float32)
    y = x @ np.float32([[1], [-2], [3]])
    model.optimizer.learning_rate = 0.1
    losses = model.fit(x, y, epochs=12, batch_size=50, verbose=0).history["loss"]
    assert losses[-1] < 0.02 * losses[0]
    assert model.layers[0].a.numpy() != 1


SAVED = """
import json, sys
import numpy as np, tensorflow as tf
import metal_ops
if sys.argv[2] == "GPU:0":
    metal_ops.device.load()
with tf.device(sys.argv[2]):
    loaded = tf.saved_model.load(sys.argv[1])
    x = tf.reshape(tf.range(6.0), [3, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded(x)
    gradient = tape.gradient(y, x)
print(json.dumps([y.numpy().tolist(), gradient.numpy().tolist(), y.device]))
"""


@pytest.mark.parametrize("where", ["CPU:0", "GPU:0"])
def test_saved_model_in_another_process(where, tmp_path):
    class Model(tf.Module):
        run = staticmethod(kernel(**SQUARE, vjp=lambda x, d_z: 2 * x * d_z))

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def __call__(self, x):
            return self.run(x) + 1

    tf.saved_model.save(Model(), str(tmp_path))
    y, gradient, place = Process("-c", SAVED, str(tmp_path), where).result()
    assert place.endswith(where)
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(y, x * x + 1)
    np.testing.assert_array_equal(gradient, 2 * x)


CACHED = """
import json, os, sys
import tensorflow as tf
import metal_ops
kernel = metal_ops.metal_kernel("cached", ["x"], ["z"], "z[i] = x[i] + " + sys.argv[1] + ";")
print(json.dumps([kernel(tf.constant([1.0])).numpy().tolist(), len(os.listdir(sys.argv[2] + "/msl"))]))
"""


def test_compiled_once_for_all_processes(tmp_path):
    """The same text again makes no new entry in the cache; another text makes one."""

    def run(number):
        return Process(
            "-c", CACHED, str(number), str(tmp_path), METAL_OPS_CACHE=str(tmp_path)
        ).result()

    z, first = run(1)
    assert z == [2]
    assert run(1) == [[2], first]
    z, more = run(2)
    assert z == [3] and more == first + 1


def test_two_kernels_of_one_name(device):
    x = tf.constant([3.0])
    plus, times = kernel("z[i] = x[i] + 10;"), kernel("z[i] = x[i] * 10;")
    for _ in range(2):
        assert plus(x).numpy() == 13 and times(x).numpy() == 30
    strict = kernel("z[i] = x[i] + 1e8f - 1e8f;")
    fast = kernel("z[i] = x[i] + 1e8f - 1e8f;", math_mode="fast")
    assert strict(x).numpy() != 3 and fast(x).numpy() == 3 and strict(x).numpy() != 3


def test_many_threads(device):
    """Each makes kernels of its own and of one name, and calls them while the others do."""
    wrong = []
    start = threading.Barrier(6)

    def work(number):
        start.wait()
        with tf.device(device):
            run = kernel(f"z[i] = x[i] + {number % 3};", name="shared")
            for n in range(1, 40):
                if not np.array_equal(run(counting(n)), np.arange(n) + number % 3):
                    wrong.append((number, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_verbose(capsys):
    run = kernel("z[i] = x[i]; // my words", verbose=True, name="told")
    run(tf.constant([1.0]))
    said = capsys.readouterr().out
    assert "kernel void told(" in said and "z[i] = x[i]; // my words" in said
    run(tf.constant([2.0]))
    assert capsys.readouterr().out == ""
    assert repr(axpy()) == "<metal_kernel axpy(x, y, a: float32) -> z>"


def test_memory_of_the_call_is_not_changed(device):
    """An input that is read while the result is written stays unchanged."""
    x = numbers(100)
    before = x.numpy().copy()
    z = kernel("z[i] = -x[i];")(x)
    np.testing.assert_array_equal(z, -before)
    np.testing.assert_array_equal(x, before)
