"""Plants the faults of a seed in tests/msl/fault_kernels.py, and shows which of them HOSTMETAL_CHECK tells of.

python -m tools.faults             the table of docs/find-the-race.md, and the faults that were missed
python -m tools.faults --seed 2    other faults
python -m tools.faults --record    writes docs/planted_faults.jsonl
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[2] / "docs/planted_faults.jsonl"
SEED = 1
# Those that are missed and change a result for some order, by why.
WHY = {
    "another place": "the change shows elsewhere: an index that comes from it is of two threads",
    "atomic": "one thread reads a counter that others still update: no race, and kernels that wait for "
    "others do the same on purpose",
}


def why(row: Mapping[str, Any]) -> str:
    """Why a fault that changes a result for some order is not told of at its line."""
    return WHY["another place"] if row["told"] else WHY["atomic"]


def row_of(fault: Any, outcome: Any) -> dict[str, Any]:
    return {
        "kernel": fault.kernel,
        "kind": fault.kind,
        "line": fault.line,
        "was": fault.was,
        "now": fault.now,
        "wrong": outcome.wrong,
        "differs": outcome.differs,
        "told": bool(outcome.told),
        "at_its_line": outcome.at_its_line,
    }


def rows_of(seed: int) -> list[dict[str, Any]]:
    """All faults of a seed, tried."""
    from tests.msl.check_cases import ARGUMENTS
    from tests.msl.fault_kernels import KERNELS
    from tools.faults.plant import planted
    from tools.faults.trial import numbers, tried

    faults = planted({name: text for name, (text, _) in KERNELS.items()}, seed)
    right = {name: oracle(numbers().astype(float)) for name, (_, oracle) in KERNELS.items()}
    return [
        row_of(*each)
        for each in zip(faults, tried(faults, ARGUMENTS, right.__getitem__), strict=True)
    ]


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Counts by kind."""
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        for kind in (row["kind"], "all"):
            count = kinds[kind]
            count["planted"] += 1
            count["differs"] += row["differs"]
            count["found"] += row["differs"] and row["at_its_line"]
            count["more"] += not row["differs"] and row["told"]
    kinds["all"] = kinds.pop("all")
    lines = [
        "| fault | planted | results differ by the order | of these told at their lines | others told |",
        "|---|---|---|---|---|",
    ]
    for kind, count in kinds.items():
        cells = [kind, *(count[word] for word in ("planted", "differs", "found", "more"))]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.faults", description="Planted faults.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    args = parser.parse_args()
    rows = rows_of(args.seed)
    print(table(rows))
    for row in rows:
        if row["differs"] and not row["at_its_line"]:
            print(f"missed: {row['kernel']}, {row['was']} -> {row['now']}: {why(row)}")
    if args.record:
        RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
