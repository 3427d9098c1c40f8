"""Packages for the Metal device: fused there, with every node on it, and the result of the plain function."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import package
from tests.processes import Process
from tests.test_model_package import OTHER, PICTURES, RNG, close

ROUNDING = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


@pytest.fixture(autouse=True)
def nothing_moves():
    """With soft placement off: ops without a kernel on the device fail."""
    tf.config.set_soft_device_placement(False)
    yield


def test_control_soft_placement_is_off():
    with pytest.raises(tf.errors.InvalidArgumentError), tf.device("/GPU:0"):
        tf.strings.length("abc").numpy()


def picture_function(dtype: str):
    def some(shape):
        with tf.device("/GPU:0"):
            return tf.Variable(RNG.normal(size=shape).astype(np.float32) / 4, dtype=dtype)

    first, bias, second, third = (
        some([3, 3, 3, 8]),
        some([8]),
        some([3, 3, 8, 8]),
        some([8, 3000]),
    )  # mapped, not in the graph

    @tf.function(input_signature=[tf.TensorSpec([None, 12, 12, 3], dtype, name="picture")])
    def function(picture):
        with tf.device("/GPU:0"):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(picture, first, 1, "SAME"), bias))
            y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, second, 1, "SAME"), bias) + x)
            return {"out": tf.matmul(tf.reduce_mean(y, [1, 2]), third), "map": y}

    return function


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_fused_and_on_the_device(tmp_path, dtype):
    function = picture_function(dtype)
    path = package.save(function, tmp_path / "m.mpkg")
    found = package.inspect(path)
    assert found.made_by["device"] == "METAL"
    assert [(spec.dtype, spec.shape) for spec, _ in found.weights] == [(dtype, (8, 3000))]
    assert found.fused == {
        "MetalFusedConv2D[BiasAdd, Relu]": 1,
        "MetalFusedConv2D[BiasAdd, Add, Relu]": 1,
    }
    loaded = package.load(path)
    with tf.device("/GPU:0"):
        given = tf.cast(PICTURES, dtype)
    result = loaded(given)
    assert all(value.device.endswith("GPU:0") for value in result.values())
    expected = function(given)
    as_float = [
        tf.nest.map_structure(lambda value: tf.constant(value.numpy().astype("f4")), each)
        for each in (result, expected)
    ]
    close(*as_float, ROUNDING[dtype])
    assert np.abs(as_float[0]["out"]).max() > 0.1
    # A package that was saved for the device has kernels on the CPU as well.
    on_cpu = package.load(path, device="CPU")(PICTURES.astype(given.dtype.as_numpy_dtype))
    assert all(value.device.endswith("CPU:0") for value in on_cpu.values())
    close(
        tf.nest.map_structure(lambda value: tf.constant(value.numpy().astype("f4")), on_cpu),
        as_float[1],
        ROUNDING[dtype],
    )


def test_for_the_cpu_beside_a_device(tmp_path):
    weights = tf.Variable(RNG.normal(size=[70, 70]).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 70], name="x")])
    def product(x):
        return tf.matmul(x, weights)

    path = package.save(product, tmp_path / "c.mpkg", device="CPU")
    loaded = package.load(path)
    result = loaded(np.ones([2, 70], np.float32))
    assert result.device.endswith("CPU:0")
    close(tf.constant(result.numpy()), tf.constant(product(tf.ones([2, 70])).numpy()), 1e-4)
    with pytest.raises(package.PackageError, match="was saved for the CPU"):
        package.load(path, device="METAL")


def test_whole_numbers_and_a_loop(tmp_path):
    @tf.function(
        input_signature=[tf.TensorSpec([None], name="x"), tf.TensorSpec([], tf.int32, name="n")]
    )
    def control(x, n):
        for _ in tf.range(n):
            x = x * 2.0
        return x, n

    tf.config.set_soft_device_placement(True)  # whole numbers are counted on the host
    path = package.save(control, tmp_path / "l.mpkg")
    x, n = package.load(path)(tf.constant([1.0, 2.0]), 3)
    assert (x.numpy().tolist(), int(n)) == ([8.0, 16.0], 3)


def test_a_shader_in_another_process(tmp_path):
    """Without a compiler there, and not without the device."""
    double = metal_ops.metal_kernel(
        "double_it", inputs=["x"], outputs=["y"], source="y[i] = 2 * x[i];"
    )

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def twice(x):
        return double(double(x))

    path = package.save(twice, tmp_path / "k.mpkg")
    np.savez(tmp_path / "in.npz", x=np.float32([1, 2]))
    arguments = ("-c", OTHER, str(path), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    nowhere = str(tmp_path / "nowhere")
    hidden = {"METAL_OPS_CACHE": nowhere, "METAL_OPS_CLANG": nowhere, "HOSTMETAL_COMPILER": nowhere}
    processes = [Process(*arguments, **hidden, METAL_OPS_DEVICE=there) for there in "10"]
    code, _, said = processes[0].finish()
    assert code == 0, said
    assert np.load(tmp_path / "out.npz")["0"].tolist() == [4.0, 8.0]
    code, _, said = processes[1].finish()
    assert code != 0
    assert (
        "was saved for the METAL device, which is not loaded; call metal_ops.device.load()" in said
    )
