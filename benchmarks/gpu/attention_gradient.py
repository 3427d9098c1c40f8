"""Attention's gradients beside PyTorch's, in turns, as a table.

python3 benchmarks/gpu/attention_gradient.py ATTENTION_GRADIENT LIBRARY   # that program, and the shaders for this GPU
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile

import attention_gradient_peers as peers  # beside this file
import attention_gradient_spec

ROUNDS = 2


def times_of(said: str, lines: list[str]) -> list[float]:
    """Milliseconds of each line that the program printed; a line that says wrong ends this."""
    if wrong := [line for line in said.splitlines() if "WRONG" in line or "NOT THE SAME" in line]:
        sys.exit("\n".join(wrong))
    times = [float(ms) for ms in re.findall(r" ([\d.]+) ms \(", said)]
    assert len(times) == len(lines), said
    return times


def ours(program: str, library: str, lines: list[str]) -> list[float]:
    with tempfile.NamedTemporaryFile("w", suffix=".spec") as spec:
        spec.write("\n".join(lines) + "\n")
        spec.flush()
        command = [program, library, spec.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return times_of(said, lines)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = list(attention_gradient_spec.lines())
    rounds = []
    for _ in range(ROUNDS):
        own = ours(*sys.argv[1:], lines)
        rounds.append((own, [peers.of_case(peers.case_of(line), "default") for line in lines]))
    card = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    print(subprocess.run(card, capture_output=True, text=True).stdout.strip())
    print("| milliseconds | ours | PyTorch | times as long |\n|---|--:|--:|--:|")
    for i, line in enumerate(lines):
        own, theirs = (statistics.median(x[i] for x in side) for side in zip(*rounds, strict=True))
        dtype, batch, heads, kv_heads, queries, keys, size, causal = peers.case_of(line)
        name = f"{dtype} {batch} x {heads}/{kv_heads} x {queries} x {keys} x {size}"
        print(
            f"| {name}{', causal' * int(causal)} | {own:.4f} | {theirs:.4f} | {own / theirs:.2f} |"
        )


if __name__ == "__main__":
    main()
