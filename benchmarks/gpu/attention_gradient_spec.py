"""Lines for `attention_gradient`: the shaders with the sizes that the host gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# As the host has them.
TURN_KEYS, LEAST_TURN_GROUPS, LEAST_TURN_KEYS = 128, 256, 1024
# Batch, heads, heads of keys, queries, keys, whether a query sees no later key.
CASES = [
    *((1, 16, 16, 4096, 4096, 0), (1, 16, 16, 4096, 4096, 1), (4, 32, 8, 4096, 4096, 1)),
    *((1, 3, 3, 201, 333, 1), (2, 4, 2, 77, 300, 0)),
]


def lines() -> Iterator[str]:
    """For heads of 64 and 128 elements, of both types."""
    for size in (64, 128):
        for dtype in ("half", "bfloat"):
            for case in CASES:
                batch, _, kv_heads, _, keys, causal = case
                in_turns = -(-keys // TURN_KEYS) * kv_heads * batch >= LEAST_TURN_GROUPS
                in_turns = in_turns and keys >= LEAST_TURN_KEYS
                ways = way("d_kv", "KV", dtype, size), way("d_q", "Q", dtype, size)
                if in_turns:
                    ways = turns("d_all", dtype, size), turns("d_q", dtype, size)
                yield " ".join(map(str, (dtype, *case[:5], size, causal, *ways)))


def way(name: str, of: str, dtype: str, size: int) -> str:
    return f"attention_warpgroups_{name}_{dtype}_{size} {numbers(f'{of}_{size}')}"


def turns(name: str, dtype: str, size: int) -> str:
    return f"attention_turns_{name}_{dtype}_{size} {numbers(f'TURNS_{size}')}"


def numbers(name: str) -> str:
    """Rows at a time, and steps in memory."""
    text = (ROOT / "kernels/attention/attention_params.h").read_text()
    found = re.search(rf"ATTENTION_GRADIENT_{name} ([\d, ]+)", text)
    return " ".join(found[1].replace(",", "").split()[:2])


def main() -> None:
    print(*lines(), sep="\n")


if __name__ == "__main__":
    main()
