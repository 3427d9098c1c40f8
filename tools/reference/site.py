"""What mkdocs.yml hooks into the site: docs/benchmarks.md takes in the tables of benchmarks/results/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
OVERVIEW = "<!-- overview of benchmarks/results -->"
MARKER = "<!-- benchmarks/results -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the overview and all result files in the markers' places, their headings one level down."""
    if MARKER not in markdown:
        return markdown
    texts = [path.read_text() for path in sorted(RESULTS.glob("*.md"))]
    lowered = [re.sub(r"^(#+ )(?:Benchmark: )?", r"#\1", text, flags=re.M) for text in texts]
    return markdown.replace(OVERVIEW, overview()).replace(MARKER, "\n".join(lowered))


def overview() -> str:
    """One row for each case that has somebody else's code in it: ours, and the fastest of the others."""
    lines = [
        "| case | metal_ops, ms | the fastest of the others | its ms | time / ours |",
        "|---|--:|---|--:|--:|",
    ]
    records = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    cases = [record for record in records if "rows" in record]
    for case in sorted(cases, key=lambda case: (case["group"], case["order"])):
        ours, *rest = (row for row in case["rows"] if "median_ms" in row)
        others = [
            row
            for row in rest
            if not re.match("metal_ops|the machine's|an empty tf.function", row["contender"])
        ]
        if others and re.match("metal_ops|MetalFused", ours["contender"]):
            best = min(others, key=lambda row: row["median_ms"])
            ratio = best["median_ms"] / ours["median_ms"]
            lines.append(
                f"| {case['title']} | {ours['median_ms']:.2f} | {best['contender']} | {best['median_ms']:.2f} |"
                f" {ratio:.2f} |"
            )
    return "\n".join(lines)
