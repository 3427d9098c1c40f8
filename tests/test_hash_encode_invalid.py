"""Every invalid argument: the class of the error and the parts of its sentence, eager and in graphs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

GRID = metal_ops.HashGrid(
    n_dims=3, n_levels=2, log2_hashmap_size=8, base_resolution=4, per_level_scale=1.5
)
POINTS = np.full((5, 3), 0.5, np.float32)
TABLE = np.ones(GRID.table_shape, np.float32)
ROWS = GRID.table_shape[0]
Invalid = tf.errors.InvalidArgumentError
WRONG = (
    ValueError,
    Invalid,
)  # graph construction says ValueError where the op's run says InvalidArgument

# The changed argument, the error, and its words. Public function: named in brackets, with expected and
# got.
PUBLIC = {
    "points of another dimension": (
        dict(points=np.zeros((5, 2))), ValueError,
        ["[hash_encode] points", "last dimension 3", "n_dims", "[5, 2]"],
    ),
    "points too wide": (dict(points=np.zeros((5, 6))), ValueError, ["points", "last dimension 3", "[5, 6]"]),
    "a scalar point": (dict(points=0.5), ValueError, ["points", "last dimension 3", "scalar"]),
    "half precision points": (
        dict(points=tf.zeros([5, 3], tf.float16)), TypeError,
        ["points", "float32, got float16", "cells", "tf.cast"],
    ),
    "double precision points": (
        dict(points=tf.zeros([5, 3], tf.float64)), TypeError,
        ["points", "float32, got float64", "tf.cast"],
    ),
    "integer points": (dict(points=tf.zeros([5, 3], tf.int32)), TypeError, ["points", "float32, got int32"]),
    "table of other rows": (
        dict(table=TABLE[1:]), ValueError,
        ["[hash_encode] table", str(list(GRID.table_shape)), str(ROWS - 1)],
    ),
    "table of other features": (
        dict(table=np.ones((ROWS, 4), np.float32)), ValueError,
        ["table", "grid.table_shape", f"[{ROWS}, 4]"],
    ),
    "table of rank 1": (dict(table=np.ones(ROWS, np.float32)), ValueError, ["table", "expected shape", f"[{ROWS}]"]),
    "table of doubles": (
        dict(table=TABLE.astype(np.float64)), TypeError,
        ["table", "float32, float16 or bfloat16, got float64", "tf.cast"],
    ),
    "table of integers": (dict(table=TABLE.astype(np.int32)), TypeError, ["table", "got int32"]),
    "no grid": (dict(grid=None), TypeError, ["[hash_encode] grid", "metal_ops.HashGrid", "NoneType"]),
    "a grid's config": (dict(grid=GRID.get_config()), TypeError, ["grid", "HashGrid", "dict"]),
}  # fmt: skip

# The raw ops: the change of a good call, and the words. All six take the last three inputs and the attributes.
RAW = {
    "inputs of rank 1": (dict(inputs=POINTS[0]), ["inputs", "[N, D]", "[3]"]),
    "inputs of rank 3": (dict(inputs=POINTS[None]), ["inputs", "[N, D]", "[1, 5, 3]"]),
    "1 dimension": (dict(inputs=POINTS[:, :1]), ["inputs", "D = 2, 3 or 4", "[5, 1]"]),
    "5 dimensions": (dict(inputs=np.zeros((5, 5), np.float32)), ["inputs", "[5, 5]"]),
    "embeddings of rank 1": (dict(embeddings=TABLE[:, 0]), ["embeddings", "[rows, F]", f"[{ROWS}]"]),
    "3 features": (
        dict(embeddings=np.ones((ROWS, 3), np.float32)),
        ["embeddings", "F = 1, 2, 4 or 8", f"[{ROWS}, 3]"],
    ),
    "offsets of rank 2": (dict(hashmap_offsets=GRID.offsets[None]), ["hashmap_offsets", "[L + 1]", "[1, 3]"]),
    "no offset": (dict(hashmap_offsets=[]), ["hashmap_offsets", "[L + 1]", "[0]"]),
    "no level": (dict(hashmap_offsets=[0]), ["hashmap_offsets", "L = 1 to 32", "[1]"]),
    "33 levels": (dict(hashmap_offsets=np.arange(34)), ["hashmap_offsets", "L = 1 to 32", "[34]"]),
    "offsets below 0": (dict(hashmap_offsets=[-8, 64, 128]), ["hashmap_offsets", "-8"]),
    "offsets that decrease": (dict(hashmap_offsets=[0, 64, 32]), ["hashmap_offsets", "increase", "64", "32"]),
    "an empty level": (dict(hashmap_offsets=[0, 0, 64]), ["hashmap_offsets", "increase"]),
    "offsets past the table": (
        dict(hashmap_offsets=[0, 64, ROWS + 1]),
        ["hashmap_offsets", str(ROWS), str(ROWS + 1)],
    ),
    "infinite growth": (dict(log2_per_level_scale=np.inf), ["log2_per_level_scale", "finite"]),
    "growth that is no number": (dict(log2_per_level_scale=np.nan), ["log2_per_level_scale", "finite"]),
    "resolutions past 2^31": (dict(log2_per_level_scale=40.0), ["log2_per_level_scale", "2^31"]),
    "resolution 0": (dict(resolution_coarsest=0), ["resolution_coarsest", "1 or more", "0"]),
    "negative resolution": (dict(resolution_coarsest=-3), ["resolution_coarsest", "-3"]),
    "another interpolation": (dict(interpolation="cubic"), ["interpolation", "cubic"]),
    "another kind": (dict(grid_kind="tiled"), ["grid_kind", "tiled"]),
}  # fmt: skip
BEFORE = {
    "hash_encode": {},
    "hash_encode_grad": {"incoming_gradients": np.ones((5, 4), np.float32)},
    "hash_encode_point_grad": {"incoming_gradients": np.ones((5, 4), np.float32)},
    "hash_encode_jvp": {"tangents": POINTS},
    "hash_encode_jvp_grad": {"tangents": POINTS, "incoming_gradients": np.ones((5, 4), np.float32)},
    "hash_encode_jvp_point_grad": {
        "tangents": POINTS,
        "incoming_gradients": np.ones((5, 4), np.float32),
    },
}
# Only in the ops that have these inputs.
RAW_BEFORE = {
    "incoming of rank 1": (dict(incoming_gradients=np.ones(5, np.float32)), ["incoming_gradients", "[5]"]),
    "incoming of other points": (
        dict(incoming_gradients=np.ones((6, 4), np.float32)),
        ["incoming_gradients", "[6, 4]"],
    ),
    "incoming of other width": (
        dict(incoming_gradients=np.ones((5, 5), np.float32)),
        ["incoming_gradients", "[5, 5]"],
    ),
    "tangents of other points": (dict(tangents=np.ones((4, 3), np.float32)), ["tangents", "[4, 3]"]),
    "tangents of other dimension": (dict(tangents=np.ones((5, 2), np.float32)), ["tangents", "[5, 2]"]),
}  # fmt: skip


def check(raised, words):
    message = str(raised.value)
    for word in words:
        assert re.search(re.escape(word), message), f"{word!r} is not in: {message}"


@pytest.mark.parametrize("changed, error, words", PUBLIC.values(), ids=PUBLIC)
def test_public_function(changed, error, words):
    arguments = dict(points=POINTS, table=TABLE, grid=GRID) | changed
    with pytest.raises(error) as raised:
        metal_ops.hash_encode(**arguments)
    check(raised, words)
    with pytest.raises(error) as raised:  # at trace time, before anything runs
        tf.function(lambda: metal_ops.hash_encode(**arguments)).get_concrete_function()
    check(raised, words)


UNKNOWN = {
    "points": (
        dict(points=np.zeros((5, 6), np.float32)),
        ["[hash_encode] points", "last dimension 3", "n_dims"],
    ),
    "table rows": (dict(table=TABLE[1:]), ["[hash_encode] table", "expected shape", str(ROWS)]),
    "table features": (dict(table=np.ones((ROWS * 2, 1), np.float32)), ["table", "expected shape"]),
}


@pytest.mark.parametrize("changed, words", UNKNOWN.values(), ids=UNKNOWN)
def test_public_function_with_shapes_known_only_at_run_time(changed, words):
    function = tf.function(
        lambda points, table: metal_ops.hash_encode(points, table, GRID),
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)],
    )
    assert function(tf.constant(POINTS), tf.constant(TABLE)).shape == (5, 4)
    arguments = dict(points=POINTS, table=TABLE) | changed
    with pytest.raises(Invalid) as raised:
        function(**{name: tf.constant(value) for name, value in arguments.items()})
    check(raised, words)


@pytest.mark.parametrize("changed, words", UNKNOWN.values(), ids=UNKNOWN)
def test_public_function_in_a_session_with_unknown_shapes(changed, words):
    """A graph without tf.function runs only nodes that the result depends on: the checks have to be part of that."""
    with tf.Graph().as_default():
        points, table = (tf.compat.v1.placeholder(tf.float32) for _ in range(2))
        features = metal_ops.hash_encode(points, table, GRID)
        arguments = dict(points=POINTS, table=TABLE) | changed
        with tf.compat.v1.Session() as session:
            assert session.run(features, {points: POINTS, table: TABLE}).shape == (5, 4)
            with pytest.raises(Invalid) as raised:
                session.run(features, {points: arguments["points"], table: arguments["table"]})
    check(raised, words)


def good_call(op):
    return {
        **BEFORE[op],
        "inputs": POINTS,
        "embeddings": TABLE,
        "hashmap_offsets": GRID.offsets,
        **GRID.op_attributes,
    }


@pytest.mark.parametrize("changed, words", RAW.values(), ids=RAW)
@pytest.mark.parametrize("op", BEFORE)
def test_raw_ops(op, changed, words):
    function = getattr(raw_ops, op)
    with pytest.raises(WRONG) as raised:
        function(**good_call(op) | changed)
    check(raised, words)
    with pytest.raises(WRONG) as raised:
        tf.function(lambda: function(**good_call(op) | changed)).get_concrete_function()
    check(raised, words)


INPUTS = ("tangents", "incoming_gradients", "inputs", "embeddings", "hashmap_offsets")


def calls(table, *, inputs_only):
    """(op, the change, words) for each op that has that input."""
    return [
        pytest.param(op, changed, words, id=f"{op}-{name}")
        for op in BEFORE
        for name, (changed, words) in table.items()
        if set(changed) <= set(good_call(op)) and (not inputs_only or set(changed) <= set(INPUTS))
    ]


@pytest.mark.parametrize("op, changed, words", calls(RAW_BEFORE, inputs_only=True))
def test_raw_ops_inputs_of_derivatives(op, changed, words):
    with pytest.raises(WRONG) as raised:
        getattr(raw_ops, op)(**good_call(op) | changed)
    check(raised, words)


@pytest.mark.parametrize("op, changed, words", calls({**RAW, **RAW_BEFORE}, inputs_only=True))
def test_raw_ops_with_shapes_known_only_at_run_time(op, changed, words):
    """Shape functions see nothing here, so the kernels have to say it."""
    call = good_call(op) | changed
    attributes = {name: value for name, value in call.items() if name not in INPUTS}
    tensors = {
        name: tf.constant(value, tf.int32 if name == "hashmap_offsets" else tf.float32)
        for name, value in call.items()
        if name in INPUTS
    }

    @tf.function(input_signature=[tf.TensorSpec(None, tensor.dtype) for tensor in tensors.values()])
    def function(*arguments):
        return getattr(raw_ops, op)(**dict(zip(tensors, arguments, strict=True)), **attributes)

    with pytest.raises(Invalid) as raised:
        function(*tensors.values())
    check(raised, words)


@pytest.mark.parametrize("op", BEFORE)
def test_mixed_dtypes_are_refused(op):
    call = good_call(op) | dict(embeddings=tf.constant(TABLE, tf.float64))
    with pytest.raises((TypeError, *WRONG)):
        getattr(raw_ops, op)(**call)


def xla_direct(points):
    return metal_ops.hash_encode(points, TABLE, GRID)


@tf.function
def inner(points):
    return metal_ops.hash_encode(points, TABLE, GRID)


def xla_nested(points):
    return inner(points) + 1


def xla_branch(points):
    return tf.cond(
        tf.reduce_sum(points) > 0,
        lambda: metal_ops.hash_encode(points, TABLE, GRID),
        lambda: tf.zeros([5, 4]),
    )


@pytest.mark.parametrize("function", [xla_direct, xla_nested, xla_branch])
def test_xla_is_refused_while_tracing(function):
    compiled = tf.function(function, jit_compile=True)
    for attempt in (
        lambda: compiled(tf.constant(POINTS)),
        lambda: compiled.get_concrete_function(POINTS),
    ):
        with pytest.raises(tf.errors.UnimplementedError) as raised:
            attempt()
        check(raised, ["[hash_encode]", "XLA", "jit_compile"])
    assert tf.function(function)(tf.constant(POINTS)).shape == (
        5,
        4,
    )  # the control: without XLA it works


def test_zero_out_refuses_xla_too():
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"\[zero_out\] cannot be compiled by XLA"
    ):
        tf.function(metal_ops.zero_out, jit_compile=True)(tf.constant([1, 2]))
