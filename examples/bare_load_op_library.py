"""The ops without the Python package, as published samples of Metal ops use them: `tf.load_op_library`.

    .venv/bin/python examples/bare_load_op_library.py

The library file holds REGISTER_OP and kernels; TensorFlow generates the Python functions. Gradients are registered in
Python, so a script that loads the bare file registers the one it needs. (`import metal_ops` brings them all; then a
script must not register its own. The generated functions are `metal_ops.raw_ops` there.)
"""

import os
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

# ---- the file -------------------------------------------------------------------------------------------------------
# It lies beside the package, which find_spec locates without importing it.
spec = find_spec("metal_ops")
assert spec and spec.origin, "metal_ops is not installed"
library = tf.load_op_library(str(Path(spec.origin).with_name("_metal_ops.so")))

print("zero_out:", library.zero_out([[1, 2], [3, 4]]).numpy().tolist())

# ---- a hash grid by hand --------------------------------------------------------------------------------------------
# Level l has ceil(2^(l * log2_per_level_scale) * coarsest - 1) + 1 points along an axis. It stores them all in rows of
# its own, in multiples of 8, or 2^12 rows if they are more.
LEVELS, COARSEST, GROWTH, ROWS = 4, 8, 1.0, 1 << 12
resolutions = [int(np.ceil(2.0 ** (level * GROWTH) * COARSEST - 1)) + 1 for level in range(LEVELS)]
sizes = [min(-(-(r**2) // 8) * 8, ROWS) for r in resolutions]
offsets = tf.constant(np.cumsum([0, *sizes]), tf.int32)
attributes = dict(log2_per_level_scale=GROWTH, resolution_coarsest=COARSEST)
print("resolutions", resolutions, "rows", sizes)


@tf.RegisterGradient("HashEncode")
def _hash_encode_gradient(op: tf.Operation, upstream: tf.Tensor):
    inputs, embeddings, hashmap_offsets = op.inputs
    table_gradient = library.hash_encode_grad(
        upstream, inputs, embeddings, hashmap_offsets, **attributes
    )
    return None, table_gradient, None  # points, table, offsets


# ---- training -------------------------------------------------------------------------------------------------------
table = tf.Variable(tf.random.stateless_uniform([int(offsets[-1]), 2], [0, 1], -1e-4, 1e-4))
mix = tf.Variable(tf.random.stateless_normal([2 * LEVELS, 1], [0, 2]))
optimizer = tf.keras.optimizers.Adam(1e-2)


@tf.function
def step(points: tf.Tensor) -> tf.Tensor:
    target = tf.sin(12 * points[:, :1]) * tf.cos(9 * points[:, 1:])
    with tf.GradientTape() as tape:
        features = library.hash_encode(points, table, offsets, **attributes)  # [N, 8]
        loss = tf.reduce_mean((features @ mix - target) ** 2)
    variables = [table, mix]
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


losses = [float(step(tf.random.stateless_uniform([4096, 2], [i, 3]))) for i in range(200)]
print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.6f} after {len(losses)} steps")
assert losses[-1] < losses[0] / 100, "it should have learnt the function"
