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
    if case.in_one_table:
        record["in_one_table"] = True
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
    lines += _one_table([record for record in records if record.get("in_one_table")])
    for record in records:
        if not record.get("in_one_table"):
            lines += _table_of(record, records[0]["machine"])
    path = RESULTS / f"{group}.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def _table_of(record: dict[str, Any], machine: dict[str, str]) -> list[str]:
    """A case's heading and table; `machine` is the one that was named already."""
    lines = ["", f"## {record['title']}", ""]
    if record["machine"] != machine:
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
    notes = [f"- {row['contender']}: {row['note']}" for row in record["rows"] if row.get("note")]
    lines += ["", *notes] if notes else []
    return lines


def _one_table(records: list[dict[str, Any]]) -> list[str]:
    """Cases that are a row each, their contenders side by side."""
    if not records:
        return []
    when: dict[tuple[str, str], list[float]] = {}
    for record in records:
        measured = record["measured"]
        when.setdefault((measured["commit"], measured["date"]), []).append(measured["load"])
    lines = ["", "## All of them", ""]
    for (commit, date), loads in when.items():
        lines.append(
            f"Measured at {commit} on {date}, {len(loads)} rows; the load before each was {min(loads)} to {max(loads)} "
            f"on {records[0]['machine']['cores']} cores."
        )
    lines.append("")
    names = [row["contender"] for row in records[0]["rows"]]
    heads = [f"{name}, ms | quartiles" for name in names]
    ratios = [f"{name} / {names[0]}" for name in names[1:]]
    lines += [
        f"| case | {' | '.join([*heads, *ratios])} | runs | what it does |",
        "|---|" + "--:|" * (2 * len(names) + len(ratios) + 1) + "---|",
    ]
    for record in records:
        rows = record["rows"]
        first = rows[0].get("median_ms")
        cells = []
        for row in rows:
            if "error" in row:
                cells += [row["error"], ""]
                continue
            low, high = row["quartiles_ms"]
            cells += [_ms(row["median_ms"]), f"{_ms(low)} - {_ms(high)}"]
        for row in rows[1:]:
            known = first is not None and "median_ms" in row
            cells.append(f"{row['median_ms'] / first:.2f}" if known else "")
        runs = min((row["runs"] for row in rows if "runs" in row), default=0)
        lines.append(
            f"| {record['title']} | {' | '.join(cells)} | {runs} | {rows[0].get('note', '')} |"
        )
    return lines
