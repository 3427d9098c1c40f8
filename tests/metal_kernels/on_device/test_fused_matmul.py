"""MetalFusedMatMul on the Metal device: the CPU's tests again, with both of its shaders, and the same sentences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_matmul as on_cpu
from tests.fused_cases import CHAINS, DTYPES
from tests.metal_kernels.on_device import again

OPS = ["metal_fused_mat_mul"]


# What is refused before an op runs.
guard = again.guarding(
    OPS,
    ["test_bad_arguments", "test_bad_arguments_of_the_function"],
)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(on_cpu)):
    pass


@pytest.mark.usefixtures("guard")
class TestTiles(
    again.tests_of(on_cpu, [name for name in vars(on_cpu) if name.startswith("test_gradient")])
):
    """What an Apple GPU runs: threadgroup tiles, multiplied as simdgroup matrices."""

    @pytest.fixture(autouse=True)
    def tiles(self, monkeypatch):
        monkeypatch.setenv("METAL_OPS_GEMM", "tiles")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shaders", ["threads", "tiles"])
def test_agrees_with_the_cpu_and_with_itself(monkeypatch, shaders, dtype):
    monkeypatch.setenv("METAL_OPS_GEMM", shaders)
    for chain in CHAINS[:: len(CHAINS) // 9]:
        a, b = on_cpu.normal((3, 70, 33), dtype, 0), on_cpu.normal((33, 67), dtype, 1)
        args = chain.args(67, (3, 70, 67), dtype, 2)

        def run(a, b, *args, chain=chain):
            return raw_ops.metal_fused_mat_mul(a, b, args, **chain.attributes())

        cpu, device = again.on_both(run, a, b, *args)
        # Sums of 33 products in another order; what they are scaled by is 2 at most.
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=4e-5)
        with tf.device("GPU:0"):
            placed = [tf.constant(x) for x in (a, b, *args)]
        again.assert_same_bits(lambda placed=placed, run=run: run(*placed))


def test_bad_arguments_in_one_voice():
    for a, b, args, attributes, _ in on_cpu.BAD:
        call = dict(fused_ops=["Relu"]) | attributes
        sentence = again.assert_same_sentence(
            lambda a=a, b=b, args=args, call=call: raw_ops.metal_fused_mat_mul(a, b, args, **call)
        )
        assert "MetalFusedMatMul: " in sentence


def test_unknown_shaders(monkeypatch):
    monkeypatch.setenv("METAL_OPS_GEMM", "fast")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="METAL_OPS_GEMM must be 'tiles' or 'threads', got 'fast'",
    ):
        raw_ops.metal_fused_mat_mul(on_cpu.A, on_cpu.B, [], fused_ops=["Relu"])


def test_more_work_than_one_command_buffer():
    """A chain of products, each reading what the one before has just written, without waiting between."""
    x, w = np.eye(64, dtype=np.float32), np.roll(np.eye(64, dtype=np.float32), 1, axis=1)
    with tf.device("GPU:0"):
        y, w = tf.constant(x), tf.constant(w)
        for _ in range(64):
            y = raw_ops.metal_fused_mat_mul(y, w, [], fused_ops=["Relu"])
    np.testing.assert_array_equal(y, x)
