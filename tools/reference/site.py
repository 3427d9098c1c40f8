"""What mkdocs.yml hooks into the site: docs/benchmarks.md takes in the tables of benchmarks/results/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MARKER = "<!-- benchmarks/results -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts all result files in the marker's place, their headings one level down."""
    if MARKER not in markdown:
        return markdown
    texts = [path.read_text() for path in sorted(RESULTS.glob("*.md"))]
    lowered = [re.sub(r"^(#+ )(?:Benchmark: )?", r"#\1", text, flags=re.M) for text in texts]
    return markdown.replace(MARKER, "\n".join(lowered))
