"""A process that is forked after the device was used: whatever uses the device there gets a sentence, and never waits.

Its threads stay behind at a fork. TensorFlow's CPU ops still work there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.device.test_loading import NO_STAND_IN, ON_GPU, ROOT, run

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's")

# Every case in a child of its own, with an alarm that ends one that waits. Work is in flight when it is forked.
PROGRAM = """
    import os, signal, sys
    import numpy as np
    import tensorflow as tf
    import metal_ops
    from metal_ops import device
    device.load()
    tf.config.set_soft_device_placement(False)
    x = tf.constant(np.ones([1 << 20], np.float32))
    variable = tf.Variable(x)
    optimizer = metal_ops.optimizers.Adam(learning_rate=0.01)
    optimizer.build([variable])
    double = tf.function(lambda x: x * 2.0)
    double(x)
    y = metal_ops.softshrink(x)
    assert y.device.endswith("GPU:0")
    host = np.float32([1.0, 2.0])

    def on_cpu():
        with tf.device("CPU:0"):
            a = tf.constant(host)
            return (metal_ops.softshrink(a) + a).numpy().tolist()

    cases = {
        "copy from the device": lambda: x.numpy(),
        "copy to the device": lambda: tf.constant(host),
        "copy between": lambda: tf.identity(x) + tf.identity(x),
        "a new variable": lambda: tf.Variable(host),
        "an op of this library": lambda: metal_ops.softshrink(x),
        "a stock op": lambda: tf.nn.relu(x),
        "a product": lambda: tf.matmul(x[None], x[:, None]),
        "an update": lambda: variable.assign_add(x),
        "an optimizer": lambda: optimizer.apply([x], [variable]),
        "a function": lambda: double(x),
        "a new function": lambda: tf.function(metal_ops.softshrink)(x),
        "synchronize": device.synchronize,
        "the CPU": on_cpu,
        "memory": lambda: device.memory()["in_use"] >= x.shape[0] * 4,
        "nothing": lambda: 1,
    }
    for number, (name, body) in enumerate(cases.items()):
        for _ in range(8):
            y = metal_ops.softshrink(y)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            try:
                print(name, "->", body())
            except (tf.errors.OpError, device.DeviceError) as error:
                print(name, "->", type(error).__name__, str(error).replace(chr(10), " "))
            sys.stdout.flush()
            # Some end as a program does, with its exit handlers; the others as multiprocessing does.
            (sys.exit if number % 2 else os._exit)(0)
        _, status = os.waitpid(child, 0)
        print("end of", name, "->", os.waitstatus_to_exitcode(status))
    print("parent ->", float(tf.reduce_sum(double(metal_ops.softshrink(x)))))
"""
WORKS = {
    "the CPU": "[1.5, 3.5]",
    "memory": "True",
    "nothing": "1",
    "parent": str(float(1 << 20)),  # it goes on as if nothing had been
}


@pytest.mark.parametrize("validation", ["0", "1"])
def test_use_after_a_fork(validation):
    out = run(PROGRAM, METAL_DEVICE_WRAPPER_TYPE=validation)
    found = dict(line.split(" -> ", 1) for line in out.splitlines())
    ends = {name.removeprefix("end of ") for name in found if name.startswith("end of")}
    assert len(ends) == 15 and {found[f"end of {name}"] for name in ends} == {"0"}, out
    assert {name: found[name] for name in WORKS} == WORKS, out
    for name in ends - WORKS.keys():
        kind, sentence = found[name].split(" ", 1)
        expected = (
            "DeviceError"
            if name in ("synchronize", "a function", "a new function")
            else "InternalError"
        )
        assert kind == expected, out
        assert (
            "was forked from one that had used the device" in sentence and "'spawn'" in sentence
        ), out


def test_a_forked_pool_that_leaves_the_device_alone():
    out = run("""
        import multiprocessing
        import numpy as np
        import tensorflow as tf
        import metal_ops
        metal_ops.device.load()
        x = metal_ops.softshrink(tf.ones([3]))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(sum(pool.map(np.sum, [np.ones(n) for n in range(20)])))
        print(x.numpy().tolist())
    """)
    assert out == "190.0\n[0.5, 0.5, 0.5]\n"


@pytest.mark.skipif(ON_GPU, reason="a GPU's driver is started by loading: the test below")
def test_a_fork_before_the_device_is_used():
    """Loading alone starts nothing: parent and child use the device, each its own."""
    out = run("""
        import os, signal, sys
        import tensorflow as tf
        import metal_ops
        metal_ops.device.load()
        child = os.fork()
        signal.alarm(120)
        print(tf.function(metal_ops.softshrink)(tf.ones([3])).numpy().tolist(), flush=True)
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """)
    assert out == "[0.5, 0.5, 0.5]\n" * 2


@NO_STAND_IN
@pytest.mark.parametrize("gpu", ["a GPU"] if ON_GPU else ["what stands for one"])
def test_a_fork_after_a_gpu_was_loaded(gpu):
    """NVIDIA's library does not work there, used or not, so the child gets the sentence."""
    environment = {}
    if not ON_GPU:
        library = "build/tests/hostmetal/cuda/libcuda.so"
        subprocess.run(["make", "-s", library], cwd=ROOT, check=True)
        environment = {"HOSTMETAL_DEVICE": "cuda:0", "HOSTMETAL_LIBCUDA": str(ROOT / library)}
    out = run(
        """
        import os, signal
        import tensorflow as tf
        from metal_ops import device
        device.load()
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        else:
            signal.alarm(120)
            try:
                print(tf.constant([1.0]))
            except tf.errors.OpError as error:
                print(error)
        """,
        **environment,
    )
    assert "was forked from one that had used the device: a GPU's driver" in out
    assert "before metal_ops.device.load()" in out


def test_spawned_processes_use_the_device():
    out = run("""
        import multiprocessing, pathlib, sys, tempfile
        import tensorflow as tf
        import metal_ops
        metal_ops.device.load()
        metal_ops.softshrink(tf.ones([3])).numpy()
        pathlib.Path(folder := tempfile.mkdtemp(), "work.py").write_text(
            "def work(n):\\n"
            "    import tensorflow as tf, metal_ops\\n"
            "    metal_ops.device.load()\\n"
            "    y = metal_ops.softshrink(tf.ones([n]))\\n"
            "    return y.device[-5:], float(tf.reduce_sum(y))\\n"
        )
        sys.path.insert(0, folder)
        import work
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work.work, [4]))
    """)
    assert out == "[('GPU:0', 2.0)]\n"
