"""`python -m benchmarks [--peers] [--quick] [--filter TEXT] [--list] [--record]`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402

from benchmarks import machine, measure, provenance, report  # noqa: E402
from benchmarks.registry import Case, Context, all_cases, select  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="Every op of the library has a case of its own, ops-<op>: --filter ops- measures them all, and --filter "
        "ops-zero_out one. They take no part in --quick.",
    )
    parser.add_argument("--peers", action="store_true", help="with JAX and PyTorch (.venv-peers)")
    parser.add_argument(
        "--quick", action="store_true", help="fewer cases and rounds, which cannot be recorded"
    )
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="only cases whose name contains TEXT"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the figures into the pages of benchmarks/results",
    )
    arguments = parser.parse_args()
    # Five rounds on a machine at work must not stand where fifteen on a quiet one stood.
    if arguments.record and arguments.quick:
        parser.error("--record wants all rounds; leave out --quick")

    console = Console()
    cases = all_cases()
    chosen = list(select(cases, arguments.filter, arguments.quick))
    if not chosen:
        names = ", ".join(case.name for case in cases)
        console.print(
            f"[benchmarks] no case matches --filter {arguments.filter!r}. There are: {names}.",
            markup=False,
        )
        return 2
    if arguments.list:
        for case in chosen:
            console.print(f"{case.name}: {case.title}", markup=False)
        return 0

    described = machine.describe()
    console.print("; ".join(f"{key} {value}" for key, value in described.items()), style="dim")
    failed = False
    for case in chosen:
        # Before the case makes any.
        measured = provenance.now(case.group)
        rows = _run(case, console, quick=arguments.quick, peers=arguments.peers)
        console.print(report.table(case, rows))
        failed |= any(row.error for row in rows)
        if arguments.record:
            titles = [other.title for other in cases if other.group == case.group]
            report.record(case, rows, described, measured, titles)
    return 1 if failed else 0


def _run(case: Case, console: Console, quick: bool, peers: bool) -> list[measure.Row]:
    with (
        ExitStack() as stack,
        Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress,
    ):
        task = progress.add_task("set-up", total=1.0, title=case.name)
        return measure.measure(
            case,
            case.contenders(Context(quick, peers, stack)),
            quick,
            lambda text, done: progress.update(task, description=text, completed=done),
        )


if __name__ == "__main__":
    sys.exit(main())
