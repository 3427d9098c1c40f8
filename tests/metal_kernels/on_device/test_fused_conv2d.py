"""MetalFusedConv2D on the Metal device: the CPU's tests again, with both of its shaders, and the same sentences."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_conv2d as on_cpu
from tests.device.test_loading import CACHED
from tests.fused_cases import CHAINS, DTYPES
from tests.metal_kernels.on_device import again
from tests.processes import Process

OPS = ["metal_fused_conv2d"]


# Tests of refusals, and of names.
guard = again.guarding(
    OPS,
    [
        "test_bad_arguments",
        "test_bad_arguments_of_the_function",
        "test_every_activation_has_a_name",
    ],
)


# Processes without the device.
ELSEWHERE = ["test_same_bits_for_any_number_of_threads"]


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(on_cpu, ELSEWHERE)):
    pass


@pytest.mark.usefixtures("guard")
class TestTiles(
    again.tests_of(
        on_cpu, [*ELSEWHERE, *(name for name in vars(on_cpu) if name.startswith("test_gradient"))]
    )
):
    """The path of an Apple GPU: threadgroup tiles, multiplied as simdgroup matrices."""

    @pytest.fixture(autouse=True)
    def tiles(self, monkeypatch):
        monkeypatch.setenv("METAL_OPS_GEMM", "tiles")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shaders", ["threads", "tiles", CACHED])
def test_agrees_with_the_cpu_and_with_itself(monkeypatch, shaders, dtype):
    monkeypatch.setenv("METAL_OPS_GEMM", shaders)
    for chain, nchw in zip(CHAINS[:: len(CHAINS) // 9], [False, True] * 5, strict=False):
        x = on_cpu.normal((2, 5, 9, 8) if nchw else (2, 9, 8, 5), dtype, 0)
        w = on_cpu.normal((3, 3, 5, 19), dtype, 1)
        args = chain.args(19, (2, 19, 9, 8) if nchw else (2, 9, 8, 19), dtype, 2)

        def run(x, w, *args, chain=chain, nchw=nchw):
            given = on_cpu.attributes((1, 1), "SAME", (1, 1), nchw)
            return raw_ops.metal_fused_conv2d(x, w, args, **given, **chain.attributes())

        cpu, device = again.on_both(run, x, w, *args)
        # Sums of 45 products in another order; their scale is 2 at most.
        again.assert_agree(cpu, device, dtype, rtol=2e-5, atol=4e-5)
        with tf.device("GPU:0"):
            placed = [tf.constant(v) for v in (x, w, *args)]
        again.assert_same_bits(lambda placed=placed, run=run: run(*placed))


# Images, channels, filters, window, strides, dilations, padding: channels of 16 bytes, of some of the types or of
# none; several blocks of rows and of columns, and their remainders.
GROUPED = [
    ((2, 9, 8), 16, 19, (3, 3), (1, 1), (1, 1), "SAME"),
    ((1, 13, 11), 24, 70, (3, 2), (2, 1), (1, 1), "VALID"),
    ((3, 10, 7), 8, 24, (2, 3), (1, 1), (2, 3), "SAME"),
    ((2, 9, 8), 16, 72, (3, 3), (2, 1), (1, 1), "SAME"),
    ((2, 8, 9), 4, 33, (5, 5), (2, 2), (1, 1), (3, 1, 2, 4)),
    ((2, 7, 9), 32, 8, (1, 1), (2, 2), (1, 1), "SAME"),
    ((2, 6, 6), 5, 16, (3, 3), (1, 1), (1, 1), "SAME"),
]


@pytest.mark.parametrize("way", ["groups", "warpgroups"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("image, channels, filters, window, strides, dilations, padding", GROUPED)
def test_groups(
    monkeypatch, image, channels, filters, window, strides, dilations, padding, dtype, way
):
    """By shaders for GPUs, images that begin anywhere in memory among them."""
    monkeypatch.setenv("METAL_OPS_GEMM", way)
    x = on_cpu.normal((image[0] + 1, *image[1:], channels), dtype, 0)
    w = on_cpu.normal((*window, channels, filters), dtype, 1)
    given = on_cpu.attributes(strides, padding, dilations, False)
    for chain in (CHAINS[0], next(c for c in CHAINS if c.activation == "Swish" and not c.add)):
        args = chain.args(filters, (), dtype, 2)

        def run(x, w, *args, chain=chain):
            call = given | chain.attributes()
            whole = raw_ops.metal_fused_conv2d(x, w, args, **call)
            part = raw_ops.metal_fused_conv2d(x[1:], w, args, **call)
            return whole, part

        cpu, device = again.on_both(run, x, w, *args)
        for expected, got in zip(cpu, device, strict=True):
            again.assert_agree(expected, got, dtype, rtol=2e-5, atol=8e-5)


@pytest.mark.instrumented
def test_bad_arguments_in_one_voice():
    for x, w, args, given, _ in on_cpu.BAD:
        call = dict(fused_ops=["Relu"], strides=[1] * 4, padding="VALID") | given
        sentence = again.assert_same_sentence(
            lambda x=x, w=w, args=args, call=call: raw_ops.metal_fused_conv2d(x, w, args, **call)
        )
        assert "MetalFusedConv2D: " in sentence


VALIDATED = """
import os, itertools, json
import metal_ops.device
metal_ops.device.load()
from tests import test_fused_conv2d as conv, test_fused_matmul as matmul
runs = 0
for shaders in ("threads", "tiles"):
    os.environ["METAL_OPS_GEMM"] = shaders
    for edge, dtype in itertools.product(conv.EDGES, ("float32", "bfloat16")):
        conv.check(**(conv.EDGE | edge | dict(nchw=runs % 2 == 1, dtype=dtype, chain=conv.SOME[runs % 6])))
        runs += 1
    for a, b in matmul.SHAPES:
        matmul.check(matmul.SOME[runs % 6], a, b, "float32", runs % 2 == 0, runs % 3 == 0)
        runs += 1
print(json.dumps([runs, metal_ops.device.list() != []]))
"""


def test_nothing_is_read_or_written_out_of_bounds():
    """Every access of every shader is checked: a wrong one is an error of the op."""
    process = Process("-c", VALIDATED, METAL_DEVICE_WRAPPER_TYPE="1")
    assert process.result() == [2 * (2 * len(on_cpu.EDGES) + 19), True]
