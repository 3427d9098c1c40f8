"""A row times matrices of 4 bits by PyTorch's kernel for the CPU, run by benchmarks/peers.py in .venv-peers.

settings: size of the square matrices, how many, and the block that shares a scale and a zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from peer_worker import serve


def torch_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import torch

    size, block = settings["size"], settings["block"]
    # Of float32 it has no vectors.
    x = torch.randn(1, size, dtype=torch.bfloat16)
    every = []
    for _ in range(settings["matrices"]):
        codes = torch.randint(0, 16, (size, size), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        every.append((packed, torch.rand(size // block, size, 2, dtype=torch.bfloat16)))

    def work() -> Any:
        for packed, scales in every:
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, block, scales)
        return y

    return f"torch {torch.__version__}, x, scales and zeros of bfloat16", {"int4": work}


if __name__ == "__main__":
    serve({"torch": torch_variants}, ())
