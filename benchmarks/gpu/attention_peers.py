"""What attention.mm measures, by PyTorch: calls captured in a graph, keys and values in turns, medians of events."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from products_peers import sets_of, timed  # beside this file
from torch.nn.attention import SDPBackend, sdpa_kernel

WAYS = {
    "default": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name())
    seen = set()
    for line in open(sys.argv[1]):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        dtype = {"half": torch.float16, "bfloat": torch.bfloat16}[words[2]]
        case = (words[2], *map(int, words[3:10]))
        if case in seen:
            continue
        seen.add(case)
        _, batch, heads, kv_heads, queries, keys, size, causal = case
        sets = sets_of(4 * batch * kv_heads * keys * size)
        q = torch.rand((batch, heads, queries, size), device="cuda", dtype=dtype) * 4 - 2
        kv = torch.rand((sets, 2, batch, kv_heads, keys, size), device="cuda", dtype=dtype) * 4 - 2
        # One query, the last, sees all keys.
        options = {"is_causal": bool(causal) and queries > 1, "enable_gqa": kv_heads != heads}
        calls = [
            partial(F.scaled_dot_product_attention, q, kv[s, 0], kv[s, 1], **options)
            for s in range(sets)
        ]
        n = 8 if queries * keys * heads * batch * size > 5e9 else max(sets, 16)
        for way, backend in WAYS.items():
            try:
                with sdpa_kernel(backend) if backend else nullcontext():
                    ms, least, most = timed(calls, n)
            except RuntimeError as error:
                print("torch", way, *case, str(error).splitlines()[0])
                continue
            print(
                f"torch {way} {' '.join(map(str, case))}: {ms:.4f} ms ({least:.4f} to {most:.4f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
