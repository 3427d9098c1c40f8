"""The same measurements as attention.mm's, by PyTorch: calls captured in a graph, keys and values in turns, medians
of events."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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


def case_of(line: str) -> tuple[str, ...]:
    """A line's case without the way its shader is launched."""
    return tuple(line.split()[2:10])


def of_line(line: str, ways: Iterable[str] = WAYS) -> list[float]:
    """Milliseconds of each way, which are printed as they come; NaN for one that PyTorch does not go."""
    dtype = {"half": torch.float16, "bfloat": torch.bfloat16}[case_of(line)[0]]
    batch, heads, kv_heads, queries, keys, size, causal = map(int, case_of(line)[1:])
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
    found = []
    for way in ways:
        backend = WAYS[way]
        try:
            with sdpa_kernel(backend) if backend else nullcontext():
                ms, least, most = timed(calls, n)
        except RuntimeError as error:
            print("torch", way, *case_of(line), str(error).splitlines()[0])
            found.append(float("nan"))
            continue
        print(
            f"torch {way} {' '.join(case_of(line))}: {ms:.4f} ms ({least:.4f} to {most:.4f})",
            flush=True,
        )
        found.append(ms)
    return found


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name())
    lines = {}
    for line in open(sys.argv[1]):
        if line.strip() and not line.startswith("#"):
            lines.setdefault(case_of(line), line)
    for line in lines.values():
        of_line(line)


if __name__ == "__main__":
    main()
