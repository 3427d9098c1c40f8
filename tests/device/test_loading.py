"""Loading the device: once, before TensorFlow's devices, with a sentence when it cannot be; errors; a clean exit.

Every case is a program of its own, since a device stays loaded for the life of its process.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from metal_ops._library import build_info
from tests.processes import Process

ROOT = Path(__file__).resolve().parents[2]
RELEASE = build_info()["tensorflow"].rpartition(".")[0]
ON_GPU = os.environ.get("HOSTMETAL_DEVICE", "").startswith("cuda")
# METAL_OPS_GEMM's shaders that processors alone have.
CACHED = pytest.param(
    "cached", marks=pytest.mark.skipif(ON_GPU, reason="there on processors alone")
)
NO_STAND_IN = pytest.mark.skipif(
    os.environ.get("METAL_OPS_BUILT_BY") == "bazel",
    reason="make builds what stands for NVIDIA's library",
)
pytestmark = pytest.mark.skipif(
    sys.platform == "darwin", reason="on macOS TensorFlow loads the device"
)


def run(program: str, **environment: str) -> str:
    """Runs a program and returns its output; fails on anything but a clean exit without noise from GNUstep."""
    code, out, err = Process("-c", textwrap.dedent(program), **environment).finish(600)
    assert code == 0, f"exit code {code}\n{out}\n{err}"
    for noise in ("autorelease", "NSAutoreleasePool", "Foundation"):
        assert noise not in err, err
    return out


def test_nothing_is_loaded_unless_asked():
    out = run("""
        import metal_ops, tensorflow as tf
        print(tf.config.list_physical_devices("GPU"), metal_ops.device.list(), metal_ops.device.load_if_asked())
        try:
            metal_ops.device.synchronize()
        except metal_ops.device.DeviceError as error:
            print(error)
    """)
    assert out.startswith("[] [] None\n")
    assert "call metal_ops.device.load() first" in out


def test_nothing_is_said_at_log_level_3():
    program = """
        import tensorflow as tf
        from metal_ops import device
        device.load()
        with tf.device("GPU:0"):
            print(int(tf.reduce_sum(tf.ones([3]))))
    """
    process = Process("-c", textwrap.dedent(program), TF_CPP_MIN_LOG_LEVEL="3")
    assert process.finish(600) == (0, "3\n", "")


def test_load_twice_and_from_many_threads():
    out = run("""
        import threading
        import tensorflow as tf
        from metal_ops import device
        tf.config.list_physical_devices()  # TensorFlow remembers this list
        found = []
        threads = [threading.Thread(target=lambda: found.append(device.load())) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(len(found), len(set(map(id, found))), device.list() == [device.load()])
        print(device.load())
        print([d.name for d in tf.config.list_physical_devices("GPU")])
        print([d.name for d in tf.config.list_logical_devices("GPU")])
        print(device.memory()["limit"] == device.load().memory_bytes)
    """)
    lines = out.splitlines()
    assert lines[0] == "4 1 True"
    assert lines[1].startswith("GPU:0: METAL device '")
    assert lines[2:] == ["['/physical_device:GPU:0']", "['/device:GPU:0']", "True"]


def test_documented_ops_are_those_that_run_there():
    out = run("""
        import tensorflow as tf
        from tensorflow.python.framework import kernels
        import metal_ops
        from metal_ops import device
        # By kernel, not by op: TensorFlow has some of its own for "GPU", as that of int32 SquaredDifference.
        def on_gpu():
            found = kernels.get_all_registered_kernels().kernel
            return {(k.op, k.SerializeToString(deterministic=True)) for k in found if k.device_type == "GPU"}
        before = on_gpu()
        device.KERNELS = device.KERNELS.with_name("none.so")  # the device's own alone
        device.load()
        # Those that begin with _ TensorFlow makes of others.
        print(*sorted({op for op, _ in on_gpu() - before if op[0] != "_"}))
    """)
    from tools.reference import (
        records,
    )  # not at the top: installed packages are tested without tools/

    rows = records.read(records.DTYPES)
    assert set(out.split()) == {op for op, devices in rows.items() if "CPU" not in devices}


@pytest.mark.release
def test_load_at_import():
    out = run(
        """
        import metal_ops, tensorflow as tf
        metal_ops.device.load_if_asked()
        print(len(metal_ops.device.list()), (tf.constant([1.0]) + 1.0).device[-5:])
        """,
        METAL_OPS_DEVICE="1",
    )
    assert out == "1 GPU:0\n"


def test_environment_variable_is_checked():
    out = run(
        """
        import importlib
        try:
            importlib.import_module("metal_ops").device.load_if_asked()
        except RuntimeError as error:
            print(error)
        """,
        METAL_OPS_DEVICE="yes",
    )
    assert "METAL_OPS_DEVICE is 'yes', expected 1" in out


def test_too_late_is_an_error():
    out = run("""
        import tensorflow as tf
        from metal_ops import device
        tf.constant(1.0)
        for _ in range(2):
            try:
                device.load()
            except device.DeviceError as error:
                print(error)
        print(tf.constant(1.0).numpy(), device.list())
    """)
    assert out.count("before the first op") == 2
    assert out.endswith("1.0 []\n")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("tf.sysconfig.get_build_info = lambda: {'is_cuda_build': True}", "CUDA build"),
        (
            "tf.__version__ = '2.99.0'",
            f"TensorFlow {RELEASE}, but TensorFlow 2.99.0 is installed",
        ),
        (
            "device.PLUGIN = device.PLUGIN.with_name('none.so')",
            "none.so is missing; `pip install 'tensorflow-metal-ops[metal]'`",
        ),
    ],
)
def test_refusals(patch, message):
    out = run(f"""
        import tensorflow as tf
        from metal_ops import device
        {patch}
        try:
            device.load()
        except device.DeviceError as error:
            print(error)
        print(tf.config.list_physical_devices("GPU"))
    """)
    assert message in out and out.endswith("[]\n")


def test_a_copy_was_loaded(tmp_path):
    """By another caller: a second load would end the process."""
    out = run(
        """
        import os, pathlib, shutil
        from tensorflow.python.framework import load_library
        from metal_ops import device
        folder = pathlib.Path(os.environ["METAL_OPS_TEST_FOLDER"])
        for library in (device.PLUGIN, device.HOSTMETAL):
            shutil.copy(library, folder)
        load_library.load_pluggable_device_library(str(folder / device.PLUGIN.name))
        try:
            device.load()
        except device.DeviceError as error:
            print(error)
        """,
        METAL_OPS_TEST_FOLDER=str(tmp_path),  # a variable that forks may have
    )
    assert "was loaded into this process before" in out


def test_mapped_but_no_plugin():
    out = run("""
        import ctypes
        import tensorflow as tf
        from metal_ops import device
        ctypes.CDLL(str(device.PLUGIN))
        try:
            device.load()
        except device.DeviceError as error:
            print(error)
    """)
    assert "was loaded into this process before" in out


FOUND = """
    import tensorflow as tf
    print(len(tf.config.list_physical_devices("GPU")), (tf.constant([1.0]) + 1.0).device[-5:])
    from metal_ops import device
    try:
        found = device.load()
        print(found.plugin == device.PLUGIN, found.kernels == device.KERNELS)
        with tf.device("GPU:0"):
            print(__import__("metal_ops").zero_out([5.0, 4.0]).numpy())
    except device.DeviceError as error:
        print(error)
    """


@pytest.mark.release
def test_tensorflow_finds_it_by_itself():
    """By the variable that TensorFlow reads; nothing is too late then."""
    plugin = str(ROOT / "python/metal_ops/libmetal_device.so")
    out = run(FOUND, TF_PLUGGABLE_DEVICE_LIBRARY_PATH=plugin)
    assert out == "1 GPU:0\nTrue True\n[5. 0.]\n"
    out = run(FOUND, TF_PLUGGABLE_DEVICE_LIBRARY_PATH=plugin, METAL_OPS_DEVICE_BATCH="lots")
    assert out.startswith("0 CPU:0\n") and "METAL_OPS_DEVICE_BATCH=lots is not a whole" in out


@pytest.mark.parametrize("variable", ["METAL_OPS_DEVICE_MEMORY_MB", "METAL_OPS_DEVICE_BATCH"])
def test_a_plugin_that_declines_has_no_devices(variable):
    out = run(
        """
        import tensorflow as tf
        from metal_ops import device
        try:
            device.load()
        except device.DeviceError as error:
            print(error)
        print(tf.config.list_physical_devices("GPU"), (tf.constant([1.0]) + 1.0).numpy())
        """,
        **{variable: "lots"},
    )
    assert f"{variable}=lots is not a whole number" in out
    assert out.endswith("[] [2.]\n")


def test_out_of_memory_is_resource_exhausted():
    out = run(
        """
        import tensorflow as tf
        from metal_ops import device
        device.load()
        tf.config.set_soft_device_placement(False)
        with tf.device("GPU:0"):
            x = tf.ones([4 << 20])  # 16 MiB of 60
            y = x + x
            for attempt in range(3):
                try:
                    z = tf.concat([x, y, x], 0)
                except tf.errors.ResourceExhaustedError as error:
                    print(error.message.split(" and type")[0])
            del y
            for _ in range(50):  # freed memory comes back although its work is still queued
                y = x + x
            print(y.numpy().sum())
        """,
        METAL_OPS_DEVICE_MEMORY_MB="60",
    )
    lines = out.splitlines()
    assert len(lines) == 4 and all(
        "OOM when allocating tensor with shape[12582912]" in line for line in lines[:3]
    )
    assert float(lines[3]) == 2 * (4 << 20)


@pytest.mark.parametrize(("batch", "validation"), [("1", "0"), ("50", "0"), ("2", "1")])
def test_batches_and_validation(batch, validation):
    out = run(
        """
        import tensorflow as tf
        from metal_ops import device
        device.load()
        with tf.device("GPU:0"):
            v = tf.Variable(tf.zeros([1000]))
            for i in range(120):
                v.assign_add(tf.fill([1000], float(i % 3)))
            print(v.numpy().min(), v.numpy().max())
        """,
        METAL_OPS_DEVICE_BATCH=batch,
        METAL_DEVICE_WRAPPER_TYPE=validation,
    )
    assert out == "120.0 120.0\n"


def test_exit_with_work_in_flight():
    out = run("""
        import tensorflow as tf
        from metal_ops import device
        device.load()
        with tf.device("GPU:0"):
            v = tf.Variable(tf.ones([1 << 20]))
            for _ in range(40):
                v.assign_add(v * 2.0)
                kept = tf.concat([v, v], 0)
        print("left")
    """)
    assert out == "left\n"


def test_exit_while_the_device_works():
    # Inside a graph and not in a Python loop: Python ends threads that come back to it then, and TensorFlow aborts, on
    # the CPU too.
    out = run("""
        import threading
        import tensorflow as tf
        from metal_ops import device
        device.load()
        started = threading.Semaphore(0)
        @tf.function
        def work(x):
            return tf.while_loop(lambda i, x: True, lambda i, x: (i + 1, x * 0.5 + 1.0), (0, x))
        def thread():
            with tf.device("GPU:0"):
                x = tf.ones([1000])
                started.release()
                work(x)
        for _ in range(3):
            threading.Thread(target=thread, daemon=True).start()
        for _ in range(3):
            started.acquire()
        import time
        time.sleep(1.0)
        print("left")
    """)
    assert out == "left\n"


FALLBACKS = """
    import warnings
    import numpy as np
    import metal_ops, tensorflow as tf
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, kind, *_: print(kind.__name__, message)
    try:
        metal_ops.device.load()
        x = tf.eye(3)
        for _ in range(2):
            print(tf.linalg.det(tf.linalg.inv(x @ x)).device[-5:])
        f = tf.function(lambda x: tf.linalg.logm(tf.cast(x, tf.complex64)))
        f(x)
        tf.linalg.svd(np.eye(3))
        tf.constant([1.0], tf.float64) * 2.0
        tf.cast(tf.constant([1.0], tf.float64), tf.float32)
        with tf.device("CPU:0"):
            tf.linalg.expm(x)
            tf.linalg.svd(x)
        data = tf.data.Dataset.from_tensors(x).map(tf.linalg.svd).shuffle(2)
        list(data)
        list(tf.distribute.MirroredStrategy().experimental_distribute_dataset(data.batch(1)))
        tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
        words = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
        words(tf.constant(["a", "c"])), words.vocabulary_size()
        tf.keras.layers.IntegerLookup(vocabulary=[3, 5])(tf.constant([3, 4]))
        tf.strings.length("a")
        model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        model.compile("adam", "mse")
        model.fit(x, x[:, :2], verbose=0)
    except metal_ops.device.DeviceError as error:
        print("error:", error)
    """


def test_ops_that_the_device_has_not_run_on_the_cpu():
    assert run(FALLBACKS) == "CPU:0\nCPU:0\n"
    assert run(FALLBACKS, METAL_OPS_DEVICE_FALLBACK="silent") == "CPU:0\nCPU:0\n"


def test_ops_that_the_device_has_not_are_told_once():
    out = run(FALLBACKS, METAL_OPS_DEVICE_FALLBACK="warn")
    lines = [line for line in out.splitlines() if "metal_ops" in line]
    ops = [line.split()[2:5] for line in lines]
    assert ops == [
        ["MatrixInverse", "of", "float32"],
        ["MatrixDeterminant", "of", "float32"],
        ["MatrixLogarithm", "of", "complex64"],
        ["Svd", "of", "float64"],
        ["Mul", "of", "float64"],
        ["Cast", "of", "float64"],
    ], out
    assert all(line.startswith("RuntimeWarning metal_ops: ") for line in lines)
    assert "the device has no kernel for this op. metal_ops.device.report(" in lines[0]
    assert "the device's kernels of it are for " in lines[4] and "float32" in lines[4]
    assert out.count("CPU:0\n") == 2


def test_ops_that_the_device_has_not_can_be_errors():
    out = run(FALLBACKS, METAL_OPS_DEVICE_FALLBACK="error")
    assert "error: metal_ops: MatrixInverse of float32 runs on the CPU" in out
    assert "CPU:0" not in out
    in_graph = FALLBACKS.replace("x = tf.eye(3)", "x = tf.eye(3); tf.function(tf.linalg.svd)(x)")
    assert "error: metal_ops: Svd of float32" in run(in_graph, METAL_OPS_DEVICE_FALLBACK="error")
    out = run(FALLBACKS, METAL_OPS_DEVICE_FALLBACK="loud")
    assert "METAL_OPS_DEVICE_FALLBACK is 'loud', expected silent" in out
