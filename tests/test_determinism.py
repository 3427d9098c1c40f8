"""Bit-identical results: twice in one process, under op determinism, and for every number of threads."""

from __future__ import annotations

import pytest

from tests.processes import Process

pytestmark = pytest.mark.ops

# Prints a digest of every op's result on cases where many points share rows. argv: intra-op threads, determinism.
DIGESTS = """
import hashlib, json, sys
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
if sys.argv[2] == "deterministic":
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
import metal_ops
from tests import cases
from tests.suites import at_depth
from tests.test_hash_encode import OPS, run

N = at_depth(5003, 20011)

chosen = [
    cases.Case(N, 2, 2, 3, "float32", "smoothstep", "hash"),
    cases.Case(N, 1, 8, 2, "float16", "linear", "hash"),
    cases.Case(N, 5, 1, 4, "bfloat16", "linear", "dense"),
    cases.Case(257, 32, 4, 2, "float32", "linear", "hash"),
    cases.Case(**{**cases.NERF, "n_points": N}, dtype="float32", interpolation="linear"),
]
digests = {}
for case in chosen:
    for op in OPS:
        results = [run(op, case.arrays, case.grid).numpy().tobytes() for _ in range(2)]
        assert results[0] == results[1], f"{op} on {case}: another result the second time"
        digests[f"{op} {case}"] = hashlib.sha256(results[0]).hexdigest()

# Training: layer, optimizer and shuffling together.
import keras
model = keras.Sequential([keras.Input([3]), metal_ops.layers.HashEncoding(n_levels=4, seed=1),
                          keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=2))])
model.compile(metal_ops.optimizers.Adam(1e-2), "mse")
x = np.random.default_rng(0).uniform(size=(512, 3)).astype(np.float32)
model.fit(x, x[:, :1], batch_size=64, shuffle=False, verbose=0)
digests["training"] = hashlib.sha256(model.layers[0].table.numpy().tobytes()).hexdigest()
print(json.dumps(digests))
"""

RUNS = {
    "1 thread": ("1", "default"),
    "5 threads": ("5", "default"),
    "deterministic": ("2", "deterministic"),
    "deterministic again": ("3", "deterministic"),
}


@pytest.fixture(scope="module")
def digests():
    processes = {name: Process("-c", DIGESTS, *arguments) for name, arguments in RUNS.items()}
    return {name: process.result() for name, process in processes.items()}


@pytest.mark.parametrize("name", [name for name in RUNS if name != "1 thread"])
def test_same_bits(digests, name):
    expected, actual = dict(digests["1 thread"]), dict(digests[name])
    # TensorFlow's own sums promise the same bits only under op determinism, and ours are bit-identical always.
    trained = expected.pop("training"), actual.pop("training")
    assert len(expected) == 30
    assert actual == expected
    if name == "deterministic again":
        assert trained[1] == digests["deterministic"]["training"]
