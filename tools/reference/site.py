"""mkdocs.yml's hooks of the site: docs/benchmarks.md takes in the pages of benchmarks/results/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks import pages  # noqa: E402 - these need nothing but Python
from benchmarks.provenance import changes_since  # noqa: E402

OVERVIEW = "<!-- overview of benchmarks/results -->"
MARKER = "<!-- benchmarks/results -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the overview and all pages in the markers' places, their headings one level down."""
    if MARKER not in markdown:
        return markdown
    texts = [
        lowered(path) for path in sorted(pages.RESULTS.glob("*.md")) if path.name != pages.OVERVIEW
    ]
    return markdown.replace(OVERVIEW, overview()).replace(MARKER, "\n".join(texts))


def lowered(path: Path) -> str:
    """A page as a section, with the changes of its kernels since a run below the run's heading."""
    lines = []
    for line in path.read_text().splitlines():
        lines.append(re.sub(r"^(#+ )(?:Benchmark: )?", r"#\1", line))
        if run := re.fullmatch(r"## At (.*), \S+", line):
            if changed := changes_since(path.stem, run[1]):
                lines += ["", changed]
    return "\n".join(lines) + "\n"


def overview() -> str:
    """The table of the folder's first page, with links to the sections."""
    rows = [line for line in pages.overview().splitlines() if line.startswith("|")]
    return re.sub(r"\((\w+)\.md\)", r"(#\1)", "\n".join(rows))
