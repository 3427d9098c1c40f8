"""Rows times quantized matrices by PyTorch's kernels for the CPU, run by benchmarks/peers.py in .venv-peers.

settings: size of the square matrices, how many of them, the rows, how often each matrix is multiplied with, the block
that shares a scale and a zero, and the formats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from peer_worker import serve


def torch_variants(
    inputs: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[dict[str, str], dict]:
    import torch

    size, block, matrices = settings["size"], settings["block"], settings["matrices"]
    # It has no vectors for float32.
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


if __name__ == "__main__":
    serve({"torch": torch_variants}, ())
