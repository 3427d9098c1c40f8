"""Every public function's errors for arguments that are no tensors, and for options of another
kind.

Each argument of each function in turn is replaced by a meaningless value; the error names function and argument.
"""

from __future__ import annotations

import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.ops import _declared

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

GRID = metal_ops.HashGrid(n_dims=3, n_levels=2, log2_hashmap_size=8, base_resolution=4)
POINTS = np.full((5, 3), 0.5, np.float32)
T = np.arange(7, dtype=np.float32)
PACKED = np.array([[0, 3], [3, 4]], np.int32)
ALONG = dict(t_starts=T, t_ends=T + 1, packed_info=PACKED)
NUMBER, INTEGER, FLAG, DTYPE = "number", "integer", "True or False", "dtype"

# Arguments that are tensors, and options with their kinds.
FUNCTIONS = {
    "hash_encode": (dict(points=POINTS, table=np.ones(GRID.table_shape, np.float32)), {}, dict(grid=GRID)),
    "frequency_encode": (
        dict(x=POINTS), dict(n_frequencies=INTEGER, include_input=FLAG, times_pi=FLAG, dtype=DTYPE), {},
    ),
    "sh_encode": (dict(directions=POINTS), dict(degree=INTEGER, dtype=DTYPE), {}),
    "volume_render": (
        dict(sigmas=T, rgbs=np.ones((7, 3), np.float32), **ALONG, background=np.ones(3, np.float32)),
        dict(early_stop_eps=NUMBER, normalize_depth=FLAG, t_gradients=FLAG), {},
    ),
    "render_weights": (dict(sigmas=T, **ALONG), dict(early_stop_eps=NUMBER, t_gradients=FLAG), {}),
    "distortion_loss": (dict(weights=T, **ALONG), dict(t_gradients=FLAG), {}),
    **{
        name: (dict(inputs=T, packed_info=PACKED), dict(reverse=FLAG), {})
        for name in ("inclusive_sum", "exclusive_sum", "inclusive_prod", "exclusive_prod")
    },
    "pack_ray_indices": (dict(ray_indices=np.array([0, 0, 1], np.int32)), dict(n_rays=INTEGER), dict(n_rays=2)),
    "ray_march": (
        dict(
            origins=POINTS, directions=POINTS, occupancy=np.full((1, 64), 255, np.uint8),
            aabb=np.array([0, 0, 0, 1, 1, 1], np.float32), near=np.float32(0), far=np.float32(9),
        ),
        dict(step=NUMBER, cone_angle=NUMBER, resolution=INTEGER, max_samples_per_ray=INTEGER, index_dtype=DTYPE),
        dict(step=0.1, resolution=8),
    ),
    "focal_loss": (
        dict(logits=POINTS, targets=POINTS),
        dict(alpha=NUMBER, gamma=NUMBER, label_smoothing=NUMBER, reduce_last=FLAG), {},
    ),
    "softmax_cross_entropy": (
        dict(logits=POINTS, targets=POINTS), dict(label_smoothing=NUMBER, z_loss=NUMBER), {},
    ),
    "robust_loss": (
        dict(x=POINTS, targets=POINTS, alpha=np.float32(1), scale=np.float32(1)), dict(reduce_last=FLAG), {},
    ),
    "fused_matmul": (
        dict(a=POINTS, b=POINTS.T, bias=np.ones(5, np.float32), residual=np.ones((5, 5), np.float32)),
        dict(transpose_a=FLAG, transpose_b=FLAG, epsilon=NUMBER, alpha=NUMBER), {},
    ),
    "scaled_dot_product_attention": (
        dict(
            **dict.fromkeys("qkv", np.ones((1, 2, 3, 4), np.float32)), mask=np.ones((3, 3), bool),
            bias=np.ones((3, 3), np.float32), key_lengths=np.ones(1, np.int32), seed=np.ones(2, np.int32),
        ),
        dict(causal=FLAG, scale=NUMBER, dropout=NUMBER, soft_cap=NUMBER), {},
    ),
    "hamming_distance": (dict.fromkeys("ab", np.ones((2, 3), np.uint8)), dict(elements=FLAG), {}),
    "hamming_top_k": (
        dict.fromkeys(("queries", "rows"), np.ones((2, 3), np.uint8)), dict(k=INTEGER, elements=FLAG), {},
    ),
    "max_pool_with_global_indices": (dict(x=np.ones((1, 4, 4, 1), np.float32)), {}, {}),
    "max_unpool": (
        dict(values=T, indices=np.arange(7), shape=np.array([3, 5])), {}, {},
    ),
    "quantize": (
        dict(weights=POINTS),
        dict(bits=INTEGER, symmetric=FLAG, per_tensor=FLAG), {},
    ),
    "dequantize": ({}, dict(dtype=DTYPE), dict(weights=metal_ops.quantize(POINTS))),
    "quantized_matmul": (dict(x=POINTS), dict(dynamic=FLAG), dict(weights=metal_ops.quantize(POINTS.T))),
    "cache_rows": (
        dict(rows=np.ones((1, 2, 3, 4), np.float32), starts=np.zeros(1, np.int32), counts=np.ones(1, np.int32)),
        dict(ring=FLAG), dict(cache=tf.Variable(np.ones((1, 2, 5, 4), np.float32))),
    ),
    **{
        name: (
            dict.fromkeys(["scale", "offset"][:n], np.ones(3, np.float32)) | dict(x=POINTS), dict(epsilon=NUMBER), {},
        )
        for name, n in dict(layer_norm=2, rms_norm=1).items()
    },
    "swiglu": (dict(gate=POINTS, up=POINTS), {}, {}),
    "rope": (
        dict(x=np.ones((1, 2, 3, 4), np.float32), positions=np.arange(3, dtype=np.int32)),
        dict(base=NUMBER, interleaved=FLAG), {},
    ),
    "lstm": (
        dict(
            x=np.ones((1, 2, 3), np.float32), kernel=np.ones((3, 8), np.float32),
            recurrent_kernel=np.ones((1, 8), np.float32), bias=np.ones(8, np.float32), mask=np.ones((1, 2), bool),
            projection=np.ones((2, 1), np.float32), kernel_gamma=np.ones(8, np.float32),
            recurrent_gamma=np.ones(8, np.float32), cell_gamma=np.ones(2, np.float32), cell_beta=np.ones(2, np.float32),
        ),
        dict(epsilon=NUMBER), {},
    ),
    **{
        name: (
            dict(
                x=np.ones((1, 2, 3), np.float32), kernel=np.ones((3, width), np.float32),
                recurrent_kernel=np.ones((2, width), np.float32), initial_state=np.ones((1, 2), np.float32),
                lengths=np.ones(1, np.int32), **tensors,
            ),
            options, {},
        )
        for name, width, tensors, options in (
            ("gru", 6, dict(recurrent_bias=np.ones(6, np.float32)), dict(reset_after=FLAG, epsilon=NUMBER)),
            ("minimal_gated_unit", 4, {}, {}),
            ("forget_gate_unit", 4, {}, dict(beta=NUMBER)),
        )
    },
    "fused_mlp": (
        dict(x=POINTS), dict(squareplus_b=NUMBER),
        dict(kernels=[np.ones((3, 16), np.float32), np.ones((16, 1), np.float32)]),
    ),
    "fused_conv2d": (
        dict(
            input=np.ones((1, 4, 4, 2), np.float32), filters=np.ones((3, 3, 2, 2), np.float32),
            bias=np.ones(2, np.float32), residual=np.ones((1, 4, 4, 2), np.float32),
        ),
        dict(strides=INTEGER, dilations=INTEGER, epsilon=NUMBER, alpha=NUMBER), {},
    ),
    "fused_adam": (
        dict(gradient=T),
        dict(step=INTEGER, skip_zero_rows=FLAG, float32_powers=FLAG),
        dict(step=1, learning_rate=0.1, **{name: tf.Variable(T) for name in ("variable", "m", "v")}),
    ),
    "fused_sgd": (
        dict(gradient=T), dict(nesterov=FLAG, skip_zero_rows=FLAG), dict(variable=tf.Variable(T), learning_rate=0.1),
    ),
}  # fmt: skip
KINDS = {"float": NUMBER, "int": INTEGER, "bool": FLAG}


def _declared_call(name: str) -> tuple[dict, dict, dict]:
    """A row for a function that is called as its op is declared: inputs, which take any shape, then attributes."""
    op = _declared.declarations()[name.replace("_", "")]
    arguments = list(inspect.signature(getattr(metal_ops, name)).parameters)[:-1]  # less `name`
    inputs, options = arguments[: len(op.inputs)], arguments[len(op.inputs) :]
    kinds = {option: KINDS.get(op.attrs[option].split()[0]) for option in options}
    return (
        {argument: POINTS for argument in inputs},
        {option: kind for option, kind in kinds.items() if kind},
        {},
    )


# An op that the table leaves out is one whose declaration says it all.
FUNCTIONS |= {
    name: _declared_call(name)
    for name in metal_ops.ops.__all__
    if name.islower() and name not in FUNCTIONS
    and name not in ("metal_kernel", "metal_library")  # they make functions, which test_metal_kernel.py calls
}  # fmt: skip
MAY_BE_NONE = (
    "background",
    "counts",
    "bias",
    "mask",
    "offset",
    "up",
    "positions",
    "key_lengths",
    "initial_state",
    "lengths",
    "projection",
    "kernel_gamma",
    "recurrent_gamma",
    "cell_gamma",
    "cell_beta",
    "recurrent_bias",
    "seed",
    "residual",
    "targets",
    "packed_info",
    "aabb",
    "alpha",
)

NO_TENSORS = {
    "None": lambda _: None,
    "text": lambda _: "text",
    "a dict": lambda value: {"x": value},
    "objects": lambda _: np.array([object()]),
    "a ragged tensor": lambda _: tf.ragged.constant([[1.0, 2.0], [3.0]]),
    "a sparse tensor": lambda value: tf.sparse.from_dense(np.atleast_1d(value)),
    "a Keras placeholder": lambda value: keras.KerasTensor(value.shape, str(value.dtype)),
}
NO_OPTIONS = {
    NUMBER: ["text", True, [1.0], tf.constant(1.0), 1e39, 10**400],
    INTEGER: ["text", True, 1.5, None, np.inf],
    FLAG: ["text", 1, None, tf.constant([True, False])],
    DTYPE: ["text", 1.5, True, tf.float64],
}


def test_rows_from_declarations():
    assert FUNCTIONS["softshrink"] == ({"x": POINTS}, {"lambd": NUMBER}, {})
    assert FUNCTIONS["null_op"] == ({"x": POINTS}, {"scale": NUMBER}, {})
    assert FUNCTIONS["zero_out"] == ({"x": POINTS}, {}, {})


def refuse(name, argument, value):
    tensors, _, others = FUNCTIONS[name]
    function = getattr(metal_ops, name)
    function(**{**tensors, **others})  # as the table has it, the call is right
    with pytest.raises((TypeError, ValueError)) as raised:
        function(**{**tensors, **others, argument: value})
    assert re.match(rf"\[{name}\] .*\b{argument}\b.*: .*expected", str(raised.value)), raised.value
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("kind", NO_TENSORS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_tensor(name, kind):
    for argument, value in FUNCTIONS[name][0].items():
        if kind != "None" or argument not in MAY_BE_NONE:
            refuse(name, argument, NO_TENSORS[kind](value))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_a_tensor_would_not_hold(name):
    """TensorFlow makes infinities of 1e39 and other integers of 2^32 + 1 without a word."""
    for argument, value in FUNCTIONS[name][0].items():
        numbers = np.asarray(value)
        if numbers.dtype.kind in "fi":
            beyond = numbers.astype(float if numbers.dtype.kind == "f" else object)
            beyond.flat[0] = 1e39 if numbers.dtype.kind == "f" else 2**32 + 1
            refuse(name, argument, beyond.tolist())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_of_another_kind(name):
    for option, kind in FUNCTIONS[name][1].items():
        for value in NO_OPTIONS[kind]:
            refuse(name, option, value)


RAW = re.compile(rf"\\b({'|'.join(op.name for op in _declared.declarations().values())}): ")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sentences_of_kernels_name_the_function(name):
    """Shapes that do not fit, and numbers out of range: an op's error names the public function."""
    tensors, options, others = FUNCTIONS[name]
    function = getattr(metal_ops, name)
    changes = [
        {a: np.zeros((3, 1, 2, 1, 3, 1, 2), np.asarray(value).dtype)}
        for a, value in tensors.items()
    ]
    changes += [{a: np.zeros(0, np.asarray(value).dtype)} for a, value in tensors.items()]
    changes += [{a: -7} for a, kind in options.items() if kind in (NUMBER, INTEGER)]
    for change in changes:
        given = {**tensors, **others, **change}
        for call in (function, tf.function(lambda given=given: function(**given), autograph=False)):
            try:
                call(**given) if call is function else call()
            except (TypeError, ValueError, tf.errors.OpError) as error:
                assert not RAW.search(str(error)), error
                # Or it is TensorFlow's own, and names the node.
                assert re.search(rf"(^|[ \[]){name}(\]|:) |node {name}/", str(error)), error


VARIABLE = tf.Variable([1.0, 2.0])
SENTENCES = {
    "classes": (
        lambda x: metal_ops.softmax_cross_entropy(tf.zeros([2, 3]), x), [0, 5],
        r"softmax_cross_entropy: targets\[1\] must be in \[0, 3\)",
    ),
    "rays": (
        lambda x: metal_ops.inclusive_sum(tf.ones([2]), ray_indices=x, n_rays=2), [1, 0],
        r"inclusive_sum: ray_indices\[1\] must be in \[1, 2\)",
    ),
    "renamed": (
        lambda x: metal_ops.hamming_top_k(np.ones((2, 3), np.uint8), tf.cast(x[None], tf.uint8), 1), [1, 1],
        r"hamming_top_k: queries and rows must have the same last dimension",
    ),
    "a variable": (
        lambda x: metal_ops.fused_sgd(VARIABLE, learning_rate=0.1, gradient=tf.cast(x, tf.float32)),
        [1, 2, 3], r"fused_sgd: variable must be shaped like gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ["eager", "graph", "loaded"])
@pytest.mark.parametrize("case", SENTENCES)
def test_sentences_where_a_graph_runs(case, how, tmp_path):
    """The node keeps the words of the function that made it."""
    run, value, words = SENTENCES[case]
    given = tf.constant(value)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def graph(x):
        found = run(x)
        return x if isinstance(found, tf.Operation) else found

    if how == "loaded":
        module = tf.Module()
        module.call, module.kept = graph, VARIABLE
        graph.get_concrete_function()
        tf.saved_model.save(module, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        graph = loaded.call
    with pytest.raises(tf.errors.InvalidArgumentError, match=words) as raised:
        (run if how == "eager" else graph)(given)
    assert not RAW.search(str(raised.value))


def test_what_would_be_taken_for_something_else():
    """Each of these used to give wrong numbers."""
    # An empty background, or target, is how the ops say that there is none.
    rays = dict(sigmas=T, rgbs=np.ones((7, 3), np.float32), **ALONG)
    with pytest.raises(
        ValueError, match=r"\[volume_render\] background: expected shape \[channels\]"
    ):
        metal_ops.volume_render(**rays, background=np.zeros(0, np.float32))
    with pytest.raises(
        ValueError, match=r"\[robust_loss\] targets: expected the shape of x, \[5, 3\], got \[0\]"
    ):
        metal_ops.robust_loss(POINTS, targets=np.zeros(0, np.float32))
    # As many targets as there are logits, in another order.
    logits = np.zeros((2, 3, 4), np.float32)
    for targets in (np.zeros((2, 4, 3), np.float32), np.zeros((3, 2), np.int32)):
        with pytest.raises(
            ValueError, match=r"\[focal_loss\] targets: expected the shape of logits"
        ):
            metal_ops.focal_loss(logits, targets, "softmax")
        function = tf.function(
            lambda x, y: metal_ops.focal_loss(x, y, "softmax"),
            input_signature=[tf.TensorSpec([None, None, 4]), tf.TensorSpec(None, targets.dtype)],
        )
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="targets: expected the shape of logits"
        ):
            function(logits, targets)
        assert function(logits, targets.reshape(logits.shape[: targets.ndim])).shape == (2, 3)
    with pytest.raises(
        ValueError, match=r"\[focal_loss\] alpha: expected a number in \[0, 1\], or None"
    ):
        metal_ops.focal_loss(POINTS, POINTS, alpha=-1.0)
    with pytest.raises(
        ValueError, match=r"\[fused_sgd\] m: expected a tf.Variable with momentum 0.9, got None"
    ):
        metal_ops.fused_sgd(tf.Variable(T), T, learning_rate=0.1, momentum=0.9)
    with pytest.raises(TypeError, match=r"\[fused_adam\] m: expected a tf.Variable, got"):
        metal_ops.fused_adam(
            tf.Variable(T), tf.constant(T), tf.Variable(T), T, step=1, learning_rate=0.1
        )
    for value in (10**400, -(10**5000)):
        with pytest.raises(
            ValueError,
            match=r"\[focal_loss\] alpha: expected a number, got one of \d+ bits, which is inf",
        ):
            metal_ops.focal_loss(POINTS, POINTS, alpha=value)
    with pytest.raises(
        ValueError, match=r"\[sh_encode\] degree: .* of 64 bits, got one of \d+ bits"
    ):
        metal_ops.sh_encode(POINTS, degree=10**5000)
    with pytest.raises(
        TypeError, match=r"\[sh_encode\] degree: expected an integer, got EagerTensor"
    ):
        metal_ops.sh_encode(POINTS, degree=tf.constant(2.0))
    # In 32 bits, both are 2.
    with pytest.raises(
        ValueError, match=r"\[pack_ray_indices\] n_rays: expected at most 2147483647"
    ):
        metal_ops.pack_ray_indices(np.zeros(3, np.int32), n_rays=2**32 + 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="n_rays must be at least 0, got -1"):
        metal_ops.pack_ray_indices(np.zeros(3, np.int32), n_rays=-(2**32) + 2)
    with pytest.raises(ValueError, match=r"\[focal_loss\] kind: expected 'sigmoid' or 'softmax'"):
        metal_ops.focal_loss(POINTS, POINTS, tf.constant("sigmoid"))
    with pytest.raises(ValueError, match=r"\[fused_matmul\] batch_norm: expected \(gamma"):
        metal_ops.fused_matmul(POINTS, POINTS.T, batch_norm=1.0)


@pytest.mark.parametrize("name", ["fused_adam", "fused_sgd"])
def test_keras_variables(name):
    x, m, v = (
        keras.Variable(np.array(value, np.float32))
        for value in ([3.0, -2.0], [0.0, 0.0], [0.0, 0.0])
    )
    moments = dict(m=m, v=v, step=1) if name == "fused_adam" else dict(m=m, momentum=0.5)
    getattr(metal_ops, name)(
        x, gradient=np.array([1.0, -1.0], np.float32), learning_rate=0.5, **moments
    )
    np.testing.assert_allclose(x.numpy(), [2.5, -1.5], rtol=1e-5)
