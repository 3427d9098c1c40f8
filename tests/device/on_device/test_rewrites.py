"""Graphs that TensorFlow's graph optimizers have rewritten after placement run on the device, too.

Each rewrite is forced by a graph of its own, and the graph that ran is looked at: a rewrite that did not happen fails.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops._placement import functions, short
from tests.device.on_device.test_elementwise import FLOATS, wide
from tests.device.on_device.test_ops import numpy_type, on_device, put

pytestmark = pytest.mark.release

raw = tf.raw_ops


def image_matrix(x):
    return tf.reshape(x, [3, 3])


def upsampled(x):
    """The ops that Keras' UpSampling layers and old segmentation models write by hand."""
    x = tf.reshape(x, [1, 3, 1, 3, 1, 1])
    return tf.reshape(x * tf.ones([1, 1, 2, 1, 2, 1], x.dtype), [1, 6, 6, 1])


def embedding(x):
    """tf.nn.embedding_lookup_sparse"""
    unique, where = tf.unique(tf.cast(x, tf.int64))
    rows = tf.gather(tf.reshape(x, [9, 1]), unique)
    return tf.sparse.segment_sum(rows, where, tf.constant([0, 0, 0, 1, 1, 2, 2, 2, 2], tf.int64))


def convolved(x, scaled=1.0):
    image = tf.reshape(tf.tile(x, [4]), [1, 4, 3, 3])
    image = image * scaled if scaled != 1.0 else image
    kernel = np.linspace(-1, 1, 2 * 2 * 3 * 2).reshape(2, 2, 3, 2)
    return tf.nn.conv2d(image, tf.constant(kernel, x.dtype), 1, "SAME")


def conjugate(x):
    x = tf.cast(image_matrix(x), tf.float32)
    return tf.math.imag(tf.math.conj(tf.transpose(tf.complex(x, x))))


def segments(x):
    rows = tf.cast(tf.cast(x[:4], tf.int32), tf.int64)
    return tf.sparse.segment_sum(image_matrix(x), rows % 3, tf.constant([0, 0, 1, 1], tf.int64))


# By the class of libtensorflow_cc that does it: a function of nine numbers, the ops it makes, and the vanished ones.
ARITHMETIC = {
    "AddOpsRewriteStage": (lambda x: x + tf.sin(x) + tf.cos(x) + tf.exp(x), "AddN", "AddV2"),
    "ConvertExpm1Stage": (lambda x: tf.exp(x) - 1.0, "Expm1", "Exp"),
    "ConvertLog1pStage": (lambda x: tf.math.log(1.0 + x), "Log1p", "Log"),
    "ConvertPowStage": (
        lambda x: tf.pow(x, 0.5) + tf.pow(x, -1.0) + tf.pow(x, -0.5) + tf.pow(tf.sin(x), 2.0),
        "Square Sqrt Reciprocal Rsqrt",
        "Pow",
    ),
    "FoldMultiplyIntoConv": (lambda x: convolved(x, 2.0), "Conv2D", "Mul"),
    "FoldTransposeIntoMatMul": (
        lambda x: tf.matmul(tf.transpose(image_matrix(x)), image_matrix(x)),
        "MatMul",
        "Transpose",
    ),
    "FoldConjugateIntoTranspose": (conjugate, "ConjugateTranspose", "Conj"),
    "FuseSquaredDiffStage": (lambda x: tf.square(x - tf.sin(x)), "SquaredDifference", "Sub Square"),
    "HoistCWiseUnaryChainsStage": (
        lambda x: tf.concat(
            [tf.exp(tf.sin(tf.reshape(x, [3, 3]))), tf.exp(tf.sin(tf.reshape(x * 2.0, [3, 3])))], 0
        ),
        "ConcatV2 Sin Exp",
        "",
    ),
    "HoistCommonFactorOutOfAggregation": (
        lambda x: tf.sin(x) * tf.exp(x) + tf.sin(x) * tf.cos(x),
        "AddV2 Mul",
        "",
    ),
    "LogSoftmaxStage": (
        lambda x: tf.math.log(tf.nn.softmax(image_matrix(x))),
        "LogSoftmax",
        "Log Softmax",
    ),
    "MinimizeBroadcasts": (
        lambda x: (tf.sin(x) * tf.exp(x)[0]) * tf.cos(x)[1],
        "Mul",
        "",
    ),
    "OptimizeMaxOrMinOfMonotonicStage": (lambda x: tf.reduce_max(-tf.exp(x)), "Min Neg", "Max"),
    "RemoveCastIntoSegmentReductionStage": (segments, "SparseSegmentSum", ""),
    "RemoveIdempotentStage": (
        lambda x: tf.stop_gradient(tf.stop_gradient(tf.sin(x))) * 2.0,
        "Sin Mul",
        "",
    ),
    "RemoveIdentityTranspose": (
        lambda x: tf.transpose(tf.transpose(image_matrix(tf.sin(x)))) * 2.0,
        "Sin Mul",
        "Transpose",
    ),
    "RemoveInvolution": (lambda x: tf.exp(tf.negative(-x)), "Exp", "Neg"),
    "RemoveLogicalNotStage": (
        lambda x: tf.logical_not(tf.greater(x, 2.0)) & tf.logical_not(tf.equal(x, 1.0)),
        "LessEqual NotEqual",
        "LogicalNot",
    ),
    "RemoveNegationStage": (lambda x: tf.sin(x) - (-x), "AddV2", "Sub Neg"),
    "RemoveRedundantBitcastStage": (
        lambda x: tf.bitcast(tf.sin(x), x.dtype) + 1.0,
        "Sin AddV2",
        "Bitcast",
    ),
    "RemoveRedundantCastStage": (
        lambda x: raw.Cast(x=tf.sin(x), DstT=x.dtype) + 1.0,
        "Sin AddV2",
        "Cast",
    ),
    "RemoveRedundantReshapeOrBroadcastTo": (
        lambda x: tf.broadcast_to(tf.reshape(tf.sin(x), [9]), [9]) + 1.0,
        "Sin AddV2",
        "Reshape BroadcastTo",
    ),
    "RemoveStackSliceSameAxis": (
        lambda x: tf.stack([tf.sin(x), tf.cos(x)])[1:2] * 2.0,
        "ExpandDims",
        "Pack StridedSlice",
    ),
    "ReduceUpsamplingDims": (upsampled, "Tile Reshape", "Mul"),
    "ReorderCastLikeAndValuePreserving": (
        lambda x: tf.cast(tf.reshape(tf.reverse(tf.cast(x, tf.int8), [0]), [3, 3]), tf.float32),
        "Cast",
        "",
    ),
    "ReplaceMulWithBroadcastByTile": (
        lambda x: tf.reshape(tf.sin(x), [3, 1, 3]) * tf.ones([3, 2, 1], x.dtype),
        "Tile",
        "Mul",
    ),
    "ReplaceMulWithSquare": (lambda x: tf.sin(x) * tf.sin(x), "Square", "Mul"),
    "ReplacePackWithTileReshape": (
        lambda x: tf.stack([y := tf.sin(x), y, y]),
        "Tile Reshape",
        "Pack",
    ),
    "SimplifyAggregation": (lambda x: tf.add_n([y := tf.sin(x), y, y]), "Mul", "AddN"),
    "SimplifyEmbeddingLookupStage": (embedding, "SparseSegmentSum", "Unique GatherV2"),
    "SqrtDivToRsqrtMulStage": (lambda x: tf.sin(x) / tf.sqrt(x + 3.0), "Rsqrt Mul", "RealDiv Sqrt"),
}


def loop(x):
    """A loop of TensorFlow 2, which is lowered to Enter, Merge, Switch and NextIteration after placement."""
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * tf.sin(y) + 0.0 * y), [0, x])[
        1
    ]


# The same of constant folding, by the method that does it.
CONSTANTS = {
    "ConstantPushDown": (lambda x: (tf.sin(x) + 1.0) + 2.0, "AddV2:1", ""),
    "ConstantPushDownBiasAdd": (
        lambda x: raw.Add(
            x=tf.nn.bias_add(image_matrix(tf.sin(x)), tf.constant([1, 2, 3], x.dtype)),
            y=tf.ones((3, 3), x.dtype),
        ),
        "Add:1",
        "BiasAdd",
    ),
    "MergeConcat": (
        lambda x: tf.concat([tf.concat([tf.sin(x), x], 0), tf.cos(x)], 0),
        "ConcatV2:1",
        "",
    ),
    "MulConvPushDown": (lambda x: convolved(x) * 3.0, "Conv2D", "Mul"),
    "PartialAssocOpConstFolding": (
        lambda x: tf.add_n([tf.sin(x), tf.ones(9, x.dtype), tf.cos(x), tf.ones(9, x.dtype)]),
        "AddN:1",
        "",
    ),
    "PartialConcatConstFolding": (
        lambda x: tf.concat([tf.sin(x), [1.0], [2.0], x], 0),
        "ConcatV2:1",
        "",
    ),
    "ReduceDivToReciprocalMul": (lambda x: tf.sin(x) / 4.0, "Mul", "RealDiv"),
    "RemoveReverse": (
        lambda x: tf.reverse(tf.reshape(tf.sin(x), [1, 9]), [0]) + 1.0,
        "",
        "ReverseV2",
    ),
    "RemoveShuffleOrTranspose": (
        lambda x: tf.transpose(tf.reshape(tf.sin(x), [1, 9]), [0, 1]) + 1.0,
        "",
        "Transpose",
    ),
    "RemoveRandomShuffle": (
        lambda x: tf.random.shuffle(tf.reshape(tf.sin(x), [1, 9])) + 1.0,
        "",
        "RandomShuffle",
    ),
    "RemoveSplitOrSplitV": (lambda x: tf.split(tf.sin(x), 1)[0] + 1.0, "", "Split"),
    "ReplaceBinaryOperationWithBroadcastTo": (
        lambda x: tf.sin(x) * tf.ones([2, 9], x.dtype),
        "BroadcastTo",
        "Mul",
    ),
    "ReplaceDivisionOfOnesByReciprocal": (
        lambda x: tf.ones(9, x.dtype) / tf.sin(x),
        "Reciprocal",
        "RealDiv",
    ),
    "ReplaceOperationWithSnapshot": (lambda x: tf.sin(x) + tf.zeros(9, x.dtype), "", "AddV2"),
    "ReplaceReductionWithIdentity": (
        lambda x: tf.reduce_sum(tf.reshape(tf.sin(x), [9, 1]), 1, keepdims=True) * 2.0,
        "",
        "Sum",
    ),
    "ReplaceSubtractionFromZeroByNegation": (
        lambda x: tf.zeros(9, x.dtype) - tf.sin(x),
        "Neg",
        "Sub",
    ),
    "SimplifyArithmeticOperations": (
        lambda x: tf.greater(x, 1.0) & tf.ones(9, tf.bool),
        "",
        "LogicalAnd",
    ),
    "SimplifyPack": (lambda x: tf.stack([tf.sin(x)], 1) + 1.0, "ExpandDims", "Pack"),
    "SimplifyPad": (lambda x: tf.pad(tf.sin(x), [[0, 0]]) + 1.0, "", "Pad"),
    "SimplifyReshape": (lambda x: tf.reshape(tf.sin(x), [9]) * 2.0, "", "Reshape"),
    "SimplifySelect": (
        lambda x: tf.where(tf.ones([2, 9], tf.bool), tf.sin(x), x),
        "BroadcastTo",
        "SelectV2",
    ),
    "SimplifySlice": (lambda x: tf.slice(tf.sin(x), [0], [9]) * 2.0, "", "Slice"),
    "SimplifySqueeze": (lambda x: raw.Squeeze(input=image_matrix(tf.sin(x))) * 2.0, "", "Squeeze"),
    "SimplifyStridedSlice": (lambda x: image_matrix(tf.sin(x))[:, 0:3] * 2.0, "", "StridedSlice"),
    "SimplifyTile": (lambda x: tf.tile(tf.sin(x), [1]) * 2.0, "", "Tile"),
}


def normalized(x):
    y = tf.nn.relu(tf.nn.bias_add(convolved(x), tf.constant([0.5, -0.5], x.dtype)))
    norm = tf.compat.v1.nn.fused_batch_norm
    return tf.nn.relu(norm(y, *np.ones((4, 2), "float32"), is_training=False)[0])


# The other changes of placed graphs: lowering of loops, and the optimizers of single ops.
OTHERS = {
    "while": (loop, "Enter Merge Switch NextIteration Exit", "While"),
    "accumulate_n": (
        lambda x: raw.AccumulateNV2(inputs=[tf.sin(x), tf.cos(x), x], shape=[9]),
        "TemporaryVariable Assign AssignAdd DestroyTemporaryVariable",
        "AccumulateNV2",
    ),
    "parallel_stack": (
        lambda x: tf.parallel_stack([tf.sin(x), tf.cos(x)]),
        "_ParallelConcatStart _ParallelConcatUpdate",
        "ParallelConcat",
    ),
    # On for the CPU alone, or turned off by the device: device/graph_optimizers.mm.
    "UnaryOpsComposition": (
        lambda x: tf.exp(tf.sin(tf.cos(tf.tanh(x)))),
        "Exp Sin Cos Tanh",
        "_UnaryOpsComposition",
    ),
    "gelu": (lambda x: 0.5 * x * (1.0 + tf.math.erf(x / 1.4142135)), "Erf", "_FusedMatMul"),
    "relu6": (lambda x: tf.minimum(tf.nn.relu(x), 6.0), "Relu Minimum", ""),
    "remapper": (normalized, "", "_FusedConv2D _FusedBatchNormEx"),
    "layout": (normalized, "", "Transpose"),
}

# TensorFlow has no folding of half precision there.
FLOAT32_ALONE = {"ConstantPushDownBiasAdd", "ReduceUpsamplingDims", "ReplaceMulWithBroadcastByTile"}
TABLES = {"arithmetic": ARITHMETIC, "constants": CONSTANTS, "others": OTHERS}
FORCED = [(table, name) for table, rows in TABLES.items() for name in rows]


def ran_as(formula, x) -> tuple[tf.Tensor, dict[str, Counter[str]]]:
    """Its result on the device, and how often each op was on which device in the graph that ran."""
    with functions() as graphs, tf.device("GPU:0"):
        result = tf.function(formula)(put(x))
    found: dict[str, Counter[str]] = {"GPU:0": Counter(), "CPU:0": Counter()}
    for node in (node for graph in graphs for node in graph):
        found[short(node.device)][node.op] += 1
    return result, found


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("table", "name"), FORCED, ids=[name for _, name in FORCED])
def test_rewrite(table, name, dtype):
    """`made` are ops, or `op:count`; `gone` are on neither device."""
    formula, made, gone = TABLES[table][name]
    if name in FLOAT32_ALONE and dtype != "float32":
        made = gone = ""
    x = np.linspace(0.3, 3, 9).astype(numpy_type(dtype))
    result, found = ran_as(formula, x)
    here = found["GPU:0"]
    for op, _, count in (entry.partition(":") for entry in made.split()):
        assert here[op] == int(count) if count else here[op], (op, here)
    assert not [op for op in gone.split() if here[op] + found["CPU:0"][op]], found
    with tf.device("CPU:0"):
        expected = tf.function(formula)(tf.constant(x)).numpy()
    tolerance = {"float32": 1e-6, "float16": 1e-2, "bfloat16": 6e-2}[dtype]
    np.testing.assert_allclose(
        wide(on_device(result)), wide(expected), rtol=tolerance, atol=tolerance
    )


# ---- are these all? -------------------------------------------------------------------------------------------------

# Classes and methods that are no rewrite of their own, or make no op that a graph did not have.
NO_REWRITE = {
    "ArithmeticOptimizerStage", "ArithmeticNodesGroupOptimizerStage",  # bases
    "FakeDevice", "LoopInvariantNodeMotionOptimizer",
    "ConstantPushDownContext", "Optimize",
    "FoldMergeNode", "MaterializeBroadcastGradientArgs", "MaterializeConstantValuedNode", "MaterializeConstants",
    "MaterializeOutputValues", "MaterializeReductionIndices", "MaterializeShapes",  # Const
    "MoveConstantsPastEnter", "SimplifySwitch",  # of loops and conditions of TensorFlow 1
    "PartialConstPropThroughIdentityN", "RemoveRedundantVariableUpdates",
    "ReplaceOperationWithBroadcastTo", "ReplaceOperationWithConstant", "ReplaceOperationWithConstantTensor",
    "ReplaceOperationWithIdentity", "ReplaceOperationWithNoOp",  # called by those that are forced
    "SimplifyCase", "SimplifyGraph", "SimplifyNode", "SimplifyReduction",  # Case is lowered before
}  # fmt: skip


def in_tensorflow() -> set[str]:
    """Grappler's classes of rewrites and methods of constant folding, read off the names of symbols and types."""
    libraries = [
        Path(tf.__file__).parent / f"libtensorflow_{name}.so.2" for name in ("cc", "framework")
    ]
    found: set[str] = set()
    for library in libraries:
        names = library.read_bytes()
        for pattern in (
            rb"N10tensorflow8grappler12_GLOBAL__N_1(\d+)([A-Za-z0-9]+)E(?=\0)",
            rb"_ZNK?10tensorflow8grappler15ConstantFolding(\d+)([A-Z][A-Za-z0-9]+)E",
        ):
            for length, name in re.findall(pattern, names):
                if int(length) == len(name):
                    found.add(name.decode())
    return found


VERB = r"Replace|Simplify|Remove|Reduce|MulConv|ConstantPushDown|Partial|Merge|Move|Materialize|Fold.+Node"


@pytest.mark.skipif(
    sys.platform != "linux", reason="reads TensorFlow's libraries as they are on Linux"
)
def test_none_is_left_out():
    """New rewrites of a later release of TensorFlow are not in the tables."""
    known = NO_REWRITE.union(*TABLES.values())
    found = in_tensorflow()
    assert {*ARITHMETIC, *CONSTANTS} <= found, {*ARITHMETIC, *CONSTANTS} - found
    rewrites = {
        name for name in found if name in NO_REWRITE or "Stage" in name or re.match(VERB, name)
    }
    assert rewrites <= known, rewrites - known
