"""The calls that attention_gradient.mm measures, by PyTorch: gradients captured in a graph, medians of events."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from attention_peers import WAYS  # beside this file
from products_peers import timed
from torch.nn.attention import sdpa_kernel


def case_of(line: str) -> tuple[str, ...]:
    """A line without the launches of its shaders."""
    return tuple(line.split()[:8])


def of_case(case: tuple[str, ...], way: str) -> float:
    """Milliseconds, which are printed; NaN where PyTorch does not go that way."""
    dtype = {"half": torch.float16, "bfloat": torch.bfloat16}[case[0]]
    batch, heads, kv_heads, queries, keys, size, causal = map(int, case[1:])
    made = [
        torch.rand((batch, n, length, size), device="cuda", dtype=dtype) * 4 - 2
        for n, length in ((heads, queries), (kv_heads, keys), (kv_heads, keys), (heads, queries))
    ]
    q, k, v = (x.requires_grad_() for x in made[:3])
    options = {"is_causal": bool(causal), "enable_gqa": kv_heads != heads}
    try:
        with sdpa_kernel(WAYS[way]) if WAYS[way] else nullcontext():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                y = F.scaled_dot_product_attention(q, k, v, **options)

                def gradients():
                    return torch.autograd.grad(y, (q, k, v), made[3], retain_graph=True)

                gradients()
            torch.cuda.synchronize()
            times = of_events(gradients)
    except RuntimeError as error:
        print("torch", way, *case, str(error).splitlines()[0])
        return float("nan")
    ms, least, most = times
    print(f"torch {way} {' '.join(case)}: {ms:.4f} ms ({least:.4f} to {most:.4f})", flush=True)
    return ms


def of_events(call) -> tuple[float, float, float]:
    """As a graph; where that cannot be captured, eight calls one after the other."""
    try:
        return timed([call], 8)
    except RuntimeError:
        torch.cuda.synchronize()
    times = []
    for i in range(11):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(8):
            call()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) / 8)
    return sorted(times)[4], min(times), max(times)


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name())
    cases = [case_of(x) for x in open(sys.argv[1]) if x.strip() and not x.startswith("#")]
    for case in dict.fromkeys(cases):
        for way in WAYS:
            of_case(case, way)


if __name__ == "__main__":
    main()
