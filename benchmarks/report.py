"""Measured cases as tables on the terminal, and as rows of the pages in benchmarks/results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import pages
from benchmarks.measure import Row
from benchmarks.registry import Case


def table(case: Case, rows: list[Row]) -> Table:
    """A case for the terminal. Ratios are to the first row, ours; faster ones are red."""
    shown = Table(title=case.title, title_justify="left", title_style="bold")
    shown.add_column("contender")
    for heading in ("median ms", "quartiles", f"M {case.unit}/s", "time / ours"):
        shown.add_column(heading, justify="right")
    for row in rows:
        if row.error:
            shown.add_row(row.name, f"[red]{row.error}[/]", "", "", "")
            continue
        low, high = row.quartiles
        ratio = row.median / rows[0].median
        shown.add_row(
            row.name,
            _ms(row.median),
            f"{_ms(low)} - {_ms(high)}",
            f"{case.units / row.median / 1e3:.2f}" if case.units else "",
            f"[red]{ratio:.2f}[/]" if ratio < 1 else f"{ratio:.2f}",
        )
    return shown


def _ms(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.5f}"


def record(
    case: Case,
    rows: list[Row],
    machine: dict[str, str],
    measured: dict[str, Any],
    titles: Sequence[str],
) -> Path:
    """Writes a case into its group's page.

    Args:
      case: The measured case.
      rows: The first is ours.
      machine: The result of benchmarks.machine.
      measured: benchmarks.provenance's description of the run.
      titles: Those of the group's cases in order.
    """
    run = pages.Run(measured["commit"], measured["date"], tuple(machine.items()))
    shown = tuple(_shown(case, row, rows[0].median) for row in rows)
    recorded = pages.Recorded(case.title, run, str(measured["load"]), shown)
    return pages.record(case.group, recorded, titles)


def _shown(case: Case, row: Row, ours: float) -> pages.Row:
    if row.error:
        return pages.Row(row.name, pages.FAILED, note=row.error)
    low, high = row.quartiles
    return pages.Row(
        row.name,
        _ms(row.median),
        f"{_ms(low)} - {_ms(high)}",
        f"{case.units / row.median / 1e3:.2f} M {case.unit}/s" if case.units else "",
        f"{row.median / ours:.2f}",
        str(len(row.times_ms)),
        row.note.strip(),
    )
