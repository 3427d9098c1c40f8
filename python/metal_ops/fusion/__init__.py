"""Fusion of Conv2D and MatMul with the ops around them (bias, batch norm, residual, activation) into one op.

Layer norm, RMS norm, gated units and attention that are written in elementary ops become one op, too.

A graph pass does it when a `tf.function` is run for the first time, on the nodes that TensorFlow places on the Metal
device; so in Keras' `fit` and `predict`, in SavedModels, in loops and branches. Results stay the same within rounding,
gradients are untouched, and eager ops and XLA are left alone. `explain` shows its changes of a function.

It is on by default. `METAL_OPS_FUSION=0` switches it off, `METAL_OPS_FUSION=bias,residual` uses these patterns only.
A function that has been run keeps its optimized graph: switches act on functions that have not been run yet.

The same is registered as the grappler optimizer `metal_fusion`, for a `RewriterConfig` that lists its optimizers: there
it has to stand before "remap". It sees the graphs of `tf.compat.v1.Session`s too.

Example:
  >>> layer = tf.function(lambda x, w, b: tf.nn.relu(tf.matmul(x, w) + b))
  >>> x, w, b = tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([4])
  >>> with metal_ops.fusion.enabled(cpu=True):
  ...     print(metal_ops.fusion.explain(layer, x, w, b))
  <lambda>: 1 of 1 candidates fused: 3 nodes became 1 MetalFusedMatMul
  <BLANKLINE>
  fused   into                             chain ends because
  MatMul  MetalFusedMatMul[BiasAdd, Relu]  'Relu' (Relu) is the last op that can be fused.
"""

from metal_ops.fusion._explain import explain
from metal_ops.fusion.explanation import Explanation, Fusion, Miss, Node
from metal_ops.fusion.switches import (
    Pattern,
    Status,
    configure_from_environment,
    disable,
    disabled,
    enable,
    enabled,
    patterns,
    status,
)

__all__ = [
    "Explanation",
    "Fusion",
    "Miss",
    "Node",
    "Pattern",
    "Status",
    "configure_from_environment",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "explain",
    "patterns",
    "status",
]
