#!/usr/bin/env python3
"""Mutation check: does a test notice when a place of the sources is broken?

    .venv/bin/python tools/mutate.py list            the 200 places of seed 1, as they would be broken
    .venv/bin/python tools/mutate.py run             break, build, test, mend; stop with Ctrl-C, call again to go on
    .venv/bin/python tools/mutate.py run --only graph     one room, or one file, or one mutant's id
    .venv/bin/python tools/mutate.py run --again     try the survivors anew, e.g. after a test was added
    .venv/bin/python tools/mutate.py explain ID "why no test can tell"
    .venv/bin/python tools/mutate.py report          write docs/mutation.md


A place is a line drawn at random, the same ones for the same seed and sources. It is broken in one way: a comparison,
an operator, a constant, a condition, a deleted statement, two arguments. What does not compile is replaced by the next
place of its room. Everything happens in a copy under build/mutation, never in the checkout; `make metal` comes first.
Results are kept in tests/mutation.jsonl, a line a mutant.

A mutant is found if a test of its own fails, crashes or does not end. Which tests those are, nearest first, is said in
tools/mutation/rooms.py: `run` asks the nearest few, `run --again` all of them. A survivor has passed these, not every
test there is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.mutation import places, report, rooms  # noqa: E402

RESULTS = ROOT / "tests" / "mutation.jsonl"


def read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    results = [json.loads(line) for line in path.read_text().splitlines()]
    return {result["id"]: result for result in results}


def write(path: Path, results: dict[str, dict[str, Any]]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(result) + "\n" for result in results.values()))
    temporary.replace(path)


def shares(count: int) -> dict[str, int]:
    """How many places of each room, as the table of rooms has them for 200."""
    return {room: max(1, round(share * count / 200)) for room, (_, share) in rooms.ROOMS.items()}


def draw(root: Path, seed: int) -> dict[str, list[places.Mutant]]:
    return places.draw(root, {room: patterns for room, (patterns, _) in rooms.ROOMS.items()}, seed)


def plan(
    drawn: dict[str, list[places.Mutant]], count: int, results: dict[str, dict[str, Any]]
) -> list[places.Mutant]:
    """The places of each room that are to be tried, less those which are known not to build; a room after the other."""
    chosen = []
    for room, share in shares(count).items():
        useful = [m for m in drawn[room] if results.get(m.id, {}).get("status") != "does not build"]
        chosen += useful[:share]
    return chosen


def describe(mutant: places.Mutant) -> str:
    return f"{mutant.path}:{mutant.line}: {mutant.operator}: {mutant.before[:60]!r} -> {mutant.after[:60]!r}"


def tally(results: list[dict[str, Any]]) -> str:
    counted = Counter(result["status"] for result in results)
    return ", ".join(f"{n} {status}" for status, n in counted.most_common())


def run(arguments: argparse.Namespace) -> None:
    os.nice(arguments.nice)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported here and shared with every fork.
    import keras  # noqa: F401
    import numpy  # noqa: F401
    import tensorflow  # noqa: F401

    from tools.mutation import runner

    copy = runner.Copy(ROOT, arguments.work)
    results = read(arguments.results)
    bar = sys.stderr.isatty()
    drawn = draw(copy.whole, arguments.seed)
    while True:
        wanted = plan(drawn, arguments.count, results)
        if arguments.only:
            wanted = [m for m in wanted if {m.room, m.path, m.id} & set(arguments.only)]
        if arguments.again:
            waiting = [m for m in wanted if results.get(m.id, {}).get("status") == "survived"]
        else:
            waiting = [m for m in wanted if m.id not in results]
        # A room at a time would leave the last one out where time is short.
        waiting.sort(key=lambda m: ([w.id for w in wanted if w.room == m.room].index(m.id), m.room))
        if not waiting:
            break
        batch = waiting if arguments.again else waiting[:1]
        for mutant in batch:
            began = time.monotonic()
            result = runner.verdict(copy, mutant, None if arguments.again else arguments.near)
            kept = {
                key: value for key, value in results.get(mutant.id, {}).items() if key == "reason"
            }
            results[mutant.id] = {**result, **kept} if result["status"] == "survived" else result
            write(arguments.results, results)
            done = sum(m.id in results for m in wanted)
            line = f"[{done}/{len(wanted)}] {time.monotonic() - began:4.0f} s {result['status']}: {describe(mutant)}"
            print(("\r\033[K" if bar else "") + line, file=sys.stderr, flush=True)
            if bar:
                filled = 40 * done // len(wanted)
                print("#" * filled + "." * (40 - filled), end="", file=sys.stderr, flush=True)
        if arguments.again:
            break
    print(tally(list(results.values())))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["list", "run", "explain", "report"])
    parser.add_argument("arguments", nargs="*", help="of explain: a mutant's id and the reason")
    parser.add_argument("--count", type=int, default=200, help="how many places (200)")
    parser.add_argument("--seed", type=int, default=1, help="which places (1)")
    parser.add_argument(
        "--only", action="append", help="a room, a path or an id; may be given several times"
    )
    parser.add_argument(
        "--near", type=int, default=4, help="how many test files at most; with --again all (4)"
    )
    parser.add_argument("--again", action="store_true", help="try the survivors anew")
    parser.add_argument(
        "--nice", type=int, default=10, help="priority of everything that is run (10)"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "mutation", help="where the copy lies"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    if arguments.command == "list":
        for mutant in plan(draw(ROOT, arguments.seed), arguments.count, read(arguments.results)):
            print(describe(mutant))
    elif arguments.command == "run":
        run(arguments)
    elif arguments.command == "explain":
        results = read(arguments.results)
        if len(arguments.arguments) != 2 or arguments.arguments[0] not in results:
            sys.exit("mutate: explain wants the id of a mutant that has been run, and a reason.")
        results[arguments.arguments[0]]["reason"] = arguments.arguments[1]
        write(arguments.results, results)
    else:
        page = report.page(list(read(arguments.results).values()), shares(arguments.count))
        (ROOT / "docs" / "mutation.md").write_text(page)


if __name__ == "__main__":
    main()
