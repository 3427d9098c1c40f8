"""Rows times quantized matrices by PyTorch's and llama.cpp's kernels for the CPU, run by benchmarks/peers.py in
.venv-peers.

settings: size of the square matrices, how many of them, the rows, how often each matrix is multiplied with, the block
that shares a scale and a zero, and the formats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ggml
import numpy as np
from peer_worker import serve


def torch_variants(
    inputs: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[dict[str, str], dict]:
    import torch

    size, block, matrices = settings["size"], settings["block"], settings["matrices"]
    # Of float32 it has no vectors.
    x = torch.randn(settings["rows"], size, dtype=torch.bfloat16)

    def of_4_bits() -> Callable[[], Any]:
        codes = torch.randint(0, 16, (size, size), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        scales = torch.rand(size // block, size, 2, dtype=torch.bfloat16)
        return lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, block, scales)

    def of_8_bits() -> Callable[[], Any]:
        codes = torch.randint(-128, 128, (size, size), dtype=torch.int8)
        scales = torch.rand(size, dtype=torch.bfloat16)
        return lambda: torch.ops.aten._weight_int8pack_mm(x, codes, scales)

    def work(products: list[Callable[[], Any]]) -> None:
        for product in products:
            for _ in range(settings["calls"]):
                product()

    makers = {"int4": of_4_bits, "int8": of_8_bits}
    every = {kind: [makers[kind]() for _ in range(matrices)] for kind in settings["formats"]}
    said = {
        "int4": f"torch {torch.__version__}, x, scales and zeros of bfloat16.",
        "int8": f"torch {torch.__version__}, x and a scale a row of bfloat16.",
    }
    return said, {kind: partial(work, products) for kind, products in every.items()}


def ggml_variants(
    inputs: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[dict[str, str], dict]:
    random = np.random.default_rng(0)
    size = settings["size"]
    x = random.standard_normal((settings["rows"], size), np.float32)
    weights = random.standard_normal((size, size), np.float32)
    said, variants = {}, {}
    for kind in settings["formats"]:
        packed = ggml.quantize(kind, weights)
        products = ggml.Products(kind, packed, settings["matrices"], x, settings["calls"])
        products()
        want = x @ ggml.dequantize(kind, packed).T
        off = np.linalg.norm(products.result() - want) / np.linalg.norm(want)
        # x is rounded to 8 bits, by steps of each block's greatest.
        if not off < 0.01:
            raise ArithmeticError(f"{kind} is off by {off:.2g} from the product of its floats")
        said[kind] = (
            f"ggml {ggml.load().ggml_version().decode()}, {products.n_bytes * 1e-6:.0f} MB in the layout that it calls "
            f"{products.layout}; x is rounded to 8 bits, by a step for each {ggml.BLOCK} numbers."
        )
        variants[kind] = products
    return said, variants


if __name__ == "__main__":
    serve({"torch": torch_variants, "ggml": ggml_variants}, ())
