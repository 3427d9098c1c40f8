"""One query and a cache, by the way in which the parts of the keys are joined and their number, and by PyTorch, in
turns.

python3 benchmarks/gpu/attention_decode.py ATTENTION LIBRARY   # that program, and the shaders for this GPU
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile

import attention_peers  # beside this file
import attention_spec

CASES = [case for case in attention_spec.CASES if case[3] == 1]
ROUNDS = 1
# The one that joins: the last part, or a launch; and keys of a part at least.
WAYS = {
    f"{who}, {least} keys": list(attention_spec.lines(CASES, least, who == "last"))
    for who, least in (("launch", 256), ("last", 256), ("last", 128), ("last", 64))
}


def ours(program: str, library: str) -> dict[str, list[float]]:
    """Milliseconds of each line, by way."""
    with tempfile.NamedTemporaryFile("w", suffix=".spec") as spec:
        spec.write("\n".join(line for way in WAYS.values() for line in way) + "\n")
        spec.flush()
        command = [program, library, spec.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wrong = [line for line in said.splitlines() if "WRONG" in line]
    if wrong:
        sys.exit("\n".join(wrong))
    times = [float(ms) for ms in re.findall(r" ([\d.]+) ms \(", said)]
    n = len(next(iter(WAYS.values())))
    assert len(times) == n * len(WAYS), said
    return {way: times[i * n : (i + 1) * n] for i, way in enumerate(WAYS)}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rounds, theirs = [], []
    for _ in range(ROUNDS):
        rounds.append(ours(*sys.argv[1:]))
        theirs.append(
            [attention_peers.of_line(line, ("default",))[0] for line in WAYS["last, 256 keys"]]
        )
    print(f"| microseconds | PyTorch | {' | '.join(WAYS)} | least, by PyTorch's |")
    print("|---" * (len(WAYS) + 3) + "|")
    for i, line in enumerate(WAYS["last, 256 keys"]):
        _, _, dtype, batch, heads, kv_heads, queries, keys, size, *_ = line.split()
        peer = statistics.median(times[i] for times in theirs)
        own = {way: statistics.median(times[way][i] for times in rounds) for way in WAYS}
        shown = []
        for way, ms in own.items():
            parts = WAYS[way][i].split()[10]
            shown.append(f"{1e3 * ms:.1f} ({parts})")
        best = min(own, key=lambda way: own[way])
        print(
            f"| {dtype} {batch} x {heads}/{kv_heads} x {queries} x {keys} x {size} | {1e3 * peer:.1f} | "
            f"{' | '.join(shown)} | {best}: {own[best] / peer:.2f} |"
        )
    print("In parentheses: parts.")


if __name__ == "__main__":
    main()
