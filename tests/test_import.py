"""Importing: each way in which the library can be missing or wrong is one clear ImportError; a good one loads once.

The processes are started together, as each spends seconds on importing TensorFlow.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import threading

import pytest

from metal_ops import _library
from tests.processes import ROOT, Process

pytestmark = pytest.mark.packaging

PACKAGE = _library.PATH.parent
TENSORFLOW = _library.build_info()["tensorflow"]
TENSORFLOW_RELEASE = TENSORFLOW.rpartition(".")[0]

# Imports metal_ops with the library in several states, in one process: only a success is final.
BROKEN = r"""
import importlib, json, pathlib, re, shutil, sys, time
package, good = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes()
library = package / "_metal_ops.so"
states = {
    "missing": None,
    "empty": b"",
    "of another TensorFlow": good.replace(b"|tensorflow=2.", b"|tensorflow=1."),
    "cut off": good[: len(good) * 9 // 10],
    "no library": re.search(rb"metal_ops-build-info\|.*?tensorflow=[^|]*\|", good)[0],
}
result = {}
for state, content in states.items():
    library.unlink(missing_ok=True)
    if content is not None:
        library.write_bytes(content)
    begin = time.monotonic()
    try:
        import metal_ops
        result[state] = ["imported", "", 0, ""]
    except ImportError as error:
        result[state] = [type(error).__name__, str(error), time.monotonic() - begin, str("tensorflow" in sys.modules)]
    for name in [name for name in sys.modules if name.split(".")[0] == "metal_ops"]:
        del sys.modules[name]
files = sorted(path.name for path in package.iterdir())
print(json.dumps([result, files]))
"""

# As Apple's sample scripts do: the library by itself, with its own registered gradient. Afterwards the package.
BARE = """
import json, os, sys
import numpy as np, tensorflow as tf
module = tf.load_op_library(sys.argv[1])
out = {"zeroed": module.zero_out([[5, 4], [3, 2]]).numpy().tolist()}
inputs = tf.constant(np.random.default_rng(0).uniform(size=(64, 3)).astype(np.float32))
offsets = tf.constant([0, 4096, 36864], tf.int32)
table = tf.Variable(tf.random.stateless_uniform([36864, 2], [1, 2]))

@tf.custom_gradient
def encode(inputs, embeddings):
    attributes = dict(log2_per_level_scale=1.0, resolution_coarsest=16)
    outputs = module.hash_encode(inputs, embeddings, offsets, **attributes)
    def gradient(incoming):
        return None, module.hash_encode_grad(incoming, inputs, embeddings, offsets, **attributes)
    return outputs, gradient

with tf.GradientTape() as tape:
    outputs = encode(inputs, tf.convert_to_tensor(table))
    loss = tf.reduce_sum(outputs)
gradient = tape.gradient(loss, table)
out["shape"] = outputs.shape.as_list()
out["gradient sum"] = float(tf.reduce_sum(gradient))

import metal_ops  # the same file, by another path string
out["same op"] = metal_ops.raw_ops.zero_out([7, 7]).numpy().tolist()
grid = metal_ops.HashGrid(n_levels=2)
again = metal_ops.hash_encode(inputs, table, grid)
out["equal"] = bool(tf.reduce_all(again == outputs))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(metal_ops.hash_encode(inputs, table, grid))
out["gradients equal"] = bool(tf.reduce_all(tape.gradient(loss, table) == gradient))
print(json.dumps(out))
"""

# Another library with ops of our names is there first.
FOREIGN = """
import json, sys
import tensorflow as tf
tf.load_op_library(sys.argv[1])
try:
    import metal_ops
    print(json.dumps("imported"))
except ImportError as error:
    print(json.dumps(str(error)))
"""

OTHER_BACKEND = """
import json, sys, types
import keras
keras.backend.backend = lambda: "jax"
try:
    import metal_ops
    print(json.dumps("imported"))
except ImportError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """All of this file's processes, started before the first test waits for one."""
    folder = tmp_path_factory.mktemp("import")
    copies = {}
    for name in ("broken", "doctored"):
        copies[name] = folder / name / "metal_ops"
        ignore = shutil.ignore_patterns("*.so", "*.metallib", "__pycache__")
        shutil.copytree(PACKAGE, copies[name], ignore=ignore)
    foreign = folder / "foreign.so"
    shutil.copy(_library.PATH, foreign)
    bare = os.path.relpath(_library.PATH, ROOT)
    script = {"broken": BROKEN, "bare": BARE, "foreign": FOREIGN, "other backend": OTHER_BACKEND}
    arguments = {
        "broken": [str(copies["broken"]), str(_library.PATH)],
        "bare": [f"./{bare}"],
        "foreign": [str(foreign)],
        "other backend": [],
    }
    running = {
        name: Process(
            "-c",
            script[name],
            *arguments[name],
            path=copies["broken"].parent if name == "broken" else None,
        )
        for name in script
    }
    doctored = copies["doctored"].parent
    running["doctor, broken"] = Process("-m", "metal_ops", "doctor", path=doctored)
    running["doctor"] = Process("-m", "metal_ops", "doctor")
    running["nerf, broken"] = Process("-m", "metal_ops", "--help", path=doctored)
    return running


@pytest.fixture(scope="module")
def broken(processes):
    return processes["broken"].result()


@pytest.mark.parametrize(
    "state, words, loads_tensorflow",
    [
        ("missing", ["is missing", "_metal_ops.so", "make build"], "False"),
        ("empty", ["not a complete metal_ops library", "make build"], "False"),
        (
            "of another TensorFlow",
            [
                f"built for TensorFlow 1{TENSORFLOW[1:]}, but TensorFlow {TENSORFLOW}",
                f"tensorflow~=1{TENSORFLOW_RELEASE[1:]}.0",
                "make clean build",
            ],
            "True",
        ),
        ("cut off", ["is not a complete metal_ops library", "make build"], "False"),
        ("no library", [f"cannot be loaded into TensorFlow {TENSORFLOW}", "make build"], "True"),
    ],
)
def test_broken_library_is_one_import_error(broken, state, words, loads_tensorflow):
    kind, message, seconds, loaded = broken[0][state]
    assert kind == "LibraryError" and message.startswith("metal_ops: ")
    assert "\n" not in message, "one sentence"
    for word in words:
        assert word in message, message
    if loads_tensorflow == "False" and state != "cut off":  # fails before TensorFlow's slow import
        assert loaded == "False" and seconds < 1


def test_importing_never_builds(broken):
    _, files = broken
    assert [name for name in files if name.endswith((".so", ".metallib", ".o"))] == [
        "_metal_ops.so"
    ]


def test_bare_load_like_apples_samples(processes):
    out = processes["bare"].result()
    assert out["zeroed"] == [[5, 0], [0, 0]] and out["same op"] == [7, 0]
    assert out["shape"] == [64, 4]
    assert out["gradient sum"] == pytest.approx(64 * 4, rel=1e-5)  # weights sum to one
    assert out["equal"] and out["gradients equal"]


def test_foreign_library_with_our_ops(processes):
    message = processes["foreign"].result()
    assert "already registers ZeroOut, HashEncode" in message and "metal_ops.raw_ops" in message


def test_keras_on_another_backend(processes):
    message = processes["other backend"].result()
    assert (
        "Keras on TensorFlow" in message
        and "'jax'" in message
        and "KERAS_BACKEND=tensorflow" in message
    )


def test_doctor_explains_a_broken_installation(processes):
    code, out, err = processes["doctor, broken"].finish()
    assert code == 1 and not err, err
    assert "problem: metal_ops: the op library" in out and "make build" in out
    assert TENSORFLOW in out and "keras" in out  # versions are there all the same


def test_doctor_on_this_installation(processes):
    code, out, err = processes["doctor"].finish()
    assert code == 0, out + err
    for word in (
        "metal_ops works",
        "_metal_ops.so",
        f"for TensorFlow {TENSORFLOW}",
        "SIMD",
        "HashEncodeGrad",
        "MetalFusedConv2D",
        "ZeroOut",
    ):
        assert word in out, word
    trial = out[out.index("Trial") :]
    assert trial.count("works") >= 3 and "CPU:0" in trial


def test_help_without_a_library(processes):
    code, out, _ = processes["nerf, broken"].finish()
    assert code == 0 and "doctor" in out and "first steps" in out


def test_library_is_loaded_once_from_many_threads():
    modules = []
    threads = [threading.Thread(target=lambda: modules.append(_library.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(module) for module in modules}) == 1


def test_build_info_and_simd_target():
    info = _library.build_info()
    assert info["tensorflow"] == importlib.metadata.version("tensorflow-cpu") and info["compiler"]
    assert _library.simd_target()


@pytest.mark.parametrize(
    "built, installed, good",
    [
        ("2.30.1", "2.30.1", True),
        ("2.30.1", "2.30.0", True),
        ("2.30.1", "2.31.0", False),
        ("2.30.1", "3.30.1", False),
    ],
)
def test_versions_that_fit(built, installed, good):
    if good:
        _library.check_tensorflow(built, installed)
    else:
        with pytest.raises(
            _library.LibraryError, match=f"built for TensorFlow {built}.*{installed} is installed"
        ):
            _library.check_tensorflow(built, installed)
