"""Calls that metal_kernel, its calls and its raw op refuse, and the words of their errors."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.processes import Process

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

X = tf.constant([1.0, 2.0, 3.0])


W = "z[i] = w[i] = x[i];"


def make(source="z[i] = x[i];", inputs=("x",), outputs=("z",), name="tried", **options):
    inputs = inputs if isinstance(inputs, dict) else list(inputs)
    return metal_ops.metal_kernel(name, inputs, list(outputs), source, **options)


def scale(**options):
    return make("z[i] = a * x[i];", params={"a": "float"}, **options)


# ---- mistakes in the source -----------------------------------------------------------------------------------------

MISTAKES = {
    "a name": (make("float y = 1;\n  z[i] = x[i] + w;"), 2, 17, "  z[i] = x[i] + w;", "undeclared identifier 'w'"),
    "behind letters of several bytes": (make("/* äöü */ z[i] = w;"), 1, 18, "/* äöü */ z[i] = w;", "undeclared"),
    "behind a tab": (make("\tz[i] = w;"), 1, 9, "\tz[i] = w;", "undeclared"),
    "no semicolon": (make("z[i] = x[i]"), 1, 12, "z[i] = x[i]", "expected ';'"),
    "in a header": (make(header="\nfloat f() { return q; }"), 2, 20, "float f() { return q; }", "undeclared identifier 'q'"),
    "a read-only input": (make("x[i] = 1; z[i] = 1;"), 1, 6, "x[i] = 1; z[i] = 1;", "read-only|const|not assignable"),
}  # fmt: skip


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_in_the_source(case, graph):
    run, line, column, text, message = MISTAKES[case]
    with pytest.raises(SyntaxError, match=message) as raised:
        (tf.function(lambda x: run(x)) if graph else run)(X)
    error = raised.value
    part = "header" if "header" in case else "source"
    assert error.filename == f"<{part} of tried>"
    assert (error.lineno, error.offset, error.text) == (line, column, text)
    assert error.msg.startswith("[tried] ")
    assert "generated" in error.__notes__[0]  # the compiler's own words, to the end


# ---- arguments of metal_kernel --------------------------------------------------------------------------------------

BAD_KERNELS = {
    "a name with a blank": (dict(name="a b"), ValueError, r"\[metal_kernel\] name: 'a b' is no name"),
    "no name": (dict(name=""), ValueError, "name: '' is no name"),
    "a digit first": (dict(inputs=["1x"]), ValueError, r"\[tried\] inputs: '1x' is no name"),
    "two underscores": (dict(inputs=["x__y"]), ValueError, "single underscores"),
    "a word of the language": (dict(inputs=["device"]), ValueError, "'device' is a word of the Metal language"),
    "a type": (dict(outputs=["float4"]), ValueError, "'float4' is a word"),
    "an attribute": (dict(inputs=["thread_position_in_grid"]), ValueError, "is a word"),
    "a name that is a number": (dict(inputs=[1]), TypeError, "inputs: expected a name, got 1"),
    "twice": (dict(inputs=["x", "x"]), ValueError, r"\[tried\] inputs: the name 'x' is taken"),
    "an input and an output": (dict(outputs=["x"]), ValueError, "outputs: the name 'x' is taken"),
    "an input and a param": (dict(params={"x": "float"}), ValueError, "params: the name 'x' is taken"),
    "the kernel's own": (dict(inputs=["tried"]), ValueError, "the name 'tried' is taken"),
    "name": (dict(params={"name": "float"}), ValueError, "'name' is the op's own name"),
    "words of a shape": (dict(inputs={"x": "rows, 3"}), ValueError, r"inputs\['x'\]: expected 'any', 'like <input>'"),
    "a shape that is no word": (dict(inputs={"x": 3}), TypeError, r"inputs\['x'\]: expected a shape in words, got 3"),
    "like nothing": (dict(inputs={"x": "like y"}), ValueError, "there is no other input 'y'"),
    "like itself": (dict(inputs={"x": "like x"}), ValueError, "there is no other input 'x'"),
    "an output of any shape": (dict(shapes="any"), ValueError, "shapes: 'any' is no shape of an output"),
    "an output like nothing": (dict(shapes="like y"), ValueError, "shapes: 'like y' is no shape"),
    "no outputs": (dict(outputs=[]), ValueError, "outputs: expected one or more"),
    "an output without a name": (dict(source="// z\nfloat y = x[i];"), ValueError, "outputs: the source never names 'z'"),
    "one of two without a name": (dict(outputs=["z", "w"]), ValueError, "outputs: the source never names 'w', so its elem"),
    "no source": (dict(source=None), TypeError, "source: expected text, got NoneType"),
    "a zero byte": (dict(source="a\0b"), ValueError, "source: there is a zero byte"),
    "no header": (dict(header=b""), TypeError, "header: expected text, got bytes"),
    "params as a list": (dict(params=["a"]), TypeError, r"params: expected a dict, got \['a'\]"),
    "a param's type": (dict(params={"a": "float64"}), TypeError, r"params\['a'\]: shaders have no float64"),
    "a param's unknown type": (dict(params={"a": "float3"}), TypeError, r"params\['a'\]: shaders have no 'float3'"),
    "math mode": (dict(math_mode="quick"), ValueError, "math_mode: expected 'safe' or 'fast', got 'quick'"),
    "init value": (dict(init_value="0"), TypeError, "init_value: expected a number"),
    "a flag": (dict(atomic_outputs=1), TypeError, "atomic_outputs: expected True or False"),
    "threadgroup memory": (dict(threadgroup_memory={"t": 4}), TypeError, r"threadgroup_memory\['t'\]: expected a type and how"),
    "a function of another name": (dict(shapes=lambda y: y.shape), TypeError, "shapes: its parameter 'y' is none of x"),
    "a grid of another name": (dict(grid=lambda x, n: n), TypeError, "grid: its parameter 'n' is none of x"),
    "a vjp of another name": (dict(vjp=lambda g: g), TypeError, "vjp: its parameter 'g' is none of x, z, d_z"),
    "no vjp": (dict(vjp=3), TypeError, "vjp: expected a function or a metal_kernel, got 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_KERNELS)
def test_bad_kernel(case):
    options, error, message = BAD_KERNELS[case]
    with pytest.raises(error, match=message):
        make(**options)


def test_text_for_a_list_of_names():
    with pytest.raises(TypeError, match="inputs: expected a list of names, got 'xy'"):
        metal_ops.metal_kernel("tried", "xy", ["z"], "")


def test_outputs_that_the_source_does_not_name():
    """With an initial value they have elements, and a macro of the header may name them."""
    np.testing.assert_array_equal(make("", init_value=3)(X), [3, 3, 3])
    np.testing.assert_array_equal(make("WRITE(x[i]);", header="#define WRITE(a) z[i] = a")(X), X)


def test_vjp_kernels_that_do_not_fit():
    for inputs, outputs, message in (
        (("x", "g"), ("d_x",), "other takes 'g', which is none of x, z, d_z"),
        (("x", "d_z"), ("dx",), "other has the output 'dx'; expected some of d_x"),
    ):
        with pytest.raises(ValueError, match=message):
            make(vjp=make(f"{outputs[0]}[i] = 0;", inputs, outputs, name="other"))


# ---- arguments of a call --------------------------------------------------------------------------------------------

BAD_CALLS = {
    "too many": (lambda: make()(X, X), TypeError, r"\[tried\] expected 1 inputs \(x\), got 2"),
    "too few": (lambda: make()(), TypeError, r"\[tried\] x: expected a tensor, got none"),
    "an unknown one": (lambda: make()(X, b=1), TypeError, r"\[tried\] there is no argument 'b'; it takes x"),
    "no param": (lambda: scale()(X), TypeError, r"\[tried\] a: expected a number, got none"),
    "text for a param": (lambda: scale()(X, a="1"), TypeError, r"\[tried\] a: expected a number, got '1'"),
    "a vector for a param": (lambda: scale()(X, a=np.ones(2)), TypeError, r"a: expected a number"),
    "a param's dtype": (lambda: scale()(X, a=tf.constant(1)), TypeError, "a: expected a scalar of float32, got int32"),
    "a param's rank": (lambda: scale()(X, a=X), TypeError, "a: expected a scalar of float32"),
    "a param out of range": (
        lambda: make(params={"n": "uchar"})(X, n=300), ValueError, r"\[tried\] n: 300 is no uint8"),
    "a param beyond float": (lambda: scale()(X, a=1e39), ValueError, r"\[tried\] a: 1e\+39 is infinite as float32"),
    "a large integer beyond float": (lambda: scale()(X, a=10**400), ValueError, "a: one of 1329 bits is infinite as fl"),
    "a param beyond half": (
        lambda: make(params={"a": "half"})(X, a=70000), ValueError, r"\[tried\] a: 70000 is infinite as float16"),
    "an input beyond float": (lambda: make()(1e39), TypeError, r"\[tried\] x: expected float32, got 1e\+39, which is inf"),
    "init value beyond half": (
        lambda: make("", init_value=70000)(tf.cast(X, tf.float16)), ValueError, "init_value: 70000 is infinite as float16"),
    "half a number": (lambda: make(params={"n": "int"})(X, n=1.5), ValueError, r"\[tried\] n: 1\.5 is no int32"),
    "a grid beyond all": (lambda: make(shapes=[2**40, 2**40])(X), ValueError, r"\[tried\] grid: \d+ is too large"),
    "a grid beyond Metal's": (
        lambda: make(shapes=[1], grid=2**33)(X), tf.errors.InvalidArgumentError,
        r"'tried' would need a grid of 8589934592 x 1 x 1 threads, more than Metal's 2\^32 - 1 per dimension"),
    "None": (lambda: make()(None), TypeError, r"\[tried\] x: expected a tensor"),
    "text": (lambda: make()("text"), TypeError, r"\[tried\] x: shaders have no string"),
    "float64": (lambda: make()(np.zeros(3)), TypeError, r"x: shaders have no float64.*tf.cast"),
    "complex": (lambda: make()(tf.complex(X, X)), TypeError, "x: shaders have no complex64"),
    "ragged": (lambda: make()(tf.ragged.constant([[1.0], []])), TypeError, "x: .*RaggedTensor"),
    "sparse": (lambda: make()(tf.sparse.from_dense([1.0])), TypeError, "x: .*SparseTensor"),
    "a Keras placeholder": (lambda: make()(keras.KerasTensor((3,))), TypeError, "x: .*KerasTensor.*Lambda"),
    "a negative size": (lambda: make(shapes=[-1])(X), ValueError, r"shapes \(z\): expected 0 or more, got -1"),
    "half a size": (lambda: make(shapes=[1.5])(X), TypeError, "shapes .*: expected whole numbers, got 1.5"),
    "an unknown size": (lambda: make(shapes=[None])(X), TypeError, "Take unknown sizes of the arguments' .shape"),
    "text for a shape": (lambda: make(shapes=lambda x: "x")(X), TypeError, "shapes .*: expected a shape, got 'x'"),
    "too few shapes": (
        lambda: make(W, outputs=["z", "w"], shapes=[[3]])(X), ValueError, "shapes: expected one for each of z, w"),
    "other shapes": (lambda: make(shapes={"w": [3]})(X), ValueError, "shapes: expected z, got w"),
    "too few dtypes": (
        lambda: make(W, outputs=["z", "w"], dtypes=[tf.float32])(X), ValueError, "dtypes: expected one for each of z, w"),
    "an output's dtype": (lambda: make(dtypes=tf.float64)(X), TypeError, r"dtypes \(z\): shaders have no float64"),
    "no input for a shape": (lambda: make("z[i] = 1;", ())(), TypeError, "shapes: expected the outputs' shapes"),
    "grid of four": (lambda: make(grid=(1, 1, 1, 1))(X), ValueError, "grid: expected 1 to 3 numbers, got 4"),
    "negative grid": (lambda: make(grid=-1)(X), ValueError, "grid: expected 0 or more, got -1"),
    "text for a grid": (lambda: make(grid="3")(X), TypeError, "grid: expected whole numbers, got '3'"),
    "empty threadgroup": (lambda: make(threadgroup=0)(X), ValueError, "threadgroup: expected 1 or more, got 0"),
    "no threadgroup memory": (
        lambda: make(threadgroup_memory={"t": ("float", 0)})(X), ValueError, r"threadgroup_memory\['t'\]: expected 1 or more"),
    "a float in the text": (lambda: make(template={"N": 1.5})(X), TypeError, r"template\['N'\]: .* belong to params"),
    "NumPy's float in the text": (lambda: make(template={"N": np.float32(2)})(X), TypeError, r"got np.float32\(2.0\). Numb"),
    "a dtype in the text": (lambda: make(template={"T": tf.float64})(X), TypeError, r"template\['T'\]: shaders have no float64"),
    "atomics of halves": (
        lambda: make(atomic_outputs=True)(tf.cast(X, tf.float16)), TypeError, "atomic_outputs: z has dtype float16; Metal has"),
    "an init value of another kind": (
        lambda: make(init_value=1.5)(tf.constant([1])), ValueError, r"init_value: 1\.5 is no int32"),
    "too many arguments": (
        lambda: make("z[i] = 1;", [f"x{i}" for i in range(31)])(*[X] * 31), ValueError, "has 32 arguments.* Metal allows 31"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_call(case):
    call, error, message = BAD_CALLS[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize(
    "vjp, message",
    [
        (lambda d_z: (d_z, d_z), "expected the gradients of x"),
        (lambda d_z: {"y": d_z}, "y in what it returns; expected some of x"),
        (lambda d_z: d_z[1:], r"the gradient of x is float32 \(2,\), and x is float32 \(3,\)"),
        (lambda d_z: tf.cast(d_z, tf.float16), "the gradient of x is float16"),
    ],
)
def test_bad_gradient(vjp, message, graph):
    run = make(vjp=vjp)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(x)
        return tape.gradient(y, x)

    with pytest.raises(ValueError, match=message):
        (tf.function(gradient) if graph else gradient)(X)


# ---- shapes in words ------------------------------------------------------------------------------------------------

ROWS = {
    "x": "[rows, columns]",
    "y": "[columns]",
    "z": "like x",
    "any": "any",
    "pair": "[2*rows, 3]",
}
FITTING = {"x": (4, 5), "y": (5,), "z": (4, 5), "any": (7,), "pair": (8, 3)}
NOT_FITTING = {
    "a rank": ({"x": (4,)}, r"x: expected shape \[rows, columns\], got \[4\]"),
    "a name": ({"y": (4,)}, r"y: expected shape \[columns\] with columns = 5 as in x, got \[4\]"),
    "like": ({"z": (5, 4)}, r"z: expected the shape of x, \[4, 5\], got \[5, 4\]"),
    "like, of another rank": ({"z": (4,)}, r"z: expected the shape of x, \[4, 5\], got \[4\]"),
    "a product": (
        {"pair": (7, 3)},
        r"pair: expected shape \[2\*rows, 3\] with rows = 4 as in x, got \[7, 3\]",
    ),
    "a number": ({"pair": (8, 2)}, r"pair: expected shape \[2\*rows, 3\], got \[8, 2\]"),
}


def in_words():
    return make(
        "out[i] = twice[i % 5] = 1;", ROWS, ["out", "twice"], shapes=["[rows, 2*columns]", "like y"]
    )


@pytest.mark.parametrize("spec", ["eager", "known", "sizes unknown", "ranks unknown"])
@pytest.mark.parametrize("case", [None, *NOT_FITTING])
def test_shapes_in_words(case, spec):
    """Known sizes are refused while a graph is made, all else before the kernel runs."""
    changed, message = NOT_FITTING[case] if case else ({}, "")
    tensors = {name: tf.ones(shape) for name, shape in {**FITTING, **changed}.items()}
    run = in_words()
    specs = {
        "known": lambda x: x.shape,
        "sizes unknown": lambda x: [None] * x.shape.rank,
        "ranks unknown": lambda _: None,
    }

    def call():
        if spec == "eager":
            return run(**tensors)
        traced = tf.function(lambda **tensors: run(**tensors)).get_concrete_function(
            **{
                name: tf.TensorSpec(specs[spec](x), x.dtype, name=name)
                for name, x in tensors.items()
            }
        )
        return traced(**tensors)

    if not case:
        assert [tuple(x.shape) for x in call()] == [(4, 10), (5,)]
        return
    early = spec in ("eager", "known") or (spec == "sizes unknown" and "rank" in case)
    # A graph's run knows the sizes, and the words are those of before.
    words = (
        message if early and spec != "sizes unknown" else message.split(r" \[", 1)[0].split(",")[0]
    )
    with pytest.raises(ValueError if early else tf.errors.InvalidArgumentError, match=words):
        call()


# ---- what only the op can see ---------------------------------------------------------------------------------------

AT_RUN_TIME = {
    "a threadgroup that is too large": (
        lambda x: make(threadgroup=5000)(x), "shader 'tried': threadgroups of 5000 x 1 x 1 threads; it allows 1024"),
    "a grid that is too large": (lambda x: make(grid=2**33)(x), "grid of 8589934592 x 1 x 1 threads, more than Metal's"),
    "an empty grid": (lambda x: make(grid=0)(x), "[tried] grid: 0 x 1 x 1 threads write nothing"),
    "a negative size": (
        lambda x: tf.function(lambda n: make(shapes=lambda x: [n], grid=1)(x))(tf.constant(-2)), "shapes: output 0 has a negative size, -2"),
    "a size that is too large": (
        lambda x: make(shapes=[2**40, 2**40], grid=1)(x), "[tried] shapes: output 0 is too large"),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_RUN_TIME)
def test_at_run_time(case, device):
    call, message = AT_RUN_TIME[case]
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)) as raised:
        call(tf.constant([1.0, 2.0, 3.0]))
    assert len(raised.value.message) < 600


def raw(**changed):
    source = "kernel void f(device const float* x [[buffer(0)]], device float* z [[buffer(1)]],\n" \
             "  constant float& a [[buffer(2)]], uint i [[thread_position_in_grid]]) { z[i] = a * x[i]; }"  # fmt: skip
    arguments = {
        "launch": tf.constant([3, 1, 1, 0, 0, 0, 1, 3], tf.int64),
        "inputs": [tf.constant([1.0, 2.0, 3.0])],
        "params": [tf.constant(2.0)],
        "Tout": [tf.float32],
        "source": source,
        "function": "f",
        "arguments": ["x=input:0", "z=output:0", "a=param:0"],
        **changed,
    }
    if not isinstance(arguments["launch"], tf.Tensor):
        arguments["launch"] = tf.constant(arguments["launch"], tf.int64)
    return raw_ops.metal_kernel(**arguments)


RAW = {
    "no launch": (dict(launch=np.zeros(0, np.int64)), "launch: has too few numbers"),
    "a launch that is cut off": (dict(launch=[3, 1, 1, 0, 0, 0, 1]), "launch: has too few numbers"),
    "a launch with more": (dict(launch=[3, 1, 1, 0, 0, 0, 1, 3, 3]), "launch: has too many numbers"),
    "a rank": (dict(launch=[3, 1, 1, 0, 0, 0, 255]), "an output of rank 255"),
    "a negative rank": (dict(launch=[3, 1, 1, 0, 0, 0, -1]), "an output of rank -1"),
    "a negative size": (dict(launch=[3, 1, 1, 0, 0, 0, 1, -3]), "negative size, -3"),
    "a negative grid": (dict(launch=[-3, 1, 1, 0, 0, 0, 1, 3]), "grid: a side of -3 threads"),
    "half a threadgroup": (dict(launch=[3, 1, 1, 4, 0, 0, 1, 3]), "threadgroup: a side of 0 threads"),
    "a size that is too large": (dict(launch=[3, 1, 1, 0, 0, 0, 2, 2**40, 2**40]), "output 0 is too large"),
    "no such input": (dict(arguments=["x=input:1", "z=output:0", "a=param:0"]), "argument 'x' stands for number 1 of 1"),
    "no such param": (dict(arguments=["x=input:0", "z=output:0", "a=param:99"]), "argument 'a' stands for number 99 of 1"),
    "no such kind": (dict(arguments=["x=inputs:0"]), "arguments: expected '<name>=<kind>:<number>', got 'x=inputs:0'"),
    "no number": (dict(arguments=["x=input:"]), "got 'x=input:'"),
    "no words": (dict(arguments=[""]), "got ''"),
    "an argument is missing": (dict(arguments=["x=input:0", "z=output:0"]), "'a' is missing"),
    "an argument that is none": (dict(arguments=["x=input:0", "z=output:0", "b=param:0"]), "has no argument 'b'"),
    "an input that is written": (dict(arguments=["z=input:0", "x=output:0", "a=param:0"]), "is an input, but the shader may write"),
    "a param of another size": (dict(params=[tf.constant(1, tf.int64)]), "'a' is of another size"),
    "an input of another size": (dict(inputs=[tf.constant([1], tf.int64)]), "'x' is of another dtype"),
    "no such shader": (dict(function="g"), "has no function 'g'"),
    "no source": (dict(source="int x = ;"), "expected expression"),
    "a copy of nothing": (dict(copied=[1]), "copied: there is no input 1"),
    "copies": (dict(copied=[0, 0]), "copied: expected 1 numbers, got 2"),
    "no initializer": (dict(initialized=True), "has no function 'f_init_0'"),
    "a zero byte": (dict(source="int x;\0"), "zero byte"),
    "a broken library": (dict(source=b"\x7fELF"), "cannot load the shader library"),
}  # fmt: skip


@pytest.mark.parametrize("case", RAW)
def test_raw_op(case, device):
    changed, message = RAW[case]
    np.testing.assert_array_equal(raw()[0], [2, 4, 6])
    with pytest.raises(tf.errors.OpError, match=re.escape(message)):
        raw(**changed)[0].numpy()


def test_a_handle_of_another_process(device):
    launch = tf.constant([3, 1, 1, 0, 0, 0, 1, 3], tf.int64)
    with pytest.raises(tf.errors.NotFoundError, match="this process has no kernel 12345; call a"):
        raw_ops.metal_kernel_by_handle(launch, [X], [], [tf.float32], handle=12345)[0].numpy()


# ---- XLA, determinism, validation -----------------------------------------------------------------------------------


def test_xla(device):
    run = make()
    with pytest.raises(tf.errors.UnimplementedError, match=r"\[tried\] cannot be compiled by XLA"):
        tf.function(lambda x: run(x), jit_compile=True)(X)


ELSEWHERE = """
import json, os, sys
import tensorflow as tf
import metal_ops
what, device = sys.argv[1:]
if device == "GPU:0":
    metal_ops.device.load()
if what == "deterministic":
    tf.config.experimental.enable_op_determinism()
atomic = metal_ops.metal_kernel("adds", ["x"], ["z"], "atomic_fetch_add_explicit(&z[0], x[i], memory_order_relaxed);",
                                shapes=[1], grid=lambda x: x.size, init_value=0, atomic_outputs=True)
past = metal_ops.metal_kernel("past", ["x", "y"], ["z"], "z[i] = x[i] + y[i + 1];")
plain = metal_ops.metal_kernel("plain", ["x"], ["z"], "z[i] = x[i];")
library = metal_ops.metal_library("using namespace metal; kernel void lib(device atomic_int* z) "
                                  "{ atomic_fetch_add_explicit(z, 1, memory_order_relaxed); }")
x = tf.constant([1.0, 2.0, 3.0])
said = []
with tf.device(device):
    for call in (lambda: atomic(x), lambda: past(x, x), lambda: plain(x), lambda: library.lib([1], grid=1)):
        try:
            said.append(str(call().numpy().tolist()))
        except tf.errors.OpError as error:
            said.append(type(error).__name__ + ": " + error.message)
print(json.dumps(said))
"""


@pytest.mark.parametrize("where", ["CPU:0", "GPU:0"])
def test_in_other_processes(where):
    """Op determinism, and validation, hold for a process."""
    deterministic = Process("-c", ELSEWHERE, "deterministic", where)
    validated = Process("-c", ELSEWHERE, "validated", where, METAL_DEVICE_WRAPPER_TYPE="1")
    atomic, _, plain, library = deterministic.result()
    for name, said in (("adds", atomic), ("lib", library)):
        assert re.match(
            rf"UnimplementedError: .*\[{name}\] may use atomics.*enable_op_determinism", said
        ), said
    assert plain == "[1.0, 2.0, 3.0]"
    atomic, past, plain, library = validated.result()
    assert (atomic, plain, library) == ("[6.0]", "[1.0, 2.0, 3.0]", "[2]")
    # Kernel, argument, index and thread.
    assert re.search(
        r"\[past\] read of 4 bytes at offset 12 \(index 3\) of buffer\(1\) 'y', which has 12 bytes, by thread \(2, 0, 0\)",
        past,
    ), past
