"""What mkdocs.yml hooks into the site: docs/benchmarks.md takes in the tables of benchmarks/results/."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.provenance import changes_since  # noqa: E402 - it needs nothing but Python

RESULTS = ROOT / "benchmarks" / "results"
# How the rows of other people's code begin. All others are ours, or the machine's.
OTHERS = ("TensorFlow", "Keras", "JAX", "PyTorch", "llama.cpp")
OVERVIEW = "<!-- overview of benchmarks/results -->"
MARKER = "<!-- benchmarks/results -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the overview and all result files in the markers' places, their headings one level down."""
    if MARKER not in markdown:
        return markdown
    changed = {
        f"# Benchmark: {record['group']}"
        if record.get("in_one_table")
        else f"## {record['title']}": changes_since(record)
        for record in records()
    }
    texts = [
        "".join(
            f"{line}\n\n{changed[line]}\n" if changed.get(line) else f"{line}\n"
            for line in path.read_text().splitlines()
        )
        for path in sorted(RESULTS.glob("*.md"))
    ]
    lowered = [re.sub(r"^(#+ )(?:Benchmark: )?", r"#\1", text, flags=re.M) for text in texts]
    return markdown.replace(OVERVIEW, overview()).replace(MARKER, "\n".join(lowered))


def records() -> list[dict[str, Any]]:
    """The cases that were measured, in order."""
    found = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    cases = [record for record in found if "rows" in record]
    return sorted(cases, key=lambda case: (case["group"], case["order"]))


def overview() -> str:
    """One row for each case that has somebody else's code in it: ours, and the fastest of the others."""
    lines = [
        "| case | metal_ops, ms | the fastest of the others | its ms | time / ours |",
        "|---|--:|---|--:|--:|",
    ]
    for case in records():
        ours, *rest = (row for row in case["rows"] if "median_ms" in row)
        others = [row for row in rest if row["contender"].startswith(OTHERS)]
        if others:
            best = min(others, key=lambda row: row["median_ms"])
            ratio = best["median_ms"] / ours["median_ms"]
            lines.append(
                f"| {case['title']} | {ours['median_ms']:.2f} | {best['contender']} | {best['median_ms']:.2f} |"
                f" {ratio:.2f} |"
            )
    return "\n".join(lines)
