"""Lines for `attention`: the shaders of four simdgroups with the sizes that the host gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THREADGROUPS, LEAST_KEYS = 264, 256
# Batch, heads, heads of keys, queries, keys, whether a query sees no later key.
CASES = [
    *((1, 3, 3, 201, 333, 1), (2, 4, 2, 77, 300, 0)),
    *((1, 16, 16, 4096, 4096, 0), (1, 16, 16, 4096, 4096, 1), (1, 8, 8, 4096, 4096, 0)),
    (4, 32, 8, 4096, 4096, 1),
    *((1, 32, 32, 1, 4096, 1), (1, 32, 8, 1, 4096, 1), (8, 32, 32, 1, 4096, 1)),
    *((8, 32, 8, 1, 4096, 1), (1, 32, 8, 1, 32768, 1)),
]
Case = tuple[int, int, int, int, int, int]


def lines(
    cases: list[Case], least_keys: int = LEAST_KEYS, last_joins: bool = True
) -> Iterator[str]:
    """Lines for heads of 64 and 128 elements, of both types."""
    text = (ROOT / "kernels/attention/attention_params.h").read_text()
    for size in (64, 128):
        numbers = re.search(rf"ATTENTION_WARPGROUPS_{size} ([\d, ]+)", text)
        warpgroups, keys_at_once, stages = numbers[1].replace(",", "").split()[:3]
        for dtype in ("half", "bfloat"):
            for batch, heads, kv_heads, queries, keys, causal in cases:
                # Heads of one query that share keys are rows.
                pieces = batch * (
                    kv_heads if queries == 1 else heads * -(-queries // (64 * int(warpgroups)))
                )
                splits = max(1, min(THREADGROUPS // pieces, -(-keys // least_keys)))
                yield (
                    f"warpgroups attention_warpgroups_{dtype}_{size} {dtype} "
                    f"{batch} {heads} {kv_heads} {queries} {keys} {size} {causal} "
                    f"{splits} {warpgroups} {keys_at_once} {stages} 1 {int(last_joins)}"
                )


def main() -> None:
    print(*lines(CASES), sep="\n")


if __name__ == "__main__":
    main()
