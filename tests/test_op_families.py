"""The common promises of all ops along rays, encodings, losses and activations: shapes known in graphs, and the
same bits for every number of threads."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.ops import _declared
from tests.calls import Call, normal
from tests.processes import ROOT, Process
from tests.test_house import families

pytestmark = pytest.mark.ops


def stated(families: Iterable[str]) -> dict[str, Call]:
    """The calls in the families' own test files."""
    found: dict[str, Call] = {}
    for family in families:
        if importlib.util.find_spec(f"tests.test_{family}"):
            module = importlib.import_module(f"tests.test_{family}")
            found |= getattr(module, "CALLS", {})
    return found


def derived() -> dict[str, Call]:
    """Functions of one tensor whose ops say that they take any shape, and are differentiable."""
    found = {}
    for name in metal_ops.ops.__all__:
        op = _declared.declarations().get(name.replace("_", ""))
        if op is None or not op.differentiable:
            continue
        if [given.shape for given in op.inputs] == ["any"] and not op.inputs[0].on_host:
            found[name] = Call(getattr(metal_ops, name), lambda: {"x": normal(301, 103)}, ("x",))
    return found


CALLS = derived() | stated(families(ROOT))


# ---- shapes --------------------------------------------------------------------------------------


@pytest.mark.instrumented
@pytest.mark.parametrize("name", CALLS)
def test_shapes_are_known_in_graphs(name: str) -> None:
    """With known shapes of arguments, those of outputs and gradients are known; with unknown sizes, their
    ranks are."""
    call = CALLS[name]
    arrays = call.arrays()
    actual = [x.shape for x in call.results(**{k: tf.constant(v) for k, v in arrays.items()})]

    def traced(shape_of: Callable[[np.ndarray], list[int | None]]) -> list[tf.TensorShape]:
        specs = {k: tf.TensorSpec(shape_of(v), v.dtype, name=k) for k, v in arrays.items()}
        function = tf.function(lambda **tensors: call.results(**tensors))
        return [x.shape for x in function.get_concrete_function(**specs).structured_outputs]

    known = traced(lambda array: list(array.shape))
    # Numbers of rays and samples are open, those of axes, channels and parameters are not.
    partly = traced(lambda array: [None, *array.shape[1:]] if array.ndim > 1 else list(array.shape))
    for exact, static, half in zip(actual, known, partly, strict=True):
        assert static.rank == half.rank == exact.rank
        assert static.is_compatible_with(exact) and half.is_compatible_with(exact)
        if not call.open_ended:
            assert static == exact


# ---- threads -------------------------------------------------------------------------------------

DIGESTS = """
import hashlib, json, sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
if sys.argv[2] == "deterministic":
    tf.config.experimental.enable_op_determinism()
from tests.test_op_families import CALLS
digests = {}
for name, call in CALLS.items():
    arrays = {key: tf.constant(value) for key, value in call.arrays().items()}
    first, second = ([x.numpy().tobytes() for x in call.results(**arrays)] for _ in range(2))
    assert first == second, f"{name}: another result the second time"
    digests[name] = [hashlib.sha256(result).hexdigest() for result in first]
print(json.dumps(digests))
"""
RUNS = {"1 thread": ("1", "default"), "5 threads": ("5", "deterministic")}


def test_same_bits_for_every_number_of_threads() -> None:
    processes = [Process("-c", DIGESTS, *arguments) for arguments in RUNS.values()]
    one, five = (process.result() for process in processes)
    assert set(one) == set(CALLS)
    assert one == five


@pytest.mark.instrumented
def test_each_argument_of_an_op_is_described_beside_its_name():
    """The generated function's docstring has TensorFlow's words on the type, then the declaration's own."""
    said = inspect.getdoc(
        metal_ops.raw_ops.hash_encode
    )  # from 3.13 on Python itself takes the indent away
    arguments = dict(re.findall(r"^  (\w+): (.*(?:\n    .*)*)", said, re.MULTILINE))
    described = {
        "inputs": "float32 [N, D], D = 2, 3 or 4",
        "embeddings": "The table E of all levels",
        "hashmap_offsets": "First row of each level",
        "log2_per_level_scale": "steps an edge",
        "resolution_coarsest": "Resolution of level 0",
        "interpolation": "for a continuous gradient",
        "grid_kind": "levels that are never hashed",
    }
    for name, words in described.items():
        assert words in arguments[name]
    assert "Interpolated features" in said.partition("Returns:")[2]
