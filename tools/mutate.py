#!/usr/bin/env python3
"""Mutation check: does a test notice when a place of the sources is broken?

    .venv/bin/python tools/mutate.py list            the 200 places of seed 1, as they would be broken
    .venv/bin/python tools/mutate.py run             break, build, test, mend; stop with Ctrl-C, call again to go on
    .venv/bin/python tools/mutate.py run --only graph     one room, or one file, or one mutant's id
    .venv/bin/python tools/mutate.py run --again     try the survivors anew, e.g. after a test was added
    .venv/bin/python tools/mutate.py run --jobs 8    so many mutants at a time
    .venv/bin/python tools/mutate.py explain ID "why no test can tell"
    .venv/bin/python tools/mutate.py report          write docs/mutation.md


A place is a line drawn at random, the same ones for the same seed and sources. It is broken in one way: a comparison,
an operator, a constant, a condition, a deleted statement, two arguments. A mutant that does not compile is replaced by
the next place of its room. Everything happens in copies under build/mutation, never in the checkout; `make metal` comes
first. Results are kept in tests/mutation.jsonl, a line a mutant, and name the commit that was broken.

A place is known by its text: the line and its neighbours, in whichever file and at whichever line they are now. When
the sources change, results of places that still stand are kept; `run` drops those of places that are gone, and tries
the ones drawn for them. Each line's number in the draw follows from its own text, so that the rest stay the same.

A mutant is found if a test of its own fails, crashes or does not end. tools/mutation/rooms.py lists those tests,
nearest first: `run` asks the nearest few, `run --again` all of them. A survivor has passed these, not every test there
is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
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


def draw(
    root: Path, seed: int, results: dict[str, dict[str, Any]]
) -> dict[str, list[places.Mutant]]:
    patterns = {room: patterns for room, (patterns, _) in rooms.ROOMS.items()}
    return places.draw(root, patterns, seed, results)


def still_there(
    results: dict[str, dict[str, Any]], drawn: dict[str, list[places.Mutant]]
) -> dict[str, dict[str, Any]]:
    """The results whose places have not changed, with where those are now."""
    now = {mutant.id: mutant for room in drawn.values() for mutant in room}
    return {
        id: {**result, "path": now[id].path, "line": now[id].line}
        for id, result in results.items()
        if id in now
    }


def commit(root: Path) -> str:
    """The commit that is checked out, and whether sources differ from it."""
    said = subprocess.run(
        ["git", "-C", root, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
    )
    patterns = [f":(glob){pattern}" for patterns, _ in rooms.ROOMS.values() for pattern in patterns]
    changed = subprocess.run(
        ["git", "-C", root, "diff", "--quiet", "HEAD", "--", *patterns], capture_output=True
    )
    return said.stdout.strip() + (" with changes" if changed.returncode else "")


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
    change = f"{mutant.before[:60]!r} -> {mutant.after[:60]!r}"
    return f"{mutant.id} {mutant.path}:{mutant.line}: {mutant.operator}: {change}"


def tally(results: list[dict[str, Any]]) -> str:
    counted = Counter(result["status"] for result in results)
    return ", ".join(f"{n} {status}" for status, n in counted.most_common())


_own: list[Any] = []  # the copy of a worker process


def open_copy(work: Path, free: Any) -> None:
    """The first thing a worker does."""
    from tools.mutation import runner

    _own.append(runner.Copy(ROOT, work / str(free.get())))


def try_one(mutant: places.Mutant, near: int | None) -> tuple[dict[str, Any], float]:
    """In a worker: the mutant's outcome, and how long it took."""
    from tools.mutation import runner

    began = time.monotonic()
    return runner.verdict(_own[0], mutant, near), time.monotonic() - began


def run(arguments: argparse.Namespace) -> None:
    os.nice(arguments.nice)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Imported here and shared with every fork.
    import keras  # noqa: F401
    import numpy  # noqa: F401
    import tensorflow  # noqa: F401

    results, broken = read(arguments.results), commit(ROOT)
    drawn = draw(ROOT, arguments.seed, results)
    there = still_there(results, drawn)
    if len(there) < len(results):
        print(
            f"{len(results) - len(there)} results dropped: their places are gone", file=sys.stderr
        )
    results = there
    write(arguments.results, results)
    tried: set[str] = set()

    def wanted() -> list[places.Mutant]:
        chosen = plan(drawn, arguments.count, results)
        only = set(arguments.only or [])
        return [m for m in chosen if not only or {m.room, m.path, m.id} & only]

    def waiting() -> list[places.Mutant]:
        """In an order in which all rooms are as far as each other whenever time is up."""
        chosen, rooms_of = wanted(), Counter(m.room for m in wanted())
        place: Counter[str] = Counter()
        ranks = {}
        for m in chosen:
            ranks[m.id] = (place[m.room] + 0.5) / rooms_of[m.room]
            place[m.room] += 1
        survived = {id for id, result in results.items() if result["status"] == "survived"}
        left = (
            m
            for m in chosen
            if m.id not in tried and (m.id in survived if arguments.again else m.id not in results)
        )
        return sorted(left, key=lambda m: ranks[m.id])

    context = multiprocessing.get_context("fork")
    free = context.Queue()
    for number in range(arguments.jobs):
        free.put(number)
    near = None if arguments.again else arguments.near
    with ProcessPoolExecutor(
        arguments.jobs, mp_context=context, initializer=open_copy, initargs=(arguments.work, free)
    ) as pool:
        under_way: dict[Future[tuple[dict[str, Any], float]], places.Mutant] = {}
        while True:
            for mutant in waiting()[: arguments.jobs - len(under_way)]:
                tried.add(mutant.id)
                under_way[pool.submit(try_one, mutant, near)] = mutant
            if not under_way:
                break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                mutant = under_way.pop(future)
                result, seconds = future.result()
                result["commit"] = broken
                results.update(read(arguments.results))  # with the results of `explain` in between
                if result["status"] == "survived" and "reason" in results.get(mutant.id, {}):
                    result["reason"] = results[mutant.id]["reason"]
                results[mutant.id] = result
                write(arguments.results, results)
                progress(
                    sum(m.id in results for m in wanted()), len(wanted()), result, mutant, seconds
                )
    print(tally(list(results.values())))


def progress(
    done: int, count: int, result: dict[str, Any], mutant: places.Mutant, seconds: float
) -> None:
    bar = sys.stderr.isatty()
    line = f"[{done}/{count}] {seconds:4.0f} s {result['status']}: {describe(mutant)}"
    print(("\r\033[K" if bar else "") + line, file=sys.stderr, flush=True)
    if bar:
        filled = 40 * done // count
        print("#" * filled + "." * (40 - filled), end="", file=sys.stderr, flush=True)


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
        "--near", type=int, default=3, help="how many test files at most; with --again all (3)"
    )
    parser.add_argument("--again", action="store_true", help="try the survivors anew")
    parser.add_argument(
        "--jobs", type=int, default=2, help="mutants at a time, each in a copy of its own (2)"
    )
    parser.add_argument(
        "--nice", type=int, default=10, help="priority of everything that is run (10)"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "mutation", help="where the copies lie"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    if arguments.command == "list":
        results = read(arguments.results)
        for mutant in plan(draw(ROOT, arguments.seed, results), arguments.count, results):
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
