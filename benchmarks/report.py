"""Tables on the terminal, JSON and markdown in benchmarks/results/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.measure import Row
from benchmarks.provenance import said
from benchmarks.registry import Case

RESULTS = Path(__file__).parent / "results"


def table(case: Case, rows: list[Row]) -> Table:
    """A case for the terminal. Ratios are to the first row, ours; what beats it is red."""
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


def save(
    case: Case, order: int, rows: list[Row], machine: dict[str, str], measured: dict[str, Any]
) -> None:
    """Writes benchmarks/results/<case>.json; `measured` is what benchmarks.provenance says of the run."""
    record = {
        "group": case.group,
        "name": case.name,
        "order": order,
        "title": case.title,
        "unit": case.unit,
        "units": case.units,
        "machine": machine,
        "measured": measured,
        "rows": [_record(row) for row in rows],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{case.name}.json").write_text(json.dumps(record, indent=1) + "\n")


def _record(row: Row) -> dict[str, Any]:
    if row.error:
        return {"contender": row.name, "error": row.error}
    low, high = row.quartiles
    return {
        "contender": row.name,
        "note": row.note,
        "median_ms": round(row.median, 6),
        "quartiles_ms": [round(low, 6), round(high, 6)],
        "runs": len(row.times_ms),
    }


def write_markdown(group: str) -> Path:
    """Makes benchmarks/results/<group>.md out of the group's JSON files."""
    records = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    records = sorted((r for r in records if r["group"] == group), key=lambda r: r["order"])
    lines = [
        f"# Benchmark: {group}",
        "",
        "Made by `make bench PEERS=1` (`python -m benchmarks`); do not edit. In each table the contenders took turns "
        "within one run. `time / ours` above 1: ours is faster.",
        "",
    ]
    lines += [f"- {key}: {value}" for key, value in records[0]["machine"].items()]
    for record in records:
        lines += ["", f"## {record['title']}", ""]
        if record["machine"] != records[0]["machine"]:
            lines += [f"On: {'; '.join(record['machine'].values())}", ""]
        lines += [said(record), ""]
        lines += [
            f"| contender | median ms | quartiles | M {record['unit']}/s | time / ours | runs |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        ours = record["rows"][0]["median_ms"]
        for row in record["rows"]:
            if "error" in row:
                lines.append(f"| {row['contender']} | {row['error']} | | | | |")
                continue
            low, high = row["quartiles_ms"]
            median = row["median_ms"]
            rate = f"{record['units'] / median / 1e3:.2f}" if record["units"] else ""
            lines.append(
                f"| {row['contender']} | {_ms(median)} | {_ms(low)} - {_ms(high)} | {rate} | "
                f"{median / ours:.2f} | {row['runs']} |"
            )
        notes = [
            f"- {row['contender']}: {row['note']}" for row in record["rows"] if row.get("note")
        ]
        lines += ["", *notes] if notes else []
    path = RESULTS / f"{group}.md"
    path.write_text("\n".join(lines) + "\n")
    return path
