"""HOSTMETAL_DEVICES=2: two METAL devices in a process, side by side: the processor's, or two GPUs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.device.test_faults import PROLOGUE, library, lines  # noqa: F401 - a fixture
from tests.device.test_loading import ON_GPU, run


def gpus() -> int:
    """As many as NVIDIA's own program lists."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return listed.count("UUID: GPU")


pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's"),
    pytest.mark.skipif(ON_GPU and gpus() < 2, reason="there is one GPU"),
]
NAMES = "first.hardware == second.hardware" if ON_GPU else "second.hardware.endswith('#1')"


def test_placement_copies_and_memory():
    out = run(
        """
        import numpy as np, tensorflow as tf, metal_ops
        from metal_ops import device
        print(device.load())
        first, second = device.list()
        assert (first.name, second.name) == ("GPU:0", "GPU:1") and NAMES
        assert len(tf.config.list_physical_devices("GPU")) == 2
        tf.config.set_soft_device_placement(False)
        x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")

        # A tensor made on one is there, in its memory and not in the other's.
        before = [device.memory(name)["in_use"] for name in ("GPU:0", "GPU:1")]
        with tf.device("GPU:1"):
            a = tf.constant(x) @ tf.constant(x)
            big = tf.zeros([1 << 20])
        device.synchronize()
        after = [device.memory(name)["in_use"] for name in ("GPU:0", "GPU:1")]
        assert a.device.endswith("GPU:1") and big.device.endswith("GPU:1")
        assert after[0] == before[0] and after[1] >= before[1] + (4 << 20), (before, after)
        assert device.memory() == device.memory("GPU:0") != device.memory("GPU:1")

        # To the other one and back, eagerly.
        with tf.device("GPU:0"):
            b = tf.identity(a) + 1.0
        with tf.device("GPU:1"):
            c = tf.identity(b) - a
        assert b.device.endswith("GPU:0") and c.device.endswith("GPU:1")
        np.testing.assert_allclose(a, x @ x, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(c, np.ones_like(x), atol=1e-4)

        # In a function, many times: each copy waits for its source, and its readers for the copy.
        @tf.function
        def back_and_forth(x):
            for step in range(8):
                with tf.device(f"GPU:{step % 2}"):
                    x = tf.tanh(x @ x / 64.0) + x
            return x
        expected = x.astype("float64")
        for _ in range(8):
            expected = np.tanh(expected @ expected / 64.0) + expected
        for _ in range(20):
            np.testing.assert_allclose(back_and_forth(tf.constant(x)), expected, rtol=1e-3, atol=1e-3)

        # This library's ops have their pipelines on either.
        results = []
        for name in ("GPU:0", "GPU:1"):
            with tf.device(name):
                y = metal_ops.zero_out(tf.constant([5.0, 4.0, 3.0]))
            assert y.device.endswith(name)
            results.append(y.numpy().tolist())
        assert results == [[5.0, 0.0, 0.0]] * 2, results

        # A slice, which lies somewhere in a tensor, to the other device.
        with tf.device("GPU:0"):
            parts = tf.function(lambda x: tf.split(x, 4))(tf.range(1024, dtype=tf.float32))
        with tf.device("GPU:1"):
            np.testing.assert_array_equal(parts[3] * 1.0, np.arange(768, 1024, dtype="float32"))
        print(device.report(lambda: tf.constant(1.0)))
        try:
            device.memory("GPU:2")
        except device.DeviceError as error:
            print(error)
        """.replace("NAMES", NAMES),
        HOSTMETAL_DEVICES="2",
    )
    assert out.startswith(f"GPU:0: METAL device '{'NVIDIA' if ON_GPU else 'hostmetal'}")
    assert "device is 'GPU:2', expected one of GPU:0, GPU:1" in out


def test_a_report_names_both():
    out = run(
        """
        import tensorflow as tf
        from metal_ops import device
        device.load()
        def both(x):
            with tf.device("GPU:0"):
                y = x @ x
            with tf.device("GPU:1"):
                return tf.tanh(y)
        print(device.report(both, tf.eye(4)))
        """,
        HOSTMETAL_DEVICES="2",
    )
    assert "GPU:0  1 ops: MatMul" in out and "GPU:1  1 ops: Tanh" in out
    assert "GPU:0 -> GPU:1" in out and "64 bytes" in out


def test_attention_on_both_at_once():
    """The last to have a part is counted on each by itself."""
    run(
        """
        import threading
        import numpy as np, tensorflow as tf, metal_ops
        from metal_ops import device
        device.load()
        draw = np.random.default_rng(0).normal
        q, k, v = (draw(size=(1, 4, n, 16)).astype("float16") for n in (1, 900, 900))
        expected = metal_ops.scaled_dot_product_attention(*(x.astype("float32") for x in (q, k, v)))
        wrong = []
        def attend(name):
            with tf.device(name):
                given = [tf.constant(x) for x in (q, k, v)]
                for y in [metal_ops.scaled_dot_product_attention(*given) for _ in range(200)]:
                    if not (y.device.endswith(name) and np.allclose(y, expected, atol=2e-3)):
                        wrong.append(y.device)
        threads = [threading.Thread(target=attend, args=(name,)) for name in ("GPU:0", "GPU:1")]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong, wrong
        """,
        HOSTMETAL_DEVICES="2",
        METAL_OPS_ATTENTION="groups",
    )


@pytest.mark.skipif(ON_GPU, reason="no bounds-checked kernels on a GPU")
@pytest.mark.full("builds a library of kernels that fail; test_faults.py has one device's")
def test_a_fault_is_of_its_device(library):  # noqa: F811 - the fixture
    """A kernel that does not ask how its work went, on GPU:1: who reads there hears of it, GPU:0 goes on."""
    out = run(
        PROLOGUE.format(library=str(library))
        + """
        with tf.device("GPU:1"):
            y = tf.raw_ops.Spence(x=tf.constant([1.0, 2.0, 3.0]))
            attempt("there", lambda: y.numpy())
        attempt("here", lambda: (x + 1.0).numpy())
        attempt("copied", lambda: (tf.identity(y) + 1.0).numpy())
        attempt("cleared", device.clear_error)
        attempt("here again", lambda: (x + 2.0).numpy())
        attempt("synchronized", device.synchronize)
        """,
        METAL_DEVICE_WRAPPER_TYPE="1",
        HOSTMETAL_DEVICES="2",
    )
    found = lines(out)
    assert found["there"].startswith("InternalError") and "GPU:1: " in found["there"], out
    assert found["here"] == "[2. 3. 4.]", out
    # A copy from there is not trusted here either.
    assert found["copied"].startswith("InternalError") and "past_the_end" in found["copied"], out
    assert "past_the_end" in found["cleared"], out
    assert found["here again"] == "[3. 4. 5.]" and found["synchronized"] == "None", out


TRAINS = """
    import json, keras, numpy as np, tensorflow as tf
    from metal_ops import device
    if {devices}:
        device.load()
        assert len(tf.config.list_physical_devices("GPU")) == {devices}
    keras.utils.set_random_seed(10)
    strategy = tf.distribute.MirroredStrategy() if {devices} else tf.distribute.get_strategy()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 64)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
    with strategy.scope():
        model = keras.Sequential([
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization() if {norm} else keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ])
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    history = model.fit(data, epochs=3, verbose=0)
    weights = float(sum(np.abs(w).sum() for w in model.get_weights()))
    print(json.dumps([strategy.num_replicas_in_sync, history.history["loss"], weights]))
"""


def test_mirrored_strategy():
    """Halves of each batch on two devices, whose gradients are added up: the losses of a whole batch on the CPU."""
    replicas, losses, weights = json.loads(
        run(TRAINS.format(devices=2, norm=False), HOSTMETAL_DEVICES="2").splitlines()[-1]
    )
    _, expected, expected_weights = json.loads(
        run(TRAINS.format(devices=0, norm=False), METAL_OPS_DEVICE="0").splitlines()[-1]
    )
    assert replicas == 2
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-4)
