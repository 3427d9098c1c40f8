"""Convolutions and their gradients by four simdgroups together, as the CPU device runs them, beside sums in float64."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from metal_ops.metal import Options, compiler, gpu
from metal_ops.metal.check_launch import CHECKS, Checks

from .shaders import from_bfloat, library, to_bfloat

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.compiler
KERNELS = ("conv_warpgroups", "conv_warpgroups_input", "conv_warpgroups_filter")
PARAMS = np.dtype(
    [
        *((name, "u4") for name in ("points", "out_h", "out_w", "in_h", "in_w", "channels")),
        *((name, "u4") for name in ("columns", "filter_h", "filter_w", "stride_h", "stride_w")),
        *((name, "u4") for name in ("dilation_h", "dilation_w")),
        *((name, "i4") for name in ("pad_top", "pad_left")),
        *((name, "u4") for name in ("to_h", "to_w", "part")),
    ]
)
BLOCK, MEMORY = 64, 2 * 2 * 64 * (64 + 64)
# Images, height, width, channels, filters, window, strides, dilations, padding at the top and at the left, height and
# width of the output.
CASES = {
    "a point": ((1, 1, 1, 8, 8), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    "3 x 3": ((2, 9, 7, 24, 40), (3, 3), (1, 1), (1, 1), (1, 1), (9, 7)),
    "stride 2": ((2, 11, 8, 16, 72), (3, 3), (2, 2), (1, 1), (1, 0), (6, 4)),
    "points far apart": ((1, 9, 8, 136, 64), (1, 1), (2, 3), (1, 1), (0, 0), (5, 3)),
    "unequal": ((1, 10, 13, 8, 88), (4, 2), (3, 1), (1, 1), (2, 1), (4, 14)),
    "dilated": ((1, 9, 10, 16, 120), (3, 2), (1, 2), (2, 3), (1, 0), (7, 4)),
    "small images": ((9, 2, 3, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (2, 3)),
}
FLAGS = {0: np.uint32(0), 1: np.bool_(False), 2: np.uint32(0), 3: np.bool_(False)}


def source(dtype: str) -> str:
    """All instances take a minute."""
    header = (
        '#include "kernels/gemm/conv_warpgroups.metal.h"\n#include "kernels/msl/instantiate.h"\n'
    )
    return header + "".join(
        f'INSTANTIATE_KERNEL("{name}", {name}, {dtype}, CONV_SMALL_WARPGROUPS)\n'
        for name in KERNELS
    )


class Conv:
    """One convolution: its arrays in float64, of numbers of the type, and the expected results."""

    def __init__(self, case: str, dtype: str) -> None:
        self.sizes, self.window, self.strides, self.dilations, self.pads, self.out = CASES[case]
        n, h, w, channels, filters = self.sizes
        self.dtype = dtype
        self.checks: Checks | None = None
        random = np.random.default_rng(1)
        shapes = ((n, h, w, channels), (*self.window, channels, filters), (n, *self.out, filters))
        self.x, self.filter, self.d_out = (self.rounded(random.normal(size=s)) for s in shapes)

    def stored(self, x: np.ndarray) -> np.ndarray:
        return to_bfloat(x) if self.dtype == "bfloat" else x.astype(np.float16)

    def loaded(self, x: np.ndarray) -> np.ndarray:
        return (from_bfloat(x) if self.dtype == "bfloat" else x).astype(np.float64)

    def rounded(self, x: np.ndarray) -> np.ndarray:
        return self.loaded(self.stored(x))

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The output, and the gradients of input and filter."""
        n, h, w, channels, filters = self.sizes
        out, d_x, d_w = (np.zeros(a.shape) for a in (self.d_out, self.x, self.filter))
        ys, xs = (np.arange(size) for size in self.out)
        for fy, fx in np.ndindex(*self.window):
            y = ys * self.strides[0] + fy * self.dilations[0] - self.pads[0]
            x = xs * self.strides[1] + fx * self.dilations[1] - self.pads[1]
            to_y, to_x = (y >= 0) & (y < h), (x >= 0) & (x < w)
            here = np.ix_(range(n), y[to_y], x[to_x])
            there = np.ix_(range(n), ys[to_y], xs[to_x])
            out[there] += self.x[here] @ self.filter[fy, fx]
            d_x[here] += self.d_out[there] @ self.filter[fy, fx].T
            d_w[fy, fx] = np.einsum("nyxc,nyxf->cf", self.x[here], self.d_out[there])
        return out, d_x, d_w

    def params(self, **others: int) -> np.ndarray:
        params = np.zeros((), PARAMS)
        n, h, w, channels, filters = self.sizes
        numbers = (n * np.prod(self.out), *self.out, h, w, channels, filters, *self.window)
        numbers += (*self.strides, *self.dilations, *self.pads, 0, 0, 0)
        for name, value in zip(PARAMS.names, numbers, strict=True):
            params[name] = others.get(name, value)
        return params

    def run(self, name: str, rows: int, columns: int, depth: int, buffers: dict, **more) -> None:
        groups = -(-rows // BLOCK) * -(-columns // BLOCK)
        options = dict(checked=True, header="", include=(str(ROOT),))
        if self.checks:
            options["checks"], more["checks"] = True, self.checks
        library(source(self.dtype), **options)[name].run(
            (2 * BLOCK * groups, 1, depth),
            2 * BLOCK,
            buffers,
            threadgroup_memory={0: MEMORY},
            **more,
        )
        assert self.checks is None or self.checks.reports == [], name


@pytest.mark.parametrize("dtype", ["half", "bfloat"])
@pytest.mark.parametrize("case", CASES)
def test_conv(case: str, dtype: str) -> None:
    compare_all(Conv(case, dtype))


def test_no_races() -> None:
    """Nor reads of unwritten memory, nor barriers that some threads miss."""
    conv = Conv("stride 2", "half")
    conv.checks = Checks(CHECKS)
    compare_all(conv)


@pytest.mark.parametrize("block, most", [("EVEN", 128), ("TALL", 80)])
def test_products_run_on(block: str, most: int) -> None:
    """Two even blocks and three tall ones have a multiprocessor's registers, and the assembler makes no product wait, as
    it does where another instruction might read the sums."""
    text = source("half").replace("CONV_SMALL", f"CONV_{block}")
    text = compiler.gpu_text("test.metal", Options(include=(str(ROOT),)), text, "sm_90")
    said = gpu.assemble(text, "sm_90")
    # The fused kernel has all of its ops where no constant says which.
    assert {usage.kernel for usage in said} == set(KERNELS)
    assert max(usage.registers for usage in said) <= most
    own = re.sub(r"(?m)^\.target sm_90$", ".target sm_90a", text)
    own = re.sub(
        r"(?m)^\.extern \.global .*?\b(_msl_fc_\w+)(\[\d+\])?;",
        r".global .align 16 .b8 \1[32];",
        own,
    )
    assert "serialized" not in gpu._ptxas_says(own, "sm_90a")


def compare_all(conv: Conv) -> None:
    dtype = conv.dtype
    n, h, w, channels, filters = conv.sizes
    out, d_x, d_w = conv.expected()
    x, filter, d_out = (conv.stored(a) for a in (conv.x, conv.filter, conv.d_out))
    none = np.zeros(1, x.dtype)

    found = conv.stored(np.full(out.shape, np.nan))
    fused = {i: none for i in range(4, 9)} | {9: np.zeros(2, np.float32)}
    params = conv.params()
    conv.run(
        KERNELS[0], int(params["points"]), filters, 1, {0: x, 1: filter, 2: found, 3: params} | fused,
        constants=FLAGS,
    )  # fmt: skip
    compare(conv.loaded(found), out, dtype)

    parts = -(-int(params["points"]) // 64)
    found = np.full((parts, *d_w.shape), np.nan, np.float32)
    rows = int(np.prod(conv.window)) * channels
    params = conv.params(part=64)
    conv.run(KERNELS[2], rows, filters, parts, {0: x, 1: d_out, 2: found, 3: params})
    compare(found.sum(0, dtype=np.float64), d_w, "float")

    if conv.dilations != (1, 1):
        return
    found = conv.stored(np.full(d_x.shape, np.nan))
    grid = [-(-size // stride) for size, stride in zip((h, w), conv.strides, strict=True)]
    params = conv.params(
        points=n * grid[0] * grid[1], out_h=grid[0], out_w=grid[1], in_h=conv.out[0],
        in_w=conv.out[1], channels=filters, columns=channels, to_h=h, to_w=w,
    )  # fmt: skip
    phases = conv.strides[0] * conv.strides[1]
    buffers = {0: d_out, 1: filter, 2: found, 3: params}
    conv.run(KERNELS[1], int(params["points"]), channels, phases, buffers)
    compare(conv.loaded(found), d_x, dtype)


def compare(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """To a rounding of each value, and float32's of the sums."""
    half_step = {"float": 0, "half": 2.0**-11, "bfloat": 2.0**-8}[dtype]
    scale = max(np.abs(expected).max(), 1)
    np.testing.assert_allclose(found, expected, rtol=half_step, atol=1e-5 * scale)
