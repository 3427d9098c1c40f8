"""MetalFusedMatMul on the Metal device: the CPU's tests again, with both of its shaders, and the same sentences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_matmul as on_cpu
from tests.device.test_loading import CACHED
from tests.fused_cases import CHAINS, DTYPES
from tests.metal_kernels.on_device import again

OPS = ["metal_fused_mat_mul"]


# Arguments that are refused before an op runs.
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
    """The path of an Apple GPU: threadgroup tiles, multiplied as simdgroup matrices."""

    @pytest.fixture(autouse=True)
    def tiles(self, monkeypatch):
        monkeypatch.setenv("METAL_OPS_GEMM", "tiles")


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shaders", ["threads", "tiles", "groups", CACHED])
def test_agrees_with_the_cpu_and_with_itself(monkeypatch, shaders, dtype):
    monkeypatch.setenv("METAL_OPS_GEMM", shaders)
    for chain in CHAINS[:: len(CHAINS) // 9]:
        a, b = on_cpu.normal((3, 70, 33), dtype, 0), on_cpu.normal((33, 67), dtype, 1)
        args = chain.args(67, (3, 70, 67), dtype, 2)

        def run(a, b, *args, chain=chain):
            return raw_ops.metal_fused_mat_mul(a, b, args, **chain.attributes())

        cpu, device = again.on_both(run, a, b, *args)
        # Sums of 33 products in another order; their scale is 2 at most.
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=4e-5)
        with tf.device("GPU:0"):
            placed = [tf.constant(x) for x in (a, b, *args)]
        again.assert_same_bits(lambda placed=placed, run=run: run(*placed))


# Rows, terms, columns: of few rows each number that has a shader, blocks with their remainders, lines that lie at
# multiples of 16 bytes and others, and less than 16 bytes of terms.
SIZES = [
    (1, 300, 70), (2, 264, 72), (3, 77, 5), (4, 256, 40), (7, 203, 33), (8, 512, 64), (8, 3, 24), (12, 200, 72),
    (16, 130, 35), (70, 96, 136), (130, 77, 67),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_groups(monkeypatch, size, dtype):
    """By shaders for GPUs: each order of both factors, with all that can be fused in front of and behind a sum."""
    monkeypatch.setenv("METAL_OPS_GEMM", "groups")
    rows, terms, columns = size
    chains = [c for c in CHAINS if c.add and c.activation == "Swish"]
    for i, (turned_a, turned_b) in enumerate(itertools.product((False, True), repeat=2)):
        chain = chains[i % len(chains)]
        a = on_cpu.normal((terms, rows) if turned_a else (rows, terms), dtype, 0)
        b = on_cpu.normal((columns, terms) if turned_b else (terms, columns), dtype, 1)
        args = chain.args(columns, (rows, columns), dtype, 2)
        turned = {"transpose_a": turned_a, "transpose_b": turned_b}

        def run(a, b, *args, chain=chain, turned=turned):
            return raw_ops.metal_fused_mat_mul(a, b, args, **chain.attributes(), **turned)

        cpu, device = again.on_both(run, a, b, *args)
        # Sums of n products in another order, whose size is n**0.5.
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=2e-6 * terms)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [(8, 40, 24), (70, 96, 136), (130, 200, 67)], ids=str)
def test_by_four_simdgroups(monkeypatch, size, dtype):
    """Each order of both factors, lines that lie at multiples of 16 bytes and others, and batches."""
    monkeypatch.setenv("METAL_OPS_GEMM", "warpgroups")
    rows, terms, columns = size
    chain = next(c for c in CHAINS if c.add and c.activation == "Swish")
    for turned_a, turned_b in itertools.product((False, True), repeat=2):
        a = on_cpu.normal((2, terms, rows) if turned_a else (2, rows, terms), dtype, 0)
        b = on_cpu.normal((columns, terms) if turned_b else (terms, columns), dtype, 1)
        args = chain.args(columns, (2, rows, columns), dtype, 2)
        turned = {"transpose_a": turned_a, "transpose_b": turned_b}

        def run(a, b, *args, turned=turned):
            return raw_ops.metal_fused_mat_mul(a, b, args, **chain.attributes(), **turned)

        cpu, device = again.on_both(run, a, b, *args)
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=2e-6 * terms)


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_of_batches_and_slices(monkeypatch, dtype):
    """Matrices of a batch, b's once for several; a slice of memory, which begins anywhere."""
    monkeypatch.setenv("METAL_OPS_GEMM", "groups")
    for rows in (1, 5, 14, 66):
        a, b = on_cpu.normal((2, 3, rows, 40), dtype, 0), on_cpu.normal((3, 40, 24), dtype, 1)

        def run(a, b):
            whole = raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["Tanh"])
            part = raw_ops.metal_fused_mat_mul(a[1, 2], b[1], [], fused_ops=["Tanh"])
            empty = raw_ops.metal_fused_mat_mul(a[:, :, :, :0], b[:, :0], [], fused_ops=["Sigmoid"])
            return tf.concat([tf.reshape(y, [-1]) for y in (whole, part, empty)], 0)

        cpu, device = again.on_both(run, a, b)
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=8e-5)


@pytest.mark.instrumented
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
        match="METAL_OPS_GEMM must be 'tiles', 'threads', 'groups', 'warpgroups' or 'cached', got 'fast'",
    ):
        raw_ops.metal_fused_mat_mul(on_cpu.A, on_cpu.B, [], fused_ops=["Relu"])


def test_more_work_than_one_command_buffer():
    """A chain of products, each reading the result of the one before, without waiting between."""
    x, w = np.eye(64, dtype=np.float32), np.roll(np.eye(64, dtype=np.float32), 1, axis=1)
    with tf.device("GPU:0"):
        y, w = tf.constant(x), tf.constant(w)
        for _ in range(64):
            y = raw_ops.metal_fused_mat_mul(y, w, [], fused_ops=["Relu"])
    np.testing.assert_array_equal(y, x)
